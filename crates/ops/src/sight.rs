use std::ops::Range;

/// Which tokens of its own sequence a token sees, by their positions there.
///
/// One value per sequence covers the masks of UniLM (Dong et al. 2019, §2.3) and of the prefix language model
/// (Raffel et al. 2020, §3.2.1): an empty prefix is left-to-right, and one of all tokens bidirectional.
///
/// ```
/// # use cloze_ops::Sight;
/// let seen = |sight: Sight| (0..4).map(|at| sight.keys(at, 4)).collect::<Vec<_>>();
/// assert_eq!(seen(Sight::Prefix(2)), [0..2, 0..2, 0..3, 0..4]);
/// assert_eq!(seen(Sight::LEFT_TO_RIGHT), [0..1, 0..2, 0..3, 0..4]);
/// assert_eq!(seen(Sight::RightToLeft), [0..4, 1..4, 2..4, 3..4]);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sight {
    /// All tokens.
    #[default]
    All,
    /// The first N tokens of the sequence, itself, and those before it. The first tokens thus see one
    /// another.
    Prefix(usize),
    /// Itself and those after it.
    RightToLeft,
}

impl Sight {
    /// Itself and those before it.
    pub const LEFT_TO_RIGHT: Self = Self::Prefix(0);

    /// What the token at `position` sees of `len` tokens. A position may be before the first token, see
    /// [`Queries::Counts`](crate::Queries::Counts).
    pub fn keys(self, position: isize, len: usize) -> Range<usize> {
        let key = |position: isize| position.clamp(0, len as isize) as usize;
        match self {
            Self::All => 0..len,
            Self::Prefix(prefix) => 0..key(position.saturating_add(1)).max(prefix.min(len)),
            Self::RightToLeft => key(position)..len,
        }
    }
}
