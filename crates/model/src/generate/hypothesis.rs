use std::sync::Arc;

/// A request to decode.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The source of an encoder–decoder, or the prompt of a language model.
    pub input: Vec<i32>,
    /// The inputs of the further members of an [ensemble](super::Decoding::ensemble), in their order, if they differ from
    /// [`input`](Self::input); else empty.
    pub other_inputs: Vec<Vec<i32>>,
    /// The prefix of the text. It does not count in scores or lengths.
    pub prefix: Vec<i32>,
    /// The maximum number of tokens after the prefix, including the one that ends the text; fewer if the model's
    /// positions end before that.
    pub max_new: usize,
    /// The seed of the random numbers. The same input and seed give the same samples, regardless of other
    /// requests.
    pub seed: u64,
}

impl Request {
    /// Up to `max_new` tokens for an input.
    pub fn new(input: Vec<i32>, max_new: usize) -> Self {
        Self { input, max_new, ..Self::default() }
    }

    /// Sets the prefix of the text.
    pub fn with_prefix(mut self, prefix: Vec<i32>) -> Self {
        self.prefix = prefix;
        self
    }

    /// Sets the inputs of the further members of an [ensemble](super::Decoding::ensemble): the source as each one's own
    /// tokenizer cuts it. If one of them is empty, so is the text.
    pub fn with_other_inputs(mut self, inputs: Vec<Vec<i32>>) -> Self {
        self.other_inputs = inputs;
        self
    }

    /// Sets the seed.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// A decoded text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Hypothesis {
    /// The prefix and the tokens written after it, without the token that ended the text.
    pub ids: Vec<i32>,
    /// The score by which hypotheses are ordered. In a beam search, the log-probability divided by the length
    /// penalty, plus the coverage penalty; otherwise the log-probability.
    pub score: f64,
    /// The log-probability of the written tokens, including the token that ended the text.
    pub log_prob: f64,
    /// Whether the model ended the text; otherwise it was cut, at the maximum length or by a
    /// [listener](super::Decoding::with_listener).
    pub ended: bool,
    /// The attention of each of the [`ids`](Self::ids) to each source token when it was chosen; empty unless asked for.
    pub alignment: Vec<Arc<[f32]>>,
    /// The log-probability of each token after the prefix; empty unless
    /// [`n_alternatives`](super::DecodeConfig::n_alternatives) asks for it.
    pub scores: Vec<TokenScore>,
}

/// A written token's log-probability, and the most likely tokens in its place.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TokenScore {
    /// The log-probability, before any setting that changes how tokens are chosen.
    pub log_prob: f64,
    /// The most likely tokens and their log-probabilities, best first.
    pub best: Arc<[(i32, f64)]>,
}
