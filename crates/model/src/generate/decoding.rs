use super::beam::{Beams, Line, Step, n_best_tokens};
use super::random::Random;
use super::{DecodeConfig, Hypothesis, LanguageModel, NextToken, Request, Search, StepOutput};
use crate::ops::{self, Best};
use crate::seq2seq::{DecodeOptions, EncoderDecoder};
use crate::{ModelError, Result, Sequences};
use burn::tensor::{DType, Device, Tensor};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How a model reads inputs and begins to write.
pub trait ReadInput: Send + Sync {
    /// The model.
    type Model: NextToken;

    /// The model.
    fn model(&self) -> &Self::Model;

    /// Reads inputs, one a row: their state, and the logits of each one's first token.
    fn begin(&self, inputs: &Sequences) -> (<Self::Model as NextToken>::State, StepOutput);

    /// The maximum number of tokens in an input; none if there is no limit.
    fn max_input(&self) -> Option<usize>;

    /// The device of the model's tensors.
    fn device(&self) -> &Device;

    /// The tokens that stand before a text and count in its length: its prompt, or the token that begins targets.
    fn before<'a>(&'a self, input: &'a [i32]) -> &'a [i32];

    /// How many tokens fit into the model's positions after an input of this length, of which the last is not read;
    /// none if there is no limit.
    fn room(&self, input: &[i32]) -> Option<usize>;
}

/// An encoder–decoder that writes targets.
#[derive(Debug, Clone, Copy)]
pub struct Translating<'m, M> {
    model: &'m M,
    start_id: i32,
    options: DecodeOptions,
    device: &'m Device,
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

/// A language model that continues prompts.
#[derive(Debug, Clone, Copy)]
pub struct Continuing<'m, M> {
    model: &'m M,
    device: &'m Device,
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

/// Decodes sources with an encoder–decoder: for each request its texts, in the order of the requests.
///
/// `start_id` is the token that begins every target and is not part of the output. See [`Decoding`].
///
/// # Errors
/// Those of [`DecodeConfig::validate`].
pub fn translate<'m, M: EncoderDecoder, I: IntoIterator<Item = Request, IntoIter: Send>>(
    model: &'m M,
    start_id: i32,
    config: &'m DecodeConfig,
    device: &'m Device,
    requests: I,
) -> Result<Decoding<'m, Translating<'m, M>, I::IntoIter>> {
    let mut options = DecodeOptions::default();
    if config.needs_alignment() {
        options = options.with_alignment();
    }
    Decoding::new(Translating { model, start_id, options, device }, config, requests.into_iter())
}

/// Continues prompts with a language model: for each request its texts, in the order of the requests. See [`Decoding`].
///
/// # Errors
/// Those of [`DecodeConfig::validate`].
pub fn continue_prompts<'m, M: LanguageModel, I: IntoIterator<Item = Request, IntoIter: Send>>(
    model: &'m M,
    config: &'m DecodeConfig,
    device: &'m Device,
    requests: I,
) -> Result<Decoding<'m, Continuing<'m, M>, I::IntoIter>> {
    Decoding::new(Continuing { model, device }, config, requests.into_iter())
}

/// Decodes several requests at a time; an iterator over each request's texts, in the order of the requests.
///
/// A finished text makes room for the next request at once, while the others continue. Of a window of requests that are
/// read ahead, the longest begin first, so that few rows are left over in the end. Other requests change a request's
/// texts by no more than rounding.
///
/// A request with an empty input has one empty text. [`ModelError::InputTooLong`] and [`ModelError::OutputNotFinite`]
/// concern a single request; the others continue.
pub struct Decoding<'m, B: ReadInput, I> {
    begin: B,
    config: &'m DecodeConfig,
    requests: I,
    /// The number of requests read.
    n_read: usize,
    /// The number of requests whose texts were returned.
    n_done: usize,
    /// The shortest request in the window.
    waiting: BTreeMap<(Reverse<usize>, usize), Request>,
    active: VecDeque<Active>,
    /// The state of the active requests' rows; none if there are none.
    state: Option<<B::Model as NextToken>::State>,
    results: BTreeMap<usize, Result<Vec<Hypothesis>>>,
    listener: Option<Listener<'m>>,
}

/// A listener that is called for each token.
type Listener<'l> = Box<dyn FnMut(WrittenToken<'_>) + Send + 'l>;

/// A token that was just written, for displaying a text as it grows.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct WrittenToken<'a> {
    /// The request's index, from 0.
    pub request: usize,
    /// The sample's index, from 0.
    pub sample: usize,
    /// The request's prefix.
    pub prefix: &'a [i32],
    /// The text written so far, without the prefix.
    pub tokens: &'a [i32],
}

/// A request that is being decoded.
struct Active {
    number: usize,
    request: Request,
    /// The seed of the random numbers.
    stream: [u64; 2],
    /// The number of prefix tokens that were read.
    n_forced: usize,
    /// What stands before the text: tokens that were read and the prefix.
    before: Vec<i32>,
    /// The number of its rows in the state.
    n_rows: usize,
    work: Work,
}

/// How a request's next tokens are chosen.
enum Work {
    /// From the prefix, until it ends.
    Prefix(Line),
    Beams(Beams),
    /// Independent texts, with their indices.
    Samples {
        live: Vec<(usize, Line)>,
        finished: Vec<(usize, Hypothesis)>,
    },
}

/// The choice of a row's next token.
enum Choice {
    /// The prefix decides.
    Forced,
    Best(Best),
    /// For each sample on this row: its index, token and log-probability.
    Drawn(Vec<(usize, i32, f64)>),
    /// The logits are not finite.
    NotFinite,
    /// The settings forbid every token.
    Forbidden,
}

impl Active {
    fn new(number: usize, request: Request, before: &[i32]) -> Self {
        let before = [before, &request.prefix].concat();
        let ids: Vec<u64> = request.input.iter().chain(&request.prefix).map(|id| *id as u64).collect();
        let stream = Random::new(request.seed, &ids).bits();
        Self { number, request, stream, n_forced: 0, before, n_rows: 1, work: Work::Prefix(Line::new()) }
    }

    /// The unfinished texts, in the order of their rows.
    fn lines(&self) -> Vec<&Line> {
        match &self.work {
            Work::Prefix(line) => vec![line],
            Work::Beams(beams) => beams.live().collect(),
            Work::Samples { live, .. } => live.iter().map(|(_, line)| line).collect(),
        }
    }

    /// The last token of each row.
    fn last_tokens(&self, tokens: &mut Vec<i32>) {
        let last = |line: &Line| match line.tokens.last() {
            Some(last) => *last,
            None => self.request.prefix[self.n_forced - 1],
        };
        tokens.extend(self.lines().into_iter().map(last));
    }

    /// The text so far, for settings that look back.
    fn history(&self, line: &Line) -> Vec<i32> {
        [&self.before[..], &line.tokens].concat()
    }

    /// Whether a text begins with a forced token.
    fn begins_forced(&self, config: &DecodeConfig) -> bool {
        config.forced_first.is_some() && self.before.len() == 1
    }

    /// The tokens of which one must come next; empty if any may.
    fn forced<'a>(&self, config: &'a DecodeConfig, line: &Line) -> &'a [i32] {
        match line.tokens.len() + 1 {
            n if n == self.request.max_new && !config.forced_last.is_empty() => &config.forced_last,
            1 if self.begins_forced(config) => config.forced_first.as_slice(),
            _ => &[],
        }
    }

    /// The tokens that may not come next.
    fn banned(&self, config: &DecodeConfig, line: &Line, history: &[i32]) -> Vec<i32> {
        let mut banned = config.forbidden_ids.clone();
        let written = line.tokens.len();
        if written < config.min_new || self.before.len() + written < config.min_length {
            banned.extend(&config.stop_ids);
        }
        if written == usize::from(self.begins_forced(config)) {
            banned.extend(&config.forbidden_first);
        }
        for word in &config.forbidden_words {
            // As in transformers, a word that is longer than all that there is says nothing.
            if let [start @ .., last] = &word[..]
                && word.len() <= history.len()
                && history.ends_with(start)
            {
                banned.push(*last);
            }
        }
        for (n, text) in
            [(config.no_repeat_ngram, history), (config.no_repeat_input_ngram, &self.request.input[..])]
        {
            if n > 0 && history.len() + 1 >= n {
                let last = &history[history.len() + 1 - n..];
                let before = text.windows(n).filter(|ngram| ngram.starts_with(last));
                banned.extend(before.filter_map(|ngram| ngram.last()));
            }
        }
        banned.sort_unstable();
        banned.dedup();
        banned
    }

    /// Chooses the next tokens on a row; overwrites its logits.
    fn choose(&self, config: &DecodeConfig, row: usize, logits: &mut [f32]) -> Choice {
        let is_first = match &self.work {
            Work::Prefix(_) if self.n_forced < self.request.prefix.len() => return Choice::Forced,
            Work::Prefix(_) => true,
            _ => false,
        };
        let lines = self.lines();
        let line = lines.iter().find(|line| line.row == row).expect("every row has a text");
        let samples = || -> Vec<usize> {
            match &self.work {
                _ if is_first => (0..config.width()).collect(),
                Work::Samples { live, .. } => {
                    live.iter().filter(|(_, line)| line.row == row).map(|(sample, _)| *sample).collect()
                }
                _ => vec![0],
            }
        };
        if let forced @ [first, ..] = self.forced(config, line) {
            return match &config.search {
                Search::Beam(_) => Choice::Best(Best {
                    log_sum: if config.renormalize { (forced.len() as f32).ln() } else { 0.0 },
                    tokens: forced.iter().map(|token| (*token as u32, 0.0)).collect(),
                }),
                _ => Choice::Drawn(samples().into_iter().map(|sample| (sample, *first, 0.0)).collect()),
            };
        }
        let history = if config.looks_back() { self.history(line) } else { Vec::new() };
        let banned = self.banned(config, line, &history);
        let is_banned = |token: &u32| banned.binary_search(&(*token as i32)).is_ok();
        let penalises = config.repetition_penalty != 1.0 || config.input_repetition_penalty != 1.0;
        let [of_input, of_text] = [1.0 / config.input_repetition_penalty, config.repetition_penalty];
        match &config.search {
            Search::Beam(beam) => {
                let n = n_best_tokens(beam, config.stop_ids.len()) + banned.len();
                let mut best = ops::best(logits, if penalises { 0 } else { n });
                let log_sum = best.log_sum;
                if !log_sum.is_finite() {
                    return Choice::NotFinite;
                }
                // A log-probability is at most 0.
                for (text, penalty) in [(&self.request.input, of_input), (&history, of_text)] {
                    penalise(logits, text, penalty, |logit| log_sum + penalty * (logit - log_sum));
                }
                if penalises {
                    best.tokens = ops::best(logits, n).tokens;
                }
                best.tokens.retain(|(token, logit)| !is_banned(token) && *logit > f32::NEG_INFINITY);
                if config.renormalize {
                    forbid(logits, &banned);
                    best.log_sum = ops::best(logits, 0).log_sum;
                }
                match best.tokens.is_empty() {
                    true => Choice::Forbidden,
                    false => Choice::Best(best),
                }
            }
            Search::Greedy if !penalises => {
                let Best { log_sum, tokens } = ops::best(logits, 1 + banned.len());
                if !log_sum.is_finite() {
                    return Choice::NotFinite;
                }
                match tokens.into_iter().find(|(token, _)| !is_banned(token)) {
                    Some((token, logit)) if logit.is_finite() => {
                        Choice::Drawn(vec![(0, token as i32, f64::from(logit) - f64::from(log_sum))])
                    }
                    _ => Choice::Forbidden,
                }
            }
            search => {
                let log_sum = ops::best(logits, 0).log_sum;
                if !log_sum.is_finite() {
                    return Choice::NotFinite;
                }
                let original = penalises.then(|| logits.to_vec());
                for (text, penalty) in [(&self.request.input, of_input), (&history, of_text)] {
                    penalise(logits, text, penalty, |logit| {
                        if logit > 0.0 { logit / penalty } else { logit * penalty }
                    });
                }
                forbid(logits, &banned);
                let greatest = ops::best(logits, 1).tokens.first().copied();
                let Some((greatest, _)) = greatest.filter(|(_, logit)| logit.is_finite()) else {
                    return Choice::Forbidden;
                };
                let step = line.tokens.len() as u64;
                let drawn = samples().into_iter().map(|sample| {
                    let mut used = logits.to_vec();
                    let token = match search {
                        Search::Sample(sampling) => {
                            let parts = [self.stream[1], sample as u64, step];
                            sampling.draw(&mut used, Random::new(self.stream[0], &parts).unit())
                        }
                        _ => greatest,
                    };
                    let logit = original.as_deref().unwrap_or(logits)[token as usize];
                    (sample, token as i32, f64::from(logit) - f64::from(log_sum))
                });
                Choice::Drawn(drawn.collect())
            }
        }
    }

    /// Adds a token to each text. Returns the result if all of them are finished; otherwise, each has the row that it
    /// continues.
    fn advance(
        &mut self,
        config: &DecodeConfig,
        choices: Vec<Choice>,
        attention: &[Option<Arc<[f32]>>],
        listener: &mut Option<Listener<'_>>,
    ) -> Option<Result<Vec<Hypothesis>>> {
        let Request { prefix, max_new, .. } = &self.request;
        if choices.iter().any(|choice| matches!(choice, Choice::NotFinite)) {
            return Some(Err(ModelError::OutputNotFinite));
        }
        // Beams go on where others may.
        if choices.iter().all(|choice| matches!(choice, Choice::Forbidden)) {
            return Some(Err(ModelError::EveryTokenForbidden { settings: config.forbidding() }));
        }
        if let Work::Prefix(line) = &mut self.work {
            if matches!(choices[0], Choice::Forced) {
                line.alignment.extend(attention[0].clone());
                self.n_forced += 1;
                return None;
            }
            self.work = match &config.search {
                Search::Beam(beam) => Work::Beams(Beams::new(beam, line)),
                _ => {
                    let live = (0..config.width()).map(|sample| (sample, line.clone()));
                    Work::Samples { live: live.collect(), finished: Vec::new() }
                }
            };
        }
        match (&mut self.work, &config.search) {
            (Work::Beams(beams), Search::Beam(beam)) => {
                let best = choices.into_iter().map(|choice| match choice {
                    Choice::Best(best) => best,
                    Choice::Forbidden => Best { log_sum: 0.0, tokens: Vec::new() },
                    _ => unreachable!("a beam's choice is the best tokens"),
                });
                let best: Vec<Best> = best.collect();
                let stop_ids = &config.stop_ids;
                let step = Step { config: beam, stop_ids, prefix, max_new: *max_new, best: &best, attention };
                if beams.advance(&step) {
                    return None;
                }
                let done = std::mem::replace(beams, Beams::new(beam, &Line::new()));
                let mut texts = done.finish(config.n_best);
                if !config.alignment {
                    texts.iter_mut().for_each(|text| text.alignment.clear());
                }
                Some(Ok(texts))
            }
            (Work::Samples { live, finished }, _) => {
                let drawn = choices.into_iter().flat_map(|choice| match choice {
                    Choice::Drawn(drawn) => drawn,
                    _ => Vec::new(),
                });
                let mut next: Vec<(usize, i32, f64)> = drawn.collect();
                next.sort_unstable_by_key(|(sample, ..)| *sample);
                let before = std::mem::take(live);
                for ((number, line), (sample, token, log_prob)) in before.into_iter().zip(next) {
                    assert_eq!(number, sample, "every sample has drawn a token");
                    let line = line.with(token, line.log_prob + log_prob, attention[line.row].as_ref());
                    let stops = config.stop_ids.contains(&token);
                    if let Some(listener) = listener.as_mut().filter(|_| !stops) {
                        listener(WrittenToken { request: self.number, sample, prefix, tokens: &line.tokens });
                    }
                    if stops || line.tokens.len() == *max_new {
                        let score = line.log_prob;
                        finished.push((sample, line.end(prefix, score, stops)));
                    } else {
                        live.push((sample, line));
                    }
                }
                if !live.is_empty() {
                    return None;
                }
                finished.sort_by_key(|(sample, _)| *sample);
                Some(Ok(finished.drain(..).map(|(_, text)| text).collect()))
            }
            _ => unreachable!("beams are those of a beam search"),
        }
    }

    /// Gives each text a row of its own, and returns which of the previous rows each continues.
    fn settle(&mut self) -> Vec<usize> {
        let lines: Vec<&mut Line> = match &mut self.work {
            Work::Prefix(line) => vec![line],
            Work::Beams(beams) => beams.live_mut().collect(),
            Work::Samples { live, .. } => live.iter_mut().map(|(_, line)| line).collect(),
        };
        self.n_rows = lines.len();
        lines.into_iter().enumerate().map(|(row, line)| std::mem::replace(&mut line.row, row)).collect()
    }
}

/// Changes the logits of the tokens in a text, each once, unless the penalty is none.
fn penalise(logits: &mut [f32], text: &[i32], penalty: f32, change: impl Fn(f32) -> f32) {
    if penalty == 1.0 {
        return;
    }
    let mut tokens = text.to_vec();
    tokens.sort_unstable();
    tokens.dedup();
    for token in tokens {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = change(*logit);
        }
    }
}

/// Takes tokens away.
fn forbid(logits: &mut [f32], banned: &[i32]) {
    for token in banned {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

impl<'m, B: ReadInput, I: Iterator<Item = Request> + Send> Decoding<'m, B, I> {
    fn new(begin: B, config: &'m DecodeConfig, requests: I) -> Result<Self> {
        config.validate()?;
        Ok(Self {
            begin,
            config,
            requests,
            n_read: 0,
            n_done: 0,
            waiting: BTreeMap::new(),
            active: VecDeque::new(),
            state: None,
            results: BTreeMap::new(),
            listener: None,
        })
    }

    /// Calls `listener` for each written token, except for those that end a text or are part of a beam.
    pub fn with_listener(mut self, listener: impl FnMut(WrittenToken<'_>) + Send + 'm) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Decodes until the next request is finished; none if there are no more.
    fn work(&mut self) {
        loop {
            self.admit();
            if self.results.contains_key(&self.n_done) || self.active.is_empty() && self.waiting.is_empty() {
                return;
            }
            self.step();
        }
    }

    /// Reads ahead as many requests as the window holds.
    fn read_ahead(&mut self) {
        while self.n_read - self.n_done < self.config.window.max(self.config.batch) {
            let Some(request) = self.requests.next() else { return };
            let number = self.n_read;
            self.n_read += 1;
            let n_input = request.input.len();
            let room = self.begin.room(&request.input);
            let room = room.map_or(usize::MAX, |room| room.saturating_sub(request.prefix.len()));
            match self.begin.max_input() {
                Some(max) if n_input > max => {
                    self.results.insert(number, Err(ModelError::InputTooLong { tokens: n_input, max }));
                }
                _ if n_input == 0 || request.max_new.min(room) == 0 => {
                    let empty = Line::new().end(&request.prefix, 0.0, false);
                    self.results.insert(number, Ok(vec![empty]));
                }
                _ => {
                    let request = Request { max_new: request.max_new.min(room), ..request };
                    self.waiting.insert((Reverse(n_input), number), request);
                }
            }
        }
    }

    /// Starts waiting requests if there is room.
    fn admit(&mut self) {
        let DecodeConfig { batch, .. } = *self.config;
        let room = batch.saturating_sub(self.active.len());
        // Starts several at a time, so that reading them together pays.
        if !self.active.is_empty() && room < batch.div_ceil(8) {
            return;
        }
        self.read_ahead();
        let mut new = VecDeque::new();
        while new.len() < room {
            let Some(((_, number), request)) = self.waiting.pop_first() else { break };
            let before = self.begin.before(&request.input).to_vec();
            new.push_back(Active::new(number, request, &before));
        }
        if new.is_empty() {
            return;
        }
        let inputs: Sequences = new.iter().map(|active| &active.request.input[..]).collect();
        let (mut state, output) = self.begin.begin(&inputs);
        let rows = self.advance(&mut new, output);
        if new.is_empty() {
            return;
        }
        self.select(&mut state, rows, inputs.len());
        self.active.append(&mut new);
        match &mut self.state {
            Some(all) => self.begin.model().join(all, state),
            None => self.state = Some(state),
        }
    }

    /// Selects these rows of the state, unless it has exactly these.
    fn select(&self, state: &mut <B::Model as NextToken>::State, rows: Vec<usize>, n_rows: usize) {
        if !rows.iter().copied().eq(0..n_rows) {
            self.begin.model().select(state, &rows);
        }
    }

    /// Reads one more token a row.
    fn step(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        let mut active = std::mem::take(&mut self.active);
        let mut tokens = Vec::new();
        active.iter().for_each(|active| active.last_tokens(&mut tokens));
        let output = self.begin.model().step(&tokens, &mut state);
        let rows = self.advance(&mut active, output);
        if !active.is_empty() {
            self.select(&mut state, rows, tokens.len());
            self.state = Some(state);
        }
        self.active = active;
    }

    /// Adds a token to each text, by its row's logits. Finished requests store their results; the others return the
    /// rows that they continue.
    fn advance(&mut self, active: &mut VecDeque<Active>, output: StepOutput) -> Vec<usize> {
        let [n_rows, vocab_size] = output.logits.dims();
        let mut logits = host(output.logits);
        let alignment = output.alignment.map(|alignment| (alignment.dims()[1], host(alignment)));
        let config = self.config;
        let owners: Vec<(&Active, usize)> =
            active.iter().flat_map(|active| (0..active.n_rows).map(move |row| (active, row))).collect();
        assert_eq!(owners.len(), n_rows, "rows of logits, and texts");
        let rows = logits.par_chunks_exact_mut(vocab_size.max(1)).zip(owners);
        let choices: Vec<Choice> =
            rows.map(|(logits, (active, row))| active.choose(config, row, logits)).collect();
        let (mut choices, mut kept, mut first) = (choices.into_iter(), Vec::new(), 0);
        for mut one in std::mem::take(active) {
            let n_rows = one.n_rows;
            let attention = (first..first + n_rows).map(|row| {
                let (width, all) = alignment.as_ref()?;
                Some(all[row * width..][..one.request.input.len().min(*width)].into())
            });
            let attention: Vec<Option<Arc<[f32]>>> = attention.collect();
            let choices = choices.by_ref().take(n_rows).collect();
            match one.advance(config, choices, &attention, &mut self.listener) {
                None => {
                    kept.extend(one.settle().into_iter().map(|row| first + row));
                    active.push_back(one);
                }
                Some(result) => {
                    self.results.insert(one.number, result);
                }
            }
            first += n_rows;
        }
        kept
    }
}

impl<B: ReadInput, I: Iterator<Item = Request> + Send> Iterator for Decoding<'_, B, I> {
    type Item = Result<Vec<Hypothesis>>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.results.contains_key(&self.n_done) {
            let device = self.begin.device().clone();
            ops::on_awake_cores(&device, || self.work());
        }
        let result = self.results.remove(&self.n_done)?;
        self.n_done += 1;
        Some(result)
    }
}

/// The values of a tensor, as FP32.
fn host(x: Tensor<2>) -> Vec<f32> {
    let data = x.into_data();
    let data = if data.dtype() == DType::F32 { data } else { data.convert_dtype(DType::F32) };
    data.try_into_vec().expect("32-bit floats")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::penalty::coverage;
    use crate::generate::{BeamSearch, EarlyStopping, LengthPenalty, Sampling};
    use burn::tensor::TensorData;

    const VOCAB: i32 = 5;
    const STOP: i32 = 2;

    /// A model whose logits are random, as a function of everything that its row has read.
    struct Toy {
        limit: Option<usize>,
    }

    const TOY: Toy = Toy { limit: None };

    impl Toy {
        fn logits(&self, history: &[i32]) -> Vec<f32> {
            let parts: Vec<u64> = history.iter().map(|id| *id as u64).collect();
            let mut random = Random::new(11, &parts);
            (0..VOCAB).map(|_| (random.unit() * 4.0) as f32).collect()
        }

        /// Attention to a source of the same length as the row's input, which is everything before -1.
        fn attention(&self, history: &[i32]) -> Vec<f32> {
            let n_source = history.iter().position(|id| *id == -1).unwrap();
            let parts: Vec<u64> = history.iter().map(|id| *id as u64).collect();
            let mut random = Random::new(12, &parts);
            let shares: Vec<f32> = (0..n_source).map(|_| random.unit() as f32 + 0.01).collect();
            let total: f32 = shares.iter().sum();
            shares.into_iter().map(|share| share / total).collect()
        }

        fn output(&self, state: &[Vec<i32>]) -> StepOutput {
            let device = Device::flex();
            let logits: Vec<f32> = state.iter().flat_map(|row| self.logits(row)).collect();
            let attention: Vec<Vec<f32>> = state.iter().map(|row| self.attention(row)).collect();
            let longest = attention.iter().map(Vec::len).max().unwrap();
            let padded = attention.into_iter().flat_map(|mut row| {
                row.resize(longest, 0.0);
                row
            });
            let padded = TensorData::new(padded.collect::<Vec<f32>>(), [state.len(), longest]);
            let logits = TensorData::new(logits, [state.len(), VOCAB as usize]);
            StepOutput::new(Tensor::from_data(logits, &device))
                .with_alignment(Some(Tensor::from_data(padded, &device)))
        }
    }

    impl NextToken for Toy {
        type State = Vec<Vec<i32>>;

        fn step(&self, tokens: &[i32], state: &mut Self::State) -> StepOutput {
            assert_eq!(tokens.len(), state.len());
            state.iter_mut().zip(tokens).for_each(|(row, token)| row.push(*token));
            self.output(state)
        }

        fn select(&self, state: &mut Self::State, rows: &[usize]) {
            *state = rows.iter().map(|row| state[*row].clone()).collect();
        }

        fn join(&self, state: &mut Self::State, other: Self::State) {
            state.extend(other);
        }
    }

    impl ReadInput for &Toy {
        type Model = Toy;

        fn device(&self) -> &Device {
            static DEVICE: std::sync::LazyLock<Device> = std::sync::LazyLock::new(Device::flex);
            &DEVICE
        }

        fn model(&self) -> &Toy {
            self
        }

        fn begin(&self, inputs: &Sequences) -> (Vec<Vec<i32>>, StepOutput) {
            let state: Vec<Vec<i32>> = inputs.iter().map(|ids| [ids, &[-1]].concat()).collect();
            let output = self.output(&state);
            (state, output)
        }

        fn max_input(&self) -> Option<usize> {
            self.limit
        }

        fn before<'a>(&'a self, _: &'a [i32]) -> &'a [i32] {
            &[-1]
        }

        fn room(&self, _: &[i32]) -> Option<usize> {
            self.limit
        }
    }

    fn decode(config: &DecodeConfig, requests: &[Request]) -> Vec<Vec<Hypothesis>> {
        let found = Decoding::new(&TOY, config, requests.iter().cloned()).unwrap();
        found.map(|found| found.unwrap()).collect()
    }

    fn requests(n: usize, max_new: usize) -> Vec<Request> {
        (0..n)
            .map(|i| Request::new((0..1 + i as i32 * 5 % 7).map(|k| k + i as i32).collect(), max_new))
            .collect()
    }

    /// The log-probability of each next token.
    fn log_probs(request: &Request, written: &[i32]) -> Vec<f64> {
        let logits = TOY.logits(&[&request.input[..], &[-1], &request.prefix, written].concat());
        let total: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        logits.iter().map(|x| f64::from(*x) - total.ln()).collect()
    }

    /// Every possible text with its score, the best first.
    fn all_texts(request: &Request, score: &dyn Fn(f64, &[i32]) -> f64) -> Vec<(Vec<i32>, f64)> {
        let mut done = Vec::new();
        let mut open = vec![(Vec::new(), 0.0)];
        while let Some((written, log_prob)) = open.pop() {
            for (token, p) in (0..).zip(log_probs(request, &written)) {
                let text = [&written[..], &[token]].concat();
                if token == STOP || text.len() == request.max_new {
                    let score = score(log_prob + p, &text);
                    done.push((text, score));
                } else {
                    open.push((text, log_prob + p));
                }
            }
        }
        done.sort_by(|a, b| b.1.total_cmp(&a.1));
        done
    }

    fn beam(beams: usize) -> BeamSearch {
        BeamSearch::new(beams).with_early_stopping(EarlyStopping::Never)
    }

    fn config(search: Search) -> DecodeConfig {
        DecodeConfig::new(vec![STOP]).with_search(search).with_batch(3)
    }

    #[test]
    fn a_beam_as_wide_as_all_texts_finds_the_best_of_them() {
        let penalties = [
            (LengthPenalty::Power(0.0), 0.0),
            (LengthPenalty::Power(1.0), 0.0),
            (LengthPenalty::Gnmt(0.6), 0.0),
            (LengthPenalty::Gnmt(0.6), 0.4),
        ];
        for (penalty, beta) in penalties {
            let search = beam(700).with_length_penalty(penalty).with_coverage_penalty(beta);
            let config = config(Search::Beam(search)).with_n_best(20);
            let mut requests = requests(4, 4);
            requests[1].prefix = vec![3, 1];
            for (found, request) in decode(&config, &requests).into_iter().zip(&requests) {
                let score = |log_prob: f64, text: &[i32]| {
                    let mut received = vec![0.0; request.input.len()];
                    let whole = [&request.prefix[..], text].concat();
                    for i in 0..whole.len() {
                        let attention = TOY.attention(&[&request.input[..], &[-1], &whole[..i]].concat());
                        received.iter_mut().zip(attention).for_each(|(sum, share)| *sum += share);
                    }
                    log_prob / penalty.at(text.len()) + coverage(beta, &received)
                };
                for (found, (text, score)) in found.iter().zip(all_texts(request, &score)) {
                    let ended = text.last() == Some(&STOP);
                    let text = [&request.prefix[..], &text[..text.len() - usize::from(ended)]].concat();
                    assert_eq!((&found.ids, found.ended), (&text, ended));
                    assert!((found.score - score).abs() < 1e-5);
                }
                assert_eq!(found.len(), 20);
            }
        }
    }

    #[test]
    fn what_is_decoded_beside_a_text_does_not_change_it() {
        let searches = [
            Search::Greedy,
            Search::Beam(BeamSearch::new(4)),
            Search::Beam(BeamSearch::new(4).with_groups(2, 0.8)),
            Search::Sample(Sampling { temperature: 0.9, top_k: 3, ..Sampling::default() }),
        ];
        for search in searches {
            let n_best = if search == Search::Greedy { 1 } else { 3 };
            let requests: Vec<Request> = requests(23, 9)
                .into_iter()
                .enumerate()
                .map(|(i, request)| request.with_seed(5).with_prefix(vec![3; i % 4]))
                .collect();
            let alone: Vec<Vec<Hypothesis>> = requests
                .iter()
                .flat_map(|request| {
                    let config = config(search.clone()).with_n_best(n_best).with_alignment();
                    decode(&config, std::slice::from_ref(request))
                })
                .collect();
            for (batch, window) in [(1, 1), (2, 3), (7, 100), (64, 1)] {
                let config = DecodeConfig { batch, window, ..config(search.clone()) };
                let config = config.with_n_best(n_best).with_alignment();
                assert_eq!(decode(&config, &requests), alone, "{search:?}");
            }
            assert!(
                alone.iter().any(|texts| texts[0].ended) && alone.iter().any(|texts| texts.len() == n_best)
            );
        }
    }

    #[test]
    fn greedy_decoding_takes_the_likeliest_token() {
        for request in requests(9, 6) {
            let found = decode(&config(Search::Greedy).with_alignment(), std::slice::from_ref(&request))
                .remove(0)
                .remove(0);
            let (mut text, mut total) = (Vec::new(), 0.0);
            while text.len() < 6 && text.last() != Some(&STOP) {
                let probs = log_probs(&request, &text);
                let best =
                    (0..VOCAB).max_by(|a, b| probs[*a as usize].total_cmp(&probs[*b as usize])).unwrap();
                total += probs[best as usize];
                text.push(best);
            }
            assert_eq!(found.ended, text.last() == Some(&STOP));
            text.truncate(text.len() - usize::from(found.ended));
            assert_eq!(found.ids, text);
            assert!((found.score - total).abs() < 1e-5);
            // Each token with the attention when it was chosen.
            assert_eq!(found.alignment.len(), text.len());
            for (i, attention) in found.alignment.iter().enumerate() {
                assert_eq!(attention[..], TOY.attention(&[&request.input[..], &[-1], &text[..i]].concat()));
            }
        }
    }

    #[test]
    fn groups_avoid_each_others_tokens() {
        // A slow version: group after group, each with the last tokens of the previous ones.
        let (size, groups, diversity, max_new) = (2, 3, 0.7, 5);
        for request in requests(6, max_new) {
            let mut live: Vec<Vec<(Vec<i32>, f64)>> = vec![vec![(Vec::new(), 0.0)]; groups];
            let mut finished: Vec<Vec<(Vec<i32>, f64)>> = vec![Vec::new(); groups];
            for length in 1..=max_new {
                let mut written: Vec<i32> = Vec::new();
                for (live, finished) in live.iter_mut().zip(&mut finished) {
                    let mut candidates: Vec<(f64, f64, Vec<i32>)> = Vec::new();
                    for (text, log_prob) in live.iter() {
                        for (token, p) in (0..).zip(log_probs(&request, text)) {
                            let times = written.iter().filter(|other| **other == token).count() as f64;
                            let key = log_prob + p - diversity * times;
                            candidates.push((key, log_prob + p, [&text[..], &[token]].concat()));
                        }
                    }
                    candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
                    candidates.truncate(2 * size);
                    live.clear();
                    for (rank, (_, log_prob, text)) in candidates.into_iter().enumerate() {
                        if text.last() == Some(&STOP) || length == max_new {
                            if rank < size {
                                finished.push((text, log_prob / length as f64));
                            }
                        } else if live.len() < size {
                            live.push((text, log_prob));
                        }
                    }
                    finished.sort_by(|a, b| b.1.total_cmp(&a.1));
                    finished.truncate(size);
                    written.extend(live.iter().map(|(text, _)| *text.last().unwrap()));
                }
            }
            let mut expected: Vec<(Vec<i32>, f64)> = finished.concat();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1));
            // Scores are means, so only the maximum length bounds the scores to come.
            let search = beam(size * groups).with_groups(groups, diversity as f32);
            let config = config(Search::Beam(search)).with_n_best(size * groups);
            let found = decode(&config, std::slice::from_ref(&request)).remove(0);
            // A group that cannot improve ends early, so the best are compared.
            assert_eq!(found.len(), expected.len());
            for (found, (text, score)) in found.iter().zip(expected) {
                let text = text.strip_suffix(&[STOP]).unwrap_or(&text).to_vec();
                assert_eq!(found.ids, text);
                assert!((found.score - score).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn samples_are_drawn_by_the_models_probabilities() {
        let request = Request::new(vec![1, 2], 2);
        let n = 20_000;
        let config = config(Search::Sample(Sampling::default())).with_n_best(n);
        let found = decode(&config, &[request.clone().with_seed(3)]).remove(0);
        let texts = all_texts(&request, &|log_prob, _| log_prob);
        for (text, log_prob) in texts {
            let ended = text.last() == Some(&STOP);
            let ids = &text[..text.len() - usize::from(ended)];
            let count = found.iter().filter(|found| found.ids == ids && found.ended == ended).count();
            let p = log_prob.exp();
            let deviation = (p * (1.0 - p) / n as f64).sqrt();
            assert!((count as f64 / n as f64 - p).abs() < 5.0 * deviation, "{text:?}: {count}, {p}");
            assert!(
                found.iter().filter(|found| found.ids == ids && found.ended == ended).all(|found| (found
                    .score
                    - log_prob)
                    .abs()
                    < 1e-5)
            );
        }
        assert_ne!(decode(&config, &[request.with_seed(4)]).remove(0), found);
    }

    #[test]
    fn settings_look_back_and_ahead() {
        let greedy = config(Search::Greedy);
        for request in requests(9, 8) {
            let text =
                |config: &DecodeConfig| decode(config, std::slice::from_ref(&request)).remove(0).remove(0);
            assert!(text(&DecodeConfig { min_new: 5, ..greedy.clone() }).ids.len() >= 5);
            let found = text(&DecodeConfig { forbidden_ids: vec![0, 4], ..greedy.clone() });
            assert!(!found.ids.contains(&0) && !found.ids.contains(&4));
            let found = text(&DecodeConfig { no_repeat_ngram: 1, min_new: 4, ..greedy.clone() });
            let mut once = found.ids.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), found.ids.len());
            let found = text(&DecodeConfig { repetition_penalty: 1e6, min_new: 4, ..greedy.clone() });
            assert!(
                found.ids[..4]
                    .iter()
                    .all(|id| found.ids[..4].iter().filter(|other| *other == id).count() == 1)
            );
        }
    }

    #[test]
    fn a_request_that_cannot_be_decoded_stops_no_other() {
        let toy = Toy { limit: Some(4) };
        let requests = [
            Request::new(vec![1], 9),
            Request::new(vec![], 9),
            Request::new(vec![1; 5], 9),
            Request::new(vec![1, 2], 0),
            Request::new(vec![1, 2], 9).with_prefix(vec![3; 4]),
            Request::new(vec![3, 2], 9).with_prefix(vec![3; 2]),
        ];
        let config = DecodeConfig { min_new: 9, ..config(Search::Greedy) };
        let found: Vec<Result<Vec<Hypothesis>>> =
            Decoding::new(&toy, &config, requests.iter().cloned()).unwrap().collect();
        let lengths: Vec<Option<usize>> =
            found.iter().map(|found| found.as_ref().ok().map(|texts| texts[0].ids.len())).collect();
        assert_eq!(lengths, [Some(4), Some(0), None, Some(0), Some(4), Some(4)]);
        assert_eq!(
            found[2].as_ref().unwrap_err().to_string(),
            "5 tokens are too many: the model takes at most 4"
        );
        assert!(Decoding::new(&toy, &DecodeConfig { batch: 0, ..config }, requests.into_iter()).is_err());
    }

    #[test]
    fn tokens_are_told_as_they_are_written() {
        let config = config(Search::Sample(Sampling::default())).with_n_best(2);
        let mut told: BTreeMap<(usize, usize), Vec<i32>> = BTreeMap::new();
        let requests = requests(5, 7);
        let found: Vec<Vec<Hypothesis>> = Decoding::new(&TOY, &config, requests.into_iter())
            .unwrap()
            .with_listener(|written| {
                let text = told.entry((written.request, written.sample)).or_default();
                assert_eq!(written.tokens.len(), text.len() + 1);
                *text = written.tokens.to_vec();
            })
            .map(|found| found.unwrap())
            .collect();
        for (request, texts) in found.iter().enumerate() {
            for (sample, text) in texts.iter().enumerate() {
                assert_eq!(told.get(&(request, sample)).cloned().unwrap_or_default(), text.ids);
            }
        }
    }
}
