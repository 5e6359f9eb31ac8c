use std::sync::Arc;

/// What is to be decoded.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The source of an encoder–decoder, or the prompt of a language model.
    pub input: Vec<i32>,
    /// What the text has to begin with. It counts neither in scores nor in lengths.
    pub prefix: Vec<i32>,
    /// How many tokens are written at most behind the prefix, the one that ends the text among them; fewer where the
    /// model's positions end.
    pub max_new: usize,
    /// Of the random numbers, together with the input: the same input and seed give the same samples, whatever is decoded
    /// beside it.
    pub seed: u64,
}

impl Request {
    /// Up to `max_new` tokens for an input.
    pub fn new(input: Vec<i32>, max_new: usize) -> Self {
        Self { input, max_new, ..Self::default() }
    }

    /// With a beginning of the text.
    pub fn with_prefix(mut self, prefix: Vec<i32>) -> Self {
        self.prefix = prefix;
        self
    }

    /// With another seed.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// A text that was written.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Hypothesis {
    /// The prefix and what was written behind it, without the token that ended it.
    pub ids: Vec<i32>,
    /// What hypotheses are ordered by: with a beam the log-probability over the length penalty, with the coverage penalty;
    /// else the log-probability.
    pub score: f64,
    /// The logarithm of the written tokens' probability, the token that ended it among them.
    pub log_prob: f64,
    /// Whether the model ended the text; otherwise it was cut at its greatest length.
    pub ended: bool,
    /// How much each of the [`ids`](Self::ids) attended to each token of the source when it was chosen; empty unless asked
    /// for.
    pub alignment: Vec<Arc<[f32]>>,
}
