//! Anisotropy and contextuality of word vectors (Ethayarajh 2019).

use crate::embeddings::{Similarity, Vectors, norm};

/// The vectors scaled to length 1, `[n · width]`, so that Euclidean distances order them like cosines. A zero
/// vector stays zero.
pub fn directions(vectors: Vectors<'_>) -> Vec<f32> {
    let scaled = |vector: &'_ [f32]| {
        let norm = norm(vector);
        let scale = if norm > 0.0 { 1.0 / norm } else { 0.0 };
        vector.iter().map(|x| (f64::from(*x) * scale) as f32).collect::<Vec<_>>()
    };
    vectors.iter().flat_map(scaled).collect()
}

/// The mean cosine of some pairs of `vectors`, `[n · width]`. For random words it is the anisotropy (§3.4): 0
/// for uniformly spread directions, 1 if all are equal. NaN without a pair.
///
/// # Panics
/// If an index is out of range.
pub fn mean_cosine(vectors: &[f32], width: usize, pairs: &[(usize, usize)]) -> f64 {
    let vector = |number: usize| &vectors[number * width..][..width];
    pairs.iter().map(|(a, b)| Similarity::Cosine.of(vector(*a), vector(*b))).sum::<f64>() / pairs.len() as f64
}

/// The mean cosine of all pairs of one word's vectors in different contexts (§3.2, definition 1):
/// `1/(n² − n) · Σ_j Σ_(k ≠ j) cos(x_j, x_k)`, from the sum of their directions. NaN for fewer than
/// two.
///
/// # Panics
/// If an index is out of range.
pub fn self_similarity(vectors: &[f32], width: usize, numbers: &[usize]) -> f64 {
    let (mut sum, mut counted) = (vec![0.0; width], 0.0);
    for number in numbers {
        let vector = &vectors[number * width..][..width];
        let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        if norm > 0.0 {
            counted += 1.0;
            sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += f64::from(*x) / norm);
        }
    }
    let n = numbers.len() as f64;
    // The square of the sum has each vector's cosine with itself too, which is 1.
    (sum.iter().map(|x| x * x).sum::<f64>() - counted) / (n * n - n)
}

/// The mean cosine of a sentence's word vectors with their mean (§3.2, definition 2). NaN without a word.
///
/// # Panics
/// If `vectors` are not of this width.
pub fn intra_sentence_similarity(vectors: &[f32], width: usize) -> f64 {
    let mut mean = vec![0.0_f32; width];
    let words = vectors.chunks_exact(width);
    assert!(words.remainder().is_empty(), "vectors of another width");
    let n = words.len() as f64;
    for (feature, mean) in mean.iter_mut().enumerate() {
        *mean = (words.clone().map(|word| f64::from(word[feature])).sum::<f64>() / n) as f32;
    }
    words.map(|word| Similarity::Cosine.of(word, &mean)).sum::<f64>() / n
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: [f32; 8] = [1.0, 0.0, 0.0, 2.0, 3.0, 3.0, 0.0, 0.0];

    #[test]
    fn directions_have_length_one() {
        let found = directions(Vectors::new(&VECTORS, 2).unwrap());
        let root = 0.5_f32.sqrt();
        assert_eq!(found, [1.0, 0.0, 0.0, 1.0, root, root, 0.0, 0.0]);
    }

    #[test]
    fn cosines_of_pairs() {
        let root = 0.5_f64.sqrt();
        assert!((mean_cosine(&VECTORS, 2, &[(0, 1), (0, 2)]) - root / 2.0).abs() < 1e-12);
        assert_eq!(mean_cosine(&VECTORS, 2, &[(0, 3)]), 0.0);
        assert!(mean_cosine(&VECTORS, 2, &[]).is_nan());
    }

    #[test]
    fn the_sum_of_directions_has_all_pairs() {
        let all = [(0, 1), (0, 2), (1, 2)];
        let expected = mean_cosine(&VECTORS, 2, &all);
        assert!((self_similarity(&VECTORS, 2, &[0, 1, 2]) - expected).abs() < 1e-12);
        assert!(self_similarity(&VECTORS, 2, &[0]).is_nan());
    }

    #[test]
    fn words_are_compared_with_their_mean() {
        assert!((intra_sentence_similarity(&VECTORS[..4], 2) - INTRA).abs() < 1e-7);
    }

    /// The mean is (0.5, 1), at cosines 1/√5 and 2/√5.
    const INTRA: f64 = 0.670_820_393_249_937;
}
