//! Tercom's search for shifts: greedy and bounded.

use super::edit_distance::{Edit, EditDistance};

/// Maximum words in a shift.
const MAX_SIZE: usize = 10;

/// Maximum distance of a shift, in words.
const MAX_DISTANCE: usize = 50;

/// Maximum shifts tried per line, over all searches.
const MAX_CANDIDATES: usize = 1_000;

/// Number of edits that turn a hypothesis into the reference, including shifts.
pub(super) fn edits(hypothesis: &[u32], reference: &[u32]) -> usize {
    if reference.is_empty() {
        return hypothesis.len();
    }
    let mut distance = EditDistance::new(reference, hypothesis.len());
    let mut words = hypothesis.to_vec();
    let (mut n_moves, mut n_candidates) = (0, 0);
    loop {
        let best = best_move(&words, reference, &mut distance, &mut n_candidates);
        // What the last search found is left out where it reached the limit.
        let Some((gain, moved)) = best.filter(|_| n_candidates < MAX_CANDIDATES) else { break };
        if gain <= 0 {
            break;
        }
        n_moves += 1;
        words = moved;
    }
    n_moves + distance.of(&words)
}

/// The order of shifts, largest first: gain, number of words, and the negated positions.
type Rank = (i64, usize, isize, isize);

/// The shift that saves the most edits, with its gain; `None` if there is none to try.
fn best_move(
    words: &[u32],
    reference: &[u32],
    distance: &mut EditDistance<'_>,
    n_candidates: &mut usize,
) -> Option<(i64, Vec<u32>)> {
    let before = distance.of(words) as i64;
    let alignment = Alignment::of(&distance.trace(words));
    let mut best: Option<(Rank, Vec<u32>)> = None;
    let mut moved = Vec::with_capacity(words.len());
    for (start, target, len) in common_sequences(words, reference) {
        // Words in their place stay there, and none are moved to where the right ones are.
        let wrong = |places: &[bool], start: usize| places[start..start + len].contains(&true);
        if !wrong(&alignment.wrong_words, start) || !wrong(&alignment.wrong_references, target) {
            continue;
        }
        let aligned = alignment.words[target];
        if (start as isize..(start + len) as isize).contains(&aligned) {
            continue;
        }
        let mut last = None;
        for offset in 0..=len {
            // Behind the word that the reference's word before is aligned with.
            let place = match (target + offset).checked_sub(1) {
                None => 0,
                Some(before) => match alignment.words.get(before) {
                    Some(aligned) => (aligned + 1) as usize,
                    None => break,
                },
            };
            if last == Some(place) {
                continue;
            }
            last = Some(place);
            move_words(words, start, len, place, &mut moved);
            let gain = before - distance.of(&moved) as i64;
            // The longest of equals, then the first of them, then the one that is moved to the first place.
            let rank = (gain, len, -(start as isize), -(place as isize));
            *n_candidates += 1;
            if best.as_ref().is_none_or(|(known, _)| rank > *known) {
                best = Some((rank, moved.clone()));
            }
        }
        if *n_candidates >= MAX_CANDIDATES {
            break;
        }
    }
    best.map(|((gain, ..), moved)| (gain, moved))
}

/// Common word sequences: start in the hypothesis, start in the reference, length.
fn common_sequences<'a>(
    words: &'a [u32],
    reference: &'a [u32],
) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
    (0..words.len()).flat_map(move |start| {
        let near = start.saturating_sub(MAX_DISTANCE)..(start + MAX_DISTANCE + 1).min(reference.len());
        near.flat_map(move |target| {
            let pairs = words[start..].iter().zip(&reference[target..]).take(MAX_SIZE);
            let len = pairs.take_while(|(word, other)| word == other).count();
            (1..=len).map(move |len| (start, target, len))
        })
    })
}

/// The words with `len` of them, from `start` on, moved to before the one at `target`.
fn move_words(words: &[u32], start: usize, len: usize, target: usize, moved: &mut Vec<u32>) {
    let end = start + len;
    let parts: [&[u32]; 4] = if target < start {
        [&words[..target], &words[start..end], &words[target..start], &words[end..]]
    } else if target > end {
        [&words[..start], &words[end..target], &words[start..end], &words[target..]]
    } else {
        // Within the sequence itself: as many words from behind it come before it.
        let [end_of_next, rest] = [len + target, len + target].map(|place| place.min(words.len()));
        [&words[..start], words.get(end..end_of_next).unwrap_or_default(), &words[start..end], &words[rest..]]
    };
    moved.clear();
    parts.into_iter().for_each(|part| moved.extend_from_slice(part));
}

/// Which words are aligned, and which are wrong.
struct Alignment {
    /// For each reference word, the position of the aligned hypothesis word, or of the last one before it; -1
    /// if there is none.
    words: Vec<isize>,
    wrong_words: Vec<bool>,
    wrong_references: Vec<bool>,
}

impl Alignment {
    /// The alignment given by the edits from hypothesis to reference.
    fn of(trace: &[Edit]) -> Self {
        let mut alignment = Self { words: Vec::new(), wrong_words: Vec::new(), wrong_references: Vec::new() };
        for edit in trace {
            let wrong = *edit != Edit::Keep;
            if *edit != Edit::PutIn {
                alignment.wrong_words.push(wrong);
            }
            if *edit != Edit::LeaveOut {
                alignment.words.push(alignment.wrong_words.len() as isize - 1);
                alignment.wrong_references.push(wrong);
            }
        }
        alignment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_one_edit() {
        assert_eq!(edits(&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5]), 0);
        assert_eq!(edits(&[4, 5, 1, 2, 3], &[1, 2, 3, 4, 5]), 1);
        assert_eq!(edits(&[4, 5, 1, 9, 3], &[1, 2, 3, 4, 5]), 2);
        assert_eq!(edits(&[], &[1, 2]), 2);
        assert_eq!(edits(&[1, 2, 3], &[]), 3);
    }

    #[test]
    fn words_are_moved_before_a_place() {
        let moved = |start, len, target| {
            let mut moved = Vec::new();
            move_words(&[0, 1, 2, 3, 4, 5], start, len, target, &mut moved);
            moved
        };
        assert_eq!(moved(3, 2, 1), [0, 3, 4, 1, 2, 5]);
        assert_eq!(moved(1, 2, 5), [0, 3, 4, 1, 2, 5]);
        assert_eq!(moved(1, 2, 2), [0, 3, 1, 2, 4, 5]);
    }
}
