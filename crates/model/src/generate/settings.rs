use super::{BeamSearch, DecodeConfig, EarlyStopping, LengthPenalty, Sampling, Search};

/// Decoding settings from a model's folder or a caller; unset ones are `None` or empty.
///
/// The meanings are those of transformers' `generate`.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DecodeSettings {
    /// The number of beams; 1: no beam search.
    pub beams: Option<usize>,
    /// The exponent of the length in the divisor of log-probabilities.
    pub length_penalty: Option<f64>,
    /// When a beam search ends.
    pub early_stopping: Option<EarlyStopping>,
    /// Whether tokens are drawn.
    pub sample: Option<bool>,
    /// See [`Sampling::temperature`].
    pub temperature: Option<f32>,
    /// See [`Sampling::top_k`].
    pub top_k: Option<usize>,
    /// See [`Sampling::top_p`].
    pub top_p: Option<f32>,
    /// See [`Sampling::min_p`].
    pub min_p: Option<f32>,
    /// The maximum number of written tokens.
    pub max_new: Option<usize>,
    /// The maximum length of a text including the tokens before it: a prompt, or the token that begins
    /// targets. `max_new` takes precedence.
    pub max_length: Option<usize>,
    /// See [`DecodeConfig::min_new`].
    pub min_new: Option<usize>,
    /// See [`DecodeConfig::min_length`]. `min_new` takes precedence.
    pub min_length: Option<usize>,
    /// See [`DecodeConfig::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// See [`DecodeConfig::input_repetition_penalty`].
    pub input_repetition_penalty: Option<f32>,
    /// See [`DecodeConfig::no_repeat_ngram`].
    pub no_repeat_ngram: Option<usize>,
    /// See [`DecodeConfig::no_repeat_input_ngram`].
    pub no_repeat_input_ngram: Option<usize>,
    /// See [`DecodeConfig::renormalize`].
    pub renormalize: Option<bool>,
    /// The token that begins targets.
    pub start_id: Option<i32>,
    /// The ids that end a text.
    pub stop_ids: Vec<i32>,
    /// See [`DecodeConfig::forced_first`].
    pub forced_first: Option<i32>,
    /// See [`DecodeConfig::forced_last`].
    pub forced_last: Vec<i32>,
    /// See [`DecodeConfig::forbidden_words`]; also single-token words, which do not forbid the end of a text.
    pub forbidden_words: Vec<Vec<i32>>,
    /// See [`DecodeConfig::forbidden_ids`].
    pub forbidden_ids: Vec<i32>,
    /// See [`DecodeConfig::forbidden_first`].
    pub forbidden_first: Vec<i32>,
}

impl DecodeSettings {
    /// The default [`top_k`](Self::top_k) when sampling.
    const TOP_K: usize = 50;

    /// These settings, with unset ones from `other`.
    pub fn or(self, other: &Self) -> Self {
        let list = |one: Vec<i32>, other: &Vec<i32>| if one.is_empty() { other.clone() } else { one };
        // A length in tokens written and one of the whole text say the same thing: whoever speaks first decides.
        let says_most = self.max_new.is_some() || self.max_length.is_some();
        let says_least = self.min_new.is_some() || self.min_length.is_some();
        Self {
            beams: self.beams.or(other.beams),
            length_penalty: self.length_penalty.or(other.length_penalty),
            early_stopping: self.early_stopping.or(other.early_stopping),
            sample: self.sample.or(other.sample),
            temperature: self.temperature.or(other.temperature),
            top_k: self.top_k.or(other.top_k),
            top_p: self.top_p.or(other.top_p),
            min_p: self.min_p.or(other.min_p),
            max_new: self.max_new.or(other.max_new.filter(|_| !says_most)),
            max_length: self.max_length.or(other.max_length.filter(|_| !says_most)),
            min_new: self.min_new.or(other.min_new.filter(|_| !says_least)),
            min_length: self.min_length.or(other.min_length.filter(|_| !says_least)),
            repetition_penalty: self.repetition_penalty.or(other.repetition_penalty),
            input_repetition_penalty: self.input_repetition_penalty.or(other.input_repetition_penalty),
            no_repeat_ngram: self.no_repeat_ngram.or(other.no_repeat_ngram),
            no_repeat_input_ngram: self.no_repeat_input_ngram.or(other.no_repeat_input_ngram),
            renormalize: self.renormalize.or(other.renormalize),
            start_id: self.start_id.or(other.start_id),
            stop_ids: list(self.stop_ids, &other.stop_ids),
            forced_first: self.forced_first.or(other.forced_first),
            forced_last: list(self.forced_last, &other.forced_last),
            forbidden_words: match self.forbidden_words.is_empty() {
                true => other.forbidden_words.clone(),
                false => self.forbidden_words,
            },
            forbidden_ids: list(self.forbidden_ids, &other.forbidden_ids),
            forbidden_first: list(self.forbidden_first, &other.forbidden_first),
        }
    }

    /// How tokens are chosen; `default` if unset.
    pub fn search(&self, default: Search) -> Search {
        let mut search = match (self.sample, self.beams) {
            (Some(true), None | Some(0 | 1)) => Search::Sample(Sampling {
                temperature: self.temperature.unwrap_or(1.0),
                top_k: self.top_k.unwrap_or(Self::TOP_K),
                top_p: self.top_p.unwrap_or(1.0),
                min_p: self.min_p.unwrap_or(0.0),
            }),
            (_, None) => default,
            (_, Some(0 | 1)) => Search::Greedy,
            (_, Some(beams)) => match default {
                Search::Beam(beam) => Search::Beam(BeamSearch { beams, ..beam }),
                _ => Search::Beam(BeamSearch::new(beams)),
            },
        };
        if let Search::Beam(beam) = &mut search {
            if let Some(alpha) = self.length_penalty {
                beam.length_penalty = LengthPenalty::Power(alpha);
            }
            beam.early_stopping = self.early_stopping.unwrap_or(beam.early_stopping);
        }
        search
    }

    /// The maximum number of tokens written after `before` others, if set: at least one.
    pub fn max_new(&self, before: usize) -> Option<usize> {
        self.max_new.or(self.max_length.map(|most| most.saturating_sub(before).max(1)))
    }

    /// Decoding with these settings.
    pub fn config(&self, search: Search) -> DecodeConfig {
        let mut config = DecodeConfig::new(self.stop_ids.clone()).with_search(search);
        config.min_new = self.min_new.unwrap_or(0);
        config.min_length = self.min_length.filter(|_| self.min_new.is_none()).unwrap_or(0);
        config.repetition_penalty = self.repetition_penalty.unwrap_or(1.0);
        config.input_repetition_penalty = self.input_repetition_penalty.unwrap_or(1.0);
        config.no_repeat_ngram = self.no_repeat_ngram.unwrap_or(0);
        config.no_repeat_input_ngram = self.no_repeat_input_ngram.unwrap_or(0);
        config.renormalize = self.renormalize.unwrap_or(false);
        config.forced_first = self.forced_first;
        config.forced_last = self.forced_last.clone();
        let (single, several): (Vec<_>, Vec<_>) = self
            .forbidden_words
            .iter()
            .filter(|word| !word.is_empty())
            .cloned()
            .partition(|word| word.len() == 1);
        config.forbidden_ids = single.concat();
        config.forbidden_ids.retain(|id| !self.stop_ids.contains(id));
        config.forbidden_ids.extend(&self.forbidden_ids);
        config.forbidden_words = several;
        config.forbidden_first = self.forbidden_first.clone();
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_speaks_first_decides() {
        let folder = DecodeSettings {
            beams: Some(4),
            length_penalty: Some(0.6),
            max_length: Some(20),
            min_length: Some(5),
            stop_ids: vec![2, 3],
            forbidden_words: vec![vec![2], vec![7], vec![8, 9]],
            forbidden_ids: vec![3],
            ..DecodeSettings::default()
        };
        let options = DecodeSettings { max_new: Some(9), min_new: Some(0), ..DecodeSettings::default() };
        assert_eq!(folder.max_new(4), Some(16));
        assert_eq!(folder.max_new(30), Some(1));
        let both = options.or(&folder);
        assert_eq!((both.max_new(4), both.max_length, both.min_length), (Some(9), None, None));
        let Search::Beam(beam) = both.search(Search::Greedy) else { panic!("no beam") };
        assert_eq!((beam.beams, beam.length_penalty), (4, LengthPenalty::Power(0.6)));
        let config = both.config(Search::Greedy);
        // A word of one token does not forbid the end, and a suppressed one does.
        assert_eq!((config.forbidden_ids, config.forbidden_words), (vec![7, 3], vec![vec![8, 9]]));
        assert_eq!((config.min_new, config.min_length), (0, 0));
    }

    #[test]
    fn tokens_are_drawn_from_fifty_where_nothing_says_how_many() {
        let settings = DecodeSettings { sample: Some(true), top_p: Some(0.9), ..DecodeSettings::default() };
        let expected = Sampling { top_k: 50, top_p: 0.9, ..Sampling::default() };
        assert_eq!(settings.search(Search::Greedy), Search::Sample(expected));
        let settings = DecodeSettings { top_p: Some(0.9), ..DecodeSettings::default() };
        assert_eq!(settings.search(Search::Greedy), Search::Greedy);
        let one = DecodeSettings { beams: Some(1), ..DecodeSettings::default() };
        assert_eq!(one.search(Search::Beam(BeamSearch::new(5))), Search::Greedy);
    }
}
