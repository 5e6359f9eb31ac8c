//! `cloze lexicon`: vectors are built and evaluated, and failures.

use crate::ran::{Ran, run};
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze_tokenizer::train::WordPieceTrainer;
use cloze_trainer::token_vectors::{Layers, TokenEmbedConfig, TokenEmbedder};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A folder with a model and files.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let text = "the rich bank runs . the muddy bank runs . a hill slopes quickly . new york .\n".repeat(9);
    let tokenizer = WordPieceTrainer { vocab_size: 70, ..Default::default() }.train([text]).unwrap();
    for (name, width) in [("model", 32), ("narrow", 16)] {
        let folder = place.path().join(name);
        let mut config = BertConfig::new(tokenizer.vocab_size(), 3, width);
        (config.n_heads, config.max_positions) = (2, 24);
        let model = config.init_encoder(&mut ParamInit::new(&Device::flex(), 1));
        save_pretrained(&folder, &model, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
        tokenizer.save(&folder).unwrap();
    }
    for (name, text) in [
        ("words.txt", "bank\nhill\nquickly\nbank\nNew York\nmünich\n中\n\nruns\n"),
        ("corpus.txt", "The rich bank runs. A bank!\nNew York runs. Hill slopes.\n"),
        ("unknown.txt", "中\n文\n"),
        ("pairs.csv", "word1,word2,similarity\nbank,hill,1\nbank,runs,3\nhill,quickly,2\nabsent,hill,4\n"),
        ("absent.csv", "word1,word2,similarity\nabsent,hill,1\nbank,nowhere,3\n"),
        ("columns.csv", "first,word2,similarity\nbank,hill,1\n"),
        ("bad.csv", "word1,word2,similarity\nbank,hill,1\nbank,runs,much\n"),
        (
            "analogies.csv",
            "type,word1,word2,word3,target\nx,bank,hill,runs,quickly\ny,bank,hill,absent,runs\n",
        ),
        ("categories.csv", "word,category\nbank,a\nhill,a\nruns,b\nquickly,b\nnowhere,c\n"),
        ("train.tsv", "bank\tbank\nhill\thill\nruns\tquickly\n"),
        ("test.tsv", "quickly\tquickly\nquickly\truns\nnowhere\truns\n"),
    ] {
        fs::write(place.path().join(name), text).unwrap();
    }
    place
}

fn lexicon(place: &Path, args: &[&str]) -> Ran {
    let is_path = |arg: &str| {
        ["model", "narrow", "out", "other", "made"].contains(&arg)
            || [".txt", ".csv", ".tsv", ".npy", ".vec"].iter().any(|end| arg.ends_with(end))
    };
    let path = |arg: &&str| match is_path(arg) {
        true => place.join(arg).to_str().unwrap().to_owned(),
        false => (*arg).to_owned(),
    };
    let args: Vec<String> = std::iter::once("lexicon".to_owned()).chain(args.iter().map(path)).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>(), b"")
}

fn build(place: &Path, more: &[&str]) -> Ran {
    lexicon(place, &[&["build", "--model", "model", "--words", "words.txt"], more].concat())
}

/// Words and vectors of a file in word2vec's format.
fn vectors(path: &Path) -> Vec<(String, Vec<f32>)> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let head = lines.next().unwrap().to_owned();
    let found: Vec<(String, Vec<f32>)> = lines
        .map(|line| {
            let (word, numbers) = line.split_once(' ').unwrap();
            (word.to_owned(), numbers.split(' ').map(|number| number.parse().unwrap()).collect())
        })
        .collect();
    assert_eq!(head, format!("{} {}", found.len(), found[0].1.len()));
    found
}

/// The mean of rows.
fn mean(rows: &[&[f32]]) -> Vec<f32> {
    (0..rows[0].len()).map(|i| rows.iter().map(|row| row[i]).sum::<f32>() / rows.len() as f32).collect()
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {expected:?}");
}

#[test]
fn a_vector_is_the_mean_over_pieces_layers_and_contexts() {
    let place = place();
    let ran = build(place.path(), &["--layers", "0-2", "--out", "out"]);
    assert!(ran.err.contains("no piece for 1 of the 7 words, which are left out: 中"), "{}", ran.err);
    ran.done();
    let found = vectors(&place.path().join("out.vec"));
    let words: Vec<&str> = found.iter().map(|(word, _)| word.as_str()).collect();
    assert_eq!(words, ["bank", "hill", "quickly", "New_York", "münich", "runs"]);
    assert_eq!(
        fs::read_to_string(place.path().join("out.words")).unwrap(),
        "bank\nhill\nquickly\nNew York\nmünich\nruns\n"
    );
    // The same by the states of each token and layer.
    let config = TokenEmbedConfig { layers: Layers::Listed(vec![0, 1, 2]), ..TokenEmbedConfig::default() };
    let embedder = TokenEmbedder::load(&place.path().join("model"), config, &Device::flex()).unwrap();
    let states = |text: &str, pieces: std::ops::Range<usize>| {
        let found = embedder.embed(&[text]).unwrap().remove(0);
        let rows: Vec<Vec<f32>> = found
            .values
            .chunks(embedder.width())
            .skip(pieces.start)
            .take(pieces.len())
            .map(|row| mean(&row.chunks(32).collect::<Vec<_>>()))
            .collect();
        mean(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    let pieces = |text: &str| embedder.embed(&[text]).unwrap()[0].units.len();
    for (word, vector) in &found {
        let text = word.replace('_', " ");
        assert_close(vector, &states(&text, 0..pieces(&text)));
    }
    // In sentences: "bank" is in two of them.
    let contexts = ["--layers", "0-2", "--contexts", "corpus.txt", "--out", "out"];
    let ran = build(place.path(), &contexts);
    assert!(
        ran.err.contains("no sentence with 3 of the 7 words, which are left out: quickly, münich, 中"),
        "{}",
        ran.err
    );
    ran.done();
    let averaged = vectors(&place.path().join("out.vec"));
    let before = pieces("The rich");
    let first = states("The rich bank runs.", before..before + pieces("bank"));
    let second = states("A bank!", pieces("A")..pieces("A bank"));
    assert_eq!(averaged[0].0, "bank");
    assert_close(&averaged[0].1, &mean(&[&first, &second]));
    // Of one occurrence each, drawn: one of the two.
    build(place.path(), &[&contexts[..], &["--per-word", "1"]].concat()).done();
    let drawn = vectors(&place.path().join("out.vec")).remove(0).1;
    let is_near = |other: &[f32]| drawn.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(is_near(&first) != is_near(&second));
}

#[test]
fn special_tokens_are_part_of_the_mean_on_request() {
    let place = place();
    let of = |special: &str| {
        build(place.path(), &["--layers", "-1", "--special", special, "--out", "out"]).done();
        vectors(&place.path().join("out.vec")).remove(0).1
    };
    let (none, all) = (of("none"), of("all"));
    let config = TokenEmbedConfig { special: true, ..TokenEmbedConfig::default() };
    let embedder = TokenEmbedder::load(&place.path().join("model"), config, &Device::flex()).unwrap();
    let found = embedder.embed(&["bank", ""]).unwrap();
    let rows: Vec<&[f32]> = found[0].values.chunks(32).collect();
    assert_eq!(found[0].units.first().map(|unit| unit.text.as_str()), Some("[CLS]"));
    assert_eq!(found[0].units.last().map(|unit| unit.text.as_str()), Some("[SEP]"));
    assert!(found[1].units.is_empty());
    assert_close(&all, &mean(&rows));
    assert_close(&none, &mean(&rows[1..rows.len() - 1]));
}

#[test]
fn each_layer_has_files_of_its_own() {
    let place = place();
    for contexts in [&[][..], &["--contexts", "corpus.txt"]] {
        let of = |more: &[&str]| build(place.path(), &[contexts, more].concat()).done();
        let printed = of(&["--layers", "2,0,-1", "--each-layer", "--out", "out"]);
        assert!(printed.contains("out-2.npy") && printed.contains("out-3.npy"), "{printed}");
        assert!(!place.path().join("out.npy").exists() && !place.path().join("out-1.npy").exists());
        for layer in ["0", "2", "3"] {
            of(&["--layers", layer, "--out", "other"]);
            for ending in ["npy", "words", "vec"] {
                let read = |name: &str| fs::read(place.path().join(name).with_extension(ending)).unwrap();
                assert_eq!(read(&format!("out-{layer}")), read("other"), "layer {layer}, {ending}");
            }
        }
    }
    build(place.path(), &["--each-layer", "--out", "made"]).done();
    assert!((0..=3).all(|layer| place.path().join(format!("made-{layer}.vec")).exists()));
}

#[test]
fn vectors_are_evaluated() {
    let place = place();
    build(place.path(), &["--out", "out"]).done();
    let json = |args: &[&str]| -> Value {
        let of_array: Value = serde_json::from_str(&lexicon(place.path(), args).done()).unwrap();
        let text: Vec<&str> =
            args.iter().map(|arg| if *arg == "out.npy" { "out.vec" } else { arg }).collect();
        let of_text: Value = serde_json::from_str(&lexicon(place.path(), &text).done()).unwrap();
        assert_eq!(of_array, of_text);
        of_array
    };
    let eval = |kind: &'static str, file: &'static str| {
        json(&["eval", kind, "--vectors", "out.npy", file, "--json"])
    };
    let similarity = &eval("similarity", "pairs.csv")["files"][0];
    assert_eq!((&similarity["pairs"], &similarity["found"]), (&4.into(), &3.into()));
    assert!(similarity["spearman"].as_f64().unwrap().abs() <= 1.0);
    let analogy = eval("analogy", "analogies.csv");
    assert_eq!((&analogy["all"]["questions"], &analogy["all"]["found"]), (&2.into(), &1.into()));
    assert_eq!((&analogy["candidates"], analogy["sections"].as_array().unwrap().len()), (&6.into(), 2));
    assert!(analogy["sections"][1]["add"].is_null());
    let categories = &eval("categories", "categories.csv")["files"][0];
    assert_eq!((&categories["found"], &categories["categories"]), (&4.into(), &2.into()));
    assert!(categories["purity"].as_f64().unwrap() >= 0.5);
    let args = ["--no-header", "--train", "train.tsv", "--test", "test.tsv", "--json"];
    let vectors = ["eval", "translation", "--source", "out.npy", "--target", "out.npy"];
    let translation = json(&[&vectors[..], &args].concat());
    assert_eq!((&translation["train_found"], &translation["test_found"]), (&3.into(), &1.into()));
    assert_eq!(translation["test_words"], 2);
    assert!(translation["csls"]["mrr"].as_f64().unwrap() > 0.0);
    // A table for people.
    let table = lexicon(place.path(), &["eval", "similarity", "--vectors", "out.npy", "pairs.csv"]).done();
    assert!(table.contains("75.0 %") && table.contains("Spearman"), "{table}");
}

#[test]
fn relations_are_probed_on_other_words() {
    let place = place();
    // Vectors on a line; the relation is which word has the greater number.
    let words: String =
        (0..40).map(|i| format!("w{i} {} {}\n", (i as f32 / 30.0).cos(), (i as f32 / 30.0).sin())).collect();
    fs::write(place.path().join("line.vec"), format!("40 2\n{words}")).unwrap();
    let pair = |i: usize| {
        let (a, b) = (i % 40, (i * 17 + i / 40 * 13) % 40);
        format!("w{a},w{b},{}\n", if b > a { "up" } else { "down" })
    };
    let rows: String = (0..500).map(pair).collect();
    fs::write(place.path().join("relations.csv"), format!("word1,word2,relation\n{rows}")).unwrap();
    let args = ["eval", "relations", "--vectors", "line.vec", "relations.csv", "--json"];
    let found: Value = serde_json::from_str(&lexicon(place.path(), &args).done()).unwrap();
    let figure = |key: &str| found[key].as_f64().unwrap();
    assert_eq!((&found["found"], found["runs"].as_array().unwrap().len()), (&500.into(), 3));
    assert!(figure("accuracy") > 0.8 && figure("accuracy") > figure("second_alone"), "{found}");
    let few = lexicon(place.path(), &[&args[..5], &["--test-share", "0.01"]].concat());
    assert!(few.error_line(1).contains("choose another --test-share or --seed"), "{}", few.err);
}

#[test]
fn what_cannot_be_used_is_told_in_a_line() {
    let place = place();
    build(place.path(), &["--out", "out"]).done();
    lexicon(place.path(), &["build", "--model", "narrow", "--words", "words.txt", "--out", "other"]).done();
    fs::write(place.path().join("cut.vec"), "3 2\na 1 2\nb 1\n").unwrap();
    fs::write(place.path().join("word.vec"), "a 1 x\n").unwrap();
    fs::write(place.path().join("many.vec"), "a 1 2\nb 1 2 3\n").unwrap();
    fs::write(place.path().join("short.vec"), "3 1\na 1\n").unwrap();
    fs::write(place.path().join("empty.vec"), "").unwrap();
    fs::copy(place.path().join("out.npy"), place.path().join("alone.npy")).unwrap();
    fs::copy(place.path().join("out.npy"), place.path().join("fewer.npy")).unwrap();
    fs::write(place.path().join("fewer.words"), "a\n").unwrap();
    let similarity =
        |vectors: &'static str, file: &'static str| vec!["eval", "similarity", "--vectors", vectors, file];
    let words = |file: &'static str| vec!["build", "--model", "model", "--words", file, "--out", "made"];
    let translation = vec![
        "eval",
        "translation",
        "--source",
        "out.npy",
        "--target",
        "other.npy",
        "--train",
        "train.tsv",
        "--test",
        "test.tsv",
    ];
    for (args, status, expected) in [
        (
            words("unknown.txt"),
            1,
            "unknown.txt: the model's vocabulary has no piece for any of the 2 words; take another model",
        ),
        (words("columns.csv"), 0, ""),
        (words("none.txt"), 1, "none.txt"),
        (similarity("out.npy", "absent.csv"), 1, "absent.csv: all 2 pairs have a word without a vector in"),
        (similarity("out.npy", "absent.csv"), 1, "such as line 2: \"absent\", \"hill\""),
        (
            similarity("out.npy", "columns.csv"),
            1,
            "no column `word1` (the header has: first, word2, similarity)",
        ),
        (similarity("out.npy", "bad.csv"), 1, "bad.csv:3: the similarity is \"much\"; expected a number"),
        (similarity("cut.vec", "pairs.csv"), 1, "cut.vec:3: 1 numbers for \"b\"; expected 2, as before"),
        (similarity("many.vec", "pairs.csv"), 1, "many.vec:2: 3 numbers for \"b\"; expected 2, as before"),
        (similarity("word.vec", "pairs.csv"), 1, "word.vec:1: \"x\" is not a number"),
        (
            similarity("short.vec", "pairs.csv"),
            1,
            "short.vec: it ends after 1 of 3 words; get the whole file",
        ),
        (similarity("empty.vec", "pairs.csv"), 1, "empty.vec: there is no vector"),
        (similarity("alone.npy", "pairs.csv"), 1, "alone.npy: the words of its rows are missing"),
        (similarity("fewer.npy", "pairs.csv"), 1, "fewer.words: 1 words for the 6 vectors of"),
        (translation, 1, "out.npy has vectors of 32 features, and"),
        (
            words("words.txt").into_iter().chain(["--layers", "9"]).collect(),
            2,
            "`--layers` is \"9\"; expected numbers from 0",
        ),
        (
            words("words.txt").into_iter().chain(["--layers", "4-1"]).collect(),
            2,
            "expected all, or numbers and ranges",
        ),
        (words("words.txt").into_iter().chain(["--columns", "1"]).collect(), 2, "--columns is for tables"),
        (
            words("columns.csv").into_iter().chain(["--columns", "second"]).collect(),
            1,
            "no column `second` (the header has: first, word2, similarity); set `--columns COLUMN`",
        ),
        (words("words.txt").into_iter().chain(["--per-word", "1"]).collect(), 2, "--contexts"),
    ] {
        let ran = lexicon(place.path(), &args);
        if status == 0 {
            ran.done();
            continue;
        }
        assert!(ran.error_line(status).contains(expected), "{args:?}: {}", ran.err);
    }
}
