//! Cosines of words, and the effect of corrections on sentence similarity.

use super::config::GeometrySection;
use super::sentences::ParsedSentence;
use super::states::{LayerEncoder, WordStates};
use crate::periodic_notes::PeriodicNotes;
use crate::{Result, TrainerError};
use cloze_data::Random;
use cloze_data::labelled::{LabelledSource, Labels, Target, texts};
use cloze_evaluation::correlation::spearman;
use cloze_evaluation::embeddings::Similarity;
use cloze_evaluation::report::{LayerLine, LayerPanel};
use cloze_evaluation::vectors::{Correction, intra_sentence_similarity, mean_cosine, self_similarity};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Minimum occurrences of a word for comparing its vectors with each other, as in Ethayarajh 2019, §3.1.
const OCCURRENCES: usize = 5;

/// Cosines of words by layer (Ethayarajh 2019).
pub(super) fn words(
    section: &GeometrySection,
    states: &WordStates,
    sentences: &[ParsedSentence],
    random: &mut Random,
) -> LayerPanel {
    let pairs = pairs(states.len(), section.pairs, random);
    let mut types: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let words = sentences.iter().flat_map(|sentence| &sentence.words);
    words.enumerate().for_each(|(number, word)| types.entry(word).or_default().push(number));
    types.retain(|_, numbers| numbers.len() >= OCCURRENCES);
    let width = states.vectors.width;
    let of_layer = |layer: usize| {
        let vectors = &states.vectors.of_layers[layer];
        let types: Vec<f64> =
            types.values().map(|numbers| self_similarity(vectors, width, numbers)).collect();
        let sentences: Vec<f64> = (0..states.n_sentences())
            .map(|sentence| states.sentence(layer, sentence))
            // A word is its own mean.
            .filter(|words| words.len() > width)
            .map(|words| intra_sentence_similarity(words, width))
            .collect();
        [mean_cosine(vectors, width, &pairs), mean(&types), mean(&sentences)]
    };
    let layers: Vec<[f64; 3]> = (0..states.vectors.of_layers.len()).into_par_iter().map(of_layer).collect();
    let line = |name: &str, value: &dyn Fn(&[f64; 3]) -> f64| {
        LayerLine::new(name, layers.iter().map(value).collect())
    };
    LayerPanel {
        title: "anisotropy".into(),
        note: format!(
            "Mean cosines (Ethayarajh 2019): of {} random pairs of words, of one word's vectors in different contexts (of {} \
             words that occur {OCCURRENCES} times or more), and of a sentence's words with their mean. The last two are also \
             given less that of random pairs.",
            pairs.len(),
            types.len()
        ),
        lines: vec![
            line("random words", &|[random, ..]| *random),
            line("self-similarity", &|[_, own, _]| *own),
            line("within sentences", &|[.., within]| *within),
            line("self-similarity, adjusted", &|[random, own, _]| own - random),
            line("within sentences, adjusted", &|[random, _, within]| within - random),
        ],
        whole: Vec::new(),
        is_quality: false,
    }
}

/// Pairs of texts with human similarity scores.
pub(super) struct ScoredPairs {
    texts: Vec<String>,
    /// Indices of each pair's texts.
    pairs: Vec<(usize, usize)>,
    scores: Vec<f64>,
}

impl ScoredPairs {
    /// Reads pairs; relative paths start from the current directory.
    ///
    /// # Errors
    /// Those of [`texts`]; fewer than two pairs.
    pub fn read(source: &LabelledSource) -> Result<Self> {
        let (loaded, _) = texts(source, Path::new(""), Labels::Values)?;
        let mut found = Self { texts: Vec::new(), pairs: Vec::new(), scores: Vec::new() };
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for example in loaded.examples {
            if let (Some(pair), Target::Value(score)) = (example.pair, example.target) {
                let mut place = |text: String| {
                    *places.entry(text).or_insert_with_key(|text| {
                        found.texts.push(text.clone());
                        found.texts.len() - 1
                    })
                };
                let pair = (place(example.text), place(pair));
                found.pairs.push(pair);
                found.scores.push(score);
            }
        }
        match found.pairs.len() < 2 {
            true => Err(TrainerError::NoExamples { split: "similarity" }),
            false => Ok(found),
        }
    }

    /// The number of distinct texts.
    pub fn n_texts(&self) -> usize {
        self.texts.len()
    }

    /// Similarities of pairs by layer: raw vectors and corrected ones. Corrections are learned from the texts
    /// themselves, without scores.
    ///
    /// # Errors
    /// Those of the encoder; more components than the width.
    pub fn panels(
        &self,
        section: &GeometrySection,
        encoder: &LayerEncoder,
        notes: &PeriodicNotes,
        random: &mut Random,
    ) -> Result<[LayerPanel; 2]> {
        let width = encoder.width;
        let components = components(section, width)?;
        let texts: Vec<&str> = self.texts.iter().map(String::as_str).collect();
        let vectors = encoder.means(&encoder.texts(&texts)?, "reading scored pairs", notes)?;
        let random = pairs(texts.len(), section.pairs, random);
        let of_vectors = |vectors: &[f32]| {
            let vector = |place: usize| &vectors[place * width..][..width];
            let cosine = |(a, b): &(usize, usize)| Similarity::Cosine.of(vector(*a), vector(*b));
            let cosines: Vec<f64> = self.pairs.iter().map(cosine).collect();
            [spearman(&cosines, &self.scores), mean_cosine(vectors, width, &random)]
        };
        // By layer and correction: Spearman's coefficient, and the cosine of random pairs.
        let figures: Vec<[[f64; 2]; 4]> = vectors
            .of_layers
            .par_iter()
            .map(|vectors| {
                let corrections = [
                    Correction::z_scores(vectors, width),
                    Correction::whitening(vectors, width),
                    Correction::all_but_the_top(vectors, width, components),
                ];
                let [z_scores, whitened, without] = corrections.map(|of| of_vectors(&of.apply(vectors)));
                [of_vectors(vectors), z_scores, whitened, without]
            })
            .collect();
        let names = ["as they are", "z-scores", "whitening", "all but the top"];
        let lines = |figure: usize| {
            let line = |(at, name): (usize, &&str)| {
                LayerLine::new(*name, figures.iter().map(|layer| layer[at][figure]).collect())
            };
            names.iter().enumerate().map(line).collect()
        };
        let learned = format!(
            "The vector of a sentence is the mean of its tokens' states. Corrections are learned from the {} different \
             sentences themselves: z-scores, whitening (Su et al. 2021), and all but the mean and the first {components} \
             principal components (Mu & Viswanath 2018).",
            self.texts.len()
        );
        Ok([
            LayerPanel {
                title: "similarity of sentences".into(),
                note: format!(
                    "Spearman's coefficient of cosines and people's scores, of {} pairs. {learned}",
                    self.pairs.len()
                ),
                lines: lines(0),
                whole: Vec::new(),
                is_quality: true,
            },
            LayerPanel {
                title: "anisotropy of sentences".into(),
                note: format!("The mean cosine of {} random pairs of the same vectors.", random.len()),
                lines: lines(1),
                whole: Vec::new(),
                is_quality: false,
            },
        ])
    }
}

/// Maximum bytes of the corrections of one layer's vectors, besides the vectors: the covariance, its
/// eigenvectors during and after their computation, two of which are kept, and the corrected vectors.
pub(super) fn correction_bytes(n_texts: usize, width: usize) -> f64 {
    let (n_texts, width) = (n_texts as f64, width as f64);
    (3.0 + 2.0) * width * width * 8.0 + n_texts * width * 4.0
}

/// The number of principal components that all-but-the-top removes from vectors of this width.
///
/// # Errors
/// More than the width.
pub(super) fn components(section: &GeometrySection, width: usize) -> Result<usize> {
    let components = section.components.unwrap_or((width / 100).max(1));
    match components > width {
        true => Err(TrainerError::Setting {
            key: "geometry.components".into(),
            found: components.to_string(),
            expected: format!("at most {width}, the model's features"),
        }),
        false => Ok(components),
    }
}

/// Random pairs of distinct elements of `n`; none for fewer than two.
fn pairs(n: usize, count: usize, random: &mut Random) -> Vec<(usize, usize)> {
    if n < 2 {
        return Vec::new();
    }
    let pair = |_| {
        let first = random.below(n as u64) as usize;
        let second = random.below(n as u64 - 1) as usize;
        (first, second + usize::from(second >= first))
    };
    (0..count).map(pair).collect()
}

/// The mean of the values that are not NaN.
fn mean(values: &[f64]) -> f64 {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    finite.iter().sum::<f64>() / finite.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_of_different_ones() {
        let found = pairs(3, 600, &mut Random::new(4));
        for a in 0..3 {
            for b in 0..3 {
                let count = found.iter().filter(|pair| **pair == (a, b)).count();
                assert_eq!(count > 50, a != b, "{a}, {b}: {count}");
            }
        }
        assert!(pairs(1, 5, &mut Random::new(4)).is_empty());
    }

    #[test]
    fn a_text_that_is_there_twice_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tsv");
        std::fs::write(&path, "text\tpair\tlabel\na\tb\t1\nb\ta\t2.5\nc\tc\t5\n").unwrap();
        let mut source = LabelledSource::new([path.to_str().unwrap()]);
        let pair = cloze_data::labelled::Column::Name("pair".into());
        source.columns.insert("pair".into(), cloze_data::labelled::Columns::One(pair));
        let found = ScoredPairs::read(&source).unwrap();
        assert_eq!(found.texts, ["a", "b", "c"]);
        assert_eq!(found.pairs, [(0, 1), (1, 0), (2, 2)]);
        assert_eq!(found.scores, [1.0, 2.5, 5.0]);
    }
}
