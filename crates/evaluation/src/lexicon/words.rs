//! Words with a vector each.

use std::borrow::Cow;

use hashbrown::HashMap;

use crate::Result;
use crate::embeddings::Vectors;

/// Words and a vector for each, in an order of one's own, such as by frequency.
///
/// A word is looked up as it is written; spaces and underscores are the same. If case is ignored, words that differ in
/// case alone are one word, whose vector is that of the first; as in gensim with `case_insensitive=True`.
///
/// ```
/// # use cloze_evaluation::lexicon::WordVectors;
/// let words = ["sea", "New_York"].map(String::from).to_vec();
/// let vectors = WordVectors::new(words, vec![1.0, 0.0, 0.0, 2.0], 2, false)?;
/// assert_eq!(vectors.find("New York"), Some(1));
/// assert_eq!(vectors.find("Sea"), None);
/// # Ok::<_, cloze_evaluation::EvaluationError>(())
/// ```
#[derive(Debug, Clone)]
pub struct WordVectors {
    words: Vec<String>,
    values: Vec<f32>,
    width: usize,
    ignores_case: bool,
    /// The first word of each key.
    by_key: HashMap<String, usize>,
    /// The first word with the same key, for each word.
    firsts: Vec<usize>,
}

impl WordVectors {
    /// Words and their vectors, `[words · width]`.
    ///
    /// # Errors
    /// [`EvaluationError::NotFinite`](crate::EvaluationError::NotFinite) with the first vector that holds a NaN or an
    /// infinity.
    ///
    /// # Panics
    /// If the number of vectors is not that of the words, or `width` is 0.
    pub fn new(words: Vec<String>, values: Vec<f32>, width: usize, ignores_case: bool) -> Result<Self> {
        assert_eq!(Vectors::new(&values, width)?.len(), words.len(), "a vector for each word");
        let mut by_key = HashMap::with_capacity(words.len());
        let first =
            |(at, word): (usize, &String)| *by_key.entry(key(word, ignores_case).into_owned()).or_insert(at);
        let firsts = words.iter().enumerate().map(first).collect();
        Ok(Self { words, values, width, ignores_case, by_key, firsts })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Numbers per vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The words.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// All vectors, `[words · width]`.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The number of a word; none for one without a vector.
    pub fn find(&self, word: &str) -> Option<usize> {
        self.by_key.get(key(word, self.ignores_case).as_ref()).copied()
    }

    /// The vector at a number.
    ///
    /// # Panics
    /// If out of range.
    pub fn get(&self, number: usize) -> &[f32] {
        &self.values[number * self.width..][..self.width]
    }

    /// The number of the first word that is the same one, for each word: its own, unless case is ignored or a word is
    /// repeated.
    pub fn firsts(&self) -> &[usize] {
        &self.firsts
    }

    /// The vectors scaled to length 1; a vector of zeros stays one.
    pub fn directions(&self) -> Vec<f32> {
        let mut values = self.values.clone();
        values.chunks_exact_mut(self.width).for_each(scale_to_one);
        values
    }
}

/// Scales a vector to length 1; a vector of zeros stays one.
pub(super) fn scale_to_one(vector: &mut [f32]) {
    let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if norm > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    }
}

/// What a word is looked up by.
fn key(word: &str, ignores_case: bool) -> Cow<'_, str> {
    let key = if word.contains(' ') { Cow::Owned(word.replace(' ', "_")) } else { Cow::Borrowed(word) };
    if ignores_case { Cow::Owned(key.to_uppercase()) } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_case_the_first_counts() {
        let words = ["Paris", "paris", "sea", "PARIS", "sea"].map(String::from).to_vec();
        let of = |ignores_case| WordVectors::new(words.clone(), vec![1.0; 5], 1, ignores_case).unwrap();
        let (exact, any) = (of(false), of(true));
        assert_eq!(
            ["Paris", "paris", "PARIS", "sea", "SEA"].map(|word| exact.find(word)),
            [Some(0), Some(1), Some(3), Some(2), None]
        );
        assert_eq!(["pARIS", "SEA", "no"].map(|word| any.find(word)), [Some(0), Some(2), None]);
        assert_eq!(exact.firsts(), [0, 1, 2, 3, 2]);
        assert_eq!(any.firsts(), [0, 0, 2, 0, 2]);
    }

    #[test]
    fn directions_have_length_one() {
        let vectors =
            WordVectors::new(vec!["a".into(), "b".into()], vec![3.0, 4.0, 0.0, 0.0], 2, false).unwrap();
        assert_eq!(vectors.directions(), [0.6, 0.8, 0.0, 0.0]);
    }
}
