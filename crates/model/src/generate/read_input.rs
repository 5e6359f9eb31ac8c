//! A type-erased model, as seen by decoding.

use super::{LanguageModel, NextToken, Request, StepOutput};
use crate::captions::CaptionDecoder;
use crate::seq2seq::{DecodeOptions, EncoderDecoder};
use crate::vision::ImageStates;
use crate::{ModelError, Result, Sequences};
use burn::tensor::{DType, Device, Tensor};

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

/// The inputs of a request: one for each member of an ensemble, or one for all. At least one.
pub(super) type Inputs<'r> = Vec<&'r [i32]>;

impl Request {
    pub(super) fn inputs(&self) -> Inputs<'_> {
        std::iter::once(&self.input).chain(&self.other_inputs).map(Vec::as_slice).collect()
    }
}

/// A step's output on the host.
pub(super) struct RowLogits {
    /// `[n_rows, vocab_size]`
    pub logits: Vec<f32>,
    pub n_rows: usize,
    pub vocab_size: usize,
    /// Whether the logits are log-probabilities, from which no normaliser is subtracted.
    pub is_normalised: bool,
    /// `[n_rows, longest source]`, and the longest source.
    pub alignment: Option<(usize, Vec<f32>)>,
}

impl RowLogits {
    fn new(output: StepOutput) -> Self {
        let [n_rows, vocab_size] = output.logits.dims();
        let alignment = output.alignment.map(|alignment| (alignment.dims()[1], host(alignment)));
        Self { logits: host(output.logits), n_rows, vocab_size, is_normalised: false, alignment }
    }
}

/// The values of a tensor, as FP32.
fn host(x: Tensor<2>) -> Vec<f32> {
    let data = x.into_data();
    let data = if data.dtype() == DType::F32 { data } else { data.convert_dtype(DType::F32) };
    data.try_into_vec().expect("32-bit floats")
}

/// [`Running`] without its type, or several of them.
pub(super) trait Rows: Send {
    /// The number of inputs that a request may have.
    fn n_inputs(&self) -> usize {
        1
    }

    /// See [`ReadInput::device`].
    fn device(&self) -> &Device;

    /// Rejects inputs that are longer than [`ReadInput::max_input`].
    fn check_inputs(&self, inputs: &Inputs) -> Result<()>;

    /// See [`ReadInput::before`].
    fn before(&self, inputs: &Inputs) -> Vec<i32>;

    /// See [`ReadInput::seen`].
    fn seen(&self, inputs: &Inputs, longest: usize) -> usize;

    /// See [`ReadInput::room`].
    fn room(&self, inputs: &Inputs) -> Option<usize>;

    /// Reads inputs, whose rows [`join`](Self::join) then adds to the others.
    fn begin(&mut self, inputs: &[Inputs]) -> RowLogits;

    /// Adds these of the `n_rows` new rows.
    fn join(&mut self, rows: &[usize], n_rows: usize);

    /// Reads one more token per row.
    fn step(&mut self, tokens: &[i32]) -> RowLogits;

    /// Keeps these of the `n_rows` rows, in this order.
    fn select(&mut self, rows: &[usize], n_rows: usize);
}

impl<B: ReadInput> Rows for Running<B> {
    fn device(&self) -> &Device {
        self.reader.device()
    }

    fn check_inputs(&self, inputs: &Inputs) -> Result<()> {
        let tokens = inputs[0].len();
        match self.reader.max_input().filter(|max| tokens > *max) {
            Some(max) => Err(ModelError::InputTooLong { tokens, max }),
            None => Ok(()),
        }
    }

    fn before(&self, inputs: &Inputs) -> Vec<i32> {
        self.reader.before(inputs[0]).to_vec()
    }

    fn seen(&self, inputs: &Inputs, longest: usize) -> usize {
        self.reader.seen(inputs[0], longest)
    }

    fn room(&self, inputs: &Inputs) -> Option<usize> {
        self.reader.room(inputs[0])
    }

    fn begin(&mut self, inputs: &[Inputs]) -> RowLogits {
        let inputs: Sequences = inputs.iter().map(|inputs| inputs[0]).collect();
        let (state, output) = self.reader.begin(&inputs);
        self.new = Some(state);
        RowLogits::new(output)
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

    fn step(&mut self, tokens: &[i32]) -> RowLogits {
        let state = self.state.as_mut().expect("a step needs a row");
        RowLogits::new(self.reader.model().step(tokens, state))
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
