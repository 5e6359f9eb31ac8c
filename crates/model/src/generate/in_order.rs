use super::decoding::{Decoding, WrittenToken};
use super::{DecodeConfig, Hypothesis, LanguageModel, Request};
use crate::Result;
use crate::ops;
use crate::seq2seq::{DecodeOptions, EncoderDecoder};
use burn::tensor::Device;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Decodes sources with an encoder–decoder: for each request its texts, in the order of the requests.
///
/// `start_id` is the token that begins every target and is not part of the output. See [`InOrder`].
///
/// # Errors
/// Those of [`DecodeConfig::validate`].
pub fn translate<'m, M: EncoderDecoder, I: IntoIterator<Item = Request, IntoIter: Send>>(
    model: &'m M,
    start_id: i32,
    config: &DecodeConfig,
    device: &'m Device,
    requests: I,
) -> Result<InOrder<'m, I::IntoIter>> {
    let mut options = DecodeOptions::default();
    if config.needs_alignment() {
        options = options.with_alignment();
    }
    InOrder::new(Decoding::translating(model, start_id, options, device), config, requests.into_iter())
}

/// Continues prompts with a language model: for each request its texts, in the order of the requests. See [`InOrder`].
///
/// # Errors
/// Those of [`DecodeConfig::validate`].
pub fn continue_prompts<'m, M: LanguageModel, I: IntoIterator<Item = Request, IntoIter: Send>>(
    model: &'m M,
    config: &DecodeConfig,
    device: &'m Device,
    requests: I,
) -> Result<InOrder<'m, I::IntoIter>> {
    InOrder::new(Decoding::continuing(model, device), config, requests.into_iter())
}

/// Decodes requests of the same settings; an iterator over each request's texts, in the order of the requests.
///
/// A finished text makes room for the next request at once, while the others continue. Among a window of
/// requests read ahead, the longest begin first, so that few rows are left at the end. See [`Decoding`].
///
/// A request with an empty input has one empty text. Errors of an item concern a single request; the others continue.
pub struct InOrder<'m, I> {
    decoding: Decoding<'m>,
    config: Arc<DecodeConfig>,
    window: usize,
    requests: I,
    /// The number of requests read.
    n_read: usize,
    /// The number of requests whose texts were returned.
    n_done: usize,
    /// The longest request first.
    waiting: BTreeMap<(Reverse<usize>, usize), Request>,
    results: BTreeMap<usize, Result<Vec<Hypothesis>>>,
}

impl<'m, I: Iterator<Item = Request> + Send> InOrder<'m, I> {
    /// The default maximum number of requests read ahead.
    pub const WINDOW: usize = 2048;

    /// Decodes `requests` with these settings.
    ///
    /// # Errors
    /// Those of [`DecodeConfig::validate`].
    pub fn new(decoding: Decoding<'m>, config: &DecodeConfig, requests: I) -> Result<Self> {
        config.validate()?;
        Ok(Self {
            decoding,
            config: Arc::new(config.clone()),
            window: Self::WINDOW,
            requests,
            n_read: 0,
            n_done: 0,
            waiting: BTreeMap::new(),
            results: BTreeMap::new(),
        })
    }

    /// Sets the maximum number of concurrent requests, at least one.
    pub fn with_batch(mut self, batch: usize) -> Self {
        self.decoding = self.decoding.with_batch(batch);
        self
    }

    /// Sets the maximum number of requests read ahead, of which the longest begin first. Finished texts wait
    /// for their turn.
    pub fn with_window(mut self, window: usize) -> Self {
        self.window = window;
        self
    }

    /// As [`Decoding::with_listener`].
    pub fn with_listener(
        mut self,
        listener: impl FnMut(WrittenToken<'_>) -> ControlFlow<()> + Send + 'm,
    ) -> Self {
        self.decoding = self.decoding.with_listener(listener);
        self
    }

    /// Decodes until the next request is finished; none if there are no more.
    fn work(&mut self) {
        loop {
            self.submit();
            if self.results.contains_key(&self.n_done) || self.decoding.is_empty() {
                return;
            }
            self.results.extend(self.decoding.step_here());
        }
    }

    /// Reads ahead as many requests as the window holds.
    fn read_ahead(&mut self) {
        while self.n_read - self.n_done < self.window.max(self.decoding.batch()) {
            let Some(mut request) = self.requests.next() else { return };
            match self.decoding.without_steps(&mut request) {
                Some(result) => {
                    self.results.insert(self.n_read, result);
                }
                None => {
                    self.waiting.insert((Reverse(request.input.len()), self.n_read), request);
                }
            }
            self.n_read += 1;
        }
    }

    /// Submits waiting requests if there is room.
    fn submit(&mut self) {
        let room = self.decoding.room();
        // Several at a time, so that reading them together pays.
        if !self.decoding.is_empty() && room < self.decoding.batch().div_ceil(8) {
            return;
        }
        self.read_ahead();
        for _ in 0..room {
            let Some(((_, number), request)) = self.waiting.pop_first() else { return };
            self.decoding
                .submit(number, request, &self.config)
                .expect("the request and its settings are valid");
        }
    }
}

impl<I: Iterator<Item = Request> + Send> Iterator for InOrder<'_, I> {
    type Item = Result<Vec<Hypothesis>>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.results.contains_key(&self.n_done) {
            let device = self.decoding.device().clone();
            ops::on_awake_cores(&device, || self.work());
        }
        let result = self.results.remove(&self.n_done)?;
        self.n_done += 1;
        Some(result)
    }
}
