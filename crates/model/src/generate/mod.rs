//! Writing with a model, token by token.

mod next_token;

pub use next_token::{NextToken, StepOutput};
