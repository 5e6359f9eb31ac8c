//! The arithmetic of sacreBLEU's formulas.
//!
//! It uses Python's integers, and for resampling NumPy's arrays, whose results are rounded differently. The
//! formulas here are generic over [`Number`], so scores are bit-identical to sacreBLEU's on NumPy 2.

use std::ops::{Add, Div, Mul};

/// A number of a formula. `From<f64>` makes one of Python's numbers.
pub trait Number:
    Copy + Add<Output = Self> + Mul<Output = Self> + Div<Output = Self> + From<f64> + Into<f64>
{
    /// The result of `statistics[i] += amount`.
    fn raised(self, amount: f64) -> Self;
}

/// Python's own numbers: integers are exact in an `f64` up to 2^53.
impl Number for f64 {
    fn raised(self, amount: f64) -> Self {
        self + amount
    }
}

/// A number of an array of NumPy's `float32`, or one of Python's, which adopts the width of the other
/// operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Single {
    /// Python's.
    Python(f64),
    /// NumPy's.
    Numpy(f32),
}

impl Single {
    fn with(self, other: Self, wide: fn(f64, f64) -> f64, single: fn(f32, f32) -> f32) -> Self {
        match (self, other) {
            (Self::Python(a), Self::Python(b)) => Self::Python(wide(a, b)),
            (Self::Numpy(a), Self::Numpy(b)) => Self::Numpy(single(a, b)),
            (Self::Python(a), Self::Numpy(b)) => Self::Numpy(single(a as f32, b)),
            (Self::Numpy(a), Self::Python(b)) => Self::Numpy(single(a, b as f32)),
        }
    }
}

impl Add for Single {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, f64::add, f32::add)
    }
}

impl Mul for Single {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        self.with(other, f64::mul, f32::mul)
    }
}

impl Div for Single {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        self.with(other, f64::div, f32::div)
    }
}

impl From<f64> for Single {
    fn from(value: f64) -> Self {
        Self::Python(value)
    }
}

impl From<Single> for f64 {
    fn from(value: Single) -> Self {
        match value {
            Single::Python(value) => value,
            Single::Numpy(value) => value.into(),
        }
    }
}

impl Number for Single {
    fn raised(self, amount: f64) -> Self {
        self + amount.into()
    }
}

/// A number of an array of NumPy's `int64`: like Python's, but an element stays an integer whatever is added
/// to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whole(pub f64);

impl Add for Whole {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Mul for Whole {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self(self.0 * other.0)
    }
}

impl Div for Whole {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        Self(self.0 / other.0)
    }
}

impl From<f64> for Whole {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

impl From<Whole> for f64 {
    fn from(value: Whole) -> Self {
        value.0
    }
}

impl Number for Whole {
    fn raised(self, amount: f64) -> Self {
        Self((self.0 + amount).trunc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numpys_width_wins() {
        let third = Single::Numpy(1.0) / 3.0.into();
        assert_eq!(third, Single::Numpy(1.0 / 3.0));
        assert_eq!(Single::from(100.0) * third, Single::Numpy(100.0 * (1.0 / 3.0)));
        assert_eq!(Single::from(1.0) / 3.0.into(), Single::Python(1.0 / 3.0));
        assert_eq!(third.raised(0.1), Single::Numpy(1.0 / 3.0 + 0.1));
    }

    #[test]
    fn whole_numbers_stay_whole() {
        assert_eq!(Whole(3.0).raised(0.7), Whole(3.0));
        assert_eq!(Whole(3.0) / Whole(2.0), Whole(1.5));
    }
}
