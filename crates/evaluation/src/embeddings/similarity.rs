//! Similarity of vectors.

/// A similarity: higher means more similar. Distances are negated, as in sentence-transformers'
/// `SimilarityFunction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Similarity {
    /// The cosine of the angle, 0 for a vector of zeros.
    Cosine,
    /// The dot product.
    Dot,
    /// Minus the Euclidean distance.
    Euclidean,
    /// Minus the Manhattan distance.
    Manhattan,
}

impl Similarity {
    /// All similarities, the usual one first.
    pub const ALL: [Self; 4] = [Self::Cosine, Self::Dot, Self::Euclidean, Self::Manhattan];

    /// Its name in sentence-transformers: `cosine`, `dot`, `euclidean`, `manhattan`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cosine => "cosine",
            Self::Dot => "dot",
            Self::Euclidean => "euclidean",
            Self::Manhattan => "manhattan",
        }
    }

    /// The similarity of two vectors, accumulated in 64 bits.
    ///
    /// # Panics
    /// If the vectors differ in length.
    pub fn of(self, a: &[f32], b: &[f32]) -> f64 {
        match self {
            Self::Cosine => cosine(a, b, norm(a), norm(b)),
            Self::Dot => dot(a, b),
            Self::Euclidean => -sum(a, b, |a, b| (a - b) * (a - b)).sqrt(),
            Self::Manhattan => -sum(a, b, |a, b| (a - b).abs()),
        }
    }
}

pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    sum(a, b, |a, b| a * b)
}

/// The Euclidean length.
pub(crate) fn norm(vector: &[f32]) -> f64 {
    dot(vector, vector).sqrt()
}

/// The cosine of vectors with these norms.
pub(super) fn cosine(a: &[f32], b: &[f32], norm_a: f64, norm_b: f64) -> f64 {
    let norms = norm_a * norm_b;
    if norms > 0.0 { dot(a, b) / norms } else { 0.0 }
}

/// The sum of a term over pairs of numbers, in partial sums that the processor can vectorise.
fn sum(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    const LANES: usize = 8;
    assert_eq!(a.len(), b.len(), "vectors of different widths");
    let (chunks_a, chunks_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = chunks_a.remainder().iter().zip(chunks_b.remainder());
    let rest: f64 = rest.map(|(a, b)| term(f64::from(*a), f64::from(*b))).sum();
    let mut lanes = [0.0; LANES];
    for (a, b) in chunks_a.zip(chunks_b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += term(f64::from(*a), f64::from(*b));
        }
    }
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_what_its_name_says() {
        let a: Vec<f32> = (0..11).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..11).map(|i| (i % 3) as f32).collect();
        // a·b = 1+4+4+10+7+16+10 = 52, |a|² = 385, |b|² = 16
        let found = Similarity::ALL.map(|similarity| similarity.of(&a, &b));
        let expected = [52.0 / (385.0_f64 * 16.0).sqrt(), 52.0, -(385.0_f64 + 16.0 - 104.0).sqrt(), -45.0];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
        }
    }

    #[test]
    fn a_vector_of_zeros_has_no_angle() {
        assert_eq!(Similarity::Cosine.of(&[0.0, 0.0], &[1.0, 2.0]), 0.0);
    }
}
