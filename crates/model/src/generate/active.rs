//! A request in progress: which tokens may come next, and which one does. Without tensors.

use super::beam::{Beams, Line, Step, n_best_tokens};
use super::random::Random;
use super::{DecodeConfig, Hypothesis, Request, Search, TokenScore, WrittenToken};
use crate::ops::{self, Best};
use crate::{ModelError, Result};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A listener that is called for each token, and may end its text.
pub(super) type Listener<'l> = Box<dyn FnMut(WrittenToken<'_>) -> ControlFlow<()> + Send + 'l>;

/// A request being decoded.
pub(super) struct Active {
    pub id: usize,
    pub request: Request,
    config: Arc<DecodeConfig>,
    /// The seed of the random numbers.
    stream: [u64; 2],
    /// The number of prefix tokens that were read.
    n_forced: usize,
    /// The tokens before the text: those read and the prefix.
    before: Vec<i32>,
    /// The number of its rows in the state.
    pub n_rows: usize,
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
pub(super) enum Choice {
    /// The prefix decides.
    Forced,
    Best(Best),
    /// For each sample on this row: its index, token and log-probability; and the row's most likely tokens with theirs, if
    /// asked for.
    Drawn(Vec<(usize, i32, f64)>, Arc<[(i32, f64)]>),
    /// The logits are not finite.
    NotFinite,
    /// The settings forbid every token.
    Forbidden,
}

impl Active {
    /// A request that is about to begin; `before` precedes its text.
    pub fn new(id: usize, request: Request, config: Arc<DecodeConfig>, before: &[i32]) -> Self {
        let before = [before, &request.prefix].concat();
        let ids: Vec<u64> = request.input.iter().chain(&request.prefix).map(|id| *id as u64).collect();
        let stream = Random::new(request.seed, &ids).bits();
        Self { id, request, config, stream, n_forced: 0, before, n_rows: 1, work: Work::Prefix(Line::new()) }
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
    pub fn last_tokens(&self, tokens: &mut Vec<i32>) {
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
    fn begins_forced(&self) -> bool {
        self.config.forced_first.is_some() && self.before.len() == 1
    }

    /// The tokens of which one must come next; empty if any may.
    fn forced(&self, line: &Line) -> &[i32] {
        let config = &self.config;
        match line.tokens.len() + 1 {
            n if n == self.request.max_new && !config.forced_last.is_empty() => &config.forced_last,
            1 if self.begins_forced() => config.forced_first.as_slice(),
            _ => &[],
        }
    }

    /// The tokens that may not come next.
    fn banned(&self, line: &Line, history: &[i32]) -> Vec<i32> {
        let config = &self.config;
        let mut banned = config.forbidden_ids.clone();
        let written = line.tokens.len();
        if written < config.min_new || self.before.len() + written < config.min_length {
            banned.extend(&config.stop_ids);
        }
        if written == usize::from(self.begins_forced()) {
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

    /// Chooses the next tokens on a row; overwrites its logits. `is_normalised`: whether these are log-probabilities.
    pub fn choose(&self, row: usize, logits: &mut [f32], is_normalised: bool) -> Choice {
        let config = &self.config;
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
        if let forced @ [first, ..] = self.forced(line) {
            return match &config.search {
                Search::Beam(_) => Choice::Best(Best {
                    log_sum: if config.renormalize { (forced.len() as f32).ln() } else { 0.0 },
                    tokens: forced.iter().map(|token| (*token as u32, 0.0)).collect(),
                }),
                _ => {
                    let drawn = samples().into_iter().map(|sample| (sample, *first, 0.0)).collect();
                    Choice::Drawn(drawn, Arc::default())
                }
            };
        }
        let history = if config.looks_back() { self.history(line) } else { Vec::new() };
        let banned = self.banned(line, &history);
        let is_banned = |token: &u32| banned.binary_search(&(*token as i32)).is_ok();
        let n_alternatives = config.n_alternatives.unwrap_or(0);
        let mut log_sum = is_normalised.then_some(0.0);
        if let Some(allowed) = &config.allowed_ids {
            // The probabilities of the others are not given to these.
            let Some(whole) = best_of(logits, 0, log_sum) else { return Choice::NotFinite };
            log_sum = Some(whole.log_sum);
            forbid_others(logits, allowed);
            if logits.iter().all(|logit| *logit == f32::NEG_INFINITY) {
                return Choice::Forbidden;
            }
        }
        let penalises = config.repetition_penalty != 1.0 || config.input_repetition_penalty != 1.0;
        let [of_input, of_text] = [1.0 / config.input_repetition_penalty, config.repetition_penalty];
        match &config.search {
            Search::Beam(beam) => {
                let n = n_best_tokens(beam, config.stop_ids.len()) + banned.len();
                let best = best_of(logits, if penalises { 0 } else { n }, log_sum);
                let Some(mut best) = best else { return Choice::NotFinite };
                let log_sum = best.log_sum;
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
                let best = best_of(logits, (1 + banned.len()).max(n_alternatives), log_sum);
                let Some(best) = best else { return Choice::NotFinite };
                let log_sum = best.log_sum;
                let alternatives = alternatives(&best, n_alternatives);
                match best.tokens.into_iter().find(|(token, _)| !is_banned(token)) {
                    Some((token, logit)) if logit.is_finite() => {
                        let log_prob = f64::from(logit) - f64::from(log_sum);
                        Choice::Drawn(vec![(0, token as i32, log_prob)], alternatives)
                    }
                    _ => Choice::Forbidden,
                }
            }
            search => {
                let best = best_of(logits, n_alternatives, log_sum);
                let Some(best) = best else { return Choice::NotFinite };
                let log_sum = best.log_sum;
                let alternatives = alternatives(&best, n_alternatives);
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
                Choice::Drawn(drawn.collect(), alternatives)
            }
        }
    }

    /// Adds a token to each text. Returns the result if all of them are finished; otherwise, each has the row that it
    /// continues.
    pub fn advance(
        &mut self,
        choices: Vec<Choice>,
        attention: &[Option<Arc<[f32]>>],
        listener: &mut Option<Listener<'_>>,
    ) -> Option<Result<Vec<Hypothesis>>> {
        let config = &self.config;
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
        let mut texts = match (&mut self.work, &config.search) {
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
                done.finish(config.n_best)
            }
            (Work::Samples { live, finished }, _) => {
                let mut next = Vec::with_capacity(live.len());
                for choice in choices {
                    if let Choice::Drawn(drawn, best) = choice {
                        next.extend(drawn.into_iter().map(|one| (one, best.clone())));
                    }
                }
                next.sort_unstable_by_key(|((sample, ..), _)| *sample);
                let before = std::mem::take(live);
                for ((number, line), ((sample, token, log_prob), best)) in before.into_iter().zip(next) {
                    assert_eq!(number, sample, "every sample has drawn a token");
                    let mut line = line.with(token, line.log_prob + log_prob, attention[line.row].as_ref());
                    if config.n_alternatives.is_some() {
                        line.scores.push(TokenScore { log_prob, best });
                    }
                    let stops = config.stop_ids.contains(&token);
                    let written = WrittenToken { request: self.id, sample, prefix, tokens: &line.tokens };
                    let listener = listener.as_mut().filter(|_| !stops);
                    let is_over = listener.is_some_and(|listener| listener(written).is_break());
                    if stops || is_over || line.tokens.len() == *max_new {
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
                finished.drain(..).map(|(_, text)| text).collect()
            }
            _ => unreachable!("beams are those of a beam search"),
        };
        if !config.alignment {
            texts.iter_mut().for_each(|text| text.alignment.clear());
        }
        Some(Ok(texts))
    }

    /// Gives each text a row of its own, and returns which of the previous rows each continues.
    pub fn settle(&mut self) -> Vec<usize> {
        let lines: Vec<&mut Line> = match &mut self.work {
            Work::Prefix(line) => vec![line],
            Work::Beams(beams) => beams.live_mut().collect(),
            Work::Samples { live, .. } => live.iter_mut().map(|(_, line)| line).collect(),
        };
        self.n_rows = lines.len();
        lines.into_iter().enumerate().map(|(row, line)| std::mem::replace(&mut line.row, row)).collect()
    }
}

/// The best tokens, with this normaliser if it is known; none if the logits are not finite.
fn best_of(logits: &[f32], n: usize, log_sum: Option<f32>) -> Option<Best> {
    let best = ops::best(logits, n);
    let is_finite = best.log_sum.is_finite();
    is_finite.then(|| Best { log_sum: log_sum.unwrap_or(best.log_sum), ..best })
}

/// The first `n` of the best tokens, with their log-probabilities.
fn alternatives(best: &Best, n: usize) -> Arc<[(i32, f64)]> {
    let log_prob = |(token, logit): &(u32, f32)| (*token as i32, f64::from(*logit) - f64::from(best.log_sum));
    best.tokens.iter().take(n).map(log_prob).collect()
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

/// Forbids all tokens but these, which ascend.
fn forbid_others(logits: &mut [f32], allowed: &[i32]) {
    let mut rest = logits;
    let mut start = 0;
    for token in allowed {
        let before = (*token as usize).saturating_sub(start);
        if *token < 0 || before >= rest.len() {
            continue;
        }
        let (forbidden, others) = rest.split_at_mut(before);
        forbidden.fill(f32::NEG_INFINITY);
        (rest, start) = (&mut others[1..], *token as usize + 1);
    }
    rest.fill(f32::NEG_INFINITY);
}

/// Forbids tokens.
fn forbid(logits: &mut [f32], banned: &[i32]) {
    for token in banned {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}
