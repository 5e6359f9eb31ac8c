//! `cloze senses`: senses are learnt, measured and told, and failures.

use crate::ran::{Ran, run};
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze_tokenizer::train::WordPieceTrainer;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const MONEY: &str = "wn30-00000300-n";
const RIVER: &str = "wn30-00000400-n";

/// A sentence whose third word is a bank, of money or of a river.
fn sentence(number: usize) -> Value {
    let is_money = number % 5 < 3;
    let (context, sense) = if is_money { ("rich", MONEY) } else { ("muddy", RIVER) };
    let mut senses = vec![json!({"index": 2, "lemma": "bank", "pos": "n", "sense": sense})];
    if number.is_multiple_of(2) {
        senses.push(json!({"index": 3, "lemma": "run", "pos": "v", "sense": "wn30-00000100-v"}));
    }
    json!({"tokens": ["the", context, "bank", "runs", "."], "senses": senses})
}

/// A folder with models and files.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let text = "the rich bank runs . the muddy bank runs . a hill slopes quickly .\n".repeat(9);
    let tokenizer = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([text]).unwrap();
    for (name, seed, n_layers) in [("model", 1, 4), ("other", 2, 4), ("shallow", 1, 2)] {
        let folder = place.path().join(name);
        let mut config = BertConfig::new(tokenizer.vocab_size(), n_layers, 32);
        (config.n_heads, config.max_positions) = (2, 24);
        let model = config.init_encoder(&mut ParamInit::new(&Device::flex(), seed));
        save_pretrained(&folder, &model, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
        tokenizer.save(&folder).unwrap();
    }
    let lines = |rows: Vec<Value>| rows.iter().map(|row| format!("{row}\n")).collect::<String>();
    let write = |name: &str, text: String| fs::write(place.path().join(name), text).unwrap();
    write("data.jsonl", lines((0..40).map(sentence).collect()));
    // Another corpus: the slope is not in the first one.
    let slope = json!({"tokens": ["a", "hill", "slopes"], "senses": [
        {"index": 1, "lemma": "slope", "pos": "n", "sense": "wn30-00000200-n"}]});
    write("other.jsonl", lines((0..5).map(sentence).chain([slope]).collect()));
    let beyond = json!({"tokens": ["a"], "senses": [{"index": 4, "lemma": "a", "pos": "n", "sense": "s"}]});
    write("bad.jsonl", lines(vec![sentence(0), beyond, sentence(1)]));
    write("none.jsonl", lines(vec![json!({"tokens": ["a"], "senses": []})]));
    write("empty.jsonl", String::new());
    fs::create_dir(place.path().join("taken")).unwrap();
    write("taken/notes.txt", "mine".into());
    place
}

/// `cloze senses COMMAND`, with names of files and folders where they are.
fn senses(place: &Path, args: &[&str], input: &str) -> Ran {
    let is_path = |arg: &str| {
        ["model", "other", "shallow", "senses", "taken", "absent"].contains(&arg) || arg.ends_with(".jsonl")
    };
    let mut all = vec!["senses".to_owned(), args[0].to_owned()];
    all.extend(args[1..].iter().map(|arg| match is_path(arg) {
        true => place.join(arg).to_str().unwrap().to_owned(),
        false => (*arg).to_owned(),
    }));
    run(&all.iter().map(String::as_str).collect::<Vec<_>>(), input.as_bytes())
}

fn train(place: &Path, more: &[&str]) -> Ran {
    let args = ["train", "--model", "model", "--data", "data.jsonl", "--out", "senses"];
    senses(place, &[&args[..], more].concat(), "")
}

fn wordnet() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/senses/wordnet");
    folder.to_str().unwrap().to_owned()
}

#[test]
fn the_nearest_sense_is_right_where_the_context_decides() {
    let place = place();
    let place = place.path();
    let table = train(place, &["--held-out", "0.25"]).done();
    for (name, value) in [("sentences ", "30"), ("sentences held out", "10"), ("their senses", "3")] {
        let row = table.lines().find(|line| line.contains(name)).unwrap();
        assert!(row.contains(value), "{table}");
    }
    // Of the same file, what was held out.
    let ran = senses(place, &["eval", "--senses", "senses", "--data", "data.jsonl", "--json"], "");
    assert!(ran.err.contains("the 10 sentences that were held out"), "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.done()).unwrap();
    let f1 = |json: &Value, group: &str, system: &str| {
        json["groups"][group]["systems"][system]["f1"].as_f64().unwrap()
    };
    assert_eq!(json["main"], "nearest by frequency");
    assert_eq!(f1(&json, "several senses seen", "nearest by frequency"), 1.0);
    assert_eq!(f1(&json, "several senses seen", "nearest"), 1.0);
    assert!(f1(&json, "several senses seen", "most frequent") < 1.0, "{json}");
    assert!(f1(&json, "all", "nearest") > f1(&json, "all", "most frequent"), "{json}");

    // What was held out is not known if other lines are left out than in training: those with two senses are longer.
    let fewer = ["--on-bad-row", "skip", "--max-skipped", "1", "--max-line-bytes", "150"];
    let other_lines = [&["eval", "--senses", "senses", "--data", "data.jsonl"][..], &fewer].concat();
    let ran = senses(place, &other_lines, "");
    let error = ran.error_line(2);
    assert!(
        error.contains("learnt from 30 of its sentences, and now 10 are not held out; use the --on-bad-row"),
        "{error}"
    );

    // Of another one everything. The lemma that training lacks costs recall, unless WordNet has it.
    let other = ["eval", "--senses", "senses", "--data", "other.jsonl", "--json"];
    let ran = senses(place, &other, "");
    assert!(!ran.err.contains("held out"), "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.done()).unwrap();
    assert_eq!((&json["words"], &json["groups"]["unseen lemma"]["words"]), (&json!(9), &json!(1)));
    assert_eq!(f1(&json, "unseen lemma", "nearest"), 0.0);
    let wordnet = wordnet();
    let with_wordnet = [&other[..], &["--wordnet", &wordnet]].concat();
    let json: Value = serde_json::from_str(&senses(place, &with_wordnet, "").done()).unwrap();
    assert_eq!(json["main"], "nearest or related");
    assert_eq!(f1(&json, "unseen lemma", "nearest or related"), 1.0);
    let table = senses(place, &other[..5], "").done();
    assert!(table.contains("most frequent") && table.contains("unseen lemma"), "{table}");

    // Without a share that is held out, the figures are those of what was learnt.
    train(place, &["--layers", "last"]).done();
    let ran = senses(place, &["eval", "--senses", "senses", "--data", "data.jsonl"], "");
    assert!(ran.err.contains("learnt from these sentences") && ran.status == 0, "{}", ran.err);
}

#[test]
fn words_are_tagged_line_by_line() {
    let place = place();
    let place = place.path();
    train(place, &[]).done();
    let muddy = json!({"tokens": ["the", "muddy", "bank", "runs", "."], "senses": [
        {"index": 2, "lemma": "Bank", "pos": "n"}, {"index": 1, "lemma": "muddy", "pos": "a"}]});
    let text = json!({"text": "the rich bank runs .", "senses": [{"start": 9, "end": 13, "lemma": "bank", "pos": "NOUN"}]});
    let input = format!("{muddy}\n\n{text}\n");
    let out = senses(place, &["tag", "--senses", "senses"], &input).done();
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["tokens"], muddy["tokens"]);
    let bank = &lines[0]["senses"][0];
    assert_eq!(
        (&bank["index"], &bank["lemma"], &bank["sense"], &bank["by"]),
        (&json!(2), &json!("bank"), &json!(RIVER), &json!("nearest"))
    );
    // The same sentence was learnt from, so that the cosine is 1.
    assert!((bank["similarity"].as_f64().unwrap() - 1.0).abs() < 1e-5, "{bank}");
    let unknown =
        json!({"index": 1, "lemma": "muddy", "pos": "a", "sense": null, "similarity": null, "by": null});
    assert_eq!(lines[0]["senses"][1], unknown);
    assert_eq!(lines[1], Value::Null);
    let bank = &lines[2]["senses"][0];
    assert_eq!((&bank["start"], &bank["end"], &bank["sense"]), (&json!(9), &json!(13), &json!(MONEY)));

    // What comes out can go in again, also as labelled sentences.
    let again = senses(place, &["tag", "--senses", "senses"], &out.replace("null\n", "\n")).done();
    assert_eq!(again, out);

    let wordnet = wordnet();
    let hill =
        json!({"tokens": ["a", "hill"], "senses": [{"index": 1, "lemma": "hill", "pos": "n"}]}).to_string();
    let with_wordnet = ["tag", "--senses", "senses", "--wordnet", &wordnet, "--candidates"];
    let line: Value =
        serde_json::from_str(&senses(place, &with_wordnet, &format!("{muddy}\n")).done()).unwrap();
    let candidates = line["senses"][0]["candidates"].as_array().unwrap();
    let names: Vec<&Value> = candidates.iter().map(|candidate| &candidate["sense"]).collect();
    assert_eq!(names, [RIVER, MONEY]);
    let line: Value = serde_json::from_str(&senses(place, &with_wordnet, &hill).done()).unwrap();
    let hill = &line["senses"][0];
    assert_eq!((&hill["sense"], &hill["by"]), (&json!("wn30-00000600-n"), &json!("nearest-neighbours")));

    // A line that cannot be read, after the lines before it; then nothing is left of a file.
    let ran = senses(place, &["tag", "--senses", "senses"], &format!("{muddy}\n[]\n{muddy}\n"));
    assert_eq!(ran.out.lines().count(), 1);
    let error = ran.error_line(1);
    assert!(
        error.contains("standard input, line 2: expected a JSON object with `tokens` and `senses`"),
        "{error}"
    );
    let ran = senses(
        place,
        &["tag", "--senses", "senses"],
        "{\"tokens\": [\"a\"], \"senses\": [{\"index\": 3}]}\n",
    );
    assert!(
        ran.error_line(1).contains("line 1: `senses[0]`: `index` is 3; expected a number below 1"),
        "{}",
        ran.err
    );
}

#[test]
fn the_same_senses_are_learnt_whatever_the_threads() {
    let place = place();
    let place = place.path();
    let bytes = |threads: &str| {
        let args = ["senses", "train", "--model", "model", "--data", "data.jsonl", "--out", "senses"];
        let path = |arg: &&str| match ["model", "data.jsonl", "senses"].contains(arg) {
            true => place.join(arg).to_str().unwrap().to_owned(),
            false => (*arg).to_owned(),
        };
        let mut all: Vec<String> = args.iter().map(path).collect();
        // The command itself is no path.
        all[0] = "senses".into();
        let done = std::process::Command::new(env!("CARGO_BIN_EXE_cloze"))
            .args(&all)
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        ["senses.json", "senses.safetensors"].map(|name| fs::read(place.join("senses").join(name)).unwrap())
    };
    assert_eq!(bytes("1"), bytes("3"));
}

#[test]
fn what_cannot_be_used_is_one_error() {
    let place = place();
    let place = place.path();
    let fails = |args: &[&str], status: i32, expected: &str| {
        let ran = senses(place, args, "");
        let error = ran.error_line(status);
        assert!(error.contains(expected), "{error}");
    };
    let train_on = |model: &'static str, data: &'static str| {
        ["train", "--model", model, "--data", data, "--out", "senses"]
    };
    fails(&train_on("model", "empty.jsonl"), 1, "empty.jsonl: it has no sentences; expected one per line");
    fails(&train_on("model", "none.jsonl"), 1, "none.jsonl: no word has a sense");
    fails(
        &train_on("model", "bad.jsonl"),
        1,
        "bad.jsonl:2: `senses[0]`: `index` is 4; expected a number below 1",
    );
    fails(
        &train_on("model", "bad.jsonl"),
        1,
        "expected a number below 1, the words; correct it, or skip such rows with --on-bad-row skip",
    );
    fails(&train_on("model", "absent.jsonl"), 1, "absent.jsonl");
    fails(&train_on("shallow", "data.jsonl"), 2, "`layers` is \"last-four-mean\"; expected");
    let held_out = |share| [&train_on("model", "data.jsonl")[..], &["--held-out", share]].concat();
    fails(&held_out("0.05"), 2, "`--held-out` is 0.05; expected a share that holds out some of 4 sentences");
    fails(&held_out("1"), 2, "expected a number from 0 and below 1");
    fails(
        &["train", "--model", "model", "--data", "data.jsonl", "--out", "taken"],
        2,
        "holds other files than sense vectors (notes.txt); choose a new or empty folder with --out",
    );
    fails(&["eval", "--senses", "absent", "--data", "data.jsonl"], 1, "senses.json");
    assert!(!place.join("senses").exists());

    let skipped = [&train_on("model", "bad.jsonl")[..], &["--on-bad-row", "skip"]].concat();
    let ran = senses(place, &skipped, "");
    assert!(ran.err.contains("(1 × no sentence with senses): "), "{}", ran.err);
    ran.done();
    let eval = ["eval", "--senses", "senses", "--data", "data.jsonl"];
    fails(
        &[&eval[..], &["--model", "other"]].concat(),
        1,
        "the model is not the one that made the sense vectors: its hash",
    );
    fails(&[&eval[..], &["--wordnet", "taken"]].concat(), 1, "data.noun");
    let vectors = place.join("senses/senses.safetensors");
    let mut bytes = fs::read(&vectors).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&vectors, bytes).unwrap();
    fails(
        &eval,
        1,
        "it is not the file that senses.json was written with; recreate it with `cloze senses train`",
    );
}
