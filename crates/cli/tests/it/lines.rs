//! Lines of text that are long, many, or more than a tokenizer can do; and tokenizers that do not fit their model.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Child;
use std::thread;

use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::bert::{BertConfig, MlmHead};
use cloze_model::huggingface::{Architecture, Family, ProblemType, SaveConfig, save_pretrained};
use cloze_model::tasks::{BertForMaskedLm, BertForSequenceClassification};
use cloze_tokenizer::{Tokenizer, Vocab};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::ran::{Ran, run, spawn};

const SPECIALS: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

/// BERT's tokenizer for letters: 57 pieces.
fn letters() -> Tokenizer {
    let letters = ('a'..='z').flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    let vocab = SPECIALS.map(String::from).into_iter().chain(letters);
    Tokenizer::bert(Vocab::from_tokens(vocab).unwrap(), true).unwrap()
}

fn config() -> BertConfig {
    BertConfig::new(57, 2, 16).with_d_ff(24).with_n_heads(2).with_max_positions(20)
}

fn init() -> ParamInit {
    ParamInit::new(&Device::flex(), 3)
}

/// A folder of a tokenizer and a model of random weights.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    letters().save(folder.path()).unwrap();
    folder
}

fn encoder() -> TempDir {
    let folder = folder();
    let model = config().init_encoder(&mut init());
    save_pretrained(folder.path(), &model, &config(), &SaveConfig::new(Architecture::Encoder)).unwrap();
    folder
}

pub fn masked() -> TempDir {
    let (folder, init) = (folder(), &mut init());
    let model = BertForMaskedLm { bert: config().init_encoder(init), mlm: MlmHead::new(&config(), init) };
    save_pretrained(folder.path(), &model, &config(), &SaveConfig::new(Architecture::MaskedLm)).unwrap();
    folder
}

pub fn classifier() -> TempDir {
    let (folder, init) = (folder(), &mut init());
    let architecture = Architecture::SequenceClassification;
    let head = architecture.sequence_head(Family::BERT, &config(), 2, 0.1, init);
    let model = BertForSequenceClassification::new(config().init_encoder(init), head);
    let save = SaveConfig::new(architecture)
        .with_labels(vec!["no".into(), "yes".into()])
        .with_problem_type(Some(ProblemType::SingleLabel));
    save_pretrained(folder.path(), &model, &config(), &save).unwrap();
    folder
}

/// The one line of a failure, which nothing else is said beside.
#[track_caller]
fn error(ran: &Ran) -> &str {
    let line = ran.error_line(1);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    line
}

/// A change to a `tokenizer.json`.
type Damage = Box<dyn Fn(&mut Value)>;

/// Writes a folder's `tokenizer.json` anew.
fn change(folder: &Path, change: impl FnOnce(&mut Value)) {
    let path = folder.join("tokenizer.json");
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut file);
    fs::write(path, file.to_string()).unwrap();
}

fn split(expression: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false})
}

const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// An expression that tries for ever on what it does not find.
const HOPELESS: &str = r"(?:(a+)+\1b)|c";

#[test]
fn a_line_that_a_pattern_gives_up_on_is_named() {
    let (encoder, masked, classifier) = (encoder(), masked(), classifier());
    let hopeless = "a".repeat(40);
    for (folder, command, input) in [
        (&encoder, &["tokenizer", "encode", "--tokenizer"][..], format!("acb\nb\n{hopeless}c\n")),
        (&encoder, &["embed", "--model"], format!("acb\nb\n{hopeless}c\n")),
        (&encoder, &["embed", "--tokens", "--model"], format!("acb\nb\n{hopeless}c\n")),
        (&classifier, &["predict", "--model"], format!("\"acb\"\n\n\"{hopeless}c\"\n")),
        (&masked, &["fill-mask", "--json", "--model"], format!("a[MASK]b\n[MASK]\n{hopeless}[MASK]\n")),
    ] {
        change(folder.path(), |file| file["pre_tokenizer"] = split(HOPELESS));
        let ran = run(&[command, &[folder.path().to_str().unwrap()]].concat(), input.as_bytes());
        let error = error(&ran);
        assert!(error.contains("standard input, line 3: "), "{error}");
        assert!(
            error.contains(r#"the tokenizer's pattern "(?:(a+)+\\1b)|c" gave up on a text of 4"#),
            "{error}"
        );
        assert!(error.contains("cut the text into shorter ones"), "{error}");
        assert_eq!(ran.out.lines().count(), 2, "the lines before it are answered: {}", ran.out);
    }
}

#[test]
fn a_known_pattern_never_gives_up() {
    let folder = encoder();
    change(folder.path(), |file| {
        file["normalizer"] = Value::Null;
        file["pre_tokenizer"] = split(O200K);
    });
    let line = format!("a{}b\n", " ".repeat(1_100_000));
    let tokenizer = folder.path().to_str().unwrap();
    let args = ["tokenizer", "encode", "--tokenizer", tokenizer, "--max-line-bytes", "2000000"];
    // Letters with spaces, which this vocabulary does not have.
    assert_eq!(run(&args, line.as_bytes()).done(), "2 5 1 1 3\n");
}

#[test]
fn a_tokenizer_that_does_not_fit_is_named_when_it_is_loaded() {
    let special = |id: &str, type_id: u64| json!({"SpecialToken": {"id": id, "type_id": type_id}});
    let text = |type_id: u64| json!({"Sequence": {"id": "A", "type_id": type_id}});
    let single = |pieces: Value| move |file: &mut Value| file["post_processor"]["single"] = pieces.clone();
    let changes: [(Damage, &str); 8] = [
        (
            Box::new(single(json!([special("[CLS]", 0), text(2), special("[SEP]", 0)]))),
            "post_processor: a text gets the type id 2; the model's type ids are below 2",
        ),
        (
            Box::new(single(json!([special("[CLS]", 2_147_483_653), text(0), special("[SEP]", 0)]))),
            "post_processor: a text gets the type id 2147483653; the model's type ids are below 2",
        ),
        (
            Box::new(single(json!([special("[CLS]", 0), text(0), text(0)]))),
            "post_processor: a text has its sequence A 2 times; expected once",
        ),
        (
            Box::new(single(json!([special("[CLS]", 0)]))),
            "post_processor: a text has its sequence A 0 times; expected once",
        ),
        (
            Box::new(|file: &mut Value| {
                file["post_processor"]["special_tokens"]["[SEP]"]["ids"] = json!([57])
            }),
            "post_processor: \"[SEP]\" has id 57; the model's ids are below 57",
        ),
        (
            Box::new(|file: &mut Value| {
                file["post_processor"] = json!({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 4_000_000_000u32]});
            }),
            "post_processor: \"[CLS]\" has id 4000000000; the model's ids are below 57",
        ),
        (
            Box::new(|file: &mut Value| {
                file["post_processor"] =
                    json!({"type": "RobertaProcessing", "sep": ["[SEP]", 99], "cls": ["[CLS]", 2]});
            }),
            "post_processor: \"[SEP]\" has id 99; the model's ids are below 57",
        ),
        (
            Box::new(|file: &mut Value| {
                let vocab = file["model"]["vocab"].as_object_mut().unwrap();
                vocab.shift_remove("z");
                vocab.insert("z".into(), json!(1_000_000));
            }),
            "model: \"z\" has id 1000000; the model's ids are below 57",
        ),
    ];
    let train = tempfile::tempdir().unwrap();
    let data = train.path().join("train.tsv");
    fs::write(&data, "text\tlabel\na\tno\nb\tyes\n").unwrap();
    for (make, command, input) in [
        (encoder as fn() -> TempDir, &["embed", "--model"][..], "a\n"),
        (masked, &["fill-mask", "--model"], "a[MASK]\n"),
        (classifier, &["predict", "--model"], "\"a\"\n"),
        (encoder, &["train"], ""),
    ] {
        for (number, (damage, problem)) in changes.iter().enumerate() {
            let folder = make();
            change(folder.path(), damage);
            let model = folder.path().to_str().unwrap();
            let ran = match command {
                ["train"] => {
                    let path = train.path().join("run.toml");
                    let config = format!(
                        "[task]\nkind = \"classification\"\n[model]\npath = {model:?}\n[data]\ntrain = {{ files = [{data:?}] }}\n\
                         max_len = 12\ndev_fraction = 0.5\n[train]\nepochs = 1\nbatch_size = 1\n[optimizer]\nlr = 1e-3\n[schedule]\n\
                         kind = \"constant\"\n"
                    );
                    fs::write(&path, config).unwrap();
                    let out = train.path().join(format!("run{number}"));
                    run(&["train", path.to_str().unwrap(), "--out", out.to_str().unwrap()], b"")
                }
                _ => run(&[command, &[model]].concat(), input.as_bytes()),
            };
            assert_eq!(ran.status, 1, "{command:?} {problem}: {}", ran.err);
            let error = ran.err.lines().find(|line| line.starts_with("error: ")).unwrap();
            let expected = format!(
                "{}: the tokenizer does not fit the model: {problem}",
                folder.path().join("tokenizer.json").display()
            );
            assert!(error.ends_with(&expected), "{error}\n{expected}");
        }
    }
}

#[test]
fn a_text_without_a_token_is_zero_or_the_unknown_token() {
    let bare = |file: &mut Value| file["post_processor"] = Value::Null;
    let (encoder, classifier) = (encoder(), classifier());
    change(encoder.path(), bare);
    change(classifier.path(), bare);
    let model = encoder.path().to_str().unwrap();
    let lines = run(&["embed", "--model", model], "a\n\u{200b}\n".as_bytes()).done();
    let zero: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    assert!(zero["embedding"].as_array().unwrap().iter().all(|x| *x == 0.0));
    let predict = ["predict", "--model", classifier.path().to_str().unwrap()];
    let ran = run(&predict, "\"a\"\n\"b\"\n\"\u{200b}\"\n".as_bytes());
    assert_eq!(ran.done().lines().count(), 3);
    // An empty text is none.
    let ran = run(&predict, b"\"a\"\n\"\"\n");
    assert!(ran.error_line(1).contains("standard input, line 2: the text is empty; expected"), "{}", ran.err);
}

#[test]
fn tokens_and_words_have_their_places_and_vectors() {
    let encoder = encoder();
    let with = |options: &[&str], input: &str| {
        let arguments =
            [&["embed", "--model", encoder.path().to_str().unwrap(), "--tokens"], options].concat();
        run(&arguments, input.as_bytes())
    };
    let lines = |options: &[&str], input: &str| -> Vec<Value> {
        with(options, input).done().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let of = |list: &Value| -> Vec<(String, u64, u64, usize)> {
        let text = |item: &Value| item["text"].as_str().unwrap().to_owned();
        let number = |item: &Value, key: &str| item[key].as_u64().unwrap();
        let width = |item: &Value| item["vector"].as_array().unwrap().len();
        let items = list.as_array().unwrap().iter();
        items.map(|item| (text(item), number(item, "start"), number(item, "end"), width(item))).collect()
    };
    let found = lines(&[], "éb c\n\n");
    let expected = [("e", 0, 1), ("##b", 1, 2), ("c", 3, 4)];
    assert_eq!(of(&found[0]["tokens"]), expected.map(|(text, start, end)| (text.into(), start, end, 16)));
    assert_eq!(found[1], serde_json::json!({ "tokens": [] }));
    let found = lines(&["--words", "mean", "--layers", "-1,0"], "éb c\n");
    let expected = [("éb", 0, 2), ("c", 3, 4)];
    assert_eq!(of(&found[0]["words"]), expected.map(|(text, start, end)| (text.into(), start, end, 32)));
    // A line that is longer than the model reads has a vector for each token.
    let long = lines(&["--overlap", "2"], &"a b c ".repeat(30));
    assert_eq!(of(&long[0]["tokens"]).len(), 90);

    for (options, expected) in [
        (&["--layers", "3"][..], "`--layers` is \"3\"; expected numbers from 0, the embeddings, to 2"),
        (&["--layers", "last-four-mean"], "expected \"last\", \"all\" or numbers: the model has 2 layers"),
        (&["--max-len", "21"], "`--max-len` is 21; expected at most 20, the model's positions"),
        (&["--language", "de"], "`--language` is \"de\"; expected a number below 2"),
    ] {
        let ran = with(options, "a\n");
        let error = ran.error_line(2);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_long_line_is_an_error_unless_its_beginning_is_enough() {
    let (encoder, masked, classifier) = (encoder(), masked(), classifier());
    let words = "some old words ".repeat(300_000);
    let model = encoder.path().to_str().unwrap();
    let embedded = run(&["embed", "--model", model], format!("a\n{words}\nb\n").as_bytes());
    assert!(embedded.err.contains("1 of 3 lines are longer than 20 tokens"), "{}", embedded.err);
    let beginning = run(&["embed", "--model", model], format!("a\n{}\nb\n", &words[..600]).as_bytes()).done();
    assert_eq!(embedded.done(), beginning);

    let long = "standard input, line 2: longer than `--max-line-bytes` = 1048576";
    let letters = "x".repeat(2_000_000);
    let ran = run(&["embed", "--model", model], format!("a\n{letters}\n").as_bytes());
    assert!(error(&ran).contains(&format!("{long}: the first 1048576 bytes do not decide")), "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 1);
    for (args, first) in [
        (["predict", "--model", classifier.path().to_str().unwrap()], "\"a\""),
        (["fill-mask", "--model", masked.path().to_str().unwrap()], "[MASK]"),
        (["tokenizer", "encode", "--tokenizer"].map(|arg| arg), "a"),
        (["tokenizer", "decode", "--tokenizer"].map(|arg| arg), "5"),
    ] {
        let args = if args[0] == "tokenizer" { [&args[..], &[model]].concat() } else { args.to_vec() };
        let ran = run(&args, format!("{first}\n{letters}\n").as_bytes());
        assert!(error(&ran).ends_with(&format!("{long}; cut the line, or raise the limit")), "{}", ran.err);
        let raised = [&args[..], &["--max-line-bytes", "3000000"]].concat();
        let ran = run(&raised, format!("{first}\n{letters}\n").as_bytes());
        assert!(!ran.err.contains("longer than"), "{}", ran.err);
    }

    // Where truncation is set, a beginning is enough for ids too.
    change(encoder.path(), |file| {
        file["truncation"] =
            json!({"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0});
    });
    let ran = run(&["tokenizer", "encode", "--tokenizer", model], format!("{words}\na\n").as_bytes());
    let short = run(&["tokenizer", "encode", "--tokenizer", model], b"some old\na\n");
    assert_eq!(ran.done(), short.done());
}

/// The most memory that a child had so far, in kB.
#[cfg(target_os = "linux")]
fn peak(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The most memory that a command takes for the `lines` of its input, while it waits for more.
#[cfg(target_os = "linux")]
fn peak_of(args: &[&str], input: Vec<u8>, lines: usize) -> u64 {
    let mut child = spawn(args);
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn(move || {
        stdin.write_all(&input).unwrap();
        stdin
    });
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(out.by_ref().take(lines).filter(|line| line.is_ok()).count(), lines);
    let peak = peak(&child);
    drop(writer.join().unwrap());
    assert!(child.wait().unwrap().success());
    peak
}

#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_grow_with_the_input() {
    let (encoder, classifier) = (encoder(), classifier());
    let encoder = encoder.path().to_str().unwrap();
    let classifier = classifier.path().to_str().unwrap();
    let words = "some old words, ".repeat(1 << 20);
    let line = format!("{words}\n").into_bytes();
    let json = format!("\"{words}\"\n").into_bytes();
    for (args, input, lines) in [
        (&["embed", "--model", encoder][..], line, 1),
        (&["embed", "--model", encoder], b"a\n".repeat(500_000), 500_000),
        (&["tokenizer", "encode", "--tokenizer", encoder], vec![b'\n'; 1_000_000], 1_000_000),
        (&["predict", "--model", classifier, "--max-line-bytes", "20000000"], json, 1),
    ] {
        let least =
            peak_of(args, if args[0] == "predict" { b"\"a\"\n".to_vec() } else { b"a\n".to_vec() }, 1);
        let grown = peak_of(args, input, lines).saturating_sub(least);
        println!("{args:?}: {grown} kB");
        // A line of 16 MB that is kept has this length some times over.
        let most = if args[0] == "predict" { 100_000 } else { 40_000 };
        assert!(grown < most, "{args:?}: {grown} kB");
    }
}

#[test]
fn texts_are_augmented_in_lines_and_in_rows() {
    let folder = masked();
    let args =
        |more: &[&'static str]| [&["augment", "--model", folder.path().to_str().unwrap()], more].concat();
    let out = run(&args(&["--copies", "3", "--share", "1"]), b"a b c\n\n1, 2\n\n").done();
    let lines: Vec<&str> = out.lines().collect();
    // A text of numbers has no copies.
    assert!(
        (3..=5).contains(&lines.len()) && lines[0] == "a b c" && lines[lines.len() - 1] == "1, 2",
        "{lines:?}"
    );
    for copy in &lines[1..lines.len() - 1] {
        let words: Vec<&str> = copy.split(' ').collect();
        assert!(
            words.len() == 3 && words.iter().zip(["a", "b", "c"]).all(|(word, own)| *word != own),
            "{copy}"
        );
    }
    let rows = b"label,sentence\nx,\"a, b\"\n";
    let columns = ["--copies", "1", "--share", "1", "--input-format", "csv", "--columns", "text=sentence"];
    let out = run(&args(&columns), rows).done();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..2], ["label,sentence,augmented", "x,\"a, b\",\"a, b\""]);
    assert!(lines.len() == 3 && lines[2].starts_with("x,\"a, b\",\"") && lines[2] != lines[1], "{lines:?}");
    let ran = run(&args(&["--share", "2"]), b"a");
    assert!(ran.err.contains("expected a number from 0 to 1"), "{}", ran.err);
    let ran = run(&args(&[]), format!("b\n{}\n", "a ".repeat(30)).as_bytes());
    assert!(error(&ran).contains("standard input, line 2: "), "{}", ran.err);
}
