//! Vectors in one contiguous slice.

use crate::{EvaluationError, Result};

/// Vectors of finite numbers, all of one width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vectors<'a> {
    values: &'a [f32],
    width: usize,
}

impl<'a> Vectors<'a> {
    /// Takes `values`, `[vectors · width]`.
    ///
    /// # Errors
    /// [`EvaluationError::NotFinite`] with the first vector that holds a NaN or an infinity.
    ///
    /// # Panics
    /// If `width` is 0, or does not divide the number of values.
    pub fn new(values: &'a [f32], width: usize) -> Result<Self> {
        assert!(
            width > 0 && values.len().is_multiple_of(width),
            "{} values in rows of {width}",
            values.len()
        );
        match values.iter().position(|value| !value.is_finite()) {
            Some(place) => Err(EvaluationError::NotFinite { vector: place / width }),
            None => Ok(Self { values, width }),
        }
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Numbers per vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The vector at an index.
    ///
    /// # Panics
    /// If out of range.
    pub fn get(&self, place: usize) -> &'a [f32] {
        &self.values[place * self.width..][..self.width]
    }

    /// All numbers, `[vectors · width]`.
    pub fn values(&self) -> &'a [f32] {
        self.values
    }

    /// The first `n` vectors, and the rest.
    ///
    /// # Panics
    /// If there are fewer than `n`.
    pub fn split_at(&self, n: usize) -> (Self, Self) {
        let (first, others) = self.values.split_at(n * self.width);
        let part = |values| Self { values, width: self.width };
        (part(first), part(others))
    }

    /// All vectors in order.
    pub fn iter(&self) -> std::slice::ChunksExact<'a, f32> {
        self.values.chunks_exact(self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_finite_are_refused() {
        let values = [1.0, 2.0, 3.0, f32::NAN, f32::INFINITY, 0.0];
        let error = Vectors::new(&values, 2).unwrap_err().to_string();
        assert_eq!(error, "vector 1 (counted from 0) has a NaN or an infinity; expected finite numbers");
        let vectors = Vectors::new(&values[..2], 1).unwrap();
        assert_eq!((vectors.len(), vectors.width(), vectors.get(1)), (2, 1, &[2.0][..]));
    }
}
