//! Figures of embeddings against the numbers of scipy, scikit-learn, pytrec_eval and sentence-transformers
//! (`data/embeddings/export.py`), and their bounds.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_evaluation::embeddings::{
    Documents, Hit, LogisticConfig, RankingScores, Retrieval, Similarity, Vectors, linear_probe, lloyd,
    pair_figures, pair_scores, scores, sts_figures, v_measure,
};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;

fn golden() -> Value {
    serde_json::from_str(include_str!("data/embeddings/golden.json")).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn floats(value: &Value) -> Vec<f64> {
    list(value).iter().map(|value| value.as_f64().unwrap()).collect()
}

fn singles(value: &Value) -> Vec<f32> {
    floats(value).into_iter().map(|value| value as f32).collect()
}

fn indices(value: &Value) -> Vec<usize> {
    list(value).iter().map(|value| value.as_u64().unwrap() as usize).collect()
}

fn size(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

#[track_caller]
fn same(ours: f64, theirs: f64, what: &str) {
    assert!((ours - theirs).abs() < 1e-9, "{what}: {ours}, not {theirs}");
}

#[track_caller]
fn all_same(ours: &[f64], theirs: &[f64], tolerance: f64, what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (place, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert!((ours - theirs).abs() < tolerance, "{what}, {place}: {ours}, not {theirs}");
    }
}

#[test]
fn similarities_go_with_scores_as_in_scipy() {
    for (number, case) in list(&golden()["similar"]).iter().enumerate() {
        let (first, second) = (singles(&case["first"]), singles(&case["second"]));
        let width = size(&case["width"]);
        let (first, second) = (Vectors::new(&first, width).unwrap(), Vectors::new(&second, width).unwrap());
        for similarity in Similarity::ALL {
            let what = format!("case {number}, {}", similarity.name());
            let theirs = floats(&case["scores"][similarity.name()]);
            all_same(&scores(first, second, similarity), &theirs, 1e-9, &what);
        }
        let figures = sts_figures(first, second, &floats(&case["gold"]), &Similarity::ALL);
        assert_eq!((figures.main().0, figures.examples()), ("spearman_cosine", first.len()));
        for (name, value) in figures.iter() {
            same(value, case["figures"][name].as_f64().unwrap(), &format!("case {number}: {name}"));
        }
    }
}

#[test]
fn thresholds_of_pairs_are_as_in_sentence_transformers() {
    for (number, case) in list(&golden()["pairs"]).iter().enumerate() {
        let together: Vec<bool> = indices(&case["labels"]).into_iter().map(|label| label == 1).collect();
        let found = pair_scores(&floats(&case["scores"]), &together);
        let all = [
            ("accuracy", found.accuracy),
            ("accuracy_threshold", found.accuracy_threshold),
            ("f1", found.f1),
            ("f1_threshold", found.f1_threshold),
            ("precision", found.precision),
            ("recall", found.recall),
            ("ap", found.average_precision),
            ("mcc", found.matthews),
        ];
        for (name, ours) in all {
            same(ours, case[name].as_f64().unwrap(), &format!("case {number}: {name}"));
        }
    }
}

#[test]
fn each_similarity_has_figures_of_pairs() {
    let values = [1.0_f32, 0.0, 0.0, 1.0, 2.0, 0.1];
    let others = [1.0_f32, 0.1, 1.0, 0.0, 2.0, 0.0];
    let (first, second) = (Vectors::new(&values, 2).unwrap(), Vectors::new(&others, 2).unwrap());
    let figures =
        pair_figures(first, second, &[true, false, true], &[Similarity::Cosine, Similarity::Euclidean]);
    assert_eq!((figures.main(), figures.examples()), (("cosine_ap", 1.0), 3));
    for name in ["cosine_accuracy", "cosine_f1", "euclidean_ap", "euclidean_mcc"] {
        assert_eq!(figures.get(name), Some(1.0), "{name}");
    }
    // Distances are 0.1, the root of 2, and 0.1.
    let threshold = figures.get("euclidean_accuracy_threshold").unwrap();
    assert!((threshold + (0.1 + 2.0_f64.sqrt()) / 2.0).abs() < 1e-6, "{threshold}");
}

#[test]
fn rankings_are_scored_as_in_pytrec_eval() {
    for (number, case) in list(&golden()["retrieval"]).iter().enumerate() {
        let mut retrieval = Retrieval::new(&[1, 3, 5, 10, 100]);
        for (query, found) in case["run"].as_object().unwrap() {
            let judgements: BTreeMap<String, i64> =
                serde_json::from_value(case["qrels"][query].clone()).unwrap();
            let found: Vec<(&String, &Value)> = found.as_object().unwrap().iter().collect();
            let mut hits: Vec<Hit> =
                found.iter().map(|(id, score)| Hit { id, score: score.as_f64().unwrap() as f32 }).collect();
            hits.sort_by(Hit::order);
            retrieval.add(hits.iter().map(|hit| hit.id), &judgements);
        }
        let figures = retrieval.figures();
        assert_eq!((figures.main().0, figures.examples()), ("ndcg@10", size(&case["queries"])));
        assert_eq!(figures.iter().count(), case["figures"].as_object().unwrap().len());
        for (name, value) in figures.iter() {
            same(value, case["figures"][name].as_f64().unwrap(), &format!("case {number}: {name}"));
        }
    }
}

/// Values of pytrec_eval-terrier 0.5.11: a relevant document that no run can find counts, and a query without a relevant one too.
#[test]
fn what_cannot_be_found_counts_as_in_pytrec_eval() {
    let score = |found: &[&str], judged: &[(&str, i64)]| {
        let mut retrieval = Retrieval::new(&[3]);
        let judged = judged.iter().map(|(id, grade)| ((*id).to_owned(), *grade)).collect();
        retrieval.add(found.iter().copied(), &judged);
        let figures = retrieval.figures();
        ["precision@3", "recall@3", "ndcg@3", "map@3"].map(|name| figures.get(name).unwrap())
    };
    let found = score(&["d1", "d2", "d3"], &[("d1", 1), ("gone", 2)]);
    let expected = [0.333_333_333_333_333_3, 0.5, 0.380_093_766_715_934_26, 0.5];
    found.iter().zip(expected).for_each(|(found, expected)| assert!((found - expected).abs() < 1e-12));
    assert_eq!(score(&["d1", "d2"], &[("d2", 0)]), [0.0; 4]);
    assert_eq!(score(&["d1", "d2"], &[("gone", 1)]), [0.0; 4]);
}

#[test]
fn the_nearest_documents_come_in_trec_evals_order() {
    let values = [1.0_f32, 0.0, 0.0, 1.0, 2.0, 0.0, 1.0, 1.0];
    let ids = ["b", "c", "a", "q"].map(String::from);
    let documents = |similarity| Documents::new(&ids, Vectors::new(&values, 2).unwrap(), similarity);
    let found = |similarity, id: &str, k| -> Vec<String> {
        let hits = documents(similarity).nearest(id, &[3.0, 0.0], k);
        hits.iter().map(|hit| hit.id.to_owned()).collect()
    };
    // Of equal cosines the greater id comes first; a document with the query's id is left out.
    assert_eq!(found(Similarity::Cosine, "q", 9), ["b", "a", "c"]);
    assert_eq!(found(Similarity::Cosine, "x", 3), ["b", "a", "q"]);
    assert_eq!(found(Similarity::Dot, "x", 1), ["a"]);
    assert_eq!(found(Similarity::Euclidean, "x", 2), ["a", "b"]);
    let hits = documents(Similarity::Manhattan).nearest("x", &[3.0, 0.0], 1);
    assert_eq!(hits, [Hit { id: "a", score: -1.0 }]);
}

#[test]
fn clusters_agree_with_classes_as_in_scikit_learn() {
    for (number, case) in list(&golden()["agreement"]).iter().enumerate() {
        let found = v_measure(&indices(&case["classes"]), &indices(&case["clusters"]));
        let all = [
            ("homogeneity", found.homogeneity),
            ("completeness", found.completeness),
            ("v_measure", found.v_measure),
        ];
        for (name, ours) in all {
            same(ours, case[name].as_f64().unwrap(), &format!("case {number}: {name}"));
        }
    }
}

#[test]
fn the_same_first_centres_lead_to_scikit_learns_clusters() {
    for (number, case) in list(&golden()["clusters"]).iter().enumerate() {
        let points = singles(&case["points"]);
        let vectors = Vectors::new(&points, size(&case["width"])).unwrap();
        let found = lloyd(vectors, floats(&case["first"]), 300);
        assert_eq!(found.labels, indices(&case["labels"]), "case {number}");
        same(found.inertia, case["inertia"].as_f64().unwrap(), &format!("case {number}: inertia"));
        all_same(&found.centres, &floats(&case["centres"]), 1e-9, &format!("case {number}: centres"));
    }
}

#[test]
fn linear_probes_predict_what_scikit_learns_do() {
    for (number, case) in list(&golden()["probes"]).iter().enumerate() {
        let (train, test) = (singles(&case["train"]), singles(&case["test"]));
        let (width, n_classes) = (size(&case["width"]), size(&case["n_classes"]));
        let (train, test) = (Vectors::new(&train, width).unwrap(), Vectors::new(&test, width).unwrap());
        let (train_labels, test_labels) = (indices(&case["train_labels"]), indices(&case["test_labels"]));
        let config = LogisticConfig { c: case["c"].as_f64().unwrap(), ..LogisticConfig::default() };
        let mut steps = 0;
        let found =
            linear_probe((train, &train_labels), (test, &test_labels), n_classes, config, &mut |step| {
                steps = step
            })
            .unwrap();
        assert!(found.classifier.is_converged() && found.classifier.iterations() == steps, "case {number}");
        assert_eq!(found.predicted, indices(&case["predicted"]), "case {number}");
        for name in ["accuracy", "f1_macro"] {
            let ours = found.figures.get(name).unwrap();
            same(ours, case[name].as_f64().unwrap(), &format!("case {number}: {name}"));
        }
        let objective = case["objective"].as_f64().unwrap();
        same(found.classifier.objective(), objective, &format!("case {number}: objective"));
        for (class, theirs) in list(&case["coefficients"]).iter().enumerate() {
            let (_, weights) = found.classifier.parameters(class).split_last().unwrap();
            all_same(weights, &floats(theirs), 1e-4, &format!("case {number}: weights of {class}"));
        }
        for (ours, theirs) in found.probabilities.iter().zip(list(&case["probabilities"])) {
            all_same(ours, &floats(theirs), 1e-4, &format!("case {number}: probabilities"));
        }
    }
}

fn in_bounds(value: f64) -> bool {
    (-1e-12..=1.0 + 1e-12).contains(&value)
}

proptest! {
    #[test]
    fn scores_of_rankings_are_shares(
        found in prop::collection::vec(-1_i64..4, 0..30),
        rest in prop::collection::vec(-1_i64..4, 0..10),
        k in 1_usize..40,
    ) {
        let judged: Vec<i64> = found.iter().chain(&rest).copied().collect();
        let at = RankingScores::at(k, &found, &judged);
        for value in [at.ndcg, at.map, at.recall, at.precision, at.mrr] {
            prop_assert!(in_bounds(value), "{at:?}");
        }
        let deeper = RankingScores::at(k + 1, &found, &judged);
        prop_assert!(deeper.recall >= at.recall && deeper.map >= at.map && deeper.mrr >= at.mrr);
        let mut best = judged.clone();
        best.sort_unstable_by_key(|grade| -grade);
        let ideal = RankingScores::at(k, &best, &judged);
        let expected = if judged.iter().any(|grade| *grade > 0) { 1.0 } else { 0.0 };
        prop_assert!((ideal.ndcg - expected).abs() < 1e-12);
    }

    #[test]
    fn scores_of_pairs_are_shares(rows in prop::collection::vec((-3_i32..4, any::<bool>()), 1..40)) {
        let (scores, together): (Vec<f64>, Vec<bool>) =
            rows.iter().map(|(score, together)| (f64::from(*score) / 2.0, *together)).unzip();
        let found = pair_scores(&scores, &together);
        let shares = [found.accuracy, found.f1, found.precision, found.recall, found.average_precision];
        prop_assert!(shares.into_iter().all(in_bounds), "{found:?}");
        prop_assert!((-1.0 - 1e-12..=1.0 + 1e-12).contains(&found.matthews));
    }

    #[test]
    fn agreement_is_a_share_and_names_do_not_matter(
        rows in prop::collection::vec((0_usize..5, 0_usize..5), 1..50),
    ) {
        let (classes, clusters): (Vec<usize>, Vec<usize>) = rows.into_iter().unzip();
        let found = v_measure(&classes, &clusters);
        for value in [found.homogeneity, found.completeness, found.v_measure] {
            prop_assert!(in_bounds(value), "{found:?}");
        }
        let renamed: Vec<usize> = clusters.iter().map(|cluster| 7 - cluster).collect();
        prop_assert!((v_measure(&classes, &renamed).v_measure - found.v_measure).abs() < 1e-12);
        prop_assert!((v_measure(&classes, &classes).v_measure - 1.0).abs() < 1e-12);
        let back = v_measure(&clusters, &classes);
        prop_assert!((back.homogeneity - found.completeness).abs() < 1e-12);
    }

    #[test]
    fn cosines_are_bounded(values in prop::collection::vec(-1e6_f32..1e6, 2..40)) {
        let half = values.len() / 2;
        let cosine = Similarity::Cosine.of(&values[..half], &values[half..2 * half]);
        prop_assert!((-1.0 - 1e-12..=1.0 + 1e-12).contains(&cosine));
    }
}
