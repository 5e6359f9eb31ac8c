//! Batching of requests from any number of threads.
//!
//! A request is encoded on the calling thread and becomes a unit with a cost in tokens. A [`Queue`] batches
//! units under one token budget, and returns to each thread its own answer. Per-request settings (a pooling, a
//! prompt, the number of candidates) are in the request, not in the loaded model. A request that is rejected,
//! panics, or has a non-finite answer fails alone. Generation requests join those in progress after any token
//! ([`Session`]), and cancelled ones leave as early.
//!
//! ```no_run
//! use burn::tensor::Device;
//! use cloze_trainer::embed::{EmbedConfig, EmbedRequest, Embedder};
//! use cloze_trainer::requests::Queue;
//! use std::thread;
//!
//! # fn main() -> cloze_trainer::Result<()> {
//! # let device = Device::default();
//! let embedder = Embedder::load("my-model".as_ref(), EmbedConfig::default(), &device)?;
//! let queue = Queue::new(embedder, 4_096);
//! thread::scope(|scope| {
//!     for text in ["a text", "another"] {
//!         let queue = &queue;
//!         scope.spawn(move || println!("{:?}", queue.ask(EmbedRequest::of(text))));
//!     }
//! });
//! # Ok(())
//! # }
//! ```

mod queue;
mod share;
#[cfg(test)]
mod tests;
mod ticket;
mod together;
mod writing;

pub use queue::{Encoded, Queue, QueueCounts, Turn};
pub use share::Share;
pub use ticket::{Ticket, Times};
pub use writing::{GenerateRequest, Listener, TranslateRequest};

use crate::Result;
use std::rc::Rc;
use together::Together;

/// A model that answers requests.
pub trait Respond: Sized + Send + Sync + 'static {
    /// The request type.
    type Request;
    /// An encoded request.
    type Unit: Send;
    /// The answer type.
    type Answer: Send;

    /// Encodes a request.
    ///
    /// # Errors
    /// What is wrong with the request.
    fn encode(&self, request: Self::Request) -> Result<Self::Unit>;

    /// A unit's computational cost, in tokens.
    fn cost(&self, unit: &Self::Unit) -> usize;

    /// The answers to units, in order. If all matrix products use [packed weights](cloze_ops::linear_packed),
    /// an answer is bit-identical to that of the unit alone; otherwise its last digits may depend on the other
    /// units.
    fn answer(&self, units: &[&Self::Unit]) -> Vec<Result<Self::Answer>>;

    /// A session, which units join and leave between steps. By default a step [answers](Self::answer) all units
    /// that joined since the last one.
    fn session(&self) -> Box<dyn Session<Self> + '_> {
        Box::new(Together::new(self))
    }
}

/// A computation that units join and leave between its steps. A session is dropped after a panic.
pub trait Session<R: Respond> {
    /// Adds a unit, with an id that is unique in the session.
    ///
    /// # Errors
    /// A unit that cannot be computed; it is not added.
    fn submit(&mut self, id: usize, unit: Rc<R::Unit>) -> Result<()>;

    /// Computes a step. Returns the ids and answers of finished units, which leave.
    fn step(&mut self) -> Vec<(usize, Result<R::Answer>)>;

    /// The tokens that the next step computes.
    fn next_tokens(&self) -> usize;

    /// Removes a unit whose answer is no longer needed.
    fn cancel(&mut self, id: usize);
}
