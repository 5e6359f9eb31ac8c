//! The statistics of lines, in the least memory that is exact.

use std::borrow::Cow;

/// Concatenated statistics of lines: in single precision while that is exact (counts below 2^24), else in
/// double precision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Lines {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl Default for Lines {
    fn default() -> Self {
        Self::Single(Vec::new())
    }
}

impl Lines {
    pub fn extend(&mut self, statistics: &[f64]) {
        let is_exact = |value: &f64| f64::from(*value as f32) == *value;
        match self {
            Self::Single(all) if statistics.iter().all(is_exact) => {
                all.extend(statistics.iter().map(|value| *value as f32));
            }
            Self::Single(all) => {
                let all = std::mem::take(all);
                *self =
                    Self::Double(all.into_iter().map(f64::from).chain(statistics.iter().copied()).collect());
            }
            Self::Double(all) => all.extend_from_slice(statistics),
        }
    }

    /// Rounded to single precision.
    pub fn singles(&self) -> Cow<'_, [f32]> {
        match self {
            Self::Single(all) => Cow::Borrowed(all),
            Self::Double(all) => Cow::Owned(all.iter().map(|value| *value as f32).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_rounded() {
        let mut lines = Lines::default();
        lines.extend(&[1.0, 16_777_216.0]);
        assert_eq!(lines, Lines::Single(vec![1.0, 16_777_216.0]));
        lines.extend(&[10.0 / 3.0, 16_777_217.0]);
        lines.extend(&[0.5]);
        assert_eq!(lines, Lines::Double(vec![1.0, 16_777_216.0, 10.0 / 3.0, 16_777_217.0, 0.5]));
        assert_eq!(lines.singles()[2], 10.0_f32 / 3.0);
    }
}
