//! Writing with a model, token by token.

mod next_token;

pub use next_token::{LanguageModel, NextToken, StepOutput};
