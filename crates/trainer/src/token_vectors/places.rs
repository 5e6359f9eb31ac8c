//! The tokens at a place of a text.

use super::{TokenVectors, Unit};
use std::ops::Range;

/// A text's tokens sorted by position, so that those of a word are found without scanning all.
pub(crate) struct TokenPlaces {
    /// The word or character range of each token, and the token's index, sorted by start.
    places: Vec<(Range<usize>, usize)>,
    /// The running maximum of the ends, which is ascending even if the ends are not.
    reach: Vec<usize>,
}

impl TokenPlaces {
    pub fn of(vectors: &TokenVectors, is_words: bool) -> Self {
        let place = |(number, unit): (usize, &Unit)| {
            let place = match is_words {
                true => unit.word.map(|word| word as usize..word as usize + 1)?,
                false => unit.chars.clone(),
            };
            Some((place, number))
        };
        let mut places: Vec<_> = vectors.units.iter().enumerate().filter_map(place).collect();
        places.sort_by_key(|(place, _)| place.start);
        let furthest = places.iter().scan(0, |furthest, (place, _)| {
            *furthest = place.end.max(*furthest);
            Some(*furthest)
        });
        Self { reach: furthest.collect(), places }
    }

    /// The tokens of a word, or those that overlap its characters in a text.
    pub fn at<'a>(&'a self, place: &'a Range<usize>) -> impl Iterator<Item = usize> + 'a {
        let first = self.reach.partition_point(|reach| *reach <= place.start);
        let until = self.places[first..].iter().take_while(|(token, _)| token.start < place.end);
        until.filter(|(token, _)| place.start < token.end).map(|(_, number)| *number)
    }

    /// The mean of the vectors of [these tokens](Self::at).
    pub fn mean(&self, vectors: &TokenVectors, width: usize, place: &Range<usize>) -> Option<Vec<f32>> {
        mean_of(vectors, width, self.at(place))
    }
}

/// The mean of the vectors of these tokens; none without a token.
pub(crate) fn mean_of(
    vectors: &TokenVectors,
    width: usize,
    tokens: impl IntoIterator<Item = usize>,
) -> Option<Vec<f32>> {
    let mut sum = vec![0.0; width];
    let mut n = 0.0;
    for number in tokens {
        let values = &vectors.values[number * width..][..width];
        n += 1.0;
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    (n > 0.0).then(|| {
        sum.iter_mut().for_each(|sum| *sum /= n);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(vectors: &TokenVectors, width: usize, place: &Range<usize>, is_words: bool) -> Option<Vec<f32>> {
        TokenPlaces::of(vectors, is_words).mean(vectors, width, place)
    }

    #[test]
    fn a_long_line_takes_no_look_at_all_tokens_for_each_word() {
        let n = 300_000;
        let unit = |word: usize| Unit { text: String::new(), chars: 0..1, word: Some(word as u32) };
        let values = (0..n).map(|word| word as f32).collect();
        let vectors = TokenVectors { units: (0..n).map(unit).collect(), values };
        let tokens = TokenPlaces::of(&vectors, true);
        // By a look at each token for each word, many minutes.
        for word in 0..n {
            assert_eq!(tokens.mean(&vectors, 1, &(word..word + 1)), Some(vec![word as f32]));
        }
    }

    #[test]
    fn tokens_that_overlap_or_stand_in_another_order_are_all_found() {
        let unit = |chars| Unit { text: String::new(), chars, word: None };
        let vectors = TokenVectors {
            units: vec![unit(0..9), unit(4..4), unit(1..2), unit(1..2), unit(6..8), unit(3..5)],
            values: vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        };
        assert_eq!(mean(&vectors, 1, &(3..7), false), Some(vec![(1.0 + 2.0 + 16.0 + 32.0) / 4.0]));
        assert_eq!(mean(&vectors, 1, &(1..2), false), Some(vec![(1.0 + 4.0 + 8.0) / 3.0]));
        assert_eq!(mean(&vectors, 1, &(8..9), false), Some(vec![1.0]));
        assert_eq!(mean(&vectors, 1, &(9..10), false), None);
    }

    #[test]
    fn a_word_has_the_mean_of_its_tokens() {
        let unit = |chars, word| Unit { text: String::new(), chars, word };
        let vectors = TokenVectors {
            units: vec![unit(0..3, Some(0)), unit(0..2, Some(1)), unit(2..5, Some(1)), unit(0..1, None)],
            values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0, 9.0],
        };
        assert_eq!(mean(&vectors, 2, &(1..2), true), Some(vec![4.0, 6.0]));
        assert_eq!(mean(&vectors, 2, &(0..1), true), Some(vec![1.0, 2.0]));
        assert_eq!(mean(&vectors, 2, &(2..3), true), None);
        // By characters.
        let text = TokenVectors {
            units: vec![unit(0..3, Some(0)), unit(4..6, Some(1)), unit(6..8, Some(1))],
            values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 8.0],
        };
        assert_eq!(mean(&text, 2, &(4..8), false), Some(vec![4.0, 6.0]));
        assert_eq!(mean(&text, 2, &(2..5), false), Some(vec![2.0, 3.0]));
        assert_eq!(mean(&text, 2, &(3..4), false), None);
    }
}
