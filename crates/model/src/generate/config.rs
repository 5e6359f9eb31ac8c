use super::LengthPenalty;
use crate::{ModelError, Result};

/// How a model's next tokens become texts.
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
    /// Tokens before one that ends a text may be written.
    pub min_new: usize,
    /// Makes tokens less likely that stand in the text already, whose logits are divided by it if positive, and
    /// multiplied if negative (Keskar et al. 2019, "CTRL", §4.1). In a beam search it is the log-probabilities, as in
    /// transformers. 1: nothing.
    pub repetition_penalty: f32,
    /// Sequences of so many tokens occur once at most; 0: any number of times (Paulus et al. 2018, §2.5).
    pub no_repeat_ngram: usize,
    /// Texts to return for each input, the best first; of a sampling search so many samples.
    pub n_best: usize,
    /// Whether the attention to the source is returned.
    pub alignment: bool,
    /// Inputs that are worked on at a time, at most.
    pub batch: usize,
    /// Inputs that are read ahead, at most: of these the longest begin first. As many texts wait for their turn.
    pub window: usize,
}

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Search {
    /// The most likely token each time.
    Greedy,
    /// The most likely hypotheses, several at a time.
    Beam(BeamSearch),
    /// A token drawn by its probability.
    Sample(Sampling),
}

/// A beam search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BeamSearch {
    /// Hypotheses at a time.
    pub beams: usize,
    /// What log-probabilities are divided by.
    pub length_penalty: LengthPenalty,
    /// `β` of the coverage penalty, which needs a model's attention to the source; 0: none.
    pub coverage_penalty: f64,
    /// When a search ends.
    pub early_stopping: EarlyStopping,
    /// Groups that the beams are divided into, each of which is discouraged from the tokens that the groups before it
    /// have just written (Vijayakumar et al. 2018, "Diverse beam search"). 1: an ordinary beam search.
    pub groups: usize,
    /// What a token's log-probability loses for each time that a group before has just written it.
    pub diversity: f32,
}

impl BeamSearch {
    /// An ordinary one, whose score is the mean log-probability of a token.
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

    /// With another length penalty.
    pub fn with_length_penalty(mut self, penalty: LengthPenalty) -> Self {
        self.length_penalty = penalty;
        self
    }

    /// With a coverage penalty.
    pub fn with_coverage_penalty(mut self, beta: f64) -> Self {
        self.coverage_penalty = beta;
        self
    }

    /// With another end.
    pub fn with_early_stopping(mut self, early_stopping: EarlyStopping) -> Self {
        self.early_stopping = early_stopping;
        self
    }

    /// In groups that avoid each other's tokens.
    pub fn with_groups(mut self, groups: usize, diversity: f32) -> Self {
        (self.groups, self.diversity) = (groups, diversity);
        self
    }

    /// Beams of a group.
    pub(super) fn group_size(&self) -> usize {
        self.beams / self.groups.max(1)
    }
}

/// When a beam search ends before the longest length; as transformers defines it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EarlyStopping {
    /// As soon as there are as many texts as beams (`true`).
    Full,
    /// If the best unfinished hypothesis, ended at its present length, would be worse than all finished texts (`false`).
    #[default]
    Likely,
    /// If no unfinished hypothesis can become better than the finished texts, whatever it goes on with (`"never"`).
    Never,
}

/// How a token is drawn: the settings apply in this order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// What logits are divided by: below 1 likely tokens become likelier still.
    pub temperature: f32,
    /// The most likely tokens to draw from; 0: all (Fan et al. 2018).
    pub top_k: usize,
    /// Draw from the fewest tokens whose probabilities sum to this at least; 1: all (Holtzman et al. 2020, "nucleus").
    pub top_p: f32,
    /// Draw from tokens that have this share of the likeliest one's probability; 0: all (Nguyen et al. 2024).
    pub min_p: f32,
}

impl Default for Sampling {
    /// From the model's own probabilities.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 }
    }
}

impl DecodeConfig {
    /// Greedy decoding that ends with one of these ids.
    pub fn new(stop_ids: Vec<i32>) -> Self {
        Self {
            search: Search::Greedy,
            stop_ids,
            forbidden_ids: Vec::new(),
            min_new: 0,
            repetition_penalty: 1.0,
            no_repeat_ngram: 0,
            n_best: 1,
            alignment: false,
            batch: 32,
            window: 2048,
        }
    }

    /// With another search.
    pub fn with_search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }

    /// With so many texts for each input.
    pub fn with_n_best(mut self, n_best: usize) -> Self {
        self.n_best = n_best;
        self
    }

    /// With the attention to the source.
    pub fn with_alignment(mut self) -> Self {
        self.alignment = true;
        self
    }

    /// With so many inputs at a time.
    pub fn with_batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// Rows that one input takes up at most.
    pub fn width(&self) -> usize {
        match &self.search {
            Search::Greedy => 1,
            Search::Beam(beam) => beam.beams,
            Search::Sample(_) => self.n_best,
        }
    }

    /// Whether the model has to say what it attends to.
    pub fn needs_alignment(&self) -> bool {
        self.alignment || matches!(&self.search, Search::Beam(beam) if beam.coverage_penalty != 0.0)
    }

    /// # Errors
    /// [`ModelError::Setting`] with the first setting that is out of range.
    pub fn validate(&self) -> Result<()> {
        let refuse = |key, found: String, expected: &str| {
            Err(ModelError::Setting { key, found, expected: expected.to_owned() })
        };
        for (key, n) in [("n_best", self.n_best), ("batch", self.batch), ("window", self.window)] {
            if n == 0 {
                return refuse(key, "0".into(), "1 or more");
            }
        }
        let penalty = self.repetition_penalty;
        if !(penalty.is_finite() && penalty > 0.0) {
            return refuse(
                "repetition_penalty",
                penalty.to_string(),
                "a positive number; 1 penalises nothing",
            );
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
                if self.n_best > *beams {
                    return refuse(
                        "n_best",
                        self.n_best.to_string(),
                        &format!("as many as beams at most, {beams}"),
                    );
                }
                if *groups == 0 || beams % groups != 0 {
                    return refuse(
                        "groups",
                        groups.to_string(),
                        &format!("a divisor of the number of beams, {beams}"),
                    );
                }
                if !length_penalty.alpha().is_finite() {
                    return refuse("length_penalty", length_penalty.alpha().to_string(), "a finite number");
                }
                if !(coverage_penalty.is_finite() && *coverage_penalty >= 0.0) {
                    return refuse("coverage_penalty", coverage_penalty.to_string(), "0 or more");
                }
                if !(diversity.is_finite() && *diversity >= 0.0) {
                    return refuse("diversity", diversity.to_string(), "0 or more");
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
                    return refuse("top_p", top_p.to_string(), "more than 0 and 1 at most");
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
            (config(Search::Greedy).with_batch(0), "`batch` is 0"),
            (DecodeConfig { repetition_penalty: 0.0, ..config(Search::Greedy) }, "`repetition_penalty` is 0"),
            (beam(|beam| beam.beams = 0), "`beams` is 0"),
            (beam(|_| ()).with_n_best(5), "`n_best` is 5"),
            (beam(|beam| beam.groups = 3), "`groups` is 3"),
            (beam(|beam| beam.groups = 0), "`groups` is 0"),
            (beam(|beam| beam.length_penalty = LengthPenalty::Gnmt(f64::NAN)), "`length_penalty` is NaN"),
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
