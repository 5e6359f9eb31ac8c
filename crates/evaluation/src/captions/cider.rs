//! CIDEr-D (Vedantam et al. 2015), as in pycocoevalcap.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use super::{CaptionScores, MAX_ORDER, pairs};
use crate::Result;
use crate::translation::words;

/// The standard deviation of the penalty for another length, in tokens.
const SIGMA: f64 = 6.0;

/// Scores are multiplied by it, so that they are of the size of other metrics.
const SCALE: f64 = 10.0;

/// CIDEr-D (Vedantam et al. 2015, section 8), the similarity of n-grams with tf-idf weights:
///
/// ```text
/// g(caption)[n-gram] = (its count in the caption) · log(images / max(1, images with the n-gram in a reference))
/// CIDEr-D_n = 10 / references · Σ over references of exp(−(l(candidate) − l(reference))² / 2σ²)
///             · min(g(candidate), g(reference)) · g(reference) / (‖g(candidate)‖ · ‖g(reference)‖)
/// CIDEr-D   = (CIDEr-D_1 + … + CIDEr-D_4) / 4,  σ = 6
/// ```
///
/// for vectors g of the n-grams of one order, and l tokens. The corpus score is the mean over images. Document
/// frequencies are those of the references given, so a score depends on all images: an n-gram that every image has in
/// a reference weighs nothing, and the score of one image alone is 0.
///
/// If no reference has a token, pycocoevalcap fails; the scores are 0 here. (It counts bigrams for l, whose difference
/// is that of tokens wherever two captions share an n-gram.)
///
/// # Errors
/// As [`bleu`](super::bleu).
pub fn cider_d<S: AsRef<str>>(
    candidates: &[impl AsRef<str>],
    references: &[impl AsRef<[S]>],
) -> Result<CaptionScores> {
    let mut numbers = HashMap::new();
    let mut images = Vec::with_capacity(candidates.len());
    for (candidate, references) in pairs(candidates, references)? {
        let candidate = numbered(candidate, &mut numbers);
        let references: Vec<_> =
            references.into_iter().map(|reference| numbered(reference, &mut numbers)).collect();
        images.push((candidate, references));
    }
    let frequencies = Frequencies::of(images.iter().map(|(_, references)| &references[..]));
    let score = |(candidate, references): &(Vec<u32>, Vec<Vec<u32>>)| {
        let candidate = Vector::of(candidate, &frequencies);
        let similarity = |reference: &Vec<u32>| candidate.similarity(&Vector::of(reference, &frequencies));
        SCALE * references.iter().map(similarity).sum::<f64>() / references.len() as f64
    };
    Ok(CaptionScores::mean_of(images.iter().map(score).collect()))
}

/// A caption's tokens as numbers, equal for equal tokens.
fn numbered<'a>(caption: &'a str, numbers: &mut HashMap<&'a str, u32>) -> Vec<u32> {
    let number = |token| {
        let next = numbers.len() as u32;
        *numbers.entry(token).or_insert(next)
    };
    words(caption).map(number).collect()
}

/// The n-grams of all orders.
fn ngrams(caption: &[u32]) -> impl Iterator<Item = &[u32]> {
    (1..=MAX_ORDER).flat_map(|order| caption.windows(order))
}

/// In how many images the references have an n-gram.
struct Frequencies<'a> {
    log_images: f64,
    images_with: HashMap<&'a [u32], u32>,
}

impl<'a> Frequencies<'a> {
    fn of(images: impl ExactSizeIterator<Item = &'a [Vec<u32>]>) -> Self {
        let log_images = (images.len() as f64).ln();
        let mut images_with = HashMap::new();
        for references in images {
            let once: HashSet<&[u32]> = references.iter().flat_map(|reference| ngrams(reference)).collect();
            once.into_iter().for_each(|ngram| *images_with.entry(ngram).or_default() += 1);
        }
        Self { log_images, images_with }
    }

    /// The logarithm of the inverse document frequency.
    fn weight(&self, ngram: &[u32]) -> f64 {
        let images_with = self.images_with.get(ngram).map_or(1.0, |images| f64::from(*images));
        self.log_images - images_with.ln()
    }
}

/// A caption's tf-idf weights by order.
struct Vector<'a> {
    /// Sorted, so that sums are the same in every run.
    weights: [BTreeMap<&'a [u32], f64>; MAX_ORDER],
    norms: [f64; MAX_ORDER],
    len: usize,
}

impl<'a> Vector<'a> {
    fn of(caption: &'a [u32], frequencies: &Frequencies<'_>) -> Self {
        let mut weights: [BTreeMap<&[u32], f64>; MAX_ORDER] = Default::default();
        for ngram in ngrams(caption) {
            *weights[ngram.len() - 1].entry(ngram).or_default() += 1.0;
        }
        for (ngram, weight) in weights.iter_mut().flatten() {
            *weight *= frequencies.weight(ngram);
        }
        let norm =
            |weights: &BTreeMap<_, f64>| weights.values().map(|weight| weight * weight).sum::<f64>().sqrt();
        let norms = std::array::from_fn(|place| norm(&weights[place]));
        Self { weights, norms, len: caption.len() }
    }

    /// The mean over orders of the similarity of a candidate to a reference.
    fn similarity(&self, reference: &Self) -> f64 {
        let sum: f64 = (0..MAX_ORDER)
            .map(|place| {
                let theirs = &reference.weights[place];
                // Clipped: to repeat what the reference says does not help.
                let product = |(ngram, ours): (&&[u32], &f64)| {
                    theirs.get(ngram).map_or(0.0, |theirs| ours.min(*theirs) * theirs)
                };
                let product: f64 = self.weights[place].iter().map(product).sum();
                let norms = self.norms[place] * reference.norms[place];
                if norms > 0.0 { product / norms } else { 0.0 }
            })
            .sum();
        let difference = self.len.abs_diff(reference.len) as f64;
        sum / MAX_ORDER as f64 * (-difference * difference / (2.0 * SIGMA * SIGMA)).exp()
    }
}
