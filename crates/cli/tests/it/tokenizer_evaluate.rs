//! `cloze tokenizer evaluate`: figures of texts, languages and morphemes, and failures.

use crate::ran::{Ran, run};
use cloze_tokenizer::{Tokenizer, train::WordPieceTrainer};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder with two tokenizers and files.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let text = ["the old sailor sails the old sea .", "sailing boats sail ; old boats sink ."];
    for (name, vocab_size) in [("large", 90), ("small", 45)] {
        let trainer = WordPieceTrainer { vocab_size, ..Default::default() };
        trainer.train(text).unwrap().save(place.path().join(name)).unwrap();
    }
    for (name, text) in [
        ("texts.txt", "The old sailor sails.\n\nOld boats 中 sink; old boats sail.\n"),
        ("more.txt", "The sea"),
        ("en", "the old sea\nold boats\n"),
        ("de", "the old old old sea\nold boats sink\n"),
        ("short", "the sea\n"),
        (
            "morphemes.tsv",
            "sailor\tsail @@or\t100\nboats\tboat @@s\t100\nsea\tsea\t000\nsinks\tsank @@s\t100\n",
        ),
        ("one.tsv", "sailor\tsail @@or\nboats\n"),
        ("empty.tsv", "sailor\t\n"),
        ("nothing.txt", ""),
    ] {
        fs::write(place.path().join(name), text).unwrap();
    }
    place
}

fn evaluate(place: &Path, args: &[&str], input: &str) -> Ran {
    let names = ["large", "small", "morphemes.tsv", "one.tsv", "empty.tsv", "absent"];
    let path = |arg: &&str| -> String {
        let at = |name: &str| place.join(name).to_str().unwrap().to_owned();
        match arg.split_once('=') {
            Some((language, file)) if !language.starts_with("--") => format!("{language}={}", at(file)),
            _ if names.contains(arg) || arg.ends_with(".txt") => at(arg),
            _ => (*arg).to_owned(),
        }
    };
    let args: Vec<String> = ["tokenizer", "evaluate"].iter().chain(args).map(path).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>(), input.as_bytes())
}

fn json(ran: Ran) -> Value {
    serde_json::from_str(&ran.done()).unwrap()
}

#[test]
fn texts_are_counted_as_encodings_have_them() {
    let place = place();
    let args = ["--tokenizer", "large", "--tokenizer", "small", "texts.txt", "more.txt", "--json"];
    let found = json(evaluate(place.path(), &args, ""));
    let lines = ["The old sailor sails.", "", "Old boats 中 sink; old boats sail.", "The sea"];
    for (number, name) in ["large", "small"].iter().enumerate() {
        let figures = &found["tokenizers"][number]["text"];
        let tokenizer = Tokenizer::load(place.path().join(name)).unwrap();
        let ids: Vec<u32> =
            lines.iter().flat_map(|line| tokenizer.encode_ids(line, false).unwrap()).collect();
        let mut used = ids.clone();
        used.sort_unstable();
        used.dedup();
        assert_eq!(figures["tokens"], ids.len());
        assert_eq!(figures["words"], 16);
        assert_eq!(figures["bytes"], lines.iter().map(|line| line.len()).sum::<usize>());
        assert_eq!(figures["vocabulary_used"], used.len());
        assert_eq!(figures["vocabulary"], tokenizer.vocab_size());
        let share = figures["unknown"].as_f64().unwrap();
        let unknown = ids.iter().filter(|id| tokenizer.id_to_token(**id) == Some("[UNK]")).count();
        assert!(unknown > 0 && (share - unknown as f64 / ids.len() as f64).abs() < 1e-12);
    }
    let of = |number: usize, key: &str| found["tokenizers"][number]["text"][key].as_f64().unwrap();
    assert!(of(0, "tokens_per_word") < of(1, "tokens_per_word"));
    assert!(of(0, "whole_words") > of(1, "whole_words"));
    // Standard input, and the same table twice.
    let table = |_| evaluate(place.path(), &["--tokenizer", "large"], "the sea\n").done();
    assert_eq!(table(0), table(1));
    assert!(table(0).contains("tokens per word") && table(0).contains("Rényi efficiency (α = 2.5)"));
    let nothing = evaluate(place.path(), &["--tokenizer", "large", "nothing.txt"], "");
    assert!(
        nothing.error_line(1).contains("nothing.txt: there is no word; expected text"),
        "{}",
        nothing.err
    );
}

#[test]
fn languages_are_compared_with_the_first() {
    let place = place();
    let args = ["--tokenizer", "large", "--parallel", "en=en", "--parallel", "de=de", "--json"];
    let found = json(evaluate(place.path(), &args, ""));
    let languages = found["tokenizers"][0]["parallel"].as_array().unwrap();
    assert!(found["tokenizers"][0].get("text").is_none());
    let tokens = |at: usize| languages[at]["tokens"].as_f64().unwrap();
    assert_eq!(languages[0]["parity"], 1.0);
    assert_eq!(languages[1]["parity"].as_f64().unwrap(), tokens(1) / tokens(0));
    for (args, expected) in [
        (&["--parallel", "en=en", "--parallel", "de=short"][..], "its number of lines is 1, and that of"),
        (&["--parallel", "en=en"], "--parallel: there is only \"en\"; expected two languages or more"),
        (&["--parallel", "en=en", "--parallel", "en=de"], "--parallel: \"en\" is given twice"),
        (&["--parallel", "en"], "expected LANGUAGE=FILE"),
    ] {
        let ran = evaluate(place.path(), &[&["--tokenizer", "large"], args].concat(), "");
        let status = if expected.starts_with("its number") { 1 } else { 2 };
        assert!(ran.error_line(status).contains(expected), "{}", ran.err);
    }
}

#[test]
fn cuts_are_compared_with_morphemes() {
    let place = place();
    let args = ["--tokenizer", "small", "--morphemes", "morphemes.tsv", "--json"];
    let found = json(evaluate(place.path(), &args, ""));
    let morphemes = &found["tokenizers"][0]["morphemes"];
    assert_eq!((&morphemes["all"]["words"], &morphemes["spelt"]["words"]), (&4.into(), &3.into()));
    // What the tokenizer makes of the words, counted here.
    let tokenizer = Tokenizer::load(place.path().join("small")).unwrap();
    let (mut hits, mut cuts, mut gold) = (0, 0, 0);
    for (word, places) in [("sailor", &[4][..]), ("boats", &[4]), ("sea", &[]), ("sinks", &[4])] {
        let encoding = tokenizer.encode(word, false).unwrap();
        let starts: Vec<usize> = encoding.offsets[1..].iter().map(|(start, _)| *start).collect();
        hits += starts.iter().filter(|start| places.contains(start)).count();
        (cuts, gold) = (cuts + starts.len(), gold + places.len());
    }
    assert!(hits > 0 && cuts > hits);
    let figure = |key: &str| morphemes["all"][key].as_f64().unwrap();
    assert!((figure("micro_precision") - hits as f64 / cuts as f64).abs() < 1e-12);
    assert!((figure("micro_recall") - hits as f64 / gold as f64).abs() < 1e-12);
    let missing = evaluate(place.path(), &["--tokenizer", "large", "--morphemes", "one.tsv"], "");
    assert!(missing.error_line(1).contains("one.tsv:2: "), "{}", missing.err);
    fs::write(place.path().join("one.tsv"), "sailor\n").unwrap();
    let narrow = evaluate(place.path(), &["--tokenizer", "large", "--morphemes", "one.tsv"], "");
    let expected = "one.tsv:1: no column 2 (morphemes): there is 1 column";
    assert!(narrow.error_line(1).contains(expected), "{}", narrow.err);
    let empty = evaluate(place.path(), &["--tokenizer", "large", "--morphemes", "empty.tsv"], "");
    let expected =
        "empty.tsv:1: the morphemes are missing; expected a word, a tab and its morphemes between \" @@\"";
    assert!(empty.error_line(1).contains(expected), "{}", empty.err);
}

#[test]
fn what_cannot_be_read_is_told() {
    let place = place();
    let ran = evaluate(place.path(), &["texts.txt"], "");
    assert!(ran.error_line(2).contains("--tokenizer"), "{}", ran.err);
    let ran = evaluate(place.path(), &["--tokenizer", "large", "--alpha", "-1", "texts.txt"], "");
    assert!(ran.error_line(2).contains("expected a number of 0 or more"), "{}", ran.err);
    assert!(
        evaluate(place.path(), &["--tokenizer", "absent", "texts.txt"], "").error_line(1).contains("absent")
    );
    let bad: PathBuf = place.path().join("bad.txt");
    fs::write(bad, b"fine\n\xff\n").unwrap();
    let ran = evaluate(place.path(), &["--tokenizer", "large", "bad.txt"], "");
    assert!(ran.error_line(1).contains("bad.txt:2: not UTF-8"), "{}", ran.err);
    fs::write(place.path().join("blank.txt"), "\n \n").unwrap();
    for args in [&["blank.txt"][..], &["--parallel", "en=blank.txt", "--parallel", "de=blank.txt"]] {
        let ran = evaluate(place.path(), &[&["--tokenizer", "large"], args].concat(), "");
        assert!(ran.error_line(1).contains("blank.txt: there is no word; expected text"), "{}", ran.err);
    }
    let nothing = evaluate(place.path(), &["--tokenizer", "large", "--morphemes", "nothing.txt"], "");
    assert!(nothing.error_line(1).contains("nothing.txt: there is no word"), "{}", nothing.err);
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_depend_on_the_text() {
    let place = place();
    let line = "the old sailor sails the old sea ; sailing boats sail .\n";
    let peak = |times: usize| {
        let file = place.path().join("much.txt");
        fs::write(&file, line.repeat(times)).unwrap();
        let tokenizer = place.path().join("large");
        let args =
            ["tokenizer", "evaluate", "--tokenizer", tokenizer.to_str().unwrap(), file.to_str().unwrap()];
        crate::peak::of(&args, None)
    };
    // 3 MB and 30 MB.
    let (little, much) = (peak(50_000), peak(500_000));
    assert!(much < little + 8_000, "{little} and {much} kB");
}
