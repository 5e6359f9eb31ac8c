//! `cloze rerank` and `cloze mine-negatives`, and the re-ranker of the library.

use crate::ran::{Ran, run};
use burn::tensor::Device;
use cloze::Reranker;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, Family, ProblemType, SaveConfig, save_pretrained};
use cloze_model::tasks::BertForSequenceClassification;
use cloze_tokenizer::train::WordPieceTrainer;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const TEXTS: [&str; 5] = [
    "the old sea",
    "a storm at sea and wind",
    "boats in the harbour",
    "the king and the queen",
    "bread and butter",
];

/// A folder with a cross-encoder of one output, one of two classes, and an encoder, each of random weights.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let trainer = WordPieceTrainer { vocab_size: 90, ..Default::default() };
    let tokenizer = trainer.train([TEXTS.join("\n").repeat(9)]).unwrap();
    let mut config = BertConfig::new(tokenizer.vocab_size(), 1, 16);
    (config.n_heads, config.max_positions) = (2, 24);
    let init = &mut ParamInit::new(&Device::flex(), 5).with_std(0.4);
    let architecture = Architecture::SequenceClassification;
    for (name, labels, problem) in [
        ("one", vec!["LABEL_0"], ProblemType::Regression),
        ("two", vec!["no", "yes"], ProblemType::SingleLabel),
        ("three", vec!["no", "yes", "maybe"], ProblemType::SingleLabel),
    ] {
        let head = architecture.sequence_head(Family::BERT, &config, labels.len(), 0.1, init);
        let model = BertForSequenceClassification::new(config.init_encoder(init), head);
        let save = SaveConfig::new(architecture)
            .with_labels(labels.into_iter().map(str::to_owned).collect())
            .with_problem_type(Some(problem));
        save_pretrained(&place.path().join(name), &model, &config, &save).unwrap();
        tokenizer.save(place.path().join(name)).unwrap();
    }
    let encoder = config.init_encoder(init);
    let save = SaveConfig::new(Architecture::Encoder);
    save_pretrained(&place.path().join("encoder"), &encoder, &config, &save).unwrap();
    tokenizer.save(place.path().join("encoder")).unwrap();
    place
}

fn in_place(place: &TempDir, args: &[&str], input: &str) -> Ran {
    let is_path = |arg: &str| ["one", "two", "three", "encoder"].contains(&arg) || arg.contains(".tsv");
    let path = |arg: &&str| match is_path(arg) {
        true => place.path().join(arg).to_str().unwrap().to_owned(),
        false => (*arg).to_owned(),
    };
    let all: Vec<String> = args.iter().map(path).collect();
    run(&all.iter().map(String::as_str).collect::<Vec<_>>(), input.as_bytes())
}

fn answers(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn candidates_are_put_in_order_by_the_models_scores() {
    let place = place();
    let candidates = json!({"query": "sea", "candidates": TEXTS}).to_string();
    let rows: Vec<Value> =
        TEXTS.iter().enumerate().map(|(i, text)| json!({"id": i, "score": 9.5, "text": text})).collect();
    let searched = json!({"query": "sea", "found": rows}).to_string();
    let input = format!("{candidates}\n\n{searched}\n{}\n", json!({"query": "sea", "candidates": []}));
    let device = cloze::device::open(None).unwrap();
    for name in ["one", "two"] {
        let printed = answers(&in_place(&place, &["rerank", "--model", name], &input).done());
        assert_eq!(printed.len(), 4);
        assert_eq!((&printed[1], &printed[3]), (&Value::Null, &json!({"query": "sea", "found": []})));
        let found = printed[0]["found"].as_array().unwrap();
        let scores: Vec<f64> = found.iter().map(|one| one["score"].as_f64().unwrap()).collect();
        assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]) && scores[0] > scores[4], "{scores:?}");
        for one in found {
            assert_eq!(one["text"], TEXTS[one["place"].as_u64().unwrap() as usize]);
        }
        // The rows of a search keep what else they have.
        let with_ids = printed[2]["found"].as_array().unwrap();
        assert!(with_ids.iter().all(|one| one["id"] == one["place"]));
        let places =
            |found: &[Value]| found.iter().map(|one| one["place"].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!(places(with_ids), places(found));
        // What `predict` says of each pair.
        let lines: String =
            TEXTS.iter().map(|text| json!({"text": "sea", "pair": text}).to_string() + "\n").collect();
        let predicted = answers(&in_place(&place, &["predict", "--model", name], &lines).done());
        for one in found {
            let of_pair = &predicted[one["place"].as_u64().unwrap() as usize];
            let expected = if name == "one" { &of_pair["value"] } else { &of_pair["scores"]["yes"] };
            let off = one["score"].as_f64().unwrap() - expected.as_f64().unwrap();
            assert!(off.abs() < 1e-5, "{one}, {of_pair}");
        }
        let best = answers(&in_place(&place, &["rerank", "--model", name, "--top-k", "2"], &input).done());
        assert_eq!(best[0]["found"].as_array().unwrap()[..], found[..2]);
        let ranked = Reranker::load(place.path().join(name), &device).unwrap().rank("sea", &TEXTS).unwrap();
        assert_eq!(ranked.iter().map(|one| one.place as u64).collect::<Vec<_>>(), places(found));
    }
}

#[test]
fn what_cannot_be_put_in_order_is_one_line() {
    let place = place();
    let ran = in_place(&place, &["rerank", "--model", "three"], "");
    assert!(ran.error_line(1).contains("expected one for regression, or classification with two classes"));
    let good = json!({"query": "sea", "candidates": ["the sea"]}).to_string();
    let ran = in_place(&place, &["rerank", "--model", "one"], &format!("{good}\n{{\"query\": 7}}\n"));
    assert!(ran.error_line(1).contains("standard input, line 2"), "{}", ran.err);
    assert_eq!(answers(&ran.out).len(), 1, "the line before it has its answer");
}

#[test]
fn negatives_are_near_and_no_positives_and_the_same_each_time() {
    let place = place();
    let mut rows = "text\tpair\tfits\n".to_owned();
    for (i, text) in TEXTS.iter().enumerate() {
        rows += &format!("sea\t{text}\t{}\n", i % 2);
        rows += &format!("king\t{text}\t{}\n", (i + 1) % 2);
    }
    fs::write(place.path().join("rows.tsv"), rows).unwrap();
    let columns = ["--columns", "label=fits", "--min-label", "1"];
    let mine = |more: &[&str]| {
        let args = [&["mine-negatives", "--model", "encoder", "rows.tsv"][..], &columns, more].concat();
        in_place(&place, &args, "")
    };
    let out = mine(&["--negatives", "2"]).done();
    assert_eq!(out, mine(&["--negatives", "2"]).done());
    let mined = answers(&out);
    // Each of the five texts is a positive of one of the two, and so a negative of the other.
    assert_eq!(mined.len(), 5);
    for one in &mined {
        let odd = one["text"] == "sea";
        let is_negative = |text: &Value| {
            let place = TEXTS.iter().position(|known| text == known).unwrap();
            (place % 2 == 1) != odd
        };
        let negatives = one["negatives"].as_array().unwrap();
        assert!(negatives.len() == 2 && negatives.iter().all(is_negative), "{one}");
    }
    let all = answers(&mine(&["--negatives", "9"]).done());
    let skipped = answers(&mine(&["--negatives", "9", "--range-min", "1"]).done());
    assert_eq!(skipped[0]["negatives"].as_array().unwrap()[..], all[0]["negatives"].as_array().unwrap()[1..]);
    // No cosine is above 1.
    assert_eq!(mine(&["--min-score", "1.5"]).done(), "");
    fs::write(place.path().join("pool.tsv"), "wind\n\nthe harbour\n").unwrap();
    let pooled = answers(&mine(&["--pool", "pool.tsv"]).done());
    let texts: Vec<&str> =
        pooled[0]["negatives"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert!(texts.len() == 2 && texts.contains(&"wind") && texts.contains(&"the harbour"), "{texts:?}");
    fs::write(place.path().join("odd.tsv"), b"wind\n\xff\nthe harbour\n").unwrap();
    let ran = mine(&["--pool", "odd.tsv"]);
    assert!(ran.error_line(1).contains("odd.tsv:2: not UTF-8"), "{}", ran.err);
    let ran = mine(&["--pool", "odd.tsv", "--on-bad-row", "skip"]);
    let skipped =
        ran.err.lines().find(|line| line.contains("odd.tsv: skipped 1 of 3 rows (1 × bad UTF-8): "));
    assert!(skipped.is_some_and(|line| line.ends_with("odd.tsv:2")), "{}", ran.err);
    assert_eq!(answers(&ran.done()), pooled);

    for (more, status, problem) in [
        (&["--range-min", "5", "--range-max", "5"][..], 2, "--range-max 5 leaves none after --range-min 5"),
        (&["--margin", "nan"], 2, "expected a number"),
        (&["--min-label", "9"], 1, "no pair has a label of 9 or more"),
    ] {
        let columns = if more[0] == "--min-label" { &columns[..2] } else { &columns[..] };
        let args = [&["mine-negatives", "--model", "encoder", "rows.tsv"][..], columns, more].concat();
        let ran = in_place(&place, &args, "");
        assert!(ran.error_line(status).contains(problem), "{}", ran.err);
    }
}
