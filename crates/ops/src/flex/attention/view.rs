//! Which keys of a sequence its queries see.

use crate::Sight;
use std::ops::Range;

/// A sequence's mask.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub q_len: usize,
    pub k_len: usize,
    pub causal: bool,
    pub window: Option<usize>,
    pub sight: Sight,
    /// For all keys; empty if none is ignored.
    pub ignored: &'a [bool],
}

/// The keys that one query sees, except ignored ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub first: usize,
    pub end: usize,
    /// Whether it sees nothing, which counts as equal scores for all keys, including ignored ones.
    pub blind: bool,
}

impl View<'_> {
    /// What the query of this index sees.
    pub fn seen(&self, row: usize) -> Seen {
        let Self { q_len, k_len, causal, window, sight, ignored } = *self;
        // Queries are the last of the keys' positions. Of more queries than keys the first stand before them.
        let position = (row + k_len) as isize - q_len as isize;
        let key = |position: isize| position.clamp(0, k_len as isize) as usize;
        let Range { start: mut first, mut end } = sight.keys(position, k_len);
        if let Some(window) = window {
            let window = isize::try_from(window).unwrap_or(isize::MAX);
            first = first.max(key(position.saturating_sub(window)));
            end = end.min(key(position.saturating_add(window).saturating_add(1)));
        }
        if causal {
            end = end.min(key(position + 1));
        }
        let end = end.max(first);
        let blind = match ignored.is_empty() {
            true => first == end,
            false => ignored[first..end].iter().all(|ignored| *ignored),
        };
        Seen { first, end, blind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(view: View) -> Vec<(usize, usize, bool)> {
        let rows = (0..view.q_len).map(|row| view.seen(row));
        rows.map(|Seen { first, end, blind }| (first, end, blind)).collect()
    }

    #[test]
    fn keys_by_position() {
        let all = View { q_len: 2, k_len: 4, causal: false, window: None, sight: Sight::All, ignored: &[] };
        assert_eq!(seen(all), [(0, 4, false); 2]);
        assert_eq!(seen(View { causal: true, ..all }), [(0, 3, false), (0, 4, false)]);
        assert_eq!(seen(View { window: Some(1), ..all }), [(1, 4, false), (2, 4, false)]);
        assert_eq!(seen(View { window: Some(usize::MAX), ..all }), [(0, 4, false); 2]);
        let past = View { causal: true, window: Some(0), ..all };
        assert_eq!(seen(past), [(2, 3, false), (3, 4, false)]);
        assert_eq!(seen(View { sight: Sight::Prefix(4), ..all }), [(0, 4, false); 2]);
        assert_eq!(seen(View { sight: Sight::Prefix(1), ..all }), [(0, 3, false), (0, 4, false)]);
        assert_eq!(seen(View { sight: Sight::RightToLeft, ..all }), [(2, 4, false), (3, 4, false)]);
        let some = View { sight: Sight::RightToLeft, window: Some(0), ..all };
        assert_eq!(seen(some), [(2, 3, false), (3, 4, false)]);
        // More queries than keys: the first of them are nowhere.
        let early = View { q_len: 3, k_len: 1, causal: true, ..all };
        assert_eq!(seen(early), [(0, 0, true), (0, 0, true), (0, 1, false)]);
        let early = View { q_len: 3, k_len: 1, window: Some(1), ..all };
        assert_eq!(seen(early), [(0, 0, true), (0, 1, false), (0, 1, false)]);
    }

    #[test]
    fn who_sees_ignored_keys_only_is_blind() {
        let ignored = [true, true, false];
        let sight = Sight::LEFT_TO_RIGHT;
        for (causal, sight) in [(true, Sight::All), (false, sight), (true, sight)] {
            let view = View { q_len: 3, k_len: 3, causal, window: None, sight, ignored: &ignored };
            assert_eq!(seen(view), [(0, 1, true), (0, 2, true), (0, 3, false)]);
        }
    }
}
