use super::active::{Active, Choice, Listener};
use super::beam::Line;
use super::ensemble::Ensemble;
use super::read_input::{Continuing, Describing, Inputs, ReadInput, RowLogits, Rows, Running, Translating};
use super::{DecodeConfig, EnsembleMean, Hypothesis, LanguageModel, Request};
use crate::captions::CaptionDecoder;
use crate::ops;
use crate::seq2seq::{DecodeOptions, EncoderDecoder};
use crate::vision::ImageStates;
use crate::{ModelError, Result};
use burn::tensor::Device;
use rayon::prelude::*;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Decodes several requests at a time, each with its own settings; requests come and go between steps.
///
/// Other requests affect a request's texts only by rounding, and not at all if the model's step gives a row
/// the same bits in any batch: a Transformer with packed weights on flex, if the machine has a kernel of ours
/// ([`ops::PackedWeight`]).
///
/// ```
/// use burn::tensor::Device;
/// use cloze_model::ParamInit;
/// use cloze_model::generate::{DecodeConfig, Decoding, Request, Sampling, Search};
/// use cloze_model::gpt::GptConfig;
/// use std::sync::Arc;
///
/// let device = Device::default();
/// let model = GptConfig::gpt2(100, 2, 32).init(&mut ParamInit::new(&device, 0));
/// let greedy = Arc::new(DecodeConfig::new(vec![0]));
/// let drawn = Arc::new(DecodeConfig::new(vec![0]).with_search(Search::Sample(Sampling::default())));
/// let mut decoding = Decoding::continuing(&model, &device);
/// decoding.submit(7, Request::new(vec![1, 2, 3], 5), &greedy)?;
/// decoding.submit(8, Request::new(vec![4], 50), &drawn)?;
/// while !decoding.is_empty() {
///     for (id, texts) in decoding.step() {
///         println!("{id}: {:?}", texts?[0].ids);
///         decoding.cancel(8);
///     }
/// }
/// # Ok::<(), cloze_model::ModelError>(())
/// ```
pub struct Decoding<'m> {
    rows: Box<dyn Rows + 'm>,
    /// Whether the model returns its attention.
    aligns: bool,
    batch: usize,
    /// Requests not yet begun, in order.
    waiting: VecDeque<Active>,
    active: VecDeque<Active>,
    /// Results of requests that needed no step.
    done: Vec<Finished>,
    listener: Option<Listener<'m>>,
}

/// A request's id, and its texts or its own error.
pub type Finished = (usize, Result<Vec<Hypothesis>>);

/// A token that was just written, for displaying a text as it grows.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct WrittenToken<'a> {
    /// The request's id: in [`InOrder`](super::InOrder) its index, from 0.
    pub request: usize,
    /// The sample's index, from 0.
    pub sample: usize,
    /// The request's prefix.
    pub prefix: &'a [i32],
    /// The text written so far, without the prefix.
    pub tokens: &'a [i32],
}

impl<'m> Decoding<'m> {
    /// The default maximum number of concurrent requests.
    pub const BATCH: usize = 32;

    /// Decodes sources with an encoder–decoder. `start_id` is the token that begins every target and is not part of the
    /// output.
    pub fn translating<M: EncoderDecoder>(
        model: &'m M,
        start_id: i32,
        options: DecodeOptions,
        device: &'m Device,
    ) -> Self {
        Self::new(Translating { model, start_id, options, device }, options.alignment)
    }

    /// Describes images. The input of a request is the number of its image, `[n]`; settings that look at inputs do not apply.
    /// `start_id` is the token that begins every caption and is not part of the output.
    pub fn describing<D: CaptionDecoder>(
        decoder: &'m D,
        images: ImageStates,
        start_id: i32,
        options: DecodeOptions,
        device: &'m Device,
    ) -> Self {
        Self::new(Describing { decoder, images, start_id, options, device }, options.alignment)
    }

    /// Continues prompts with a language model.
    pub fn continuing<M: LanguageModel>(model: &'m M, device: &'m Device) -> Self {
        Self::new(Continuing { model, device }, true)
    }

    /// Decodes with several models at once, whose probabilities of each next token are combined: of any kinds and
    /// architectures, also of other crates, on any devices. Token ids must mean the same to all of them. If they have
    /// different numbers of tokens, those that all have are written.
    ///
    /// All members read a request's input, unless it has [one for each](Request::with_other_inputs). Alignments are the first
    /// member's; so are the number of concurrent requests and the listener.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use cloze_model::ParamInit;
    /// use cloze_model::generate::{DecodeConfig, Decoding, EnsembleMean, InOrder, Request};
    /// use cloze_model::gpt::GptConfig;
    ///
    /// let device = Device::default();
    /// let gpt = GptConfig::gpt2(100, 2, 32).init(&mut ParamInit::new(&device, 0));
    /// let llama = GptConfig::llama(100, 1, 16).init(&mut ParamInit::new(&device, 1));
    /// let members = vec![Decoding::continuing(&gpt, &device), Decoding::continuing(&llama, &device)];
    /// let decoding = Decoding::ensemble(members, EnsembleMean::Probability);
    /// let requests = [Request::new(vec![1, 2, 3], 5), Request::new(vec![4], 5)];
    /// for texts in InOrder::new(decoding, &DecodeConfig::new(vec![0]), requests.into_iter())? {
    ///     println!("{:?}", texts?[0].ids);
    /// }
    /// # Ok::<(), cloze_model::ModelError>(())
    /// ```
    ///
    /// # Panics
    /// If there is no member, or one has a request.
    pub fn ensemble(members: Vec<Self>, mean: EnsembleMean) -> Self {
        assert!(members.iter().all(Self::is_empty), "the members of an ensemble have no requests");
        let mut rows = Vec::with_capacity(members.len());
        let mut first = None;
        for Self { rows: own, aligns, batch, listener, .. } in members {
            rows.push(own);
            first.get_or_insert((aligns, batch, listener));
        }
        let (aligns, batch, listener) = first.expect("an ensemble has a member");
        let rows = Box::new(Ensemble::new(rows, mean));
        let (waiting, active, done) = Default::default();
        Self { rows, aligns, batch, waiting, active, done, listener }
    }

    /// `aligns`: whether requests may ask for the model's attention.
    pub(super) fn new(reader: impl ReadInput + 'm, aligns: bool) -> Self {
        Self {
            rows: Box::new(Running::new(reader)),
            aligns,
            batch: Self::BATCH,
            waiting: VecDeque::new(),
            active: VecDeque::new(),
            done: Vec::new(),
            listener: None,
        }
    }

    /// Sets the maximum number of concurrent requests, at least one; the others wait.
    pub fn with_batch(mut self, batch: usize) -> Self {
        self.batch = batch.max(1);
        self
    }

    /// Calls `listener` for each written token, except for those that end a text or are part of a beam. A text whose
    /// listener breaks ends with that token.
    pub fn with_listener(
        mut self,
        listener: impl FnMut(WrittenToken<'_>) -> ControlFlow<()> + Send + 'm,
    ) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Adds a request, which begins in the next step that has room for it. An empty input has one empty text.
    ///
    /// # Errors
    /// Those of [`DecodeConfig::validate`]; [`ModelError::InputTooLong`]; [`ModelError::Setting`] if the request needs an
    /// alignment and the [options](DecodeOptions) do not, or if it has [inputs](Request::with_other_inputs) for more or
    /// fewer models than there are.
    ///
    /// # Panics
    /// If a request with this id already exists.
    pub fn submit(&mut self, id: usize, request: Request, config: &Arc<DecodeConfig>) -> Result<()> {
        assert!(!self.has(id), "a request with the id {id} already exists");
        config.validate()?;
        if config.needs_alignment() && !self.aligns {
            let expected = "no alignment: decoding began without".into();
            return Err(ModelError::Setting { key: "alignment", found: "true".into(), expected });
        }
        let mut request = request;
        match self.without_steps(&mut request) {
            Some(result) => self.done.push((id, Ok(result?))),
            None => {
                let before = self.rows.before(&request.inputs());
                self.waiting.push_back(Active::new(id, request, config.clone(), &before));
            }
        }
        Ok(())
    }

    /// The result of a request that needs no step; limits the length of any other to the available room.
    pub(super) fn without_steps(&self, request: &mut Request) -> Option<Result<Vec<Hypothesis>>> {
        let inputs = request.inputs();
        let (n_inputs, n_others) = (self.rows.n_inputs(), request.other_inputs.len());
        if n_others != 0 && n_others != n_inputs - 1 {
            let (found, expected) =
                (n_others.to_string(), format!("none, or {}: one a further model", n_inputs - 1));
            return Some(Err(ModelError::Setting { key: "other_inputs", found, expected }));
        }
        if let Err(error) = self.rows.check_inputs(&inputs) {
            return Some(Err(error));
        }
        let is_empty = inputs.iter().any(|input| input.is_empty());
        let room = self.rows.room(&inputs);
        let room = room.map_or(usize::MAX, |room| room.saturating_sub(request.prefix.len()));
        request.max_new = request.max_new.min(room);
        let is_empty = is_empty || request.max_new == 0;
        is_empty.then(|| Ok(vec![Line::new().end(&request.prefix, 0.0, false)]))
    }

    /// Begins waiting requests, as far as there is room, and writes one more token of each unfinished text.
    /// Returns the finished requests.
    ///
    /// [`ModelError::OutputNotFinite`] and [`ModelError::EveryTokenForbidden`] concern a single request; the others
    /// continue.
    pub fn step(&mut self) -> Vec<Finished> {
        let device = self.device().clone();
        ops::on_awake_cores(&device, || self.step_here())
    }

    /// [`step`](Self::step) on this thread.
    pub(super) fn step_here(&mut self) -> Vec<Finished> {
        self.begin();
        self.write();
        std::mem::take(&mut self.done)
    }

    /// Drops a request and frees its rows at once. Returns whether it still existed.
    pub fn cancel(&mut self, id: usize) -> bool {
        if !self.has(id) {
            return false;
        }
        self.done.retain(|(done, _)| *done != id);
        self.waiting.retain(|waiting| waiting.id != id);
        let (mut kept, mut first) = (Vec::new(), 0);
        for active in &self.active {
            let rows = first..first + active.n_rows;
            first = rows.end;
            kept.extend(rows.filter(|_| active.id != id));
        }
        self.active.retain(|active| active.id != id);
        self.rows.select(&kept, first);
        true
    }

    /// Number of further requests that would begin in the next step.
    pub fn room(&self) -> usize {
        self.batch.saturating_sub(self.active.len() + self.waiting.len())
    }

    /// The number of requests whose results were not returned yet.
    pub fn len(&self) -> usize {
        self.done.len() + self.waiting.len() + self.active.len()
    }

    /// Whether all results were returned.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    pub(super) fn device(&self) -> &Device {
        self.rows.device()
    }

    fn has(&self, id: usize) -> bool {
        let mut there = self.active.iter().chain(&self.waiting).map(|active| active.id);
        there.any(|other| other == id) || self.done.iter().any(|(done, _)| *done == id)
    }

    /// Reads the inputs of waiting requests in one batch, as far as there is room.
    fn begin(&mut self) {
        let room = self.batch.saturating_sub(self.active.len()).min(self.waiting.len());
        let mut new: VecDeque<Active> = self.waiting.drain(..room).collect();
        if new.is_empty() {
            return;
        }
        let inputs: Vec<Inputs> = new.iter().map(|active| active.request.inputs()).collect();
        let output = self.rows.begin(&inputs);
        let n_new = inputs.len();
        let rows = self.advance(&mut new, output);
        self.rows.join(&rows, n_new);
        self.active.append(&mut new);
    }

    /// Reads one more token per row.
    fn write(&mut self) {
        let mut active = std::mem::take(&mut self.active);
        if active.is_empty() {
            return;
        }
        let mut tokens = Vec::new();
        active.iter().for_each(|active| active.last_tokens(&mut tokens));
        let output = self.rows.step(&tokens);
        let rows = self.advance(&mut active, output);
        self.rows.select(&rows, tokens.len());
        self.active = active;
    }

    /// Adds a token to each text, by its row's logits. Finished requests leave; the others return the rows that they
    /// continue.
    fn advance(&mut self, active: &mut VecDeque<Active>, output: RowLogits) -> Vec<usize> {
        let RowLogits { mut logits, n_rows, vocab_size, is_normalised, alignment } = output;
        let owners: Vec<(&Active, usize)> =
            active.iter().flat_map(|active| (0..active.n_rows).map(move |row| (active, row))).collect();
        assert_eq!(owners.len(), n_rows, "rows of logits, and texts");
        let rows = logits.par_chunks_exact_mut(vocab_size.max(1)).zip(owners);
        let choices: Vec<Choice> =
            rows.map(|(logits, (active, row))| active.choose(row, logits, is_normalised)).collect();
        let (mut choices, mut kept, mut first) = (choices.into_iter(), Vec::new(), 0);
        for mut one in std::mem::take(active) {
            let n_rows = one.n_rows;
            let attention = (first..first + n_rows).map(|row| {
                let (width, all) = alignment.as_ref()?;
                let seen = self.rows.seen(&one.request.inputs(), *width);
                Some(all[row * width..][..seen].into())
            });
            let attention: Vec<Option<Arc<[f32]>>> = attention.collect();
            let choices = choices.by_ref().take(n_rows).collect();
            match one.advance(choices, &attention, &mut self.listener) {
                None => {
                    kept.extend(one.settle().into_iter().map(|row| first + row));
                    active.push_back(one);
                }
                Some(result) => self.done.push((one.id, result)),
            }
            first += n_rows;
        }
        kept
    }
}
