use crate::Sequences;
use burn::tensor::{Device, Tensor};

/// A model that predicts the next token of several rows, step by step: the interface between models and decoding.
///
/// A row is one hypothesis: a sentence being translated, one of its beams, or a text being continued. The
/// data that a model keeps for the rows between steps, such as keys and values, is its state.
pub trait NextToken: Sync {
    /// The state of all rows.
    type State: Send;

    /// Reads one more token per row, and returns the logits of the next ones.
    ///
    /// # Shapes
    /// - `tokens`: `[rows]`, ids in the vocabulary
    fn step(&self, tokens: &[i32], state: &mut Self::State) -> StepOutput;

    /// Selects rows of the state: row `i` continues row `rows[i]`. A row may be named several times, or not at all.
    fn select(&self, state: &mut Self::State, rows: &[usize]);

    /// Appends the rows of another state. They may have begun at another time and have different lengths,
    /// since every row counts its own tokens. So a finished row makes room for a new one while the others
    /// continue.
    fn join(&self, state: &mut Self::State, other: Self::State);

    /// The maximum number of tokens in a row, including those before the first [step](Self::step); none if there is no
    /// limit.
    fn max_tokens(&self) -> Option<usize> {
        None
    }
}

/// A model that continues a prompt, left to right: `P(x) = Π_t P(x_t | x_<t)`.
pub trait LanguageModel: NextToken {
    /// Reads prompts, one per row: their state, and the logits of the token after each. It is equivalent
    /// to a [step](NextToken::step) per token, but in one pass.
    ///
    /// # Panics
    /// If there is no prompt, or one is longer than the model's positions.
    fn read(&self, prompts: &Sequences, device: &Device) -> (Self::State, StepOutput);
}

/// The output of a step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepOutput {
    /// `[rows, vocab_size]`
    pub logits: Tensor<2>,
    /// The attention of each row to each token of its source, `[rows, longest source]`, 0 beyond a source's end: the
    /// mean over the heads of the layer whose attention aligns best. None in a model without such attention, and if the
    /// state was made without it.
    pub alignment: Option<Tensor<2>>,
}

impl StepOutput {
    /// An output with logits only.
    pub fn new(logits: Tensor<2>) -> Self {
        Self { logits, alignment: None }
    }

    /// Sets the attention to the source.
    pub fn with_alignment(self, alignment: Option<Tensor<2>>) -> Self {
        Self { alignment, ..self }
    }
}
