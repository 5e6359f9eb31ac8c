//! `cloze map`: pages of texts, and failures.

use crate::ran::{Ran, run};
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze_tokenizer::train::WordPieceTrainer;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const TEXTS: [&str; 6] = [
    "the old sea and the old boats",
    "a storm at </script><script>alert(1)</script> sea",
    "boats & \"the\" harbour",
    "the king and\u{2028}the queen",
    "bread and butter for the king",
    "the harbour at night",
];

/// A folder with a model and files of texts.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = WordPieceTrainer { vocab_size: 90, ..Default::default() }
        .train([TEXTS.join("\n").repeat(9)])
        .unwrap();
    let folder = place.path().join("model");
    let mut config = BertConfig::new(tokenizer.vocab_size(), 1, 16);
    (config.n_heads, config.max_positions) = (2, 16);
    let model = config.init_encoder(&mut ParamInit::new(&Device::flex(), 1));
    save_pretrained(&folder, &model, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
    tokenizer.save(&folder).unwrap();
    let object = |(i, text): (usize, &&str)| json!({"text": text, "topic": TOPICS[i]}).to_string();
    let lines: Vec<String> = TEXTS.iter().enumerate().map(object).collect();
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    write("texts.jsonl", &lines.join("\n"));
    write("lines.txt", &TEXTS.map(|text| text.replace('\u{2028}', " ")).join("\n"));
    write("titles.tsv", "title\tlabel\na sea\tx\nthe sea\t\nthe king\tx\nthe queen\ty\nbread\tx\n");
    write("none.jsonl", "");
    write("one.txt", "one boat\n");
    write("three.txt", "one boat\ntwo boats\nthree boats\n");
    write("list.jsonl", "{\"text\": \"a\", \"label\": [1]}\n{\"text\": \"b\"}\n");
    place
}

const TOPICS: [&str; 6] = ["sea", "sea", "sea", "court", "court", "sea"];

/// `cloze map`, with names of files and folders where they are.
fn map(place: &Path, args: &[&str], input: &str) -> Ran {
    with_paths(place, &[&["map"], args].concat(), input)
}

fn with_paths(place: &Path, args: &[&str], input: &str) -> Ran {
    let is_path = |arg: &str| {
        ["model", "my-index"].contains(&arg)
            || [".jsonl", ".tsv", ".txt", ".npy", ".html"].iter().any(|ending| arg.ends_with(ending))
    };
    let all: Vec<String> = args
        .iter()
        .map(|arg| match is_path(arg) {
            true => place.join(arg).to_str().unwrap().to_owned(),
            false => (*arg).to_owned(),
        })
        .collect();
    run(&all.iter().map(String::as_str).collect::<Vec<_>>(), input.as_bytes())
}

/// What a page's script draws.
fn drawn(page: &str) -> Value {
    let begin = "<script id=\"data\" type=\"application/json\">";
    serde_json::from_str(page.split_once(begin).unwrap().1.split_once("</script>").unwrap().0).unwrap()
}

/// An array of NumPy's.
fn npy(values: &[f32], width: usize) -> Vec<u8> {
    let shape = format!("({}, {width})", values.len() / width);
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

#[test]
fn a_page_has_all_texts_and_is_the_same_twice() {
    let place = place();
    let place = place.path();
    for method in ["pca", "tsne"] {
        let args = ["--model", "model", "--method", method, "--columns", "label=topic", "texts.jsonl"];
        let page = map(place, &args, "").done();
        let drawn = drawn(&page);
        assert_eq!(drawn["texts"], json!(TEXTS));
        assert_eq!((&drawn["classes"], &drawn["of"]), (&json!(["sea", "court"]), &json!([0, 0, 0, 1, 1, 0])));
        assert_eq!(drawn["points"].as_array().unwrap().len(), 12);
        assert!(page.matches("<script").count() == 2 && !page.contains("\u{2028}"), "{method}");
        assert_eq!(map(place, &args, "").done(), page);
        let to_file = [&args[..], &["--output", "map.html"]].concat();
        assert_eq!(map(place, &to_file, "").done(), "");
        assert_eq!(fs::read_to_string(place.join("map.html")).unwrap(), page);
        let other = map(place, &[&args[..], &["--seed", "7"]].concat(), "");
        match method {
            "tsne" => assert_ne!(other.done(), page),
            _ => assert!(other.error_line(2).contains("for --method tsne"), "{}", other.err),
        }
    }
    // Labels are found by their name, and an empty one has a name too.
    let args = ["--model", "model", "--columns", "text=title", "titles.tsv"];
    let drawn = drawn(&map(place, &args, "").done());
    assert_eq!((&drawn["classes"], &drawn["of"]), (&json!(["x", "(none)", "y"]), &json!([0, 1, 0, 2, 0])));
}

#[test]
fn vectors_come_from_a_file_or_an_index_too() {
    let place = place();
    let place = place.path();
    let lines = fs::read_to_string(place.join("lines.txt")).unwrap();
    let expected = drawn(&map(place, &["--model", "model", "--method", "pca", "lines.txt"], "").done());
    assert_eq!((&expected["classes"], &expected["of"]), (&json!([]), &json!([])));
    assert_eq!(drawn(&map(place, &["--model", "model", "--method", "pca"], &lines).done()), expected);

    let array = std::process::Command::new(env!("CARGO_BIN_EXE_cloze"))
        .args(["embed", "--format", "npy", "--model", place.join("model").to_str().unwrap()])
        .stdin(fs::File::open(place.join("lines.txt")).unwrap())
        .output()
        .unwrap();
    fs::write(place.join("vectors.npy"), array.stdout).unwrap();
    let found = map(place, &["--vectors", "vectors.npy", "--method", "pca"], &lines).done();
    assert_eq!(drawn(&found), expected);

    let index =
        ["search", "index", "--index", "my-index", "--model", "model", "--field", "topic", "texts.jsonl"];
    with_paths(place, &index, "").done();
    let labelled = ["--model", "model", "--method", "pca", "--columns", "label=topic", "texts.jsonl"];
    let expected = drawn(&map(place, &labelled, "").done());
    let found = drawn(
        &map(place, &["--index", "my-index", "--method", "pca", "--columns", "label=topic"], "").done(),
    );
    assert_eq!(
        ["texts", "classes", "of"].map(|key| &found[key]),
        ["texts", "classes", "of"].map(|key| &expected[key])
    );
    // An index has vectors of length 1 already: scaled again, their last digits may differ.
    for (found, expected) in
        found["points"].as_array().unwrap().iter().zip(expected["points"].as_array().unwrap())
    {
        assert!(found.as_u64().unwrap().abs_diff(expected.as_u64().unwrap()) <= 2, "{found}, not {expected}");
    }
}

#[test]
fn planted_clusters_are_apart() {
    let place = place();
    let place = place.path();
    let (n, width, classes) = (90, 9, 3);
    let value = |i: usize, feature: usize| {
        let centre = if feature % classes == i % classes { 3.0 } else { 0.0 };
        centre + ((i * width + feature) as f32 * 12.9898).sin()
    };
    let values: Vec<f32> = (0..n).flat_map(|i| (0..width).map(move |feature| value(i, feature))).collect();
    fs::write(place.join("vectors.npy"), npy(&values, width)).unwrap();
    let rows: String =
        (0..n).map(|i| format!("{}\n", json!({"text": format!("text {i}"), "label": i % classes}))).collect();
    fs::write(place.join("rows.jsonl"), rows).unwrap();
    for (method, metric) in
        [("pca", "cosine"), ("pca", "euclidean"), ("tsne", "cosine"), ("tsne", "euclidean")]
    {
        let args = ["--vectors", "vectors.npy", "--method", method, "--metric", metric, "rows.jsonl"];
        let drawn = drawn(&map(place, &args, "").done());
        let points: Vec<f64> =
            drawn["points"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let distance =
            |a: usize, b: usize| (points[2 * a] - points[2 * b]).hypot(points[2 * a + 1] - points[2 * b + 1]);
        for i in 0..n {
            let others = (0..n).filter(|j| *j != i);
            let nearest = others.min_by(|a, b| distance(i, *a).total_cmp(&distance(i, *b))).unwrap();
            assert_eq!(nearest % classes, i % classes, "{method}, {metric}: {i} and {nearest}");
        }
    }
}

#[test]
fn failures_are_one_line() {
    let place = place();
    let place = place.path();
    let index = ["search", "index", "--index", "my-index", "--model", "model", "texts.jsonl"];
    with_paths(place, &index, "").done();
    fs::write(place.join("short.npy"), npy(&[1.0, 2.0], 2)).unwrap();
    fs::write(place.join("nan.npy"), npy(&[1.0, 2.0, 3.0, f32::NAN, 5.0, 6.0], 2)).unwrap();
    let cases: [(&[&str], &str, i32, &str); 21] = [
        // Before the texts are read.
        (&["--model", "model", "--output", "nowhere/map.html", "none.jsonl"], "", 1, "cannot write"),
        (&["lines.txt"], "", 2, "--model"),
        (&["--model", "model", "--index", "my-index"], "", 2, "cannot be used with"),
        (&["--index", "my-index", "lines.txt"], "", 2, "cannot be used with"),
        (&["--index", "my-index", "--batch-tokens", "9"], "", 2, "cannot be used with"),
        (&["--vectors", "short.npy", "--int8", "lines.txt"], "", 2, "cannot be used with"),
        (&["--model", "model", "none.jsonl"], "", 1, "no texts to draw"),
        (&["--model", "model"], "", 1, "no texts to draw"),
        (&["--model", "model", "one.txt"], "", 1, "only one text; expected two or more"),
        (
            &["--model", "model", "three.txt"],
            "",
            1,
            "there are too few texts or vectors: 3; expected 4 or more",
        ),
        (
            &["--model", "model", "--perplexity", "30", "lines.txt"],
            "",
            2,
            "--perplexity: the perplexity is 30; expected from 1 to 1.66, a third of the other 5 vectors",
        ),
        (&["--model", "model", "--perplexity", "inf", "lines.txt"], "", 2, "expected a number"),
        (
            &["--model", "model", "--method", "pca", "--perplexity", "2", "lines.txt"],
            "",
            2,
            "--perplexity, --steps and --seed are for --method tsne",
        ),
        (
            &["--model", "model", "--columns", "text=a"],
            "a\nb\n",
            2,
            "lines of text have no columns for --columns",
        ),
        (&["--model", "model", "--columns", "label=year", "texts.jsonl"], "", 1, "no column `year`"),
        (
            &["--model", "model", "list.jsonl"],
            "",
            1,
            "list.jsonl:1: the label is neither a string nor a number",
        ),
        (
            &["--vectors", "short.npy", "lines.txt"],
            "",
            1,
            "short.npy has 1 vectors for 6 texts; expected one per text",
        ),
        (&["--vectors", "nan.npy", "three.txt"], "", 1, "vector 1 (counted from 0) has a NaN or an infinity"),
        (&["--vectors", "lines.txt", "three.txt"], "", 1, "lines.txt: it is not an array in NumPy's format"),
        (&["--index", "my-index", "--columns", "label=year"], "", 1, "no row has the field `year`"),
        (&["--index", "my-index", "--columns", "label=a,label=b"], "", 2, "the field `label` is given twice"),
    ];
    for (args, input, status, expected) in cases {
        let ran = map(place, args, input);
        assert!(ran.error_line(status).contains(expected), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{args:?}");
    }
}
