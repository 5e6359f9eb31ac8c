//! A type-erased model, as seen by decoding.

use super::{LanguageModel, NextToken, StepOutput};
use crate::Sequences;
use crate::captions::CaptionDecoder;
use crate::seq2seq::{DecodeOptions, EncoderDecoder};
use crate::vision::ImageStates;
use burn::tensor::Device;

/// How a model reads inputs and begins to write.
pub(super) trait ReadInput: Send {
    type Model: NextToken;

    fn model(&self) -> &Self::Model;

    /// Reads inputs, one per row: their state, and the logits of each one's first token.
    fn begin(&self, inputs: &Sequences) -> (<Self::Model as NextToken>::State, StepOutput);

    /// The maximum number of tokens in an input; none if there is no limit.
    fn max_input(&self) -> Option<usize>;

    /// The device of the model's tensors.
    fn device(&self) -> &Device;

    /// The tokens that precede a text and count in its length: its prompt, or the token that begins targets.
    fn before<'a>(&'a self, input: &'a [i32]) -> &'a [i32];

    /// The parts of an input that there is attention to, at most `longest`: its tokens.
    fn seen(&self, input: &[i32], longest: usize) -> usize {
        input.len().min(longest)
    }

    /// Number of tokens that fit into the model's positions after this input, the last of which is not read;
    /// `None` if there is no limit.
    fn room(&self, input: &[i32]) -> Option<usize>;
}

/// An encoder–decoder that writes targets.
pub(super) struct Translating<'m, M> {
    pub model: &'m M,
    pub start_id: i32,
    pub options: DecodeOptions,
    pub device: &'m Device,
}

impl<M: EncoderDecoder> ReadInput for Translating<'_, M> {
    type Model = M;

    fn model(&self) -> &M {
        self.model
    }

    fn begin(&self, inputs: &Sequences) -> (M::State, StepOutput) {
        let mut state = self.model.begin(inputs, self.options, self.device);
        let output = self.model.step(&vec![self.start_id; inputs.len()], &mut state);
        (state, output)
    }

    fn max_input(&self) -> Option<usize> {
        self.model.max_source_tokens()
    }

    fn device(&self) -> &Device {
        self.device
    }

    fn before<'a>(&'a self, _: &'a [i32]) -> &'a [i32] {
        std::slice::from_ref(&self.start_id)
    }

    fn room(&self, _: &[i32]) -> Option<usize> {
        self.model.max_tokens()
    }
}

/// A decoder that describes images. An input is the number of an image.
pub(super) struct Describing<'m, D> {
    pub decoder: &'m D,
    pub images: ImageStates,
    pub start_id: i32,
    pub options: DecodeOptions,
    pub device: &'m Device,
}

impl<D: CaptionDecoder> ReadInput for Describing<'_, D> {
    type Model = D;

    fn model(&self) -> &D {
        self.decoder
    }

    fn begin(&self, inputs: &Sequences) -> (D::State, StepOutput) {
        let numbers: Vec<usize> = inputs.iter().map(|input| input[0] as usize).collect();
        let mut state = self.decoder.begin(&self.images.clone().select(&numbers), self.options);
        let output = self.decoder.step(&vec![self.start_id; inputs.len()], &mut state);
        (state, output)
    }

    fn max_input(&self) -> Option<usize> {
        None
    }

    fn device(&self) -> &Device {
        self.device
    }

    fn before<'a>(&'a self, _: &'a [i32]) -> &'a [i32] {
        std::slice::from_ref(&self.start_id)
    }

    /// All images have as many places.
    fn seen(&self, _: &[i32], longest: usize) -> usize {
        longest
    }

    fn room(&self, _: &[i32]) -> Option<usize> {
        self.decoder.max_tokens()
    }
}

/// A language model that continues prompts.
pub(super) struct Continuing<'m, M> {
    pub model: &'m M,
    pub device: &'m Device,
}

impl<M: LanguageModel> ReadInput for Continuing<'_, M> {
    type Model = M;

    fn model(&self) -> &M {
        self.model
    }

    fn begin(&self, inputs: &Sequences) -> (M::State, StepOutput) {
        self.model.read(inputs, self.device)
    }

    fn max_input(&self) -> Option<usize> {
        self.model.max_tokens()
    }

    fn device(&self) -> &Device {
        self.device
    }

    fn before<'a>(&'a self, input: &'a [i32]) -> &'a [i32] {
        input
    }

    fn room(&self, input: &[i32]) -> Option<usize> {
        self.model.max_tokens().map(|max| (max + 1).saturating_sub(input.len()))
    }
}

/// A model and the state of the active rows.
pub(super) struct Running<B: ReadInput> {
    reader: B,
    /// None if there are no rows.
    state: Option<<B::Model as NextToken>::State>,
    /// The state of new rows.
    new: Option<<B::Model as NextToken>::State>,
}

impl<B: ReadInput> Running<B> {
    pub fn new(reader: B) -> Self {
        Self { reader, state: None, new: None }
    }
}

/// [`Running`] without its type.
pub(super) trait Rows: Send {
    /// See [`ReadInput::device`].
    fn device(&self) -> &Device;

    /// See [`ReadInput::max_input`].
    fn max_input(&self) -> Option<usize>;

    /// See [`ReadInput::before`].
    fn before(&self, input: &[i32]) -> Vec<i32>;

    /// See [`ReadInput::seen`].
    fn seen(&self, input: &[i32], longest: usize) -> usize;

    /// See [`ReadInput::room`].
    fn room(&self, input: &[i32]) -> Option<usize>;

    /// Reads inputs, whose rows [`join`](Self::join) then adds to the others.
    fn begin(&mut self, inputs: &Sequences) -> StepOutput;

    /// Adds these of the `n_rows` new rows.
    fn join(&mut self, rows: &[usize], n_rows: usize);

    /// Reads one more token per row.
    fn step(&mut self, tokens: &[i32]) -> StepOutput;

    /// Keeps these of the `n_rows` rows, in this order.
    fn select(&mut self, rows: &[usize], n_rows: usize);
}

impl<B: ReadInput> Rows for Running<B> {
    fn device(&self) -> &Device {
        self.reader.device()
    }

    fn max_input(&self) -> Option<usize> {
        self.reader.max_input()
    }

    fn before(&self, input: &[i32]) -> Vec<i32> {
        self.reader.before(input).to_vec()
    }

    fn seen(&self, input: &[i32], longest: usize) -> usize {
        self.reader.seen(input, longest)
    }

    fn room(&self, input: &[i32]) -> Option<usize> {
        self.reader.room(input)
    }

    fn begin(&mut self, inputs: &Sequences) -> StepOutput {
        let (state, output) = self.reader.begin(inputs);
        self.new = Some(state);
        output
    }

    fn join(&mut self, rows: &[usize], n_rows: usize) {
        let Some(mut new) = self.new.take().filter(|_| !rows.is_empty()) else { return };
        let model = self.reader.model();
        if !is_all(rows, n_rows) {
            model.select(&mut new, rows);
        }
        match &mut self.state {
            Some(state) => model.join(state, new),
            None => self.state = Some(new),
        }
    }

    fn step(&mut self, tokens: &[i32]) -> StepOutput {
        let state = self.state.as_mut().expect("a step needs a row");
        self.reader.model().step(tokens, state)
    }

    fn select(&mut self, rows: &[usize], n_rows: usize) {
        if rows.is_empty() {
            self.state = None;
        } else if let Some(state) = self.state.as_mut().filter(|_| !is_all(rows, n_rows)) {
            self.reader.model().select(state, rows);
        }
    }
}

/// Whether these are all rows in order.
fn is_all(rows: &[usize], n_rows: usize) -> bool {
    rows.iter().copied().eq(0..n_rows)
}
