//! The boundaries of morphemes in a word.

/// Where the boundaries of a word's morphemes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MorphemeBoundaries {
    /// Places inside the word, in characters: ascending, without repetition.
    pub places: Vec<usize>,
    /// Whether the morphemes spell the word as it is.
    pub is_spelt: bool,
}

/// The most letters of a word or of its morphemes that are aligned, which takes time in proportion to their product.
const LONGEST: usize = 1000;

/// Finds the boundaries of morphemes in a word, also if the morphemes are canonical forms that do not spell it, such as
/// *séparer* + *ateur* for *séparateur* (SIGMORPHON 2022).
///
/// The rule: the letters of all morphemes and those of the word are aligned with the fewest insertions, deletions and
/// substitutions (Levenshtein). A boundary lies where the letters aligned with the first morphemes end. Among equally
/// short alignments, letters that are in both forms stay where they are as far back as possible: read from the end,
/// equal letters are aligned first, then a letter of the morphemes is dropped, then a letter is substituted, then one is
/// inserted; a letter inserted between two morphemes belongs to the one before it. Boundaries that fall on an end of the
/// word, or on one another, are dropped. None for a word or morphemes of more than 1,000 letters.
///
/// ```
/// # use cloze_evaluation::segmentation::morpheme_boundaries;
/// let places = |word, morphemes: &[&str]| morpheme_boundaries(word, morphemes).unwrap().places;
/// assert_eq!(places("strides", &["stride", "s"]), [6]);
/// assert_eq!(places("renversant", &["renverser", "ant"]), [7]);
/// assert_eq!(places("happily", &["happy", "ly"]), [5]);
/// ```
pub fn morpheme_boundaries(word: &str, morphemes: &[&str]) -> Option<MorphemeBoundaries> {
    let letters: Vec<char> = word.chars().collect();
    let parts: Vec<Vec<char>> = morphemes.iter().map(|morpheme| morpheme.chars().collect()).collect();
    let spelt: Vec<char> = parts.concat();
    let mut end = 0;
    let ends: Vec<usize> = parts
        .iter()
        .map(|part| {
            end += part.len();
            end
        })
        .collect();
    let is_spelt = spelt == letters;
    let mut places: Vec<usize> = match is_spelt {
        true => ends,
        false if spelt.len().max(letters.len()) > LONGEST => return None,
        false => {
            let of = aligned_ends(&spelt, &letters);
            ends.into_iter().map(|end| of[end]).collect()
        }
    };
    places.retain(|place| (1..letters.len()).contains(place));
    places.dedup();
    Some(MorphemeBoundaries { places, is_spelt })
}

/// For each number of first letters of `from`, where the letters of `to` aligned with them end.
fn aligned_ends(from: &[char], to: &[char]) -> Vec<usize> {
    let width = to.len() + 1;
    // The distance of the first i letters of one and the first j of the other.
    let mut cost = vec![0_usize; (from.len() + 1) * width];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            let at = |i: usize, j: usize| cost[i * width + j];
            cost[i * width + j] = match (i, j) {
                (0, j) => j,
                (i, 0) => i,
                (i, j) => {
                    let both = at(i - 1, j - 1) + usize::from(from[i - 1] != to[j - 1]);
                    both.min(at(i - 1, j) + 1).min(at(i, j - 1) + 1)
                }
            };
        }
    }
    let at = |i: usize, j: usize| cost[i * width + j];
    let mut ends = vec![0; from.len() + 1];
    let (mut i, mut j) = (from.len(), to.len());
    ends[i] = j;
    while i > 0 {
        let is_equal = j > 0 && from[i - 1] == to[j - 1] && at(i, j) == at(i - 1, j - 1);
        let is_dropped = at(i, j) == at(i - 1, j) + 1;
        if is_equal {
            (i, j) = (i - 1, j - 1);
        } else if is_dropped {
            i -= 1;
        } else if j > 0 && at(i, j) == at(i - 1, j - 1) + 1 {
            (i, j) = (i - 1, j - 1);
        } else {
            // A letter of the word alone.
            j -= 1;
            continue;
        }
        ends[i] = j;
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(word: &str, morphemes: &[&str]) -> Vec<usize> {
        morpheme_boundaries(word, morphemes).unwrap().places
    }

    #[test]
    fn morphemes_that_spell_the_word_have_its_boundaries() {
        let found = morpheme_boundaries("enthrallments", &["en", "thrall", "ment", "s"]).unwrap();
        assert_eq!((found.places, found.is_spelt), (vec![2, 8, 12], true));
        assert_eq!(places("été", &["é", "té"]), [1]);
        assert!(places("incult", &["incult"]).is_empty());
    }

    #[test]
    fn other_spellings_are_aligned() {
        for (word, morphemes, expected) in [
            ("séparatoires", &["séparer", "ateur", "oire", "s"][..], &[5, 7, 11][..]),
            ("villarin", &["Villars", "in"], &[6]),
            ("running", &["run", "ing"], &[4]),
            ("making", &["make", "ing"], &[3]),
            ("studies", &["study", "s"], &[6]),
            ("abc", &["abc", "x"], &[]),
            ("", &["a", "b"], &[]),
            ("ab", &[], &[]),
        ] {
            assert_eq!(places(word, morphemes), expected, "{word}");
        }
    }

    #[test]
    fn endless_words_are_not_aligned() {
        let long = "a".repeat(LONGEST + 1);
        assert_eq!(morpheme_boundaries(&long, &["b"]), None);
        assert_eq!(places(&long, &[&long[1..], "a"]), [LONGEST]);
    }
}
