//! Analogies: a is to b as c is to …

use rayon::prelude::*;

use super::WordVectors;
use super::dot::dot;

/// Words compared with all questions at a time.
const BLOCK: usize = 1024;

/// Keeps a quotient finite. The paper has 0.001; this is gensim's.
const EPSILON: f64 = 1e-6;

/// What two methods answer to a question: numbers of words, none if there are no other words than the question's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnalogyAnswers {
    /// 3CosAdd: the word `x` with the greatest `cos(x, b) − cos(x, a) + cos(x, c)` (Levy & Goldberg 2014, equation 2).
    pub add: Option<usize>,
    /// 3CosMul: the word with the greatest `cos(x, b) · cos(x, c) / (cos(x, a) + ε)` (equation 4), with cosines moved
    /// to 0..1 as `(cos + 1) / 2` and `ε` = 10⁻⁶.
    pub mul: Option<usize>,
}

/// Answers questions `[a, b, c]`, numbers of words, by the word nearest to `b − a + c` among all words but those of the
/// question. Of equally near words the first is taken.
///
/// As `most_similar` and `most_similar_cosmul` of gensim's `KeyedVectors` do. `step_done` is called with the number of
/// words compared so far. Time is proportional to words · questions, after the cosines of all words with those of the
/// questions.
///
/// # Panics
/// If a number is out of range.
pub fn solve_analogies(
    vectors: &WordVectors,
    questions: &[[usize; 3]],
    step_done: &mut dyn FnMut(usize),
) -> Vec<AnalogyAnswers> {
    let (width, firsts) = (vectors.width(), vectors.firsts());
    let directions = vectors.directions();
    let direction = |number: usize| &directions[number * width..][..width];
    let mut asked: Vec<usize> = questions.iter().flatten().copied().collect();
    asked.sort_unstable();
    asked.dedup();
    // Every number of a question is among them.
    let place = |number: usize| asked.binary_search(&number).unwrap_or_default();
    let places: Vec<[usize; 3]> = questions.iter().map(|question| question.map(place)).collect();
    let mut best = vec![[Best::default(); 2]; questions.len()];
    let mut cosines = vec![0.0_f32; asked.len() * BLOCK];
    for start in (0..vectors.len()).step_by(BLOCK) {
        let block = start..vectors.len().min(start + BLOCK);
        cosines.par_chunks_exact_mut(BLOCK).zip(&asked).for_each(|(row, number)| {
            let word = direction(*number);
            row.iter_mut()
                .zip(block.clone())
                .for_each(|(cosine, other)| *cosine = dot(word, direction(other)));
        });
        let rows = |places: [usize; 3]| places.map(|place| &cosines[place * BLOCK..][..block.len()]);
        best.par_iter_mut().zip(&places).zip(questions).for_each(|((best, places), question)| {
            let [a, b, c] = rows(*places);
            let is_asked = |word: usize| question.iter().any(|asked| firsts[*asked] == firsts[word]);
            for (at, ((a, b), c)) in a.iter().zip(b).zip(c).enumerate() {
                let [a, b, c] = [a, b, c].map(|cosine| f64::from(*cosine));
                let word = start + at;
                best[0].offer(word, b - a + c, is_asked);
                best[1].offer(
                    word,
                    (1.0 + b) / 2.0 * ((1.0 + c) / 2.0) / ((1.0 + a) / 2.0 + EPSILON),
                    is_asked,
                );
            }
        });
        step_done(block.end);
    }
    best.into_iter().map(|[add, mul]| AnalogyAnswers { add: add.word, mul: mul.word }).collect()
}

/// The best word so far.
#[derive(Debug, Clone, Copy)]
struct Best {
    word: Option<usize>,
    score: f64,
}

impl Default for Best {
    fn default() -> Self {
        Self { word: None, score: f64::NEG_INFINITY }
    }
}

impl Best {
    #[inline]
    fn offer(&mut self, word: usize, score: f64, is_left_out: impl Fn(usize) -> bool) {
        if score > self.score && !is_left_out(word) {
            *self = Self { word: Some(word), score };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(words: &[&str], values: &[f32], ignores_case: bool) -> WordVectors {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        WordVectors::new(words, values.to_vec(), values.len() / 3, ignores_case).unwrap()
    }

    #[test]
    fn the_words_of_the_question_are_no_answers() {
        let three = vectors(&["a", "b", "c"], &[1.0, 0.0, 0.9, 0.1, 0.8, 0.3], false);
        let answers = solve_analogies(&three, &[[0, 1, 2], [0, 0, 1]], &mut |_| ());
        assert_eq!(answers[0], AnalogyAnswers::default());
        assert_eq!(answers[1], AnalogyAnswers { add: Some(2), mul: Some(2) });
        // Without case, a and A are one word.
        let two = vectors(&["a", "A", "c"], &[1.0, 0.0, 1.0, 0.0, 0.0, 1.0], true);
        assert_eq!(solve_analogies(&two, &[[0, 0, 0]], &mut |_| ())[0].add, Some(2));
    }

    #[test]
    fn many_words_are_compared_block_by_block() {
        let n = 2 * BLOCK + 7;
        let values: Vec<f32> = (0..n * 5).map(|i| ((i * i) as f32 * 0.37).sin()).collect();
        let words: Vec<String> = (0..n).map(|i| i.to_string()).collect();
        let vectors = WordVectors::new(words, values, 5, false).unwrap();
        let questions: Vec<[usize; 3]> =
            (0..40).map(|i| [i * 50, (i * 37 + 5) % n, (i * 91 + 2) % n]).collect();
        let mut done = Vec::new();
        let answers = solve_analogies(&vectors, &questions, &mut |words| done.push(words));
        assert_eq!(done, [BLOCK, 2 * BLOCK, n]);
        let directions = vectors.directions();
        let cosine =
            |a: usize, b: usize| f64::from(dot(&directions[a * 5..][..5], &directions[b * 5..][..5]));
        for (question, answer) in questions.iter().zip(answers) {
            let [a, b, c] = *question;
            let others = || (0..n).filter(|word| !question.contains(word));
            let add = |x: &usize| cosine(*x, b) - cosine(*x, a) + cosine(*x, c);
            let mul = |x: &usize| {
                (1.0 + cosine(*x, b)) * (1.0 + cosine(*x, c)) / (1.0 + cosine(*x, a) + 2.0 * EPSILON)
            };
            let best = |score: &dyn Fn(&usize) -> f64| others().max_by(|x, y| score(x).total_cmp(&score(y)));
            assert_eq!((answer.add, answer.mul), (best(&add), best(&mul)));
        }
    }
}
