//! A beam search over one text: pure bookkeeping, without tensors.

use super::penalty::coverage;
use super::{BeamSearch, EarlyStopping, Hypothesis};
use crate::ops::Best;
use std::sync::Arc;

/// A text under way.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// Its row among those of the input.
    pub row: usize,
    /// What was written, behind the prefix.
    pub tokens: Vec<i32>,
    pub log_prob: f64,
    /// For each token of prefix and text, the attention it was chosen with; empty unless asked for.
    pub alignment: Vec<Arc<[f32]>>,
}

impl Line {
    /// Before anything is written.
    pub fn new() -> Self {
        Self { row: 0, tokens: Vec::new(), log_prob: 0.0, alignment: Vec::new() }
    }

    /// With one more token, on this line's row.
    pub fn with(&self, token: i32, log_prob: f64, attention: Option<&Arc<[f32]>>) -> Self {
        let mut line = self.clone();
        line.tokens.push(token);
        line.log_prob = log_prob;
        line.alignment.extend(attention.cloned());
        line
    }

    /// As a result.
    pub fn end(mut self, prefix: &[i32], score: f64, ended: bool) -> Hypothesis {
        if ended {
            self.tokens.pop();
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
        }
    }
}

/// Beams that compete with each other.
#[derive(Debug, Clone)]
struct Group {
    live: Vec<Line>,
    /// The best first.
    finished: Vec<Hypothesis>,
    /// Whether an unfinished one may still become better.
    is_open: bool,
}

/// The search of one input.
#[derive(Debug, Clone)]
pub(super) struct Beams {
    groups: Vec<Group>,
}

/// What a step of an input's search is given.
pub(super) struct Step<'a> {
    pub config: &'a BeamSearch,
    pub stop_ids: &'a [i32],
    /// What the input's text begins with.
    pub prefix: &'a [i32],
    pub max_new: usize,
    /// Of each row; without the tokens that may not be written.
    pub best: &'a [Best],
    /// What each row attended to.
    pub attention: &'a [Option<Arc<[f32]>>],
}

/// How many of a group's continuations are looked at: enough, if all that could end do.
fn n_candidates(config: &BeamSearch, n_stop_ids: usize) -> usize {
    (1 + n_stop_ids).max(2) * config.group_size()
}

/// How many tokens of each row a search has to know.
pub(super) fn n_best_tokens(config: &BeamSearch, n_stop_ids: usize) -> usize {
    // Those that the groups before have written may lose their places.
    n_candidates(config, n_stop_ids) + config.beams - config.group_size()
}

impl Beams {
    /// Before anything is written: every group begins on the one row.
    pub fn new(config: &BeamSearch, begin: &Line) -> Self {
        let group = || Group { live: vec![begin.clone()], finished: Vec::new(), is_open: true };
        Self { groups: (0..config.groups).map(|_| group()).collect() }
    }

    /// The texts under way, in the order of their rows; the first time all groups have the same one.
    pub fn live(&self) -> impl Iterator<Item = &Line> {
        self.groups.iter().flat_map(|group| &group.live)
    }

    /// As [`live`](Self::live).
    pub fn live_mut(&mut self) -> impl Iterator<Item = &mut Line> {
        self.groups.iter_mut().flat_map(|group| &mut group.live)
    }

    /// Writes one more token. Returns whether the search goes on; then each live text has a row of its own, and
    /// [`Line::row`] says which it had before.
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

    /// The texts of all groups, the best first.
    pub fn finish(self, n_best: usize) -> Vec<Hypothesis> {
        let mut all: Vec<Hypothesis> = self.groups.into_iter().flat_map(|group| group.finished).collect();
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
        all.truncate(n_best);
        all
    }
}

struct Candidate {
    /// Among the live texts.
    parent: usize,
    token: i32,
    log_prob: f64,
    /// What candidates are ordered by.
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
                // Those behind are there for the search to go on alone.
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
            // Nothing more may be written.
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

    /// Whether the best unfinished text may end better than the worst finished one.
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

/// What each token of the source got of the attention of all tokens.
fn received(alignment: &[Arc<[f32]>]) -> Vec<f32> {
    let mut received = vec![0.0; alignment.first().map_or(0, |row| row.len())];
    for row in alignment {
        received.iter_mut().zip(row.iter()).for_each(|(sum, share)| *sum += share);
    }
    received
}
