use super::share::{Member, Share};
use super::ticket::{Teller, Ticket, Times};
use super::{Respond, Session};
use crate::{Result, TrainerError};
use cloze_ops::{Precision, with_precision};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Debug, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A model that answers requests from any number of threads, with its own compute thread. When dropped, it
/// stops after the requests whose [tickets](Ticket) are still held.
///
/// The model multiplies in the precision of the scope that creates the queue, [`with_precision`].
pub struct Queue<R: Respond> {
    line: Arc<Line<R>>,
    worker: Option<JoinHandle<()>>,
}

/// An encoded request that is not queued yet.
#[derive(Debug)]
pub struct Encoded<U> {
    /// The unit.
    pub unit: U,
    cost: usize,
}

impl<U> Encoded<U> {
    /// Its computational cost, in tokens.
    pub fn cost(&self) -> usize {
        self.cost
    }
}

/// A place in the queue. Places take turns, so that one with many units does not hold up another with a single one.
#[derive(Debug)]
pub struct Turn(u64);

/// What a queue holds and has done since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Units that wait.
    pub waiting: usize,
    /// Their tokens.
    pub waiting_tokens: usize,
    /// Batches of units that began together.
    pub batches: u64,
    /// Units that began.
    pub units: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Units whose ticket was dropped before they began.
    pub dropped: u64,
    /// The batches by their number of units: up to 1, 2, 4, … 2^15 of them.
    pub sizes: [u64; 16],
    /// The time that units waited, added up.
    pub waited: Duration,
    /// The time that the model computed.
    pub computed: Duration,
}

impl QueueCounts {
    fn count_batch(&mut self, units: usize) {
        if units > 0 {
            self.batches += 1;
            let place = units.next_power_of_two().trailing_zeros() as usize;
            self.sizes[place.min(self.sizes.len() - 1)] += 1;
        }
    }
}

/// State shared between the calling threads and the compute thread.
struct Line<R: Respond> {
    model: R,
    budget: usize,
    share: Member,
    waiting: Mutex<Waiting<R>>,
    /// Signals that a unit is waiting, or that the queue is being dropped.
    arrived: Condvar,
    /// The number of turns that were given out.
    turns: AtomicU64,
}

struct Waiting<R: Respond> {
    /// The units of each turn, in order; none is empty.
    asked: BTreeMap<u64, VecDeque<AskedOf<R>>>,
    /// The turns, the next one first.
    turns: VecDeque<u64>,
    counts: QueueCounts,
    is_closed: bool,
}

impl<R: Respond> Waiting<R> {
    fn push(&mut self, turn: u64, asked: AskedOf<R>) {
        self.counts.waiting += 1;
        self.counts.waiting_tokens += asked.cost;
        let of_turn = self.asked.entry(turn).or_default();
        if of_turn.is_empty() {
            self.turns.push_back(turn);
        }
        of_turn.push_back(asked);
    }

    /// Takes the next unit of the next turn if it is suitable; the turn then goes to the end.
    fn pop_if(&mut self, is_suitable: impl Fn(&AskedOf<R>) -> bool) -> Option<AskedOf<R>> {
        let turn = *self.turns.front()?;
        let of_turn = self.asked.get_mut(&turn)?;
        let asked = of_turn.pop_front_if(|asked| is_suitable(asked))?;
        self.turns.pop_front();
        match of_turn.is_empty() {
            true => drop(self.asked.remove(&turn)),
            false => self.turns.push_back(turn),
        }
        self.counts.waiting -= 1;
        self.counts.waiting_tokens -= asked.cost;
        Some(asked)
    }
}

/// A unit, and who waits for its answer.
struct Asked<U, A> {
    unit: U,
    cost: usize,
    arrived: Instant,
    /// How long it waited, once it has begun.
    waited: Duration,
    teller: Teller<A>,
}

impl<U, A> Asked<U, A> {
    fn is_wanted(&self) -> bool {
        self.teller.is_wanted()
    }

    fn answer(self, answer: Result<A>) {
        let computed = self.arrived.elapsed().saturating_sub(self.waited);
        self.teller.tell(answer, Times { waited: self.waited, computed });
    }
}

/// A unit of a model's.
type AskedOf<R> = Asked<<R as Respond>::Unit, <R as Respond>::Answer>;

/// A unit being computed. It stays on the compute thread.
type UnderWay<R> = Asked<Rc<<R as Respond>::Unit>, <R as Respond>::Answer>;

impl<R: Respond> Queue<R> {
    /// A queue that computes `budget` tokens of units at a time, or a single larger unit.
    ///
    /// # Panics
    /// If the system cannot create a thread.
    pub fn new(model: R, budget: usize) -> Self {
        Self::sharing(model, budget, &Share::default())
    }

    /// Same as [`new`](Self::new), with cores that other queues use too.
    ///
    /// # Panics
    /// If the system cannot create a thread.
    pub fn sharing(model: R, budget: usize, share: &Share) -> Self {
        let waiting = Waiting {
            asked: BTreeMap::new(),
            turns: VecDeque::new(),
            counts: QueueCounts::default(),
            is_closed: false,
        };
        let line = Line {
            model,
            budget,
            share: share.join(),
            waiting: Mutex::new(waiting),
            arrived: Condvar::new(),
            turns: AtomicU64::new(0),
        };
        let line = Arc::new(line);
        let (precision, work) = (Precision::current(), line.clone());
        let worker = Builder::new()
            .name("cloze-queue".into())
            .spawn(move || with_precision(precision, || work.work()))
            .expect("the system has a thread");
        Self { line, worker: Some(worker) }
    }

    /// The model.
    pub fn model(&self) -> &R {
        &self.line.model
    }

    /// A new turn.
    pub fn turn(&self) -> Turn {
        Turn(self.line.turns.fetch_add(1, Ordering::Relaxed))
    }

    /// What it holds and has done.
    pub fn counts(&self) -> QueueCounts {
        self.line.waiting().counts
    }

    /// Encodes a request on this thread, to be [queued](Self::enqueue).
    ///
    /// # Errors
    /// A request that cannot be encoded; [`TrainerError::Panicked`].
    pub fn encode(&self, request: R::Request) -> Result<Encoded<R::Unit>> {
        let encode = || {
            let unit = self.line.model.encode(request)?;
            let cost = self.line.model.cost(&unit).max(1);
            Ok(Encoded { unit, cost })
        };
        let encoded = catch_unwind(AssertUnwindSafe(encode));
        encoded.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    /// Queues an encoded request behind the others of its turn.
    pub fn enqueue(&self, Encoded { unit, cost }: Encoded<R::Unit>, turn: &Turn) -> Ticket<R::Answer> {
        let (ticket, teller) = Ticket::new();
        let asked = Asked { unit, cost, arrived: Instant::now(), waited: Duration::ZERO, teller };
        self.line.waiting().push(turn.0, asked);
        self.line.arrived.notify_one();
        ticket
    }

    /// Encodes a request on this thread and queues it, in a turn of its own.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn submit(&self, request: R::Request) -> Result<Ticket<R::Answer>> {
        let encoded = self.encode(request)?;
        Ok(self.enqueue(encoded, &self.turn()))
    }

    /// The answer to a request. Encodes it on this thread and waits.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit) and [`Ticket::wait`].
    pub fn ask(&self, request: R::Request) -> Result<R::Answer> {
        self.submit(request)?.wait()
    }
}

impl<R: Respond + Debug> Debug for Queue<R> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("model", self.model()).finish_non_exhaustive()
    }
}

impl<R: Respond> Drop for Queue<R> {
    fn drop(&mut self) {
        self.line.waiting().is_closed = true;
        self.line.arrived.notify_one();
        if let Some(worker) = self.worker.take() {
            // It catches what panics.
            let _ = worker.join();
        }
    }
}

impl<R: Respond> Line<R> {
    fn waiting(&self) -> MutexGuard<'_, Waiting<R>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers requests until the queue is dropped.
    fn work(&self) {
        let mut session = self.model.session();
        let mut under_way: BTreeMap<usize, UnderWay<R>> = BTreeMap::new();
        let mut next_id = 0;
        loop {
            let left: Vec<usize> =
                under_way.extract_if(.., |_, asked| !asked.is_wanted()).map(|(id, _)| id).collect();
            if under_way.is_empty() && !left.is_empty() {
                // It may be long until the next step, in which they would be removed.
                session = self.model.session();
            }
            let Some(new) = self.take(under_way.values().map(|asked| asked.cost).sum()) else { return };
            let ids = next_id..;
            next_id += new.len();
            let new: Vec<(usize, UnderWay<R>)> = ids.zip(new).collect();
            let units: Vec<(usize, Rc<R::Unit>)> =
                new.iter().map(|(id, asked)| (*id, asked.unit.clone())).collect();
            under_way.extend(new);
            left.iter().for_each(|id| session.cancel(*id));
            let begun = Instant::now();
            let work = AssertUnwindSafe(|| step(&mut *session, &self.share, units));
            let found = catch_unwind(work);
            self.waiting().counts.computed += begun.elapsed();
            match found {
                Ok(done) => {
                    for (id, answer) in done {
                        if let Some(asked) = under_way.remove(&id) {
                            asked.answer(answer);
                        }
                    }
                }
                Err(panic) => {
                    session = self.model.session();
                    self.answer_alone(std::mem::take(&mut under_way), &*panic);
                }
            }
        }
    }

    /// The next requests that fit the budget, of which `taken` tokens are in use. Waits for one if none is in
    /// progress; returns none once the queue is dropped and nothing is waiting.
    fn take(&self, mut taken: usize) -> Option<Vec<UnderWay<R>>> {
        let (mut waiting, mut new) = (self.waiting(), Vec::new());
        loop {
            while let Some(next) = waiting.pop_if(|next| {
                !next.is_wanted() || taken == 0 || taken.saturating_add(next.cost) <= self.budget
            }) {
                if !next.is_wanted() {
                    waiting.counts.dropped += 1;
                    continue;
                }
                let Asked { unit, cost, arrived, teller, .. } = next;
                let waited = arrived.elapsed();
                waiting.counts.waited += waited;
                taken = taken.saturating_add(cost);
                waiting.counts.units += 1;
                waiting.counts.tokens += cost as u64;
                new.push(Asked { unit: Rc::new(unit), cost, arrived, waited, teller });
            }
            waiting.counts.count_batch(new.len());
            if taken > 0 {
                return Some(new);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Answers requests one by one after a panic in their batch.
    fn answer_alone(&self, all: BTreeMap<usize, UnderWay<R>>, panic: &(dyn Any + Send)) {
        let is_single = all.len() == 1;
        for asked in all.into_values().filter(Asked::is_wanted) {
            let answer = match is_single {
                true => Err(panicked(panic)),
                false => {
                    let answer =
                        || self.model.answer(&[&*asked.unit]).pop().expect("a request has an answer");
                    catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|panic| Err(panicked(&*panic)))
                }
            };
            asked.answer(answer);
        }
    }
}

/// A step of a session, after adding new units, when it is its turn to use the cores.
fn step<R: Respond>(
    session: &mut dyn Session<R>,
    share: &Member,
    units: Vec<(usize, Rc<R::Unit>)>,
) -> Vec<(usize, Result<R::Answer>)> {
    let mut done = Vec::new();
    for (id, unit) in units {
        done.extend(session.submit(id, unit).err().map(|error| (id, Err(error))));
    }
    let _turn = share.enter(session.next_tokens());
    done.extend(session.step());
    done
}

/// The error of a panic, with its message.
fn panicked(panic: &(dyn Any + Send)) -> TrainerError {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    TrainerError::Panicked { reason: message.unwrap_or("no message").into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// Answers a number's square; 13 panics, and numbers from 1,000 on are refused.
    #[derive(Debug, Default)]
    struct Squares {
        most: AtomicUsize,
    }

    impl Respond for Squares {
        type Request = usize;
        type Unit = usize;
        type Answer = usize;

        fn encode(&self, request: usize) -> Result<usize> {
            match request {
                0..1_000 => Ok(request),
                _ => Err(TrainerError::BadInput { problem: "too large".into() }),
            }
        }

        fn cost(&self, unit: &usize) -> usize {
            unit % 7 + 1
        }

        fn answer(&self, units: &[&usize]) -> Vec<Result<usize>> {
            assert!(!units.contains(&&13), "unlucky");
            let tokens = units.iter().map(|unit| self.cost(unit)).sum();
            self.most.fetch_max(tokens, Ordering::Relaxed);
            units.iter().map(|unit| Ok(**unit * **unit)).collect()
        }
    }

    #[test]
    fn turns_are_taken_one_after_another() {
        let queue = Queue::new(Squares::default(), 40);
        let encoded = |n| queue.encode(n).unwrap();
        let mut waiting = Waiting::<Squares> {
            asked: BTreeMap::new(),
            turns: VecDeque::new(),
            counts: QueueCounts::default(),
            is_closed: false,
        };
        let mut tickets = Vec::new();
        for (turn, n) in [(0, 1), (0, 2), (0, 3), (1, 4), (2, 5), (2, 6)] {
            let Encoded { unit, cost } = encoded(n);
            let (ticket, teller) = Ticket::new();
            tickets.push(ticket);
            let asked = Asked { unit, cost, arrived: Instant::now(), waited: Duration::ZERO, teller };
            waiting.push(turn, asked);
        }
        assert_eq!((waiting.counts.waiting, waiting.counts.waiting_tokens), (6, 27));
        assert!(waiting.pop_if(|_| false).is_none());
        let order: Vec<usize> = std::iter::from_fn(|| waiting.pop_if(|_| true)).map(|one| one.unit).collect();
        assert_eq!(order, [1, 4, 5, 2, 6, 3]);
        assert_eq!(waiting.counts, QueueCounts::default());
        assert!(waiting.asked.is_empty() && waiting.turns.is_empty());
    }

    #[test]
    fn each_thread_gets_its_answer_and_bad_ones_fail_alone() {
        let queue = Queue::new(Squares::default(), 40);
        let answers: Vec<(usize, Result<usize>)> = thread::scope(|scope| {
            let ask = |thread: usize| {
                let queue = &queue;
                let of_thread = (0..30).map(move |i| thread * 30 + i);
                scope.spawn(move || of_thread.map(|n| (n, queue.ask(n))).collect::<Vec<_>>())
            };
            let threads: Vec<_> = (0..64).map(ask).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(answers.len(), 64 * 30);
        for (n, answer) in answers {
            match (n, answer) {
                (13, answer) => assert!(answer.unwrap_err().to_string().contains("unlucky")),
                (1_000.., answer) => assert!(answer.unwrap_err().to_string().contains("too large")),
                (n, answer) => assert_eq!(answer.unwrap(), n * n),
            }
        }
        let most = queue.model().most.load(Ordering::Relaxed);
        assert!(most <= 40, "{most}");
    }
}
