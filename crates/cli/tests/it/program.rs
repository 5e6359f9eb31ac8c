//! The program as a shell sees it: exit status, standard output, standard error.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use cloze_tokenizer::{Padding, PaddingDirection, PaddingStrategy, Tokenizer};
use tempfile::TempDir;

use crate::ran::{self, Ran};

fn run(args: &[&str]) -> Ran {
    ran::run(args, b"")
}

/// A folder with a small uncased BERT vocabulary.
fn vocabulary() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let tokens = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat ##s on mat , .";
    fs::write(folder.path().join("vocab.txt"), tokens.replace(' ', "\n")).unwrap();
    let path = text(folder.path().join("vocab.txt"));
    (folder, path)
}

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_str().unwrap().to_owned()
}

fn encode<'a>(tokenizer: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["tokenizer", "encode", "--tokenizer", tokenizer], more].concat()
}

fn decode<'a>(tokenizer: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["tokenizer", "decode", "--tokenizer", tokenizer], more].concat()
}

#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for args in [&["--help"][..], &["predict", "--help"], &["--version"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let done = Command::new(env!("CARGO_BIN_EXE_cloze")).args(args).stdout(full).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{args:?}");
        let told = String::from_utf8(done.stderr).unwrap();
        assert!(told.starts_with("error: cannot write to standard output: "), "{told}");
    }
}

#[test]
fn wrong_usage_is_one_error_line_and_status_2() {
    assert!(run(&["conjure"]).error_line(2).contains("conjure"));
    let ran = run(&["tokenizer", "encode", "--tokeniser", "\u{1b}[31m"]);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.error_line(2).contains("a similar argument exists: '--tokenizer'"), "{}", ran.err);
    let ran = run(&["embed", "--model", "m", "--batch-tokens", "\u{1b}[31m\u{7}7"]);
    assert!(ran.error_line(2).contains("for '--batch-tokens <N>'"), "{}", ran.err);
    assert!(ran.err.lines().count() == 1 && !ran.err.contains(['\u{1b}', '\u{7}']), "{}", ran.err);
    assert!(run(&["devices", "--fast"]).error_line(2).contains("--fast"));
    let ran = run(&["train", "run.toml", "--device", "abacus"]);
    assert!(ran.error_line(2).contains("abacus"), "{}", ran.err);
    assert!(ran.error_line(2).contains("expected auto, flex, ndarray, wgpu[:N]"), "{}", ran.err);
    assert!(run(&["tokenizer", "train", "--model", "wordpiece"]).error_line(2).contains("required"));
    assert_eq!(run(&[]).status, 2);
}

#[test]
fn the_number_of_threads_is_read_or_refused() {
    let devices = |threads: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
        let output = command.arg("devices").env("RAYON_NUM_THREADS", threads).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for refused in ["60000", "-1", "two", "1e3", "99999999999999999999", "\u{1b}"] {
        let (code, err) = devices(refused);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.starts_with("error: RAYON_NUM_THREADS is "), "{err}");
        assert!(
            err.ends_with("; expected a number from 1 to 1024, or 0 for one thread for each core\n"),
            "{err}"
        );
        assert!(!err.contains('\u{1b}'));
    }
    for taken in ["", "0", "1", "3"] {
        assert_eq!(devices(taken).0, Some(0));
    }
}

#[test]
fn an_error_line_shows_text_that_a_terminal_would_act_on() {
    let (_folder, vocabulary) = vocabulary();
    let path = format!("{vocabulary}\u{1b}[2J\u{202e}");
    let ran = run(&encode(&path, &[]));
    assert!(ran.error_line(1).contains(r"vocab.txt\u{1b}[2J\u{202e}"), "{}", ran.err);
    assert!(!ran.err.contains(['\u{1b}', '\u{202e}']));
}

#[test]
fn help_shows_an_example_on_standard_output() {
    for command in [&["train"][..], &["fill-mask"], &["tokenizer", "inspect"]] {
        let help = run(&[command, &["--help"]].concat()).done();
        let example = format!("\n\nExample:\n  cloze {} ", command.join(" "));
        assert!(help.find(&example).is_some_and(|place| place < 200), "{help}");
        assert_eq!(run(&[&["help"], command].concat()).done(), help);
    }
    assert!(run(&["--version"]).done().starts_with("cloze "));
}

#[test]
fn jobs_are_listed_with_their_commands() {
    assert!(run(&["--help"]).done().contains("`cloze help jobs`"));
    let jobs = run(&["jobs"]).done();
    let job = "  to embed texts (embed.md):\n    cloze embed --model sentence-transformers/all-MiniLM-L6-v2 < texts.txt \\\n";
    assert!(jobs.contains(job), "{jobs}");
    let help = run(&["help", "jobs"]).done();
    assert!(help.contains(jobs.trim()), "{help}");
    assert!(run(&["help", "jbos"]).error_line(2).contains("jbos"));
}

#[test]
fn a_configuration_names_the_command_that_it_is_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path().join("a.toml"));
    fs::write(&path, "[probe]\nhidden = 0\n").unwrap();
    let ran = run(&["train", &path]);
    assert!(ran.error_line(2).ends_with("is for `cloze probe`, not `cloze train`"), "{}", ran.err);
    fs::write(&path, "[train]\nsteps = 1\n").unwrap();
    let ran = run(&["probe", &path]);
    assert!(ran.error_line(2).ends_with("is for `cloze train`, not `cloze probe`"), "{}", ran.err);
}

#[test]
fn a_spreadsheet_is_refused_with_the_way_to_export_it() {
    let folder = tempfile::tempdir().unwrap();
    let sheet = text(folder.path().join("reviews.xlsx"));
    fs::write(&sheet, b"PK\x03\x04").unwrap();
    let out = text(folder.path().join("out"));
    let ran = run(&["tokenizer", "train", "--model", "bpe", "--vocab-size", "300", "--out", &out, &sheet]);
    assert!(ran.error_line(1).contains("export the sheet as CSV"), "{}", ran.err);
    let vectors = text(folder.path().join("vectors.npy"));
    let ran = run(&["map", "--vectors", &vectors, &sheet]);
    assert!(ran.error_line(1).contains("export the sheet as CSV"), "{}", ran.err);
}

#[test]
fn a_tokenizer_is_trained_on_rows_of_any_format() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| text(folder.path().join(name));
    fs::write(place("a.txt"), "the cat sat\nthe cat\n").unwrap();
    fs::write(place("a.csv"), "id;body\n1;the cat sat\n2;the cat\n").unwrap();
    fs::write(place("a.jsonl"), "{\"body\": \"the cat sat\"}\n{\n{\"body\": \"the cat\"}\n").unwrap();
    let train = |out: &str, more: &[&str]| {
        let out = place(out);
        let args = ["tokenizer", "train", "--model", "wordpiece", "--vocab-size", "30", "--out", &out];
        run(&[&args[..], more].concat())
    };
    let few = train("text", &[&place("a.txt")]);
    assert!(few.err.contains(" tokens, fewer than --vocab-size 30: "), "{}", few.err);
    few.done();
    train("csv", &["--columns", "text=body", "--delimiter", ";", &place("a.csv")]).done();
    let jsonl = place("a.jsonl");
    let bad = train("bad", &["--columns", "text=body", &jsonl]);
    assert!(bad.error_line(1).contains("a.jsonl:2"), "{}", bad.err);
    let ran = train("jsonl", &["--columns", "text=body", "--on-bad-row", "skip", &jsonl]);
    assert!(ran.err.contains("all files: skipped 1 of 3 rows (1 × bad JSON): "), "{}", ran.err);
    ran.done();
    // More than a twentieth is too much, and is told before the training; all files have one limit.
    fs::write(place("b.jsonl"), "{\"body\": \"a\"}\n{\"body\": \" \"}\n").unwrap();
    let ran = train("none", &["--columns", "text=body", "--on-bad-row", "skip", &jsonl, &place("b.jsonl")]);
    let line = ran.error_line(1);
    assert!(
        line.contains("a.jsonl:2: ")
            && line.contains("b.jsonl:2 (no text); 2 of 5 rows (1 × bad JSON, 1 × no text) cannot be used"),
        "{line}"
    );
    assert!(!Path::new(&place("none")).exists());
    fs::write(place("old.txt"), b"tea\ncaf\xE9\nand\ncr\xE8me\n").unwrap();
    let ran = train("none", &["--on-bad-row", "skip", &place("old.txt")]);
    let line = ran.error_line(1);
    assert!(
        line.contains("old.txt:2: not UTF-8 (byte 4 is 0xe9); it looks like Windows-1252")
            && line.ends_with("raise `--max-skipped`"),
        "{line}"
    );
    train("most", &["--on-bad-row", "skip", "--max-skipped", "0.5", &place("old.txt")]).done();
    // As it was spelled before.
    let ran = train("old", &["--text-column", "body", "--on-bad-row", "skip", "--format", "jsonl", &jsonl]);
    for note in ["--text-column is called --columns text=NAME now", "--format is called --input-format now"] {
        assert!(ran.err.contains(&format!("note: {note}\n")), "{}", ran.err);
    }
    ran.done();
    let read = |out: &str| fs::read(Path::new(&place(out)).join("tokenizer.json")).unwrap();
    for out in ["csv", "jsonl", "old"] {
        assert_eq!(read(out), read("text"), "{out}");
    }
    let ran = train("none", &["--columns", "body=text", &jsonl]);
    assert!(ran.error_line(2).contains("no field `body`; expected one of text"), "{}", ran.err);
    let ran = train("none", &[&place("a.csv")]);
    assert!(ran.err.contains("a.csv: columns between `;`"), "{}", ran.err);
    assert!(
        ran.err.contains("no column `text` (the header has: id, body); set `--columns text=COLUMN`"),
        "{}",
        ran.err
    );
}

#[test]
fn a_config_that_cannot_be_read_is_wrong_usage() {
    let ran = run(&["train", "no-such-run.toml"]);
    assert!(ran.error_line(2).contains("no-such-run.toml"), "{}", ran.err);
    assert_eq!(ran.out, "");
}

#[cfg(feature = "flex")]
#[test]
fn devices_lists_the_default_first() {
    let listed = run(&["devices"]).done();
    let first = listed.lines().next().unwrap();
    assert!(first.trim().starts_with("flex ") && first.ends_with("(default)"), "{listed}");
    let listed: serde_json::Value = serde_json::from_str(&run(&["devices", "--json"]).done()).unwrap();
    assert_eq!(
        (&listed["devices"][0]["name"], &listed["devices"][0]["default"]),
        (&"flex".into(), &true.into())
    );
    for format in ["fp32", "bf16", "int8"] {
        let kernel = listed["devices"][0]["kernels"][format].as_str().unwrap();
        assert!(!kernel.is_empty() && kernel != "none", "{listed}");
    }
}

#[cfg(not(feature = "wgpu"))]
#[test]
fn a_device_that_is_not_built_in_names_its_feature() {
    let ran = run(&["fill-mask", "--model", "m", "--device", "wgpu:1", "a [MASK]"]);
    assert!(ran.error_line(2).contains("cargo build --release -p cloze --features wgpu"));
    assert!(run(&["devices"]).err.contains("wgpu"));
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(&["completions", shell]).done();
        assert!(script.contains("fill-mask") && script.contains("min-frequency"), "{shell}");
        assert!(script.contains("jobs") && !script.contains("text-column"), "{shell}");
    }
    run(&["completions", "tcsh"]).error_line(2);
}

#[test]
fn lines_are_encoded_in_every_format() {
    let (_folder, vocab) = vocabulary();
    let input = b"The cats sat.\n\non the mat\n";
    let ids = ran::run(&encode(&vocab, &[]), input).done();
    assert_eq!(ids, "2 5 6 8 7 12 3\n2 3\n2 9 5 10 3\n");
    let bare = ran::run(&encode(&vocab, &["--no-special"]), input).done();
    assert_eq!(bare, "5 6 8 7 12\n\n9 5 10\n");
    let tokens = ran::run(&encode(&vocab, &["--format", "tokens"]), input).done();
    assert_eq!(tokens.lines().next(), Some("[CLS] the cat ##s sat . [SEP]"));
    let json = ran::run(&encode(&vocab, &["--format", "json", "--no-special"]), input).done();
    let json: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(json["ids"], serde_json::json!([5, 6, 8, 7, 12]));
    assert_eq!(json["offsets"][2], serde_json::json!([7, 8]));
    assert_eq!(json["word_ids"], serde_json::json!([0, 1, 1, 2, 3]));
}

#[test]
fn ids_are_written_as_numbers_of_16_and_32_bits() {
    let (folder, vocab) = vocabulary();
    let input = b"The cats sat.\n\non the mat\n";
    let ids: [u16; 14] = [2, 5, 6, 8, 7, 12, 3, 2, 3, 2, 9, 5, 10, 3];
    let bytes16: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let bytes32: Vec<u8> = ids.iter().flat_map(|id| u32::from(*id).to_le_bytes()).collect();
    let written = |format: &str| {
        let path = text(folder.path().join("ids"));
        ran::run(&encode(&vocab, &["--format", format, "--output", &path]), input).done();
        let found = fs::read(&path).unwrap();
        // Standard output gets the same.
        let mut child = ran::spawn(encode(&vocab, &["--format", format]));
        child.stdin.take().unwrap().write_all(input).unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, found, "{format}");
        found
    };
    assert_eq!(written("u16"), bytes16);
    assert_eq!(written("u32"), bytes32);
    let array = written("npy");
    assert_eq!(array[128..], bytes32);
    let header = String::from_utf8_lossy(&array[10..128]).into_owned();
    assert!(header.starts_with("{'descr': '<u4', 'fortran_order': False, 'shape': (14,), }"), "{header}");
    assert_eq!(written("ids"), b"2 5 6 8 7 12 3\n2 3\n2 9 5 10 3\n");
}

#[test]
fn ids_that_16_bits_do_not_hold_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (vocab, ids) = (text(folder.path().join("vocab.txt")), folder.path().join("ids"));
    let tokens =
        |n: usize| (0..n - 3).map(|i| format!("word{i}\n")).collect::<String>() + "[UNK]\n[CLS]\n[SEP]\n";
    let path = text(&ids);
    let args = encode(&vocab, &["--format", "u16", "--output", &path]);
    fs::write(&vocab, tokens(65_537)).unwrap();
    let ran = ran::run(&args, b"word7\n");
    let message = "the tokenizer's \"[SEP]\" has the id 65536, and `--format u16` holds ids up to 65535: use `--format u32`";
    assert!(ran.error_line(2).ends_with(message), "{}", ran.err);
    assert!(!ids.exists());
    fs::write(&vocab, tokens(65_536)).unwrap();
    ran::run(&args, b"word7\n").done();
    assert_eq!(fs::read(&ids).unwrap(), [254, 255, 7, 0, 255, 255]);
}

/// A tokenizer that pads, to a length and to the longest of what is read together.
#[test]
fn padding_is_in_every_format() {
    let (folder, vocab) = vocabulary();
    let saved = text(folder.path().join("tokenizer.json"));
    let tokenizer = Tokenizer::load(&vocab).unwrap();
    let padded = |strategy| {
        let mut tokenizer = tokenizer.clone();
        let (direction, pad_token) = (PaddingDirection::Right, "[PAD]".into());
        let padding =
            Padding { strategy, direction, pad_to_multiple_of: None, pad_id: 0, pad_type_id: 0, pad_token };
        tokenizer.set_padding(Some(padding)).unwrap();
        tokenizer.save(&saved).unwrap();
        let path = text(folder.path().join("ids"));
        ran::run(&encode(&saved, &["--format", "u16", "--output", &path]), b"the cat\nsat\n").done();
        let ids: Vec<u8> = fs::read(&path).unwrap().into_iter().step_by(2).collect();
        (ran::run(&encode(&saved, &[]), b"the cat\nsat\n").done(), ids)
    };
    let fixed = ("2 5 6 3 0\n2 7 3 0 0\n".to_owned(), vec![2, 5, 6, 3, 0, 2, 7, 3, 0, 0]);
    assert_eq!(padded(PaddingStrategy::Fixed(5)), fixed);
    let longest = ("2 5 6 3\n2 7 3 0\n".to_owned(), vec![2, 5, 6, 3, 2, 7, 3, 0]);
    assert_eq!(padded(PaddingStrategy::BatchLongest), longest);
}

#[test]
fn ids_are_decoded_with_special_tokens_on_request() {
    let (_folder, vocab) = vocabulary();
    let input = b"2 5 6 8 7 12 3\n\n5, 10\n";
    assert_eq!(ran::run(&decode(&vocab, &[]), input).done(), "the cats sat.\n\nthe mat\n");
    let special = ran::run(&decode(&vocab, &["--keep-special"]), b"2 5 3\n").done();
    assert_eq!(special, "[CLS] the [SEP]\n");
}

#[test]
fn bad_lines_are_named_and_those_before_them_answered() {
    let (_folder, vocab) = vocabulary();
    let ran = ran::run(&encode(&vocab, &[]), b"the cat\n\xff\xfe\nthe mat\n");
    assert_eq!(ran.out, "2 5 6 3\n");
    assert_eq!(ran.error_line(1), "error: standard input, line 2: not UTF-8 (byte 1 is 0xff)");
    let ran = ran::run(&decode(&vocab, &[]), b"5 6\n5 six\n");
    assert_eq!(ran.out, "the cat\n");
    assert!(ran.error_line(1).contains("line 2: `six` is not a token id"), "{}", ran.err);
    let ran = ran::run(&decode(&vocab, &[]), b"5 13\n");
    assert_eq!(
        ran.error_line(1),
        "error: standard input, line 1: id 13 is not in the vocabulary, which has 13 tokens"
    );
    ran::run(&decode(&vocab, &[]), b"4294967296\n").error_line(1);
    ran::run(&decode(&vocab, &[]), b"-1\n").error_line(1);
}

#[test]
fn a_tokenizer_that_is_not_there_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let empty = text(folder.path());
    let ran = ran::run(&encode(&empty, &[]), b"the cat\n");
    assert!(ran.error_line(1).contains(&empty), "{}", ran.err);
    let broken = text(folder.path().join("tokenizer.json"));
    fs::write(&broken, "{\"version\": ").unwrap();
    let ran = ran::run(&encode(&broken, &[]), b"the cat\n");
    assert!(ran.error_line(1).contains("tokenizer.json"), "{}", ran.err);
}

/// As in `cloze ... | head -1`.
#[test]
fn a_closed_pipe_ends_it_quietly() {
    let (_folder, vocab) = vocabulary();
    let mut child = ran::spawn(encode(&vocab, &[]));
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn(move || {
        // Far more than pipes hold; the program stops reading at some point.
        let _ = (0..200_000).try_for_each(|_| stdin.write_all(b"the cat sat on the mat, the cat\n"));
    });
    let mut first = [0; 2];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_tokenizer_is_laid_open() {
    let (_folder, vocab) = vocabulary();
    let inspect = |texts: &[&str]| {
        run(&[&["tokenizer", "inspect", "--tokenizer", vocab.as_str()], texts].concat()).done()
    };
    let shown = inspect(&["The cats sat.", "mat"]);
    for part in [
        "tokens        13\n",
        "[CLS] 2",
        "1 (12.5 %), with ##",
        "BertNormalizer",
        "WordPiece",
        "The cat|s sat|.",
        "normalised: the cats sat.",
        "7 tokens of 13 bytes",
        " 8  ##s    7..8    s\n",
        "3 tokens of 3 bytes",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    assert!(!shown.contains('\x1b'), "no colours where no terminal is");
    assert!(!inspect(&[]).contains("bytes"));
}

/// Some text that every kind of tokenizer can learn from.
fn corpus(folder: &TempDir) -> String {
    let path = folder.path().join("corpus.txt");
    let lines = "The cat sat on the mat.\nThe mat lay under the cat, naïvely.\n\n".repeat(50);
    fs::write(&path, lines).unwrap();
    text(path)
}

fn train(folder: &TempDir, more: &[&str]) -> (PathBuf, Ran) {
    let out = folder.path().join("tokenizer");
    let out_text = text(&out);
    let ran = run(&[&["tokenizer", "train", "--out", &out_text], more].concat());
    (out, ran)
}

#[test]
fn a_trained_tokenizer_gives_its_text_back() {
    for model in ["wordpiece", "bpe", "byte-bpe"] {
        let folder = tempfile::tempdir().unwrap();
        let corpus = corpus(&folder);
        let size = if model == "byte-bpe" { "300" } else { "60" };
        let (out, ran) = train(&folder, &["--model", model, "--vocab-size", size, "--cased", &corpus]);
        assert_eq!(ran.status, 0, "{model}: {}", ran.err);
        assert!(out.join("tokenizer.json").is_file(), "{model}");

        let out = text(out);
        // Without punctuation: plain BPE does not remember what stood before it.
        let line = "The cat sat naïvely under the mat";
        let ids = ran::run(&encode(&out, &[]), format!("{line}\n").as_bytes()).done();
        let again = ran::run(&decode(&out, &[]), ids.as_bytes()).done();
        assert_eq!(again.trim(), line, "{model}: {ids}");
    }
}

#[test]
fn lower_casing_is_the_choice_of_the_one_who_trains() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(&folder);
    let arguments = ["--model", "wordpiece", "--vocab-size", "60", corpus.as_str()];
    let tokens = |more: &[&str]| {
        let (out, ran) = train(&folder, &[&arguments, more].concat());
        assert_eq!(ran.status, 0, "{}", ran.err);
        let out = text(out);
        ran::run(&encode(&out, &["--format", "tokens", "--no-special"]), b"The\n").done()
    };
    assert!(tokens(&["--lowercase"]).starts_with('t'));
    assert!(tokens(&["--cased"]).starts_with('T'));
    let (_, ran) = train(&folder, &[&arguments[..], &["--cased", "--lowercase"]].concat());
    assert!(ran.error_line(2).contains("cannot be used with"), "{}", ran.err);
}

#[test]
fn tokens_are_as_short_and_scored_as_told() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(&folder);
    let vocabulary = |more: &[&str]| {
        let arguments = ["--model", "wordpiece", "--vocab-size", "45", corpus.as_str()];
        let (out, ran) = train(&folder, &[&arguments, more].concat());
        assert_eq!(ran.status, 0, "{}", ran.err);
        fs::read_to_string(out.join("vocab.txt")).unwrap()
    };
    let plain = vocabulary(&[]);
    assert_eq!(plain, vocabulary(&["--score", "frequency"]));
    assert_ne!(plain, vocabulary(&["--score", "likelihood"]));
    let short = vocabulary(&["--max-token-chars", "3"]);
    let longest = short.lines().filter(|token| !token.starts_with('['));
    assert_eq!(longest.map(|token| token.trim_start_matches("##").len()).max(), Some(2));
}

#[test]
fn a_corpus_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--model", "wordpiece", "--vocab-size", "60"];
    let absent = text(folder.path().join("absent.txt"));
    let (out, ran) = train(&folder, &[&arguments[..], &[absent.as_str()]].concat());
    assert!(ran.error_line(1).contains("absent.txt"), "{}", ran.err);
    assert!(!out.exists(), "nothing is left where nothing was made");

    let bad = text(folder.path().join("bad.txt"));
    fs::write(&bad, b"the cat\nthe \xff mat\n").unwrap();
    let (_, ran) = train(&folder, &[&arguments[..], &[bad.as_str()]].concat());
    let line = ran.error_line(1);
    assert!(line.contains("bad.txt") && line.contains("UTF-8"), "{line}");
}

#[test]
fn fill_mask_names_the_folder_that_holds_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(folder.path());
    let ran = run(&["fill-mask", "--model", &model, "a [MASK]"]);
    assert!(ran.error_line(1).contains(&model), "{}", ran.err);
    let ran = run(&["fill-mask", "--model", &model, "--top-k", "0", "a [MASK]"]);
    assert!(ran.error_line(2).contains("--top-k"), "{}", ran.err);
}

/// A small encoder with a vocabulary of letters.
pub fn encoder() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/bert_pretraining");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(fixture.join(name), folder.path().join(name)).unwrap();
    }
    let letters = ('a'..='z').map(String::from).chain(('a'..='z').map(|letter| format!("##{letter}")));
    let pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).into_iter().chain(letters);
    fs::write(folder.path().join("vocab.txt"), pieces.collect::<Vec<_>>().join("\n")).unwrap();
    let path = text(folder.path());
    (folder, path)
}

#[test]
fn lines_are_embedded_in_both_formats() {
    let (_folder, model) = encoder();
    let input = b"a long line of words first\nc\nb\na long line of words first\n";
    let ran = ran::run(&["embed", "--model", &model], input);
    assert!(ran.err.contains("2 of 4 lines are longer than 20 tokens"), "{}", ran.err);
    let lines = ran.done();
    let rows: Vec<Vec<f32>> = lines
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            serde_json::from_value(line["embedding"].clone()).unwrap()
        })
        .collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.len() == 24));
    assert!(rows[0].iter().zip(&rows[3]).all(|(a, b)| (a - b).abs() < 1e-4));
    assert_ne!(rows[1], rows[2]);

    // An array holds the same bits.
    let mut child = ran::spawn(["embed", "--model", &model, "--format", "npy"]);
    child.stdin.take().unwrap().write_all(input).unwrap();
    let out = child.wait_with_output().unwrap().stdout;
    let (header, values) = out.split_at(out.len() - 4 * 4 * 24);
    assert!(header.starts_with(b"\x93NUMPY\x01\x00") && header.len() % 64 == 0);
    assert!(
        String::from_utf8_lossy(header).contains("'descr': '<f4', 'fortran_order': False, 'shape': (4, 24)")
    );
    let values: Vec<f32> = values.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    assert_eq!(values, rows.concat());
    let most = ran::run(&["embed", "--model", &model, "--pooling", "max"], b"b\n").done();
    assert!(most.starts_with("{\"embedding\":[") && lines.lines().all(|line| line != most.trim_end()));
    let none = ran::run(&["embed", "--model", &model], b"").done();
    assert_eq!(none, "");
}

/// Batches are what has arrived, and lines of like length; neither is to be seen in the last digits.
#[test]
fn a_lines_vector_does_not_depend_on_the_other_lines() {
    let (_folder, model) = encoder();
    let line = |i: usize| {
        let words =
            (0..1 + i * 7 % 17).map(|word| char::from(b'a' + ((i * 31 + word * 11) % 26) as u8).to_string());
        words.collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = (0..400).map(line).collect();
    // The same text again, where others stand beside it.
    lines.extend((0..400).step_by(9).map(line));
    for more in [&[][..], &["--int8"], &["--precision", "bf16"], &["--pooling", "max"]] {
        let embedded = |lines: &[String]| {
            let input = lines.join("\n") + "\n";
            let args = [&["embed", "--model", &model], more].concat();
            ran::run(&args, input.as_bytes()).done().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let together = embedded(&lines);
        for (place, repeated) in (0..400).step_by(9).zip(&together[400..]) {
            assert_eq!(&together[place], repeated, "{more:?}, line {place}");
        }
        // In bf16 a product as small as three tokens make with weights of 24 by 24 goes another way, and none of a real model.
        let first = usize::from(more.contains(&"bf16"));
        for part in [0..1, 1..4, 4..40, 40..237, 237..400].into_iter().skip(first) {
            assert_eq!(embedded(&lines[part.clone()]), together[part.clone()], "{more:?}, lines {part:?}");
        }
    }
}

#[test]
fn masks_are_filled_alike_in_bf16() {
    let (_folder, model) = encoder();
    let filled = |more: &[&str]| -> Vec<f64> {
        let args = ["fill-mask", "--model", &model, "--json", "--top-k", "1000", "a [MASK] c"];
        let line: serde_json::Value = serde_json::from_str(&run(&[&args, more].concat()).done()).unwrap();
        let mut candidates = line["masks"][0].as_array().unwrap().clone();
        candidates.sort_by_key(|candidate| candidate["id"].as_u64());
        candidates.iter().map(|candidate| candidate["probability"].as_f64().unwrap()).collect()
    };
    let (exact, bf16) = (filled(&[]), filled(&["--precision", "bf16"]));
    assert!(exact.len() >= 57 && exact.len() == bf16.len(), "all pieces");
    assert_ne!(exact, bf16);
    assert!(exact.iter().zip(&bf16).all(|(a, b)| (a - b).abs() < 0.05 * a), "{exact:?}\n{bf16:?}");
}

#[test]
fn vectors_are_written_as_integers_and_bits() {
    let (folder, model) = encoder();
    let lines = b"a b c\nd\nzz y\nq\n";
    let texts = folder.path().join("texts.txt");
    fs::write(&texts, "abc d\nx y z\nq\n").unwrap();
    let calibrate = ["--calibrate", texts.to_str().unwrap()];
    let embed =
        |more: &[&str], input: &[u8]| ran::run(&[&["embed", "--model", &model][..], more].concat(), input);
    let values = |printed: String| -> Vec<Vec<f32>> {
        let value =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["embedding"].clone();
        printed.lines().map(|line| serde_json::from_value(value(line)).unwrap()).collect()
    };
    let floats = values(embed(&[], lines).done());
    let seen = values(embed(&[], &fs::read(&texts).unwrap()).done());
    let ran = embed(&[&["--vectors", "int8"][..], &calibrate].concat(), lines);
    assert!(ran.err.contains("texts.txt: 3 texts are few to calibrate with"), "{}", ran.err);
    let bytes = values(ran.done());
    for (float, byte) in floats.iter().zip(&bytes) {
        for (place, (x, byte)) in float.iter().zip(byte).enumerate() {
            let of = seen.iter().map(|vector| vector[place]);
            let (least, most) = of.fold((f32::MAX, f32::MIN), |(a, b), x| (a.min(x), b.max(x)));
            let expected = ((x - least) / ((most - least) / 255.0)).floor().clamp(0.0, 255.0) - 128.0;
            assert_eq!(*byte, expected);
        }
    }
    let unsigned = values(embed(&[&["--vectors", "uint8"][..], &calibrate].concat(), lines).done());
    assert!(unsigned.iter().flatten().zip(bytes.iter().flatten()).all(|(a, b)| *a == b + 128.0));
    // One text alone has the bytes that it has among others.
    let alone = values(embed(&[&["--vectors", "int8"][..], &calibrate].concat(), b"zz y\n").done());
    assert_eq!(alone[0], bytes[2]);
    let bits = values(embed(&["--vectors", "ubinary"], lines).done());
    for (float, bits) in floats.iter().zip(&bits) {
        assert_eq!(bits.len(), float.len().div_ceil(8));
        for (place, x) in float.iter().enumerate() {
            let bit = bits[place / 8] as u8 >> (7 - place % 8) & 1;
            assert_eq!(bit == 1, *x > 0.0);
        }
    }
    let array = {
        let mut child = ran::spawn(["embed", "--model", &model, "--format", "npy", "--vectors", "binary"]);
        child.stdin.take().unwrap().write_all(lines).unwrap();
        child.wait_with_output().unwrap().stdout
    };
    let header = String::from_utf8_lossy(&array[..128]);
    let width = bits[0].len();
    assert!(
        header.contains(&format!("'descr': '|i1', 'fortran_order': False, 'shape': (4, {width})")),
        "{header}"
    );
    let signed: Vec<f32> = array[128..].iter().map(|byte| f32::from(*byte as i8)).collect();
    assert!(signed.iter().zip(bits.iter().flatten()).all(|(a, b)| *a == b - 128.0));
    for (more, problem) in [
        (vec!["--vectors", "int8"], "need the range of each feature: give --calibrate FILE"),
        ([&["--vectors", "binary"][..], &calibrate].concat(), "--calibrate is for --vectors int8 and uint8"),
        (vec!["--vectors", "int8", "--tokens"], "cannot be used with"),
    ] {
        let ran = embed(&more, lines);
        assert!(ran.error_line(2).contains(problem), "{}", ran.err);
    }
    fs::write(&texts, "").unwrap();
    let ran = embed(&[&["--vectors", "int8"][..], &calibrate].concat(), lines);
    assert!(
        ran.error_line(1).contains("texts.txt: it has no line; expected texts to calibrate with"),
        "{}",
        ran.err
    );
}

/// The vectors that `embed` prints of some lines.
fn embeddings(model: &str, more: &[&str]) -> Vec<Vec<f32>> {
    let lines = b"a long line of words first\nc\nb\nx y z\n";
    let printed = ran::run(&[&["embed", "--model", model], more].concat(), lines).done();
    let vector = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        serde_json::from_value(line["embedding"].clone()).unwrap()
    };
    printed.lines().map(vector).collect()
}

#[cfg(feature = "flex")]
#[test]
fn embeddings_in_bf16_are_near_those_in_fp32() {
    let (_folder, model) = encoder();
    let exact = embeddings(&model, &[]);
    assert_eq!(embeddings(&model, &["--precision", "f32"]), exact);
    let rounded = embeddings(&model, &["--precision", "bf16"]);
    assert_eq!(rounded.len(), 4);
    for (a, b) in exact.iter().zip(&rounded) {
        assert_ne!(a, b);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
        assert!(cosine > 0.999, "{cosine}");
    }
}

#[test]
fn a_precision_is_one_of_two_and_none_beside_8_bits() {
    for command in [&["embed"][..], &["predict"], &["fill-mask"], &["eval", "run.toml"]] {
        let with = |more: &[&str]| run(&[command, &["--model", "m", "--precision"], more].concat());
        let both = with(&["bf16", "--int8"]);
        assert!(
            both.error_line(2).contains("'--precision <PRECISION>' cannot be used with '--int8'"),
            "{}",
            both.err
        );
        let half = with(&["f16"]);
        assert!(
            half.error_line(2).contains("'f16' for '--precision <PRECISION>' [possible values: f32, bf16]"),
            "{}",
            half.err
        );
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn a_device_without_bf16_refuses_it() {
    let (_folder, model) = encoder();
    let ran = run(&["embed", "--model", &model, "--precision", "bf16", "--device", "ndarray"]);
    assert!(ran.error_line(2).contains("device `ndarray` has no bf16: omit --precision bf16"), "{}", ran.err);
}

#[test]
fn embed_refuses_what_it_cannot_do() {
    let (folder, model) = encoder();
    run(&["embed", "--model", &model, "--pooling", "median"]).error_line(2);
    let ran = ran::run(&["embed", "--model", &model, "--pooling", "last4"], b"a\n");
    assert!(ran.error_line(1).contains("the last 4 layers, but the model has 2"), "{}", ran.err);
    run(&["embed", "--model", &model, "--batch-tokens", "0"]).error_line(2);
    fs::write(folder.path().join("modules.json"), "{").unwrap();
    let ran = ran::run(&["embed", "--model", &model], b"a\n");
    assert!(ran.error_line(1).contains("modules.json"), "{}", ran.err);
}

/// A small classifier of random weights, its labels `no` and `yes`, with a vocabulary of letters.
pub fn classifier() -> (TempDir, String) {
    use cloze_model::ParamInit;
    use cloze_model::bert::BertConfig;
    use cloze_model::huggingface::{Architecture, Family, ProblemType, SaveConfig, save_pretrained};
    use cloze_model::tasks::BertForSequenceClassification;

    let (folder, path) = encoder();
    let config = BertConfig::new(57, 2, 16).with_d_ff(24).with_n_heads(2).with_max_positions(20);
    let init = &mut ParamInit::new(&burn::tensor::Device::flex(), 3).with_std(0.5);
    let architecture = Architecture::SequenceClassification;
    let bert = config.init_encoder(init);
    let model = BertForSequenceClassification::new(
        bert,
        architecture.sequence_head(Family::BERT, &config, 2, 0.1, init),
    );
    let save = SaveConfig::new(architecture)
        .with_labels(vec!["no".into(), "yes".into()])
        .with_problem_type(Some(ProblemType::SingleLabel));
    save_pretrained(folder.path(), &model, &config, &save).unwrap();
    (folder, path)
}

const TEXTS: &str = "{\"text\": \"some words\"}\n\n\"b\"\n{\"text\": \"a\", \"pair\": \"c\"}\n";

#[test]
fn each_line_of_input_has_its_prediction() {
    let (folder, model) = classifier();
    let printed = ran::run(&["predict", "--model", &model], TEXTS.as_bytes()).done();
    let lines: Vec<serde_json::Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[1].is_null());
    assert_eq!((&lines[0]["text"], &lines[3]["pair"]), (&"some words".into(), &"c".into()));
    assert!(printed.lines().nth(2).unwrap().starts_with("{\"label\":"), "a string has no keys to print");
    for line in [&lines[0], &lines[2], &lines[3]] {
        let best = line["scores"]
            .as_object()
            .unwrap()
            .iter()
            .max_by(|a, b| a.1.as_f64().unwrap().total_cmp(&b.1.as_f64().unwrap()));
        assert_eq!(line["label"], best.unwrap().0.as_str());
    }

    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    fs::write(&input, TEXTS).unwrap();
    let files = ["predict", "--model", &model, "--input", &text(&input), "--output", &text(&output)];
    assert_eq!(run(&files).done(), "");
    assert_eq!(fs::read_to_string(&output).unwrap(), printed);
    assert_eq!(ran::run(&["predict", "--model", &model], b"").done(), "");

    let bf16 = ran::run(&["predict", "--model", &model, "--precision", "bf16"], TEXTS.as_bytes()).done();
    assert_ne!(bf16, printed);
    for (line, exact) in bf16.lines().zip(&lines) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let score = |line: &serde_json::Value| line["scores"]["yes"].as_f64();
        assert!(score(&line).zip(score(exact)).is_none_or(|(a, b)| (a - b).abs() < 0.02), "{line} {exact}");
    }

    // An error leaves the file as it was.
    fs::write(&input, "\"a\"\n{\"txt\": \"b\"}\n").unwrap();
    let ran = run(&files);
    let line = ran.error_line(1);
    assert!(line.contains("in.jsonl:2: `text` is missing; expected {\"text\""), "{line}");
    assert!(line.ends_with("or --columns text=KEY with another key (there are: txt)"), "{line}");
    assert_eq!(fs::read_to_string(&output).unwrap(), printed);
    assert!(!folder.path().join("out.jsonl.partial").exists());
    let ran = ran::run(&["predict", "--model", &model], b"\"some words\"\nb\n");
    assert_eq!(ran.out.lines().count(), 1, "lines before it are answered");
    assert!(ran.error_line(1).contains("standard input, line 2: not JSON"), "{}", ran.err);
    let absent = text(folder.path().join("absent.jsonl"));
    assert!(run(&["predict", "--model", &model, "--input", &absent]).error_line(1).contains("absent.jsonl"));
}

/// A small model of random weights for a task, with a vocabulary of letters and no `task.json`.
pub fn asked(architecture: cloze_model::huggingface::Architecture, labels: &[&str]) -> (TempDir, String) {
    use cloze_model::ParamInit;
    use cloze_model::bert::BertConfig;
    use cloze_model::blocks::Linear;
    use cloze_model::huggingface::{Architecture, Family, SaveConfig, save_pretrained};
    use cloze_model::tasks::{BertForMultipleChoice, BertForQuestionAnswering, BertForTokenClassification};

    let (folder, path) = encoder();
    let config = BertConfig::new(57, 2, 16).with_d_ff(24).with_n_heads(2).with_max_positions(20);
    let init = &mut ParamInit::new(&burn::tensor::Device::flex(), 3).with_std(0.5);
    let labels = labels.iter().map(ToString::to_string).collect();
    let save = SaveConfig::new(architecture).with_labels(labels);
    let bert = config.init_encoder(init);
    let place = folder.path();
    match architecture {
        Architecture::TokenClassification => {
            let output = Linear::new(config.d_model, save.labels.len(), init);
            let model = BertForTokenClassification { bert, transform: None, output, crf: None, dropout: 0.1 };
            save_pretrained(place, &model, &config, &save).unwrap();
        }
        Architecture::QuestionAnswering => {
            let output = Linear::new(config.d_model, 2, init);
            let model = BertForQuestionAnswering { bert, transform: None, output };
            save_pretrained(place, &model, &config, &save).unwrap();
        }
        _ => {
            let model = BertForMultipleChoice {
                bert,
                head: architecture.sequence_head(Family::BERT, &config, 1, 0.1, init),
            };
            save_pretrained(place, &model, &config, &save).unwrap();
        }
    }
    (folder, path)
}

/// The lines that a model prints, in FP32, bf16 and 8 bits with the same keys; a bad line is named after those before it.
fn predictions(model: &str, lines: &str, bad: &str, problem: &str) -> Vec<serde_json::Value> {
    let values = |more: &[&str]| -> Vec<serde_json::Value> {
        let printed = ran::run(&[&["predict", "--model", model], more].concat(), lines.as_bytes()).done();
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let [exact, bf16, int8] = [&[][..], &["--precision", "bf16"], &["--int8"]].map(values);
    let keys = |values: &[serde_json::Value]| -> Vec<Vec<String>> {
        values.iter().map(|value| value.as_object().unwrap().keys().cloned().collect()).collect()
    };
    assert_eq!((keys(&exact), keys(&exact)), (keys(&bf16), keys(&int8)));
    let ran = ran::run(&["predict", "--model", model], format!("{lines}{bad}\n").as_bytes());
    assert_eq!(ran.out.lines().count(), exact.len());
    let place = format!("standard input, line {}: {problem}; expected ", exact.len() + 1);
    assert!(ran.error_line(1).contains(&place), "{}", ran.err);
    exact
}

/// `eval` writes a report and prints the figures.
fn measured(folder: &TempDir, model: &str, task: &str, file: &str, data: &str, table: &str) {
    let place = |name: &str| text(folder.path().join(name));
    fs::write(place(file), data).unwrap();
    let config = format!(
        "model.path = \"none\"\noptimizer.lr = 1e-3\ntrain = {{ epochs = 1, batch_size = 1 }}\n\
         schedule.kind = \"constant\"\n[task]\n{task}\n[data]\nmax_len = 16\ntrain.files = [\"none\"]\n\
         dev = [{:?}]\n",
        place(file)
    );
    fs::write(place("run.toml"), config).unwrap();
    let (run_toml, report) = (place("run.toml"), place("report"));
    let printed = run(&["eval", "--model", model, &run_toml, "--json", "--out", &report]).done();
    let figures: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(figures["examples"], 2);
    for name in ["report.html", "predictions.jsonl", "worst.tsv", "figures.json", table] {
        assert!(Path::new(&report).join(name).is_file(), "{name}");
    }
    // The file by itself, as the model's task reads it.
    let printed = run(&["eval", "--model", model, &place(file), "--json"]).done();
    let figures: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(figures["examples"], 2);
    assert!(run(&["eval", "--model", model, &run_toml, "--int8"]).done().contains("2 examples"));
    let cost = run(&["eval", "--model", model, &run_toml, "--cost"]).done();
    assert!(cost.contains("GFLOP an example") && cost.contains("latency, ms"), "{cost}");
    // A column for each model, each in a process of its own.
    let beside = run(&["eval", "--model", model, &run_toml, "--cost", "--beside", model]).done();
    assert_eq!(beside.matches(model).count(), 2, "{beside}");
    assert!(beside.contains("loss") && beside.contains("peak memory"), "{beside}");
    let lines = run(&["eval", "--model", model, &run_toml, "--json", "--beside", model]).done();
    let values: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((values.len(), &values[1]["model"], &values[0]["examples"]), (2, &model.into(), &2.into()));
    let missing = run(&["eval", "--model", model, &run_toml, "--beside", "nowhere"]);
    assert!(missing.err.contains("nowhere was not measured: the reason stands above"), "{}", missing.err);
    let kind = run(&["eval", "--model", model, &run_toml, "--set", "task={ kind = \"regression\" }"]);
    assert!(kind.error_line(2).contains("`task.kind` is regression; expected "), "{}", kind.err);
}

#[test]
fn words_are_tagged() {
    use cloze_model::huggingface::Architecture;
    let (folder, model) = asked(Architecture::TokenClassification, &["O", "B-x", "I-x"]);
    let lines = "{\"words\": [\"some\", \"words\"]}\n\"a  bc d\"\n{\"text\": \"q r\"}\n";
    let values = predictions(&model, lines, r#"{"words": 7}"#, "`words` is not a list of strings");
    assert_eq!(values[1]["words"], serde_json::json!(["a", "bc", "d"]));
    assert!(
        values
            .iter()
            .all(|value| value["tags"].as_array().unwrap().len() == value["words"].as_array().unwrap().len())
    );
    let data = "some B-x\nwords O\n\na O\nbc B-x\nd I-x\n";
    measured(
        &folder,
        &model,
        "kind = \"tagging\"\nlong_sentences = \"truncate\"",
        "dev.conll",
        data,
        "types.tsv",
    );
    let ran = run(&["predict", "--model", &model, "--n-best", "2"]);
    assert!(ran.error_line(2).contains("a model for tagging has one answer"), "{}", ran.err);

    let (_folder, model) = asked(Architecture::TokenClassification, &["NN", "VB"]);
    let printed = ran::run(&["predict", "--model", &model], b"\"a bc\"\n").done();
    let tagged: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(tagged["tags"].as_array().unwrap().iter().all(|tag| tag == "NN" || tag == "VB"), "{tagged}");
    let ran = run(&["predict", "--model", &model, "--threshold", "0.3"]);
    assert!(ran.error_line(2).contains("a model for tagging has no threshold"), "{}", ran.err);
}

#[test]
fn questions_are_answered() {
    use cloze_model::huggingface::Architecture;
    let (folder, model) = asked(Architecture::QuestionAnswering, &[]);
    let context = "a b é c d e f g h i j k l m n o p q r s t";
    let line = serde_json::json!({ "question": "ab", "context": context }).to_string() + "\n";
    let values = predictions(&model, &line, r#"{"question": "a"}"#, "`context` is missing");
    let place = |key: &str| values[0][key].as_u64().unwrap() as usize;
    let cut: String = context.chars().skip(place("start")).take(place("end") - place("start")).collect();
    assert_eq!(values[0]["answer"], cut);
    let printed = ran::run(&["predict", "--model", &model, "--n-best", "3"], line.as_bytes()).done();
    let listed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(listed["n_best"].as_array().unwrap().len(), 3);
    assert_eq!(listed["n_best"][0]["answer"], values[0]["answer"]);
    assert!(run(&["predict", "--model", &model, "--n-best", "0"]).error_line(2).contains("--n-best"));
    let row = |answers: serde_json::Value| {
        serde_json::json!({ "question": "ab", "context": context, "answers": answers }).to_string() + "\n"
    };
    let data = row(serde_json::json!([{ "text": "é", "answer_start": 4 }])) + &row(serde_json::json!([]));
    let task = "kind = \"answers\"\nstride = 2\nmax_question = 4";
    measured(&folder, &model, task, "dev.jsonl", &data, "questions.tsv");
}

#[test]
fn choices_are_made() {
    use cloze_model::huggingface::Architecture;
    let (folder, model) = asked(Architecture::MultipleChoice, &[]);
    let lines = "{\"text\": \"a\", \"choices\": [\"b\", \"c d\", \"e\"]}\n";
    let bad = r#"{"text": "a", "choices": ["b"]}"#;
    let values = predictions(&model, lines, bad, "fewer than two `choices`");
    assert!(values[0]["choice"].as_u64().unwrap() < 3);
    assert_eq!(values[0]["scores"].as_array().unwrap().len(), 3);
    let row = |label| format!("{{\"context\": \"a\", \"choices\": [\"b\", \"c d\"], \"label\": {label}}}\n");
    measured(
        &folder,
        &model,
        "kind = \"multiple-choice\"",
        "dev.jsonl",
        &(row(0) + &row(1)),
        "confusion.tsv",
    );
}

#[test]
fn a_model_without_a_task_predicts_nothing() {
    let (_folder, model) = encoder();
    let ran = ran::run(&["predict", "--model", &model], b"\"a\"\n");
    assert!(
        ran.error_line(1).contains("cannot determine the task from `architectures` (BertForPreTraining)")
    );
}

#[test]
fn a_model_is_measured_as_its_predictions_say() {
    let (folder, model) = classifier();
    let place = |name: &str| text(folder.path().join(name));
    fs::write(place("dev.tsv"), "text\tlabel\nsome words\tyes\nb\tyes\nq r s\tyes\n").unwrap();
    let config = format!(
        "task.kind = \"classification\"\nmodel.path = \"none\"\noptimizer.lr = 1e-3\n\
         train = {{ epochs = 1, batch_size = 1 }}\nschedule.kind = \"constant\"\n[data]\nmax_len = 16\n\
         train.files = [\"none\"]\ndev = [{:?}]\n",
        place("dev.tsv")
    );
    fs::write(place("run.toml"), config).unwrap();
    let run_toml = place("run.toml");
    let eval = |more: &[&str]| run(&[&["eval", "--model", &model, run_toml.as_str()], more].concat());
    let predicted = ran::run(&["predict", "--model", &model], b"\"some words\"\n\"b\"\n\"q r s\"\n").done();
    let right = predicted.matches("\"label\":\"yes\"").count();

    let report = place("report");
    let figures = eval(&["--json", "--out", &report]).done();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["figures"]["accuracy"], right as f64 / 3.0);
    for file in ["report.html", "predictions.jsonl", "confusion.tsv", "figures.json"] {
        assert!(Path::new(&report).join(file).is_file(), "{file}");
    }
    for (how, told) in [(&["--int8"][..], "8 bits"), (&["--precision", "bf16"], "bf16")] {
        let table = eval(&[how, &["--out", &report]].concat()).done();
        assert!(table.contains("accuracy *") && table.contains("3 examples"), "{table}");
        let page = fs::read_to_string(Path::new(&report).join("report.html")).unwrap();
        assert!(page.contains(told), "{page}");
    }
    let test = eval(&["--split", "test"]);
    assert!(
        test.error_line(2)
            .ends_with("names no files in `data.test`; give --split dev for the development data")
    );
    // Without a `dev` of its own, what the run held out of its training data.
    let train = format!("data.train.files=[{:?}]", place("dev.tsv"));
    let held = eval(&["--set", &train, "--set", "data.dev=[]", "--set", "data.dev_fraction=0.3"]).done();
    assert!(held.contains("1 example"), "{held}");
    let none = eval(&["--set", "data.dev=[]"]);
    assert!(none.error_line(2).ends_with("names no files in `data.dev`"), "{}", none.err);
    assert!(eval(&["--set", "data.train.columns={texts=\"text\"}"]).error_line(2).contains("columns.texts"));
    assert!(eval(&["--set", "data.max_len=2"]).error_line(2).contains("max_len"));
    let absent = eval(&["--set", "data.dev=[\"none.tsv\"]"]);
    assert!(absent.error_line(1).contains("no file matches `none.tsv` (looked in the current folder)"));
    assert!(eval(&["--set", "task.kind=\"regression\""]).error_line(2).contains("expected classification"));
    assert!(eval(&["--set", "data.max_len=21"]).error_line(2).contains("at most 20"));
    assert!(eval(&["--set", "eval.metric=\"bleu\""]).error_line(2).contains("bleu"));
}

#[test]
fn a_labelled_file_is_measured_as_it_is() {
    let (folder, model) = classifier();
    let place = |name: &str| text(folder.path().join(name));
    let write = |name: &str, text: &str| {
        fs::write(place(name), text).unwrap();
        place(name)
    };
    let rows = write("rows.tsv", "text\tlabel\nsome words\tyes\nb\tno\nq r s\tyes\n");
    let config = write(
        "run.toml",
        &format!(
            "task.kind = \"classification\"\nmodel.path = \"none\"\n[data]\nmax_len = 20\ntrain.files = [\"none\"]\n\
             dev = [{rows:?}]\n"
        ),
    );
    let eval = |args: &[&str]| run(&[&["eval", "--model", &model], args].concat());
    let expected = eval(&[&config, "--json"]).done();
    assert_eq!(eval(&[&rows, "--json"]).done(), expected);

    // As people have it: other names, between semicolons.
    let people = write("people.csv", "id;review;mood\n1;some words;yes\n2;\"b\";no\n3;q r s;yes\n");
    let report = place("report");
    let columns = ["--columns", "text=review,label=mood"];
    let ran = eval(&[&[people.as_str(), "--json", "--out", &report][..], &columns].concat());
    assert!(ran.err.contains("people.csv, columns between `;`, 3 rows, labels yes 2, no 1"), "{}", ran.err);
    assert_eq!(ran.done(), expected);
    let predictions = fs::read_to_string(Path::new(&report).join("predictions.tsv")).unwrap();
    assert!(predictions.starts_with("line\ttext\tgold\t"), "{predictions}");
    assert!(predictions.contains("\n4\tq r s\tyes\t"), "{predictions}");
    assert!(eval(&[&rows, "--set", "eval.metric=f1_macro"]).done().contains("f1_macro *"));

    let odd = write("odd.csv", "text,label\na,maybe\nb,yes\nc,no\n");
    let ran = eval(&[&odd]);
    let line = ran.error_line(1);
    assert!(
        line.contains("odd.csv:2: column `label`: `maybe`, expected one of no, yes; correct it"),
        "{line}"
    );
    assert!(line.ends_with("or skip such rows with --on-bad-row skip"), "{line}");
    let ran = eval(&[&odd, "--on-bad-row", "skip"]);
    assert!(ran.err.contains("odd.csv: skipped 1 of 3 rows ("), "{}", ran.err);
    assert!(ran.done().contains("2 examples"));
    let bare = write("bare.csv", "text,other\na,b\n");
    assert!(eval(&[&bare]).error_line(1).contains("no column `label` (the header has: text, other)"));
    assert!(eval(&[&rows, "--split", "test"]).error_line(2).contains("rows.tsv: --split chooses"));
    assert!(eval(&[&config, "--columns", "text=a"]).error_line(2).contains("go with a labelled file"));
}

#[test]
fn an_exported_model_has_the_files_of_optimum() {
    let (folder, model) = classifier();
    let export = |model: &str, out: &str, more: &[&str]| {
        run(&[&["export", "onnx", "--model", model, "--out", out], more].concat())
    };
    let out = text(folder.path().join("new").join("onnx"));
    let done = export(&model, &out, &[]);
    assert!(done.err.contains("MB of parameters"), "{}", done.err);
    assert_eq!(done.done(), format!("{out}\n"));
    let mut names: Vec<String> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let is_there = |name: &&str| names.iter().any(|found| found == name);
    assert!(["config.json", "model.onnx", "tokenizer.json"].iter().all(is_there), "{names:?}");
    assert!(!is_there(&"model.safetensors"), "{names:?}");
    assert!(export(&model, &out, &[]).error_line(2).contains("already exists"));
    export(&model, &text(folder.path().join("states")), &["--states"]).done();

    // What cannot be exported leaves nothing.
    let path = Path::new(&model).join("config.json");
    let json = fs::read_to_string(&path).unwrap();
    fs::write(&path, json.replace("BertForSequenceClassification", "BertLMHeadModel")).unwrap();
    let none = text(folder.path().join("none"));
    let refused = export(&model, &none, &[]);
    let line = refused.error_line(1);
    assert!(line.contains("BertLMHeadModel cannot be exported to ONNX"), "{line}");
    assert!(!Path::new(&none).exists());
    fs::write(
        Path::new(&model).join("task.json"),
        r#"{"task": {"kind": "tagging", "labels": ["O"], "crf": true}, "max_len": 9}"#,
    )
    .unwrap();
    let refused = export(&model, &none, &[]);
    let line = refused.error_line(1);
    assert!(line.contains("a conditional random field cannot be exported to ONNX"), "{line}");
}

#[test]
fn a_converted_model_says_the_same() {
    let (folder, model) = classifier();
    let out = text(folder.path().join("new").join("model"));
    let convert =
        |out: &str, more: &[&str]| run(&[&["convert", "--model", &model, "--out", out], more].concat());
    assert_eq!(convert(&out, &["--max-shard-size", "4KB"]).done(), format!("{out}\n"));
    let has = |name: &str| Path::new(&out).join(name).is_file();
    assert!(has("model.safetensors.index.json") && has("tokenizer.json") && !has("model.safetensors"));
    let predict = |model: &str| ran::run(&["predict", "--model", model], TEXTS.as_bytes()).done();
    assert_eq!(predict(&out), predict(&model));
    assert!(convert(&out, &[]).error_line(2).contains("already exists"));
    assert!(convert("x", &["--max-shard-size", "many"]).error_line(2).contains("5GB"));

    // Half precision and back: the same labels, and bits that stay from then on.
    let half = text(folder.path().join("half"));
    fs::create_dir(&half).unwrap();
    assert!(convert(&half, &["--dtype", "f16"]).err.contains("as float16"));
    let again = text(folder.path().join("again"));
    run(&["convert", "--model", &half, "--out", &again]).done();
    let weights = |folder: &str| fs::read(Path::new(folder).join("model.safetensors")).unwrap();
    assert_eq!(weights(&half), weights(&again));
    assert!(weights(&half).len() < weights(&model).len());

    // A folder that cannot be read leaves nothing.
    fs::write(Path::new(&half).join("model.safetensors"), "broken").unwrap();
    let none = text(folder.path().join("none"));
    assert!(run(&["convert", "--model", &half, "--out", &none]).error_line(1).contains("model.safetensors"));
    assert!(!Path::new(&none).exists());
}
