//! Vectors for synsets without labelled occurrences, from related synsets (Loureiro & Jorge 2019, section 4.2).
//!
//! Deviations: the paper goes from a synset's other words directly to its hypernyms; here hyponyms, sisters and
//! adjectives of similar meaning come in between. Classes of instances count as hypernyms. In the authors'
//! code, later means also include vectors that came from relations; here they only use labelled senses.

use super::vectors::SenseVectors;
use super::wordnet::{Pointer, SynsetId, WordNet};
use std::collections::{BTreeMap, BTreeSet};

/// The source of a sense's vector, the closest to its own meaning first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The word's own occurrences in this sense.
    Own,
    /// The vectors of the synset's other words.
    Synset,
    /// The mean over its hyponyms, the other hyponyms of its hypernyms, and adjectives of similar meaning.
    Neighbours,
    /// The mean over its hypernyms.
    Hypernyms,
    /// The mean over all synsets of its lexicographer file.
    LexicographerFile,
}

/// The vectors of synsets: means over the words that share one.
///
/// Only synsets with words in the labelled sentences have one; [`vector`](Self::vector) derives one for others
/// from these, and never from a derived one.
#[derive(Debug)]
pub(super) struct RelatedVectors<'a> {
    wordnet: &'a WordNet,
    synsets: BTreeMap<SynsetId, Vec<f32>>,
    files: BTreeMap<u8, Vec<f32>>,
}

impl<'a> RelatedVectors<'a> {
    /// `id` maps a sense to its synset.
    pub fn new(wordnet: &'a WordNet, vectors: &SenseVectors, id: impl Fn(&str) -> Option<SynsetId>) -> Self {
        // Both kinds of means are summed in an order that is always the same.
        let mut synsets: BTreeMap<SynsetId, Mean> = BTreeMap::new();
        for (_, _, senses) in vectors.inventory.iter() {
            for sense in senses {
                if let (Some(id), Some(vector)) = (id(&sense.sense), vectors.vector(sense.number)) {
                    synsets.entry(id).or_default().add(vector);
                }
            }
        }
        let synsets: BTreeMap<SynsetId, Vec<f32>> =
            synsets.into_iter().filter_map(|(id, mean)| Some((id, mean.finish()?))).collect();
        let mut files: BTreeMap<u8, Mean> = BTreeMap::new();
        for (id, vector) in &synsets {
            if let Some(synset) = wordnet.synset(*id) {
                files.entry(synset.lexicographer_file).or_default().add(vector);
            }
        }
        let files = files.into_iter().filter_map(|(file, mean)| Some((file, mean.finish()?))).collect();
        Self { wordnet, synsets, files }
    }

    /// A vector for a synset, and its source: the first one available.
    pub fn vector(&self, id: SynsetId) -> Option<(Vec<f32>, Origin)> {
        if let Some(vector) = self.synsets.get(&id) {
            return Some((vector.clone(), Origin::Synset));
        }
        let hypernyms: Vec<SynsetId> = self.wordnet.related(id, Pointer::Hypernym).collect();
        let sisters = hypernyms.iter().flat_map(|hypernym| self.wordnet.related(*hypernym, Pointer::Hyponym));
        let neighbours: BTreeSet<SynsetId> = self
            .wordnet
            .related(id, Pointer::Hyponym)
            .chain(self.wordnet.related(id, Pointer::Similar))
            .chain(sisters)
            .collect();
        if let Some(vector) = self.mean(neighbours) {
            return Some((vector, Origin::Neighbours));
        }
        if let Some(vector) = self.mean(hypernyms) {
            return Some((vector, Origin::Hypernyms));
        }
        let file = self.wordnet.synset(id)?.lexicographer_file;
        Some((self.files.get(&file)?.clone(), Origin::LexicographerFile))
    }

    /// The mean over the synsets that have a vector.
    fn mean(&self, ids: impl IntoIterator<Item = SynsetId>) -> Option<Vec<f32>> {
        let mut mean = Mean::default();
        ids.into_iter().filter_map(|id| self.synsets.get(&id)).for_each(|vector| mean.add(vector));
        mean.finish()
    }
}

/// A running mean, summed in 64 bits.
#[derive(Default)]
struct Mean {
    sum: Vec<f64>,
    n: u64,
}

impl Mean {
    fn add(&mut self, vector: &[f32]) {
        self.n += 1;
        self.sum.resize(vector.len(), 0.0);
        self.sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += f64::from(*value));
    }

    fn finish(self) -> Option<Vec<f32>> {
        (self.n > 0).then(|| self.sum.iter().map(|sum| (sum / self.n as f64) as f32).collect())
    }
}
