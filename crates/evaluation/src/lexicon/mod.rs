//! Evaluation of word vectors: similarity, analogies, categories, relations and translation.
//!
//! ```text
//! words         words with a vector each, and how they are looked up
//! similarity    Spearman's correlation of cosines with people's scores
//! analogy       a is to b as c is to …: 3CosAdd and 3CosMul (Levy & Goldberg 2014)
//! categories    purity of clusters (k-means)
//! relations     a linear probe on pairs of words, none of which occur in training
//! translation   an orthogonal map between two languages, and CSLS (Conneau et al. 2018)
//! ```
//!
//! On the same vectors, correlations and analogies are those of gensim's `KeyedVectors`.

mod analogy;
mod categories;
mod dot;
mod relations;
mod similarity;
mod translation;
mod words;

pub use analogy::{AnalogyAnswers, solve_analogies};
pub use categories::{Categories, category_clusters, purity};
pub use relations::{RelationPair, RelationProbe, WordSplit, relation_probe, split_words};
pub use similarity::{WordSimilarity, word_similarity};
pub use translation::{OrthogonalMap, TranslationRanks, TranslationScores, normalized, translation_ranks};
pub use words::WordVectors;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    // Vectors, questions and reference values of gensim, SciPy and NumPy, from `tests/fixtures/lexicon/export.py`.
    const GOLDEN: &str = include_str!("../../../../tests/fixtures/lexicon/golden.json");
    const VECTORS: &str = include_str!("../../../../tests/fixtures/lexicon/words.vec");
    const PAIRS: &str = include_str!("../../../../tests/fixtures/lexicon/pairs.csv");
    const ANALOGIES: &str = include_str!("../../../../tests/fixtures/lexicon/analogies.csv");

    fn vectors(ignores_case: bool) -> WordVectors {
        let (mut words, mut values) = (Vec::new(), Vec::new());
        for line in VECTORS.lines().skip(1) {
            let (word, numbers) = line.split_once(' ').unwrap();
            words.push(word.to_owned());
            values.extend(numbers.split(' ').map(|number| number.parse::<f32>().unwrap()));
        }
        WordVectors::new(words, values, 12, ignores_case).unwrap()
    }

    fn golden() -> Value {
        serde_json::from_str(GOLDEN).unwrap()
    }

    fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
        text.lines().skip(1).map(|line| line.split(',').collect())
    }

    #[test]
    fn similarities_are_those_of_gensim() {
        let pairs: Vec<(&str, &str, f64)> =
            rows(PAIRS).map(|row| (row[0], row[1], row[2].parse().unwrap())).collect();
        for (ignores_case, key) in [(false, "exact"), (true, "any_case")] {
            let found = word_similarity(&vectors(ignores_case), &pairs);
            let expected = &golden()[key];
            let unknown = 100.0 * (1.0 - found.found as f64 / pairs.len() as f64);
            for (found, name) in
                [(found.spearman, "spearman"), (found.pearson, "pearson"), (unknown, "oov_percent")]
            {
                let expected = expected[name].as_f64().unwrap();
                // gensim's cosines are in 32 bits.
                assert!((found - expected).abs() < 1e-6, "{key} {name}: {found}, expected {expected}");
            }
        }
    }

    #[test]
    fn analogies_are_those_of_gensim() {
        for (ignores_case, key) in [(false, "exact"), (true, "any_case")] {
            let vectors = vectors(ignores_case);
            let known: Vec<(&str, [usize; 4])> = rows(ANALOGIES)
                .filter_map(|row| {
                    let words: Option<Vec<usize>> = row[1..].iter().map(|word| vectors.find(word)).collect();
                    Some((row[0], words?.try_into().unwrap()))
                })
                .collect();
            let questions: Vec<[usize; 3]> = known.iter().map(|(_, [a, b, c, _])| [*a, *b, *c]).collect();
            let answers = solve_analogies(&vectors, &questions, &mut |_| ());
            let is_right = |answer: Option<usize>, target: usize| {
                answer.is_some_and(|answer| vectors.firsts()[answer] == vectors.firsts()[target])
            };
            let expected = &golden()[key];
            for section in ["plural", "opposite", "gram1-form"] {
                let of_section = || known.iter().zip(&answers).filter(|((name, _), _)| *name == section);
                let right =
                    of_section().filter(|((_, words), answer)| is_right(answer.add, words[3])).count();
                let expected = &expected["sections"][section];
                assert_eq!(
                    (Some(right as u64), Some(of_section().count() as u64)),
                    (expected[0].as_u64(), expected[1].as_u64())
                );
            }
            if !ignores_case {
                let right = known
                    .iter()
                    .zip(&answers)
                    .filter(|((_, words), answer)| is_right(answer.mul, words[3]))
                    .count();
                assert_eq!(Some(right as u64), expected["cosmul"][0].as_u64());
            }
        }
    }

    #[test]
    fn translations_are_those_of_scipy_and_numpy() {
        let case = &golden()["translation"];
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let list = |key: &str| case[key].as_array().unwrap().clone();
        let numbers = |key: &str| list(key).iter().map(|x| x.as_f64().unwrap()).collect::<Vec<f64>>();
        let width = number(&case["width"]);
        let of = |key: &str| normalized(&numbers(key).iter().map(|x| *x as f32).collect::<Vec<_>>(), width);
        let (source, target, n) = (of("source"), of("target"), number(&case["n_train"]) * width);
        let map = OrthogonalMap::fit(&source[..n], &target[..n], width);
        for (found, expected) in map.matrix().iter().zip(numbers("map")) {
            assert!((found - expected).abs() < 1e-5, "{found}, expected {expected}");
        }
        let queries: Vec<(usize, Vec<usize>)> = list("queries")
            .iter()
            .map(|query| (number(&query[0]), query[1].as_array().unwrap().iter().map(number).collect()))
            .collect();
        let ranks = translation_ranks(&map.apply(&source), &target, width, &queries, &mut |_| ());
        let expected = |key: &str| list(key).iter().map(number).collect::<Vec<_>>();
        assert_eq!(ranks, TranslationRanks { cosine: expected("cosine"), csls: expected("csls") });
    }
}
