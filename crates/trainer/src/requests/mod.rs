//! Requests from any number of threads, computed together.
//!
//! A request is encoded by itself, on the thread that asks, and becomes a unit with a cost in tokens. A [`Queue`] computes units
//! with others' units, under one budget of tokens, and gives each thread its own answer. What a request may choose (a pooling, a
//! prompt, how many candidates) is in the request and not in the model's loading. A request that is refused, or whose answer
//! is not finite or panics, fails alone.
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
mod writing;

pub use queue::Queue;
pub use writing::{GenerateRequest, TranslateRequest};

use crate::Result;

/// A model that answers requests.
pub trait Respond: Send + Sync + 'static {
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
    fn answer(&self, units: &[Self::Unit]) -> Vec<Result<Self::Answer>>;
}
