//! A request of any size as units of a model's queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use cloze_trainer::requests::{Encoded, Queue, Respond, Ticket};
use tokio::task::spawn_blocking;

use super::refusal::{Refusal, Why};
use super::tally::note;

/// The tokens that a request has in the queue at a time, or a single larger unit: some batches, so that the model
/// never waits for the request.
const WINDOW: usize = 16_384;

/// The most units that are encoded at a time.
const CHUNK: usize = 64;

/// Texts of a single unit up to so many bytes are encoded where they are: handing them to another thread takes
/// longer.
const SMALL: usize = 4_096;

/// The answers of a request.
pub struct Answers<A> {
    /// In order.
    pub answers: Vec<A>,
    /// The units' tokens.
    pub tokens: usize,
    /// Units that were cut.
    pub truncated: usize,
}

/// What is asked of a queue.
pub struct Asking<'a, R: Respond> {
    pub queue: &'a Arc<Queue<R>>,
    /// Where a unit comes from, such as `inputs[3]`.
    pub field: &'a (dyn Fn(usize) -> String + Sync),
    /// Whether a unit was cut.
    pub is_cut: &'a (dyn Fn(&R::Unit) -> bool + Sync),
    /// Whether a unit that is cut is refused, with the most tokens of a text.
    pub refuses_cut: Option<usize>,
    /// Bytes of the request's texts.
    pub bytes: usize,
}

/// The refusal of a unit that would be cut.
pub fn too_long(field: &str, max: usize) -> Refusal {
    Refusal::field(field, format!("longer than {max} tokens, the model's maximum, and truncation is off"))
}

impl<R: Respond> Asking<'_, R>
where
    R::Request: Send,
{
    /// The answers to requests. The units take turns with those of other requests; dropping the future drops them.
    ///
    /// # Errors
    /// The first unit that fails.
    pub async fn all(self, requests: Vec<R::Request>) -> Result<Answers<R::Answer>, Refusal> {
        let turn = self.queue.turn();
        let n = requests.len();
        let is_small = n == 1 && self.bytes <= SMALL;
        let mut found = Answers { answers: Vec::with_capacity(n), tokens: 0, truncated: 0 };
        let mut requests = requests.into_iter();
        let mut encoded: VecDeque<Encoded<R::Unit>> = VecDeque::new();
        let mut waiting: VecDeque<(Ticket<R::Answer>, usize)> = VecDeque::new();
        let (mut in_queue, mut n_encoded) = (0, 0);
        loop {
            while in_queue < WINDOW {
                if encoded.is_empty() {
                    let chunk: Vec<R::Request> = requests.by_ref().take(CHUNK).collect();
                    if chunk.is_empty() {
                        break;
                    }
                    for unit in self.encode(chunk, is_small).await? {
                        let field = || (self.field)(n_encoded);
                        let unit = unit.map_err(|error| Refusal::of_model(&field(), error))?;
                        if (self.is_cut)(&unit.unit) {
                            if let Some(max) = self.refuses_cut {
                                return Err(too_long(&field(), max));
                            }
                            found.truncated += 1;
                        }
                        found.tokens += unit.cost();
                        n_encoded += 1;
                        encoded.push_back(unit);
                    }
                }
                if let Some(unit) = encoded.pop_front() {
                    let cost = unit.cost();
                    in_queue += cost;
                    waiting.push_back((self.queue.enqueue(unit, &turn), cost));
                }
            }
            let Some((mut ticket, cost)) = waiting.pop_front() else { return Ok(found) };
            let answer = (&mut ticket).await;
            let times = ticket.times();
            note(|tally| {
                tally.waited += times.waited;
                tally.computed += times.computed;
                tally.tokens += cost as u64;
            });
            in_queue -= cost;
            let field = || (self.field)(found.answers.len());
            let answer = answer.map_err(|error| Refusal::of_model(&field(), error))?;
            found.answers.push(answer);
        }
    }

    async fn encode(
        &self,
        requests: Vec<R::Request>,
        here: bool,
    ) -> Result<Vec<cloze_trainer::Result<Encoded<R::Unit>>>, Refusal> {
        let (queue, begun) = (self.queue.clone(), Instant::now());
        let noted = |encoded| {
            note(|tally| tally.encoded += begun.elapsed());
            encoded
        };
        let encode = move || requests.into_iter().map(|request| queue.encode(request)).collect::<Vec<_>>();
        if here {
            return Ok(noted(encode()));
        }
        let ended = |_| Refusal::new(Why::Internal, "the tokenizer's thread has ended");
        spawn_blocking(encode).await.map(noted).map_err(ended)
    }
}
