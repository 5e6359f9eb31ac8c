//! Parallel data: how it is read, what is refused or left out, and the batches that come of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::labelled::{BatchSize, Column, DataFormat};
use cloze_data::parallel::{
    OnBadPair, PairBatch, PairColumns, PairReport, PairSettings, ParallelData, ParallelFiles, PreparedPairs,
    TextPair, batches_of, load_pairs, read_pairs, sides,
};
use cloze_data::{Cursor, Loader, Result, Silent};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::BpeTrainer;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const LANGUAGES: [&str; 2] = ["en", "de"];

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Bytes, with `<s>` and `</s>` around a text.
fn tokenizer() -> Tokenizer {
    BpeTrainer { vocab_size: 270, ..Default::default() }.train(["a dog", "ein Hund"]).unwrap()
}

fn aligned() -> ParallelFiles {
    ParallelFiles::aligned("a.en", "a.de")
}

fn read(folder: &TempDir, files: &ParallelFiles, on_bad: OnBadPair) -> Result<(Vec<TextPair>, String)> {
    let (pairs, skipped) = read_pairs(files, folder.path(), LANGUAGES, on_bad)?;
    Ok((pairs, skipped.to_string()))
}

#[track_caller]
fn refusal(folder: &TempDir, files: &ParallelFiles) -> String {
    let message = read(folder, files, OnBadPair::Error).unwrap_err().to_string();
    message.replace(&format!("{}/", folder.path().display()), "")
}

fn pair(source: &str, target: &str) -> TextPair {
    TextPair { source: source.into(), target: target.into() }
}

fn prepare(
    folder: &Path,
    files: &ParallelFiles,
    max_len: usize,
    on_bad: OnBadPair,
) -> Result<(PreparedPairs, PairReport)> {
    let tokenizer = tokenizer();
    let settings = PairSettings::new(LANGUAGES, [&tokenizer; 2], max_len)
        .on_bad_pair(on_bad, (on_bad == OnBadPair::Skip).then_some(1.0));
    PreparedPairs::prepare(files, folder, &settings, &folder.join("cache"), &Silent)
}

#[test]
fn every_form_of_the_same_pairs_reads_the_same() {
    let folder = folder(&[
        ("a.en", "\u{feff}a dog\r\ntwo \"dogs\"\n"),
        ("a.de", "ein Hund\nzwei \"Hunde\""),
        ("a.tsv", "a dog\tein Hund\ntwo \"dogs\"\tzwei \"Hunde\"\n"),
        ("named.tsv", "id\tde\ten\n1\tein Hund\ta dog\n2\tzwei \"Hunde\"\ttwo \"dogs\"\n"),
        ("a.csv", "a dog,ein Hund\n\"two \"\"dogs\"\"\",\"zwei \"\"Hunde\"\"\"\n"),
        (
            "a.jsonl",
            "{\"en\": \"a dog\", \"de\": \"ein Hund\"}\n\n{\"de\": \"zwei \\\"Hunde\\\"\", \"en\": \"two \\\"dogs\\\"\"}\n",
        ),
        (
            "nested.json",
            "{\"translation\": {\"en\": \"a dog\", \"de\": \"ein Hund\"}}\n{\"translation\": {\"en\": \"two \\\"dogs\\\"\", \"de\": \"zwei \\\"Hunde\\\"\"}}\n",
        ),
    ]);
    for name in ["a.en", "a.de"] {
        let text = fs::read(folder.path().join(name)).unwrap();
        let file = fs::File::create(folder.path().join(format!("{name}.gz"))).unwrap();
        let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        gz.finish().unwrap();
    }
    let named = |source: &str, target: &str| {
        let [source, target] = [source, target].map(|name| Column::Name(name.into()));
        Some(PairColumns { source, target })
    };
    let with = |file: &str, columns| {
        let mut files = ParallelFiles::rows([file]);
        files.columns = columns;
        files
    };
    let all = [
        aligned(),
        ParallelFiles::aligned("a.en.gz", "a.de.gz"),
        with("a.tsv", None),
        with("named.tsv", named("en", "de")),
        with("a.csv", None),
        with("a.jsonl", None),
        with("nested.json", named("translation.en", "translation.de")),
    ];
    let expected = [pair("a dog", "ein Hund"), pair("two \"dogs\"", "zwei \"Hunde\"")];
    for files in all {
        assert_eq!(read(&folder, &files, OnBadPair::Error).unwrap().0, expected, "{files:?}");
    }
    // Several files, of which the first goes with the first.
    let mut twice = ParallelFiles::default();
    (twice.source, twice.target) = (vec!["a.en".into(), "a.de".into()], vec!["a.de".into(), "a.en".into()]);
    let (pairs, _) = read(&folder, &twice, OnBadPair::Error).unwrap();
    assert_eq!(pairs[2..], [pair("ein Hund", "a dog"), pair("zwei \"Hunde\"", "two \"dogs\"")]);
    let texts = |wanted| -> Vec<String> {
        sides(&aligned(), folder.path(), LANGUAGES, wanted).unwrap().collect::<Result<_>>().unwrap()
    };
    assert_eq!(texts([true, true]), ["a dog", "ein Hund", "two \"dogs\"", "zwei \"Hunde\""]);
    assert_eq!(texts([false, true]), ["ein Hund", "zwei \"Hunde\""]);
}

#[test]
fn files_that_are_not_aligned_are_refused_either_way() {
    for (source, target, expected) in [
        (
            "a\nb\n",
            "x\n",
            "a.en:2: this line has no counterpart: a.de has 1 lines and this file 2; line-aligned files need equally many",
        ),
        (
            "a\n",
            "x\ny\nz\n\n",
            "a.de:2: this line has no counterpart: a.en has 1 lines and this file 4; line-aligned files need equally many",
        ),
    ] {
        let folder = folder(&[("a.en", source), ("a.de", target)]);
        assert_eq!(refusal(&folder, &aligned()), expected);
        assert!(read(&folder, &aligned(), OnBadPair::Skip).is_err());
    }
}

#[test]
fn pairs_that_cannot_be_used_are_errors_or_counted() {
    let files = folder(&[("a.en", "a dog\n \nno\nyes\n"), ("a.de", "ein Hund\nx\n\nja\n")]);
    assert_eq!(
        refusal(&files, &aligned()),
        "a.en:2: the source is empty; correct it, or set `parallel.on_bad_pair = \"skip\"` to skip such pairs"
    );
    let (pairs, skipped) = read(&files, &aligned(), OnBadPair::Skip).unwrap();
    assert_eq!(pairs, [pair("a dog", "ein Hund"), pair("yes", "ja")]);
    assert_eq!(skipped, "1 × empty source, 1 × empty target");

    let bad = tempfile::tempdir().unwrap();
    fs::write(bad.path().join("a.en"), b"a \xFF dog\nyes\n").unwrap();
    fs::write(bad.path().join("a.de"), "ein Hund\nja\n").unwrap();
    assert!(refusal(&bad, &aligned()).starts_with("a.en:1: "));
    let (pairs, skipped) = read(&bad, &aligned(), OnBadPair::Skip).unwrap();
    assert_eq!((pairs.len(), &*skipped), (1, "1 × bad UTF-8"));

    let rows =
        folder(&[("a.tsv", "a\tb\nc\n"), ("a.jsonl", "{\"en\": 1, \"de\": \"b\"}\n{\"en\": \"a\"}\n")]);
    assert!(refusal(&rows, &ParallelFiles::rows(["a.tsv"])).starts_with("a.tsv:2: 1 column, expected 2"));
    assert!(
        refusal(&rows, &ParallelFiles::rows(["a.jsonl"]))
            .starts_with("a.jsonl:1: column `en` (`columns.source`): a number, expected a string"),
    );
    let none = read(&rows, &ParallelFiles::rows(["a.jsonl"]), OnBadPair::Skip).unwrap_err().to_string();
    assert!(
        none.contains("there is no pair of sentences in") && none.contains("1 × missing column"),
        "{none}"
    );
}

#[test]
fn few_pairs_may_be_left_out() {
    // Of 40 pairs two have an empty side, and a third is too long.
    let line = |i: usize, empty: usize| if i == empty { "\n".to_owned() } else { format!("{i}\n") };
    let sources = (0..40).map(|i| if i == 30 { "abcdefghij\n".to_owned() } else { line(i, 4) });
    let targets = (0..40).map(|i| line(i, 9));
    let folder = folder(&[("a.en", &sources.collect::<String>()), ("a.de", &targets.collect::<String>())]);
    let tokenizer = tokenizer();
    let load = |on_bad, max_skipped, max_len| {
        let settings =
            PairSettings::new(LANGUAGES, [&tokenizer; 2], max_len).on_bad_pair(on_bad, max_skipped);
        let loaded = load_pairs(&aligned(), folder.path(), &settings);
        loaded
            .map(|pairs| pairs.texts.len())
            .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
    };
    assert_eq!(load(OnBadPair::Skip, None, 99), Ok(38));
    assert_eq!(
        load(OnBadPair::Skip, None, 8).unwrap_err(),
        "a.en:5: the source is empty; the next: a.de:10 (empty target), a.en:31 (over-long source); 3 of 40 pairs (1 × empty \
         source, 1 × empty target, 1 × over-long source) cannot be used, and at most 5 % may be left out: correct them, or \
         raise `parallel.max_skipped`"
    );
    assert_eq!(load(OnBadPair::Skip, Some(0.1), 8), Ok(37));
    assert!(load(OnBadPair::Skip, Some(-0.1), 8).unwrap_err().contains("expected a number from 0 to 1"));
    let unread = load(OnBadPair::Error, Some(0.1), 8).unwrap_err();
    assert!(unread.contains("`max_skipped` of the parallel data: only used with"), "{unread}");
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let folder =
        folder(&[("a.en", "a\n"), ("b.en", "a\n"), ("a.de", "b\n"), ("a.tsv", "a\tb\n"), ("a.xml", "<a/>")]);
    let set = |change: &dyn Fn(&mut ParallelFiles)| {
        let mut files = aligned();
        change(&mut files);
        refusal(&folder, &files)
    };
    assert_eq!(
        set(&|files| files.target.clear()),
        "`target` of the parallel data: no files are given: give them in `source` and `target`, or in `files`"
    );
    assert_eq!(
        set(&|files| files.source = vec!["*.en".into()]),
        "`target` of the parallel data: 2 source files and 1 target files, expected equally many"
    );
    assert!(
        set(&|files| files.files = vec!["a.tsv".into()]).contains("not allowed beside `source` and `target`")
    );
    assert!(
        set(&|files| files.format = DataFormat::Tsv)
            .contains("`format` of the parallel data: only allowed with")
    );
    assert!(
        set(&|files| files.source = vec!["none".into()]).contains("there is no file `none` of parallel data")
    );
    let rows = |file: &str| refusal(&folder, &ParallelFiles::rows([file]));
    assert!(rows("a.xml").contains("cannot hold"), "{}", rows("a.xml"));
    assert!(rows("a.en").contains("set `format`"), "{}", rows("a.en"));
    assert!(serde_json::from_str::<ParallelFiles>(r#"{"sources": []}"#).is_err());
}

#[test]
fn pairs_are_prepared_once_and_over_long_ones_counted() {
    let folder = folder(&[("a.en", "a dog\nabcdefghij\nyes\n"), ("a.de", "ein Hund\nx\nabcdefghij\n")]);
    let message = prepare(folder.path(), &aligned(), 8, OnBadPair::Error).unwrap_err().to_string();
    assert!(
        message.contains(
            "a.en:2: the source has 12 tokens, expected at most 8 (`parallel.max_len`); correct it"
        ),
        "{message}"
    );
    let (pairs, report) = prepare(folder.path(), &aligned(), 8, OnBadPair::Skip).unwrap();
    assert_eq!(report.skipped.to_string(), "1 × over-long source, 1 × over-long target");
    let place = |file: &str, line| format!("{}:{line}", folder.path().join(file).display());
    let places = format!("{} (over-long source), {} (over-long target)", place("a.en", 2), place("a.de", 3));
    assert_eq!(report.skipped.first_places(), places);
    assert_eq!((pairs.len(), report.pairs, report.reused), (1, 1, false));
    let tokenizer = tokenizer();
    assert!(pairs.source(0).eq(tokenizer.encode_ids("a dog", true).unwrap()));
    assert!(pairs.target(0).eq(tokenizer.encode_ids("ein Hund", true).unwrap()));
    assert_eq!(pairs.lengths(0), pairs.n_tokens().map(|n| n as usize));

    let (again, report) = prepare(folder.path(), &aligned(), 8, OnBadPair::Skip).unwrap();
    assert_eq!((report.reused, again.key()), (true, pairs.key()));
    assert_eq!(report.skipped.to_string(), "1 × over-long source, 1 × over-long target");
    let (longer, report) = prepare(folder.path(), &aligned(), 20, OnBadPair::Skip).unwrap();
    assert_eq!((longer.len(), report.reused), (3, false));
    // What was damaged is built anew.
    let tokens = folder.path().join("cache").join(longer.key()).join("tokens.bin");
    let mut bytes = fs::read(&tokens).unwrap();
    bytes[0] ^= 1;
    fs::write(&tokens, bytes).unwrap();
    let (rebuilt, report) = prepare(folder.path(), &aligned(), 20, OnBadPair::Skip).unwrap();
    assert_eq!((rebuilt.len(), report.reused), (3, false));
    fs::write(folder.path().join("a.de"), "ein Hund\nx\ny\n").unwrap();
    assert_ne!(prepare(folder.path(), &aligned(), 20, OnBadPair::Skip).unwrap().0.key(), longer.key());
}

#[test]
fn batches_are_a_function_of_seed_and_epoch() {
    let lines =
        |word: &str| -> String { (0..200).map(|i| format!("{}\n", word.repeat(1 + i * 7 % 13))).collect() };
    let folder = folder(&[("a.en", &lines("a")), ("a.de", &lines("bc"))]);
    let pairs = Arc::new(prepare(folder.path(), &aligned(), 64, OnBadPair::Error).unwrap().0);
    let data = |seed| Arc::new(ParallelData::new(pairs.clone(), BatchSize::Tokens(300), seed));
    let batches = |seed, workers, from| Loader::new(data(seed), 1).with_workers(workers).batches(from);
    let epoch = data(1).batches_an_epoch();
    let first: Vec<PairBatch> =
        batches(1, 1, Cursor::default()).take(2 * epoch).map(Result::unwrap).collect();
    assert_eq!(first[..epoch].iter().map(|batch| batch.source.len()).sum::<usize>(), 200);
    for batch in &first {
        assert_eq!(batch.source.len(), batch.target.len());
        let longest = batch.source.lengths.iter().zip(&batch.target.lengths).map(|(s, t)| s + t).max();
        assert!(batch.source.len() == 1 || batch.source.len() * longest.unwrap() <= 300);
        let sums = batch.source.lengths.iter().sum::<usize>() + batch.target.lengths.iter().sum::<usize>();
        assert_eq!(batch.n_tokens(), sums);
    }
    assert_ne!(first[..epoch], first[epoch..]);
    let other: Vec<PairBatch> = batches(2, 1, Cursor::default()).take(epoch).map(Result::unwrap).collect();
    assert_ne!(first[..epoch], other);
    // From the middle of an epoch on, whatever the number of threads.
    let from = Cursor { epoch: 0, example: epoch as u64 / 2 };
    let rest: Vec<PairBatch> = batches(1, 3, from).take(epoch).map(Result::unwrap).collect();
    assert_eq!(rest, first[epoch / 2..epoch / 2 + epoch]);
}

#[test]
fn pairs_in_memory_are_batched_by_length() {
    let folder = folder(&[("a.en", "aaaaaa\nb\n\naaaaaaaaa\naa\n"), ("a.de", "c\nd\ne\nf\ng\n")]);
    let tokenizer = tokenizer();
    let settings = PairSettings::new(LANGUAGES, [&tokenizer; 2], 8).on_bad_pair(OnBadPair::Skip, Some(1.0));
    let loaded = load_pairs(&aligned(), folder.path(), &settings).unwrap();
    assert_eq!(loaded.texts, [pair("aaaaaa", "c"), pair("b", "d"), pair("aa", "g")]);
    assert_eq!(loaded.skipped.to_string(), "1 × empty source, 1 × over-long source");
    let (batches, places) = batches_of(&loaded.ids, 1_000);
    assert_eq!(places, [[1, 2, 0]]);
    assert!(
        batches[0].source.iter().last().unwrap().iter().zip(&loaded.ids[0][0]).all(|(a, b)| *a == *b as i32)
    );
    let strict = load_pairs(&aligned(), folder.path(), &PairSettings::new(LANGUAGES, [&tokenizer; 2], 8));
    assert!(strict.unwrap_err().to_string().contains("a.en:3: the source is empty"));
}
