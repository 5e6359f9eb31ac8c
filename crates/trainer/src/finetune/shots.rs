//! A few examples, of each class or of any.

use super::task::bad_setting;
use crate::Result;
use cloze_data::derive_seed;
use cloze_data::labelled::{LabelSet, Target, TextExample};
use std::collections::BTreeSet;

/// Separates this random stream from all others of a seed.
const SHOTS_STREAM: u64 = 0x5807;

/// `shots` examples of each class, in order (Gao et al. 2021, §3: K per class, drawn by a seed). The draw
/// depends only on the seed and the examples' positions.
///
/// # Errors
/// A [setting](crate::TrainerError::Setting) error for a class with fewer examples.
pub(super) fn draw(
    examples: Vec<TextExample>,
    labels: &LabelSet,
    shots: usize,
    seed: u64,
) -> Result<Vec<TextExample>> {
    let mut drawn = BTreeSet::new();
    for (class, name) in labels.names().iter().enumerate() {
        let of_class = (0u64..).zip(&examples).filter(|(_, example)| example.target == Target::Class(class));
        let mut places: Vec<(u64, u64)> =
            of_class.map(|(place, _)| (derive_seed(seed, &[SHOTS_STREAM, place]), place)).collect();
        if places.len() < shots {
            let expected = format!("at most {}, the training examples of class {name:?}", places.len());
            return Err(bad_setting("data.shots", shots, expected));
        }
        places.sort_unstable();
        drawn.extend(places[..shots].iter().map(|(_, place)| *place));
    }
    let examples = (0u64..).zip(examples).filter(|(place, _)| drawn.contains(place));
    Ok(examples.map(|(_, example)| example).collect())
}

/// `n` examples of any class, in order. The draw depends only on the seed and the examples' positions; more examples are
/// the same ones and others.
///
/// # Errors
/// A [setting](crate::TrainerError::Setting) error for fewer examples.
pub(super) fn draw_any<E>(examples: Vec<E>, n: usize, seed: u64) -> Result<Vec<E>> {
    if examples.len() < n {
        let expected = format!("at most {}, the training examples", examples.len());
        return Err(bad_setting("data.examples", n, expected));
    }
    let mut places: Vec<(u64, usize)> =
        (0..examples.len()).map(|place| (derive_seed(seed, &[SHOTS_STREAM, place as u64]), place)).collect();
    places.sort_unstable();
    let drawn: BTreeSet<usize> = places[..n].iter().map(|(_, place)| *place).collect();
    let examples = examples.into_iter().enumerate().filter(|(place, _)| drawn.contains(place));
    Ok(examples.map(|(_, example)| example).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_examples_are_drawn_by_seed() {
        let drawn = |n, seed| draw_any((0..1_000).collect(), n, seed).unwrap();
        let first: Vec<i32> = drawn(100, 1);
        assert_eq!((first.len(), first.is_sorted()), (100, true));
        assert_eq!(first, drawn(100, 1));
        assert_ne!(first, drawn(100, 2));
        assert!(first.iter().all(|example| drawn(120, 1).contains(example)));
        assert_eq!(drawn(1_000, 1).len(), 1_000);
        assert_eq!(
            draw_any(vec![0; 3], 4, 1).unwrap_err().to_string(),
            "`data.examples` is 4; expected at most 3, the training examples"
        );
    }

    fn examples(n: usize) -> Vec<TextExample> {
        let example =
            |i: usize| TextExample { text: i.to_string(), pair: None, target: Target::Class(i % 5 / 3) };
        (0..n).map(example).collect()
    }

    fn drawn(shots: usize, seed: u64) -> Result<Vec<usize>> {
        let labels = LabelSet::given(["no", "yes"]).unwrap();
        let drawn = draw(examples(1_000), &labels, shots, seed)?;
        Ok(drawn.iter().map(|example| example.text.parse().unwrap()).collect())
    }

    #[test]
    fn as_many_of_each_class_by_seed() {
        let first = drawn(16, 1).unwrap();
        assert_eq!(first, drawn(16, 1).unwrap());
        assert_ne!(first, drawn(16, 2).unwrap());
        assert!(first.is_sorted());
        let of_class = |class| first.iter().filter(|i| **i % 5 / 3 == class).count();
        assert_eq!((first.len(), of_class(0), of_class(1)), (32, 16, 16));
        // More shots are the same ones and others.
        let more = drawn(20, 1).unwrap();
        assert!(first.iter().all(|i| more.contains(i)));
        assert_eq!(drawn(400, 1).unwrap().len(), 800);
        assert_eq!(
            drawn(401, 1).unwrap_err().to_string(),
            "`data.shots` is 401; expected at most 400, the training examples of class \"yes\""
        );
    }

    #[test]
    fn all_are_as_likely() {
        // Each of the first class is drawn with probability 300 / 600.
        let mut counts = vec![0u32; 1_000];
        (0..400).for_each(|seed| drawn(300, seed).unwrap().into_iter().for_each(|i| counts[i] += 1));
        let of_first = counts.iter().enumerate().filter(|(i, _)| i % 5 / 3 == 0);
        // Six standard deviations of a binomial around 200.
        assert!(of_first.map(|(_, n)| *n).all(|n| n.abs_diff(200) < 60), "{counts:?}");
    }
}
