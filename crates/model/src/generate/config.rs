use super::LengthPenalty;
use crate::{ModelError, Result};
use std::sync::Arc;

/// The largest coverage penalty and diversity that a search accepts: scores of any length are finite up to it.
const MAX_PENALTY: f64 = 1_000.0;

/// How texts are decoded from a model's next-token probabilities.
///
/// ```
/// use cloze_model::generate::{BeamSearch, DecodeConfig, Search};
///
/// let config = DecodeConfig::new(vec![2]).with_search(Search::Beam(BeamSearch::new(5)));
/// assert_eq!(config.width(), 5);
/// config.validate()?;
/// # Ok::<(), cloze_model::ModelError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DecodeConfig {
    /// How tokens are chosen.
    pub search: Search,
    /// The ids that end a text.
    pub stop_ids: Vec<i32>,
    /// The ids that are never written, such as padding.
    pub forbidden_ids: Vec<i32>,
    /// Sequences of two or more tokens that are never written: the last token never follows the others.
    pub forbidden_words: Vec<Vec<i32>>,
    /// The ids that are not written first.
    pub forbidden_first: Vec<i32>,
    /// The only ids that are written, ascending, besides what is forced; none: all may be. They keep their probabilities, which
    /// are not normalised again. See [`with_allowed_ids`](Self::with_allowed_ids).
    pub allowed_ids: Option<Arc<[i32]>>,
    /// The token that is always written first, if a single token precedes it: the one that begins targets.
    /// Its log-probability counts as 0, and it counts in lengths.
    pub forced_first: Option<i32>,
    /// If a text reaches its maximum length, one of these tokens is written last. Their log-probability
    /// counts as 0. Empty: no constraint.
    pub forced_last: Vec<i32>,
    /// The number of tokens that must precede one that ends the text.
    pub min_new: usize,
    /// Like [`min_new`](Self::min_new), but also counting the tokens before the text: its prompt, or the
    /// token that begins targets.
    pub min_length: usize,
    /// Makes tokens already in the text less likely: their logits are divided by it if positive, and
    /// multiplied by it if negative (Keskar et al. 2019, "CTRL", §4.1). In a beam search, it acts on
    /// log-probabilities, as in transformers. 1: no effect.
    pub repetition_penalty: f32,
    /// Makes tokens of the input more likely: like [`repetition_penalty`](Self::repetition_penalty), with its
    /// inverse. 1: no effect.
    pub input_repetition_penalty: f32,
    /// No sequence of this many tokens occurs twice (Paulus et al. 2018, §2.5); 0: no limit.
    pub no_repeat_ngram: usize,
    /// No sequence of this many tokens of the input occurs in the text; 0: no limit.
    pub no_repeat_input_ngram: usize,
    /// Whether a beam search normalises log-probabilities anew after all settings that change them.
    pub renormalize: bool,
    /// The number of texts returned for each input, best first; in a sampling search, the number of samples.
    pub n_best: usize,
    /// Whether the attention to the source is returned.
    pub alignment: bool,
    /// If set, each token's log-probability is returned, and those of this many most likely tokens. Not with a beam search.
    pub n_alternatives: Option<usize>,
}

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Search {
    /// The most likely token each time.
    Greedy,
    /// Several most likely hypotheses in parallel.
    Beam(BeamSearch),
    /// A random token, drawn by its probability.
    Sample(Sampling),
}

/// A beam search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BeamSearch {
    /// The number of hypotheses.
    pub beams: usize,
    /// The divisor of log-probabilities.
    pub length_penalty: LengthPenalty,
    /// `β` of the coverage penalty, which needs a model's attention to the source; 0: no penalty.
    pub coverage_penalty: f64,
    /// When a search ends.
    pub early_stopping: EarlyStopping,
    /// The number of groups of beams. Each group avoids the tokens that the previous groups have just written
    /// (Vijayakumar et al. 2018, "Diverse beam search"). 1: an ordinary beam search.
    pub groups: usize,
    /// The penalty on a token's log-probability for each time that a previous group has just written it.
    pub diversity: f32,
}

impl BeamSearch {
    /// An ordinary beam search, whose score is the mean log-probability of a token.
    pub fn new(beams: usize) -> Self {
        Self {
            beams,
            length_penalty: LengthPenalty::default(),
            coverage_penalty: 0.0,
            early_stopping: EarlyStopping::default(),
            groups: 1,
            diversity: 0.0,
        }
    }

    /// Sets the length penalty.
    pub fn with_length_penalty(mut self, penalty: LengthPenalty) -> Self {
        self.length_penalty = penalty;
        self
    }

    /// Sets the coverage penalty.
    pub fn with_coverage_penalty(mut self, beta: f64) -> Self {
        self.coverage_penalty = beta;
        self
    }

    /// Sets when the search ends.
    pub fn with_early_stopping(mut self, early_stopping: EarlyStopping) -> Self {
        self.early_stopping = early_stopping;
        self
    }

    /// Divides the beams into groups that avoid each other's tokens.
    pub fn with_groups(mut self, groups: usize, diversity: f32) -> Self {
        (self.groups, self.diversity) = (groups, diversity);
        self
    }

    /// The number of beams in a group.
    pub(super) fn group_size(&self) -> usize {
        self.beams / self.groups.max(1)
    }
}

/// When a beam search ends before the maximum length, as transformers defines it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EarlyStopping {
    /// As soon as there are as many finished texts as beams (`true`).
    Full,
    /// When the best unfinished hypothesis, ended now, would score worse than all finished texts (`false`).
    #[default]
    Likely,
    /// When no unfinished hypothesis can become better than the finished texts, however it continues (`"never"`).
    Never,
}

/// How tokens are drawn. The settings apply in this order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// The divisor of logits: below 1, likely tokens become more likely.
    pub temperature: f32,
    /// The number of most likely tokens to draw from (Fan et al. 2018); 0: all.
    pub top_k: usize,
    /// Draw from the fewest tokens whose probabilities sum to at least this (Holtzman et al. 2020, "nucleus"); 1: all.
    pub top_p: f32,
    /// Draw from tokens whose probability is at least this fraction of the maximum (Nguyen et al. 2024); 0:
    /// all.
    pub min_p: f32,
}

impl Default for Sampling {
    /// Sampling from the model's own probabilities.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 }
    }
}

impl DecodeConfig {
    /// Greedy decoding; these ids end a text.
    pub fn new(stop_ids: Vec<i32>) -> Self {
        Self {
            search: Search::Greedy,
            stop_ids,
            forbidden_ids: Vec::new(),
            forbidden_words: Vec::new(),
            forbidden_first: Vec::new(),
            allowed_ids: None,
            forced_first: None,
            forced_last: Vec::new(),
            min_new: 0,
            min_length: 0,
            repetition_penalty: 1.0,
            input_repetition_penalty: 1.0,
            no_repeat_ngram: 0,
            no_repeat_input_ngram: 0,
            renormalize: false,
            n_best: 1,
            alignment: false,
            n_alternatives: None,
        }
    }

    /// Sets how tokens are chosen.
    pub fn with_search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }

    /// Lets texts have only these tokens, and those that end them.
    pub fn with_allowed_ids(mut self, ids: impl IntoIterator<Item = i32>) -> Self {
        let mut ids: Vec<i32> = ids.into_iter().chain(self.stop_ids.iter().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        self.allowed_ids = Some(ids.into());
        self
    }

    /// Sets the number of texts for each input.
    pub fn with_n_best(mut self, n_best: usize) -> Self {
        self.n_best = n_best;
        self
    }

    /// Returns the attention to the source as well.
    pub fn with_alignment(mut self) -> Self {
        self.alignment = true;
        self
    }

    /// Returns each token's log-probability, and those of the `n` most likely tokens, as well.
    pub fn with_alternatives(mut self, n: usize) -> Self {
        self.n_alternatives = Some(n);
        self
    }

    /// The maximum number of rows for one input.
    pub fn width(&self) -> usize {
        match &self.search {
            Search::Greedy => 1,
            Search::Beam(beam) => beam.beams,
            Search::Sample(_) => self.n_best,
        }
    }

    /// Whether the allowed tokens depend on the preceding text.
    pub(super) fn looks_back(&self) -> bool {
        self.no_repeat_ngram > 0
            || self.no_repeat_input_ngram > 0
            || self.repetition_penalty != 1.0
            || !self.forbidden_words.is_empty()
    }

    /// The settings that forbid tokens, by their names; for an error.
    pub(super) fn forbidding(&self) -> String {
        let settings = [
            ("forbidden_ids", !self.forbidden_ids.is_empty()),
            ("forbidden_words", !self.forbidden_words.is_empty()),
            ("forbidden_first", !self.forbidden_first.is_empty()),
            ("allowed_ids", self.allowed_ids.is_some()),
            ("min_new", self.min_new > 0),
            ("min_length", self.min_length > 0),
            ("no_repeat_ngram", self.no_repeat_ngram > 0),
            ("no_repeat_input_ngram", self.no_repeat_input_ngram > 0),
        ];
        let on = settings.iter().filter(|(_, on)| *on).map(|(name, _)| format!("`{name}`"));
        on.collect::<Vec<_>>().join(", ")
    }

    /// Whether the model has to return its attention.
    pub fn needs_alignment(&self) -> bool {
        self.alignment || matches!(&self.search, Search::Beam(beam) if beam.coverage_penalty != 0.0)
    }

    /// # Errors
    /// [`ModelError::Setting`] with the first setting that is out of range.
    pub fn validate(&self) -> Result<()> {
        let refuse = |key, found: String, expected: &str| {
            Err(ModelError::Setting { key, found, expected: expected.to_owned() })
        };
        if self.n_best == 0 {
            return refuse("n_best", "0".into(), "1 or more");
        }
        for (key, penalty) in [
            ("repetition_penalty", self.repetition_penalty),
            ("input_repetition_penalty", self.input_repetition_penalty),
        ] {
            if !(penalty.is_finite() && penalty > 0.0) {
                return refuse(key, penalty.to_string(), "a positive number; 1: no penalty");
            }
        }
        match &self.search {
            Search::Greedy if self.n_best > 1 => {
                refuse("n_best", self.n_best.to_string(), "1 without a beam and without sampling")
            }
            Search::Greedy => Ok(()),
            Search::Beam(beam) => {
                let BeamSearch { beams, length_penalty, coverage_penalty, groups, diversity, .. } = beam;
                if *beams == 0 {
                    return refuse("beams", "0".into(), "1 or more");
                }
                if let Some(n) = self.n_alternatives {
                    return refuse("n_alternatives", n.to_string(), "none with a beam search");
                }
                if self.n_best > *beams {
                    return refuse(
                        "n_best",
                        self.n_best.to_string(),
                        &format!("at most the number of beams, {beams}"),
                    );
                }
                if *groups == 0 || beams % groups != 0 {
                    return refuse(
                        "groups",
                        groups.to_string(),
                        &format!("a divisor of the number of beams, {beams}"),
                    );
                }
                if !length_penalty.is_valid() {
                    let expected = format!("a number from -{max} to {max}", max = LengthPenalty::MAX_ALPHA);
                    return refuse("length_penalty", length_penalty.alpha().to_string(), &expected);
                }
                if !(0.0..=MAX_PENALTY).contains(coverage_penalty) {
                    let expected = format!("a number from 0 to {MAX_PENALTY}");
                    return refuse("coverage_penalty", coverage_penalty.to_string(), &expected);
                }
                if !(0.0..=MAX_PENALTY).contains(&f64::from(*diversity)) {
                    let expected = format!("a number from 0 to {MAX_PENALTY}");
                    return refuse("diversity", diversity.to_string(), &expected);
                }
                Ok(())
            }
            Search::Sample(Sampling { temperature, top_p, min_p, .. }) => {
                if !(temperature.is_finite() && *temperature > 0.0) {
                    return refuse(
                        "temperature",
                        temperature.to_string(),
                        "a positive number; greedy decoding has none",
                    );
                }
                if !(*top_p > 0.0 && *top_p <= 1.0) {
                    return refuse("top_p", top_p.to_string(), "above 0 and at most 1");
                }
                if !(*min_p >= 0.0 && *min_p <= 1.0) {
                    return refuse("min_p", min_p.to_string(), "0 to 1");
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let config = |search| DecodeConfig::new(vec![0]).with_search(search);
        let beam = |change: fn(&mut BeamSearch)| {
            let mut beam = BeamSearch::new(4);
            change(&mut beam);
            config(Search::Beam(beam))
        };
        let sample = |change: fn(&mut Sampling)| {
            let mut sampling = Sampling::default();
            change(&mut sampling);
            config(Search::Sample(sampling))
        };
        for (config, expected) in [
            (config(Search::Greedy).with_n_best(2), "`n_best` is 2"),
            (config(Search::Greedy).with_n_best(0), "`n_best` is 0"),
            (DecodeConfig { repetition_penalty: 0.0, ..config(Search::Greedy) }, "`repetition_penalty` is 0"),
            (
                DecodeConfig { input_repetition_penalty: f32::NAN, ..config(Search::Greedy) },
                "`input_repetition_penalty` is NaN",
            ),
            (beam(|beam| beam.beams = 0), "`beams` is 0"),
            (beam(|_| ()).with_n_best(5), "`n_best` is 5"),
            (beam(|beam| beam.groups = 3), "`groups` is 3"),
            (beam(|beam| beam.groups = 0), "`groups` is 0"),
            (beam(|beam| beam.length_penalty = LengthPenalty::Gnmt(f64::NAN)), "`length_penalty` is NaN"),
            (beam(|beam| beam.length_penalty = LengthPenalty::Power(-300.0)), "`length_penalty` is -300"),
            (beam(|beam| beam.coverage_penalty = 1e300), "a number from 0 to 1000"),
            (beam(|beam| beam.coverage_penalty = -1.0), "`coverage_penalty` is -1"),
            (beam(|beam| beam.diversity = f32::INFINITY), "`diversity` is inf"),
            (sample(|sampling| sampling.temperature = 0.0), "`temperature` is 0"),
            (sample(|sampling| sampling.top_p = 0.0), "`top_p` is 0"),
            (sample(|sampling| sampling.min_p = 1.5), "`min_p` is 1.5"),
        ] {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        beam(|_| ()).with_n_best(4).validate().unwrap();
        sample(|_| ()).with_n_best(9).validate().unwrap();
    }
}
