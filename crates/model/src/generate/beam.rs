//! A beam search for one text: pure bookkeeping, without tensors.

use super::penalty::coverage;
use super::{BeamSearch, EarlyStopping, Hypothesis, TokenScore};
use crate::ops::Best;
use std::sync::Arc;

/// An unfinished hypothesis.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// Its row in the step's input.
    pub row: usize,
    /// The tokens written after the prefix.
    pub tokens: Vec<i32>,
    pub log_prob: f64,
    /// For each token of prefix and text, the attention when it was chosen; empty unless asked for.
    pub alignment: Vec<Arc<[f32]>>,
    /// The score of each token; empty unless asked for.
    pub scores: Vec<TokenScore>,
}

impl Line {
    /// An empty line.
    pub fn new() -> Self {
        Self { row: 0, tokens: Vec::new(), log_prob: 0.0, alignment: Vec::new(), scores: Vec::new() }
    }

    /// This line with one more token, still on the same row.
    pub fn with(&self, token: i32, log_prob: f64, attention: Option<&Arc<[f32]>>) -> Self {
        let mut line = self.clone();
        line.tokens.push(token);
        line.log_prob = log_prob;
        line.alignment.extend(attention.cloned());
        line
    }

    /// The finished hypothesis.
    pub fn end(mut self, prefix: &[i32], score: f64, ended: bool) -> Hypothesis {
        if ended {
            self.tokens.pop();
            self.scores.truncate(self.tokens.len());
            if !self.alignment.is_empty() {
                self.alignment.truncate(prefix.len() + self.tokens.len());
            }
        }
        Hypothesis {
            ids: [prefix, &self.tokens].concat(),
            score,
            log_prob: self.log_prob,
            ended,
            alignment: self.alignment,
            scores: self.scores,
        }
    }
}

/// Beams that compete with each other.
#[derive(Debug, Clone)]
struct Group {
    live: Vec<Line>,
    /// Best first.
    finished: Vec<Hypothesis>,
    /// Whether an unfinished hypothesis can still become better than the finished ones.
    is_open: bool,
}

/// The beam search for one input.
#[derive(Debug, Clone)]
pub(super) struct Beams {
    groups: Vec<Group>,
}

/// The input of one step of a search.
pub(super) struct Step<'a> {
    pub config: &'a BeamSearch,
    pub stop_ids: &'a [i32],
    /// The prefix of the input's text.
    pub prefix: &'a [i32],
    pub max_new: usize,
    /// The log-probabilities of each row, without forbidden tokens.
    pub best: &'a [Best],
    /// The attention of each row.
    pub attention: &'a [Option<Arc<[f32]>>],
}

/// Number of continuations considered per group: enough even if all that can end do so.
fn n_candidates(config: &BeamSearch, n_stop_ids: usize) -> usize {
    (1 + n_stop_ids).max(2) * config.group_size()
}

/// Number of best tokens needed per row.
pub(super) fn n_best_tokens(config: &BeamSearch, n_stop_ids: usize) -> usize {
    // Tokens written by the previous groups may lose their rank.
    n_candidates(config, n_stop_ids) + config.beams - config.group_size()
}

impl Beams {
    /// The start: every group begins with the same row.
    pub fn new(config: &BeamSearch, begin: &Line) -> Self {
        let group = || Group { live: vec![begin.clone()], finished: Vec::new(), is_open: true };
        Self { groups: (0..config.groups).map(|_| group()).collect() }
    }

    /// The unfinished hypotheses in the order of their rows; at first, all groups have the same one.
    pub fn live(&self) -> impl Iterator<Item = &Line> {
        self.groups.iter().flat_map(|group| &group.live)
    }

    /// As [`live`](Self::live).
    pub fn live_mut(&mut self) -> impl Iterator<Item = &mut Line> {
        self.groups.iter_mut().flat_map(|group| &mut group.live)
    }

    /// Writes one more token. Returns whether the search continues; if so, each unfinished hypothesis has its own row,
    /// and [`Line::row`] is the row it continues.
    pub fn advance(&mut self, step: &Step) -> bool {
        let mut written: Vec<i32> = Vec::new();
        for group in &mut self.groups {
            if group.live.is_empty() {
                continue;
            }
            group.advance(step, &written);
            written.extend(group.live.iter().filter_map(|line| line.tokens.last()));
        }
        self.groups.iter().any(|group| !group.live.is_empty())
    }

    /// The finished hypotheses of all groups, best first.
    pub fn finish(self, n_best: usize) -> Vec<Hypothesis> {
        let mut all: Vec<Hypothesis> = self.groups.into_iter().flat_map(|group| group.finished).collect();
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
        all.truncate(n_best);
        all
    }
}

struct Candidate {
    /// The index among the unfinished hypotheses.
    parent: usize,
    token: i32,
    log_prob: f64,
    /// The score by which candidates are ordered.
    key: f64,
}

impl Group {
    fn advance(&mut self, step: &Step, written: &[i32]) {
        let Step { config, stop_ids, max_new, .. } = *step;
        let size = config.group_size();
        let mut candidates = Vec::new();
        for (parent, line) in self.live.iter().enumerate() {
            let Best { log_sum, tokens } = &step.best[line.row];
            for (token, logit) in tokens {
                let token = *token as i32;
                let log_prob = line.log_prob + f64::from(*logit) - f64::from(*log_sum);
                let times = written.iter().filter(|other| **other == token).count();
                let key = log_prob - f64::from(config.diversity) * times as f64;
                if key > f64::NEG_INFINITY {
                    candidates.push(Candidate { parent, token, log_prob, key });
                }
            }
        }
        candidates.sort_by(|a, b| b.key.total_cmp(&a.key));
        candidates.truncate(n_candidates(config, stop_ids.len()));

        let length = self.live[0].tokens.len() + 1;
        let is_full = |finished: &[Hypothesis]| finished.len() == size;
        let takes_more =
            self.is_open && !(config.early_stopping == EarlyStopping::Full && is_full(&self.finished));
        let mut live = Vec::with_capacity(size);
        for (rank, candidate) in candidates.into_iter().enumerate() {
            let Candidate { parent, token, log_prob, .. } = candidate;
            let parent = &self.live[parent];
            let line = || parent.with(token, log_prob, step.attention[parent.row].as_ref());
            let stops = stop_ids.contains(&token);
            if !stops && length < max_new {
                if live.len() < size {
                    live.push(line());
                }
            } else if rank < size && takes_more {
                // Later candidates only keep the search going.
                let line = line();
                let covered = match config.coverage_penalty {
                    0.0 => 0.0,
                    beta => coverage(beta, &received(&line.alignment)),
                };
                let score = log_prob / config.length_penalty.at(length) + covered;
                let place = self.finished.partition_point(|other| other.score >= score);
                self.finished.insert(place, line.end(step.prefix, score, stops));
            }
        }
        self.finished.truncate(size);
        if live.is_empty() && self.finished.is_empty() {
            // No more tokens may be written.
            for line in std::mem::take(&mut self.live) {
                let score = line.log_prob / config.length_penalty.at(line.tokens.len().max(1));
                self.finished.push(line.end(step.prefix, score, false));
            }
        }
        self.live = live;
        self.is_open &= self.may_improve(step, length);
        if !self.is_open || config.early_stopping == EarlyStopping::Full && is_full(&self.finished) {
            self.live.clear();
        }
    }

    /// Whether the best unfinished hypothesis may end with a better score than the worst finished one.
    fn may_improve(&self, step: &Step, length: usize) -> bool {
        let Step { config, max_new, .. } = *step;
        let (Some(best), Some(worst)) = (self.live.first(), self.finished.last()) else {
            return !self.live.is_empty();
        };
        let longest = config.early_stopping == EarlyStopping::Never && config.length_penalty.alpha() > 0.0;
        let length = if longest { max_new } else { length };
        self.finished.len() < config.group_size()
            || best.log_prob / config.length_penalty.at(length) > worst.score
    }
}

/// The attention that each source token received in total.
fn received(alignment: &[Arc<[f32]>]) -> Vec<f32> {
    let mut received = vec![0.0; alignment.first().map_or(0, |row| row.len())];
    for row in alignment {
        received.iter_mut().zip(row.iter()).for_each(|(sum, share)| *sum += share);
    }
    received
}
