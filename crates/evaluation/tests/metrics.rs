//! Metrics against the numbers of scikit-learn, scipy, seqeval and SQuAD's scripts
//! (`data/metrics/export.py`).

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_evaluation::confusion::ConfusionMatrix;
use cloze_evaluation::correlation::{pearson, spearman};
use cloze_evaluation::entities::{EntityCounts, Span};
use cloze_evaluation::report::{LabelExample, LabelPredictions, Predictions};
use cloze_evaluation::scores::{Average, Scores, ZeroDivision};
use cloze_evaluation::squad::{self, Answered};
use cloze_evaluation::tags::{self, Scheme};
use serde_json::Value;

const ZERO: [(&str, ZeroDivision); 3] =
    [("zero", ZeroDivision::Zero), ("one", ZeroDivision::One), ("nan", ZeroDivision::Nan)];
const AVERAGES: [(&str, Average); 3] =
    [("micro", Average::Micro), ("macro", Average::Macro), ("weighted", Average::Weighted)];

fn golden() -> Value {
    serde_json::from_str(include_str!("data/metrics/golden.json")).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn floats(value: &Value) -> Vec<f64> {
    list(value).iter().map(float).collect()
}

fn float(value: &Value) -> f64 {
    if value.is_null() { f64::NAN } else { value.as_f64().unwrap() }
}

fn indices(value: &Value) -> Vec<usize> {
    list(value).iter().map(|value| value.as_u64().unwrap() as usize).collect()
}

fn strings(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap()
}

#[track_caller]
fn same(ours: f64, theirs: f64, what: &str) {
    let equal = (ours - theirs).abs() < 1e-12 || (ours.is_nan() && theirs.is_nan());
    assert!(equal, "{what}: {ours}, not {theirs}");
}

#[track_caller]
fn same_scores(ours: Scores, theirs: &Value, what: &str) {
    let theirs = floats(theirs);
    same(ours.precision, theirs[0], &format!("{what}, precision"));
    same(ours.recall, theirs[1], &format!("{what}, recall"));
    same(ours.f1, theirs[2], &format!("{what}, F1"));
}

#[test]
fn classification_is_as_in_scikit_learn() {
    for (number, case) in list(&golden()["classes"]).iter().enumerate() {
        let n_classes = case["n_classes"].as_u64().unwrap() as usize;
        let mut matrix = ConfusionMatrix::new(n_classes);
        for (gold, predicted) in indices(&case["gold"]).into_iter().zip(indices(&case["predicted"])) {
            matrix.add(gold, predicted);
        }
        for class in 0..n_classes {
            assert_eq!(serde_json::to_value(matrix.row(class)).unwrap(), case["matrix"][class]);
        }
        same(matrix.accuracy(), float(&case["accuracy"]), &format!("case {number}: accuracy"));
        same(matrix.matthews(), float(&case["matthews"]), &format!("case {number}: Matthews"));
        let rest: Vec<usize> = (1..n_classes).collect();
        for (name, zero) in ZERO {
            let scores = &case["scores"][name];
            for class in 0..n_classes {
                let what = format!("case {number}: class {class}, {name}");
                same_scores(matrix.class(class).scores(zero), &scores["each"][class], &what);
            }
            for (average_name, average) in AVERAGES {
                let what = format!("case {number}: {average_name}, {name}");
                same_scores(matrix.average(average, zero), &scores[average_name], &what);
                let theirs = &scores[format!("{average_name}_rest")];
                same_scores(matrix.average_over(&rest, average, zero), theirs, &format!("{what}, rest"));
            }
        }
    }
}

#[test]
fn correlations_are_as_in_scipy() {
    for (number, case) in list(&golden()["numbers"]).iter().enumerate() {
        let (x, y) = (floats(&case["x"]), floats(&case["y"]));
        let (ours, theirs) = (pearson(&x, &y), float(&case["pearson"]));
        // The numbers around 1e8 have lost eight digits before any of this.
        let close = (ours - theirs).abs() < 1e-9 || (ours.is_nan() && theirs.is_nan());
        assert!(close, "case {number}: Pearson {ours}, not {theirs}");
        same(spearman(&x, &y), float(&case["spearman"]), &format!("case {number}: Spearman"));
    }
}

fn spans(value: &Value) -> Vec<Vec<Span>> {
    let span = |span: &Value| Span {
        label: span[0].as_str().unwrap().into(),
        start: span[1].as_u64().unwrap() as usize,
        end: span[2].as_u64().unwrap() as usize,
    };
    list(value).iter().map(|sentence| list(sentence).iter().map(span).collect()).collect()
}

#[test]
fn entities_are_as_in_seqeval() {
    for (number, case) in list(&golden()["entities"]).iter().enumerate() {
        let scheme = match case["scheme"].as_str().unwrap() {
            "IOB1" => Scheme::Iob1,
            "IOB2" => Scheme::Iob2,
            "IOBES" => Scheme::Iobes,
            other => panic!("{other}"),
        };
        for mode in ["default", "strict"] {
            let what = format!("case {number}, {mode}");
            let theirs = &case[mode];
            let read = |side: &str| -> Vec<Vec<Span>> {
                let sentences = list(&case[format!("{side}_tags")]);
                let read = |tags: &Value| match mode {
                    "default" => tags::entities(&strings(tags)),
                    _ => tags::strict_entities(&strings(tags), scheme).unwrap(),
                };
                sentences.iter().map(read).collect()
            };
            let (gold, predicted) = (read("gold"), read("predicted"));
            // seqeval's default mode takes all sentences as one list, which changes no span.
            assert_eq!(gold, spans(&theirs["gold"]), "{what}, gold");
            assert_eq!(predicted, spans(&theirs["predicted"]), "{what}, predicted");

            let mut counts = EntityCounts::default();
            gold.iter().zip(&predicted).for_each(|(gold, predicted)| counts.add(gold, predicted));
            for (scores, zero) in [("scores_0", ZeroDivision::Zero), ("scores_1", ZeroDivision::One)] {
                let scores = &theirs[scores];
                for (name, average) in AVERAGES {
                    let what = format!("{what}, {name}, {zero:?}");
                    match &scores[name] {
                        Value::Null => assert_eq!(counts.types().count(), 0, "{what}"),
                        theirs => same_scores(counts.average(average, zero), theirs, &what),
                    }
                }
                let each = scores.get("each").map(list).unwrap_or_default();
                assert_eq!(counts.types().count(), each.len());
                for ((label, counts), theirs) in counts.types().zip(each) {
                    assert_eq!(theirs[0], label);
                    let theirs = Value::from(list(theirs)[1..4].to_vec());
                    same_scores(counts.scores(zero), &theirs, &format!("{what}, {label}"));
                }
            }
        }
    }
}

#[test]
fn answers_are_normalised_as_in_squad() {
    let golden = golden();
    for case in list(&golden["normal"]) {
        assert_eq!(squad::normalize(case["text"].as_str().unwrap()), case["normal"], "{}", case["text"]);
    }
    // Every character that Python knows, behind an article and before one.
    let within = |ranges: &Value, c: u32| {
        let ranges = list(ranges);
        let after = ranges.partition_point(|range| range[0].as_u64().unwrap() <= u64::from(c));
        after > 0 && u64::from(c) <= ranges[after - 1][1].as_u64().unwrap()
    };
    let characters = &golden["characters"];
    for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
        let code = u32::from(c);
        let changes = c.is_ascii_punctuation() || c.to_lowercase().ne([c]);
        if changes || within(&characters["unassigned"], code) {
            continue;
        }
        let normal = squad::normalize(&format!("x the{c}y"));
        let expected = match (within(&characters["word"], code), within(&characters["space"], code)) {
            (true, _) => format!("x the{c}y"),
            (_, true) => "x y".into(),
            _ => format!("x {c}y"),
        };
        assert_eq!(normal, expected, "U+{code:04X}");
    }
}

#[test]
fn answers_score_as_in_squad() {
    let golden = golden();
    for case in list(&golden["answers"]) {
        let (gold, predicted) = (case["gold"].as_str().unwrap(), case["predicted"].as_str().unwrap());
        let what = format!("{predicted:?} for {gold:?}");
        same(squad::exact_match(gold, predicted), float(&case["exact"]), &what);
        same(squad::token_f1(gold, predicted), float(&case["f1_2"]), &what);
        let question = Answered { golds: &[gold.to_string()], predicted, null_score: 0.0 };
        same(squad::score_v1(&question).1, float(&case["f1"]), &what);
    }
    for (number, case) in list(&golden["squad"]).iter().enumerate() {
        let golds: Vec<Vec<String>> =
            list(&case["questions"]).iter().map(|question| strings(&question[0])).collect();
        let questions = list(&case["questions"]).iter().zip(&golds);
        let questions: Vec<Answered<'_>> = questions
            .map(|(question, golds)| Answered {
                golds,
                predicted: question[1].as_str().unwrap(),
                null_score: float(&question[2]),
            })
            .collect();
        let same = |ours: f64, theirs: &Value, what: &str| {
            same(ours, float(theirs) / 100.0, &format!("case {number}: {what}"));
        };
        let ours = squad::evaluate_v2(&questions, float(&case["threshold"]));
        for (name, part) in [("", ours.all), ("HasAns_", ours.has_answer), ("NoAns_", ours.no_answer)] {
            let theirs = |figure: &str| &case["v2"][format!("{name}{figure}")];
            if part.total == 0 {
                assert!(theirs("total").is_null());
                continue;
            }
            assert_eq!(theirs("total"), part.total);
            same(part.exact, theirs("exact"), name);
            same(part.f1, theirs("f1"), name);
        }
        for (name, best) in [("exact", ours.best_exact), ("f1", ours.best_f1)] {
            same(best.score, &case["v2"][format!("best_{name}")], name);
            assert_eq!(best.threshold, float(&case["v2"][format!("best_{name}_thresh")]), "case {number}");
        }
        if let Some(theirs) = case.get("v1") {
            let ours = squad::evaluate_v1(&questions);
            same(ours.exact, &theirs["exact"], "1.1");
            same(ours.f1, &theirs["f1"], "1.1");
        }
    }
}

#[test]
fn labels_are_as_in_scikit_learn() {
    let golden: Value = serde_json::from_str(include_str!("data/labels/golden.json")).unwrap();
    for (number, case) in list(&golden["cases"]).iter().enumerate() {
        let scores: Vec<Vec<f64>> = list(&case["scores"]).iter().map(floats).collect();
        let gold = list(&case["gold"]).iter().map(indices);
        let examples = gold.zip(&scores).map(|(gold, scores)| LabelExample {
            id: String::new(),
            texts: vec!["a".into()],
            gold,
            scores: scores.clone(),
            loss: 0.0,
        });
        let predictions = LabelPredictions {
            labels: (0..scores[0].len()).map(|label| label.to_string()).collect(),
            threshold: float(&case["threshold"]),
            examples: examples.collect(),
        };
        let figures = predictions.figures();
        for (name, theirs) in case["figures"].as_object().unwrap() {
            same(figures.get(name).unwrap(), float(theirs), &format!("case {number}, {name}"));
        }
        assert_eq!(figures.main().0, "f1_micro");
        let html = predictions.show(0).into_string() + &predictions.breakdown().into_string();
        assert!(html.contains("predicted"), "{html}");
        assert_eq!(predictions.row(0).len(), predictions.columns().len());
    }
}
