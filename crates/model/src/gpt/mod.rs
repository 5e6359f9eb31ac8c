//! Left-to-right language models: GPT-2, Llama, and architectures in between, by the switches of
//! [`GptConfig`].

mod config;
mod decoding;
mod layer;
mod model;

pub use config::GptConfig;
pub use decoding::GptState;
pub use layer::GptLayer;
pub use model::Gpt;
pub(crate) use model::flat;
