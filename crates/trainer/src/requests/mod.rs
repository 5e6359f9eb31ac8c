//! Requests from any number of threads, computed together.
//!
//! A request is encoded by itself, on the thread that asks, and becomes a unit with a cost in tokens. A [`Queue`] computes units
//! with others' units, under one budget of tokens, and gives each thread its own answer. What a request may choose (a pooling, a
//! prompt, how many candidates) is in the request and not in the model's loading. A request that is refused, or whose answer
//! is not finite or panics, fails alone. Texts that are written token by token join those under way after any token
//! ([`Session`]), and a request that is cancelled leaves as early.
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
#[cfg(test)]
mod tests;
mod together;
mod writing;

pub use queue::{Queue, Ticket};
pub use writing::{GenerateRequest, TranslateRequest};

use crate::Result;
use std::rc::Rc;
use together::Together;

/// A model that answers requests.
pub trait Respond: Sized + Send + Sync + 'static {
    /// What is asked.
    type Request;
    /// A request that was encoded.
    type Unit: Send;
    /// What is answered.
    type Answer: Send;

    /// Encodes a request.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    fn encode(&self, request: Self::Request) -> Result<Self::Unit>;

    /// What a unit costs to compute, in tokens.
    fn cost(&self, unit: &Self::Unit) -> usize;

    /// The answers to units, in their order. Where all matrix products are of [packed weights](cloze_ops::linear_packed), an
    /// answer has the bits that it has alone; elsewhere its last digits may depend on the other units.
    fn answer(&self, units: &[&Self::Unit]) -> Vec<Result<Self::Answer>>;

    /// A computation that units join and leave between its steps. By default a step [answers](Self::answer) all units that
    /// have joined since the last one.
    fn session(&self) -> Box<dyn Session<Self> + '_> {
        Box::new(Together::new(self))
    }
}

/// A computation that units join and leave between its steps. A session in which something panicked is dropped.
pub trait Session<R: Respond> {
    /// Adds a unit, with an id that no unit in the session has.
    ///
    /// # Errors
    /// A unit that cannot be computed, which is not added.
    fn submit(&mut self, id: usize, unit: Rc<R::Unit>) -> Result<()>;

    /// Computes a step. Returns the ids and answers of the units that are done, which leave.
    fn step(&mut self) -> Vec<(usize, Result<R::Answer>)>;

    /// Removes a unit that nobody waits for.
    fn cancel(&mut self, id: usize);
}
