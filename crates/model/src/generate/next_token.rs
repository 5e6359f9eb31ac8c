use crate::Sequences;
use burn::tensor::{Device, Tensor};

/// A model that is asked, again and again, for the next token of several rows: the seam between models and the ways to
/// decode.
///
/// A row is one hypothesis: a sentence that is being translated, or one of its beams, or a text that is going on. What
/// a model keeps of the rows between the steps, such as keys and values, is its state.
pub trait NextToken: Sync {
    /// What is kept of all rows.
    type State: Send;

    /// Takes one more token a row, and gives the logits of the next ones.
    ///
    /// # Shapes
    /// - `tokens`: `[rows]`, ids in the vocabulary
    fn step(&self, tokens: &[i32], state: &mut Self::State) -> StepOutput;

    /// Makes the state that of other rows: row `i` goes on where row `rows[i]` was. A row may be named several times, or
    /// not at all.
    fn select(&self, state: &mut Self::State, rows: &[usize]);

    /// Puts the rows of another state behind those of `state`. They began at another time and have other lengths: every
    /// row counts its own tokens. So a row that has ended makes room for the next one while the others go on.
    fn join(&self, state: &mut Self::State, other: Self::State);

    /// How many tokens a row may have at most, those before the first [step](Self::step) among them; none if there is no
    /// limit.
    fn max_tokens(&self) -> Option<usize> {
        None
    }
}

/// A model that writes on from a prompt, left to right: `P(x) = Π_t P(x_t | x_<t)`.
pub trait LanguageModel: NextToken {
    /// Reads prompts, a row each: their state, and the logits of the token after each. It is what
    /// [steps](NextToken::step) with one token after another come to, in one pass.
    ///
    /// # Panics
    /// If there is no prompt, or one is longer than the model's positions.
    fn read(&self, prompts: &Sequences, device: &Device) -> (Self::State, StepOutput);
}

/// What a step returns.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepOutput {
    /// `[rows, vocab_size]`
    pub logits: Tensor<2>,
    /// What share of its attention each row gave to each token of its source, `[rows, longest source]`, 0 beyond a
    /// source's end: the mean over the heads of the layer that tells most of alignments. None of a model without such,
    /// and unless the state was made to keep it.
    pub alignment: Option<Tensor<2>>,
}

impl StepOutput {
    /// Logits alone.
    pub fn new(logits: Tensor<2>) -> Self {
        Self { logits, alignment: None }
    }

    /// The attention to the source, if there is any.
    pub fn with_alignment(self, alignment: Option<Tensor<2>>) -> Self {
        Self { alignment, ..self }
    }
}
