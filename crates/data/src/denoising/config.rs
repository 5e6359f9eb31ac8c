//! Configuration of denoising.

use crate::corruption::RandomFrom;
use crate::corruption::noise::{
    Deletion, Infilling, Insertion, Noise, Reordering, Rotation, SentencePermutation, Substitution,
    TokenMasking,
};
use crate::unigram::UnigramCounts;
use crate::{DataError, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How texts are corrupted, and what a model must generate.
///
/// ```
/// # use cloze_data::DenoisingConfig;
/// let json = r#"{"kind": "bart", "noises": [{"kind": "infilling"}, {"kind": "deletion", "share": 0.05}]}"#;
/// let config: DenoisingConfig = serde_json::from_str(json)?;
/// config.check()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum DenoisingConfig {
    /// The whole text is restored from a noisy one (Lewis et al. 2020, "BART", §2.2).
    Bart {
        /// The noises, applied in order. Default BART-large's: `"sentence-permutation"`, then `"infilling"`.
        #[serde(default = "defaults::noises")]
        noises: Vec<NoiseConfig>,
    },
    /// Spans are replaced by sentinels, and the target contains only the spans (Raffel et al. 2020, "T5",
    /// §3.1.4).
    T5 {
        /// The share of tokens in spans, between 0 and 1. Default 0.15.
        #[serde(default = "defaults::density")]
        density: f64,
        /// Tokens of a span on average, 1 or more. Default 3.
        #[serde(default = "defaults::mean_span")]
        mean_span: f64,
    },
}

/// A noise of a text. Several are applied one after another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum NoiseConfig {
    /// Spans are replaced by one mask each, even empty ones.
    Infilling {
        /// The share of tokens in spans, from 0 to 1. Default 0.3.
        #[serde(default = "defaults::masked")]
        share: f64,
        /// The mean λ of the Poisson distribution of lengths, from 1 to 100. Default 3.
        #[serde(default = "defaults::mean_span")]
        mean_span: f64,
        /// Whether lengths count words. Default false.
        #[serde(default)]
        whole_words: bool,
    },
    /// Tokens are replaced by masks.
    Masking {
        /// The share of tokens, from 0 to 1. Default 0.3.
        #[serde(default = "defaults::masked")]
        share: f64,
        /// Whether all pieces of a word are masked together. Default false.
        #[serde(default)]
        whole_words: bool,
    },
    /// Tokens are deleted.
    Deletion {
        /// The share of tokens, from 0 to 1. Default 0.1.
        #[serde(default = "defaults::share")]
        share: f64,
        /// Whether all pieces of a word are deleted together. Default false.
        #[serde(default)]
        whole_words: bool,
    },
    /// Tokens are replaced by random pieces.
    Substitution {
        /// The share of tokens, from 0 to 1. Default 0.1.
        #[serde(default = "defaults::share")]
        share: f64,
        /// Where the pieces come from. Default `"uniform"`.
        #[serde(default)]
        random_from: RandomFrom,
        /// Whether all pieces of a word are replaced together. Default false.
        #[serde(default)]
        whole_words: bool,
    },
    /// Random pieces are inserted.
    Insertion {
        /// The share of tokens that get a piece before them, from 0 to 1. Default 0.1.
        #[serde(default = "defaults::share")]
        share: f64,
        /// Where the pieces come from. Default `"uniform"`.
        #[serde(default)]
        random_from: RandomFrom,
    },
    /// Tokens change places with their neighbours.
    Reordering {
        /// The most positions a token moves, 1 or more. Default 3.
        #[serde(default = "defaults::distance")]
        distance: usize,
    },
    /// The sentences of a document are shuffled.
    SentencePermutation {
        /// The share of sentences that are shuffled among their places, from 0 to 1. Default 1.
        #[serde(default = "defaults::all")]
        share: f64,
    },
    /// Documents begin with a random token of theirs.
    Rotation {
        /// The share of documents that are rotated, from 0 to 1. Default 1.
        #[serde(default = "defaults::all")]
        probability: f64,
    },
}

impl Default for DenoisingConfig {
    /// BART's.
    fn default() -> Self {
        Self::Bart { noises: defaults::noises() }
    }
}

impl DenoisingConfig {
    /// Checks that every value is in range.
    ///
    /// # Errors
    /// [`DataError::DenoisingSetting`].
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Bart { noises } => {
                let expected = "one noise or more";
                require(!noises.is_empty(), "noises".into(), "empty", expected)?;
                noises.iter().enumerate().try_for_each(|(at, noise)| noise.check(at))?;
                let expected = "a noise whose `share` or `probability` is above 0";
                let has_effect = !noises.iter().all(NoiseConfig::is_idle);
                require(has_effect, "noises".into(), "without effect", expected)
            }
            Self::T5 { density, mean_span } => {
                let expected = "a number above 0 and below 1";
                require(*density > 0.0 && *density < 1.0, "density".into(), density, expected)?;
                spans(*mean_span, "mean_span".into())
            }
        }
    }
}

impl NoiseConfig {
    /// The noise for a tokenizer with this mask and these special pieces.
    ///
    /// # Panics
    /// If a value is out of range. Applying the noise panics if the vocabulary is empty.
    pub fn noise(&self, mask: u32, special: &[u32], unigram: &Arc<UnigramCounts>) -> Box<dyn Noise> {
        let (special, unigram) = (special.to_vec(), unigram.clone());
        match *self {
            Self::Infilling { share, mean_span, whole_words } => {
                Box::new(Infilling::new(mask, share, mean_span).with_whole_words(whole_words))
            }
            Self::Masking { share, whole_words } => {
                Box::new(TokenMasking::new(mask, share).with_whole_words(whole_words))
            }
            Self::Deletion { share, whole_words } => {
                Box::new(Deletion::new(share).with_whole_words(whole_words))
            }
            Self::Substitution { share, random_from, whole_words } => Box::new(
                Substitution::new(share, random_from, unigram, special).with_whole_words(whole_words),
            ),
            Self::Insertion { share, random_from } => {
                Box::new(Insertion::new(share, random_from, unigram, special))
            }
            Self::Reordering { distance } => Box::new(Reordering::new(distance)),
            Self::SentencePermutation { share } => Box::new(SentencePermutation::new(share)),
            Self::Rotation { probability } => Box::new(Rotation::new(probability)),
        }
    }

    /// Whether it inserts masks.
    pub fn needs_mask(&self) -> bool {
        matches!(self, Self::Infilling { .. } | Self::Masking { .. })
    }

    /// Whether it leaves every text unchanged.
    fn is_idle(&self) -> bool {
        match *self {
            Self::Infilling { share, .. }
            | Self::Masking { share, .. }
            | Self::Deletion { share, .. }
            | Self::Substitution { share, .. }
            | Self::Insertion { share, .. }
            | Self::SentencePermutation { share } => share == 0.0,
            Self::Rotation { probability } => probability == 0.0,
            Self::Reordering { .. } => false,
        }
    }

    fn check(&self, at: usize) -> Result<()> {
        let key = |name: &str| format!("noises[{at}].{name}");
        let share = |name: &str, value: f64| {
            require((0.0..=1.0).contains(&value), key(name), value, "a number from 0 to 1")
        };
        match *self {
            Self::Infilling { share: of_tokens, mean_span, .. } => {
                share("share", of_tokens)?;
                spans(mean_span, key("mean_span"))
            }
            Self::Masking { share: of_tokens, .. }
            | Self::Deletion { share: of_tokens, .. }
            | Self::Substitution { share: of_tokens, .. }
            | Self::Insertion { share: of_tokens, .. }
            | Self::SentencePermutation { share: of_tokens } => share("share", of_tokens),
            Self::Reordering { distance } => {
                let expected = "a whole number from 1 to 1000000";
                require((1..=1_000_000).contains(&distance), key("distance"), distance, expected)
            }
            Self::Rotation { probability } => share("probability", probability),
        }
    }
}

fn spans(mean: f64, key: String) -> Result<()> {
    require((1.0..=100.0).contains(&mean), key, mean, "a number from 1 to 100")
}

fn require(holds: bool, key: String, found: impl ToString, expected: &'static str) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(DataError::DenoisingSetting { key, found: found.to_string(), expected }),
    }
}

/// The papers' values.
mod defaults {
    use super::NoiseConfig;

    /// BART-large's: all sentences are shuffled, then 30 % of the tokens infilled (Lewis et al. 2020, §5).
    pub fn noises() -> Vec<NoiseConfig> {
        vec![
            NoiseConfig::SentencePermutation { share: all() },
            NoiseConfig::Infilling { share: masked(), mean_span: mean_span(), whole_words: false },
        ]
    }

    /// BART's masked tokens.
    pub fn masked() -> f64 {
        0.3
    }

    /// BART's λ, and T5's mean.
    pub fn mean_span() -> f64 {
        3.0
    }

    /// T5's corruption rate.
    pub fn density() -> f64 {
        0.15
    }

    /// The word dropout of Lample et al. 2018.
    pub fn share() -> f64 {
        0.1
    }

    /// The shuffle of Lample et al. 2018.
    pub fn distance() -> usize {
        3
    }

    pub fn all() -> f64 {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> std::result::Result<DenoisingConfig, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    /// A noise of each kind with no key but its kind.
    const KINDS: [&str; 8] = [
        "infilling",
        "masking",
        "deletion",
        "substitution",
        "insertion",
        "reordering",
        "sentence-permutation",
        "rotation",
    ];

    #[test]
    fn every_kind_is_read_strictly_and_back() {
        let noises = KINDS.map(|kind| format!("{{\"kind\": \"{kind}\"}}"));
        let all = format!("{{\"kind\": \"bart\", \"noises\": [{}]}}", noises.join(", "));
        for json in [all.as_str(), r#"{"kind": "bart"}"#, r#"{"kind": "t5", "density": 0.3}"#] {
            let config = read(json).unwrap();
            config.check().unwrap();
            assert_eq!(read(&serde_json::to_string(&config).unwrap()).unwrap(), config);
        }
        assert_eq!(read(r#"{"kind": "bart"}"#).unwrap(), DenoisingConfig::default());
        let t5 = DenoisingConfig::T5 { density: 0.15, mean_span: 3.0 };
        assert_eq!(read(r#"{"kind": "t5"}"#).unwrap(), t5);
        for noise in noises {
            let json = noise.replace('}', ", \"colour\": 1}");
            let error = serde_json::from_str::<NoiseConfig>(&json).unwrap_err().to_string();
            assert!(error.contains("unknown field `colour`"), "{error}");
        }
        // A key of another kind is not one of this kind.
        let error = read(r#"{"kind": "t5", "noises": []}"#).unwrap_err();
        assert!(error.contains("unknown field `noises`"), "{error}");
        let error = read(r#"{"kind": "bart", "noises": [{"kind": "whitening"}]}"#).unwrap_err();
        assert!(error.contains("unknown variant `whitening`, expected one of `infilling`"), "{error}");
    }

    #[test]
    fn values_out_of_range_are_named() {
        let bart = |noise: &str| {
            format!("{{\"kind\": \"bart\", \"noises\": [{{\"kind\": \"rotation\"}}, {noise}]}}")
        };
        for (json, expected) in [
            (
                bart(r#"{"kind": "deletion", "share": 1.5}"#),
                "`denoising.noises[1].share` is 1.5; expected a number from 0 to 1",
            ),
            (bart(r#"{"kind": "infilling", "share": -0.1}"#), "`denoising.noises[1].share` is -0.1"),
            (
                bart(r#"{"kind": "infilling", "mean_span": 0}"#),
                "`denoising.noises[1].mean_span` is 0; expected a number from 1",
            ),
            (bart(r#"{"kind": "rotation", "probability": 2}"#), "`denoising.noises[1].probability` is 2"),
            (bart(r#"{"kind": "reordering", "distance": 0}"#), "`denoising.noises[1].distance` is 0"),
            (r#"{"kind": "bart", "noises": []}"#.into(), "`denoising.noises` is empty; expected one noise"),
            (
                r#"{"kind": "bart", "noises": [{"kind": "deletion", "share": 0}, {"kind": "rotation", "probability": 0}]}"#
                    .into(),
                "`denoising.noises` is without effect; expected a noise whose `share` or `probability` is above 0",
            ),
            (r#"{"kind": "t5", "density": 1}"#.into(), "`denoising.density` is 1; expected a number above 0"),
            (r#"{"kind": "t5", "mean_span": 0.5}"#.into(), "`denoising.mean_span` is 0.5; expected"),
        ] {
            let message = read(&json).unwrap().check().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
