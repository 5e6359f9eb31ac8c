//! Where things are to one another.

use super::Thing;

/// Where a thing is, seen from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Relation {
    /// To the left: its box ends before the other's begins.
    Left,
    /// To the right.
    Right,
    /// Above.
    Above,
    /// Below.
    Below,
}

impl Relation {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Left, Self::Right, Self::Above, Self::Below];

    /// Whether `thing` is there, seen from `other`. Of two things diagonal to one another, two relations hold.
    pub fn holds(self, thing: &Thing, other: &Thing) -> bool {
        let before = |a: i64, b: i64| a + thing.radius + other.radius <= b;
        match self {
            Self::Left => before(thing.x, other.x),
            Self::Right => before(other.x, thing.x),
            Self::Above => before(thing.y, other.y),
            Self::Below => before(other.y, thing.y),
        }
    }

    /// Its words before the other thing.
    pub fn words(self) -> &'static str {
        match self {
            Self::Left => "to the left of",
            Self::Right => "to the right of",
            Self::Above => "above",
            Self::Below => "below",
        }
    }

    /// Its words after the other thing.
    pub(super) fn words_after(self) -> &'static str {
        match self {
            Self::Left => "to its left",
            Self::Right => "to its right",
            Self::Above => "above it",
            Self::Below => "below it",
        }
    }
}
