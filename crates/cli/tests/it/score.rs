//! `cloze score`, the program itself.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const HYPOTHESES: &str = "A man is in a boat.\nTwo dogs run.\nSnow falls on the old town today.\n";
const REFERENCES: &str = "A man sits in a boat.\nTwo dogs are running.\nToday snow falls on the old town.\n";
const OTHERS: &str = "A man in boat.\nDogs are running.\nIt snows on the old town.\n";
const SOURCES: &str =
    "Ein Mann sitzt in einem Boot.\nZwei Hunde rennen.\nHeute fällt Schnee auf die alte Stadt.\n";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("hyp", HYPOTHESES), ("ref", REFERENCES), ("other", OTHERS), ("src", SOURCES)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn score(folder: &Path, args: &str, input: &[u8]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cloze"));
    program.arg("score").args(args.split_whitespace()).current_dir(folder);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = program.spawn().unwrap();
    // A program that has found an error does not read on.
    let _ = program.stdin.take().unwrap().write_all(input);
    program.wait_with_output().unwrap()
}

fn printed(args: &str) -> String {
    let output = score(folder().path(), args, HYPOTHESES.as_bytes());
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The exit status and the one line of an error.
fn refused(args: &str, input: &[u8]) -> (Option<i32>, String) {
    let output = score(folder().path(), args, input);
    assert!(output.stdout.is_empty(), "{args}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    (output.status.code(), message.trim_end().to_owned())
}

// Scores are those of sacreBLEU 2.6.0.

#[test]
fn each_metric_prints_its_line() {
    let version = format!("version:cloze-{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        printed("bleu --reference ref"),
        format!(
            "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version} = 45.1 78.9/56.2/38.5/30.0 \
             (BP = 0.949 ratio = 0.950 hyp_len = 19 ref_len = 20)\n"
        )
    );
    let chrf = printed("chrf --word-order 2 --reference ref --decimals 3");
    assert_eq!(chrf, format!("chrF2++|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|{version} = 63.614\n"));
    let ter = printed("ter --reference ref other");
    assert_eq!(ter, format!("TER|nrefs:2|case:lc|tok:tercom|norm:no|punct:yes|asian:no|{version} = 40.0\n"));
}

#[test]
fn json_has_sacrebleus_keys() {
    let json: Value = serde_json::from_str(&printed("bleu --reference ref --confidence --json")).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    let expected = [
        "name",
        "score",
        "signature",
        "confidence_mean",
        "confidence_var",
        "confidence",
        "verbose_score",
        "nrefs",
        "bs",
        "seed",
        "case",
        "eff",
        "tok",
        "smooth",
        "version",
    ];
    assert_eq!(keys, expected);
    assert_eq!((&json["seed"], &json["bs"]), (&"12345".into(), &"1000".into()));
}

#[test]
fn systems_are_compared_and_drawn_by_length() {
    let folder = folder();
    let args = "bleu --input hyp --reference ref --paired other --by-length src --lengths 5,3 --plot by.svg";
    let output = score(folder.path(), args, b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["Baseline: hyp", "other", "p-value", "bs:1000|seed:12345", "0–3", "> 5"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let svg = fs::read_to_string(folder.path().join("by.svg")).unwrap();
    assert!(svg.contains("Baseline: hyp") && svg.trim_end().ends_with("</svg>"));

    let json = printed(
        "ter --reference ref --paired other --test randomization --samples 50 --json --by-length src",
    );
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["system"], &json[1]["system"]), (&"Baseline".into(), &"other".into()));
    assert!(json[0]["TER"]["p_value"].is_null() && json[1]["TER"]["p_value"].is_f64());
    assert_eq!(json[1]["by_length"][0]["lines"], 3);
}

#[test]
fn sentences_are_scored_one_by_one() {
    let scores = printed("bleu --sentences --reference ref");
    assert_eq!(scores.lines().count(), 3);
    assert!(scores.lines().all(|score| score.parse::<f64>().is_ok()));
}

#[test]
fn what_cannot_be_scored_is_one_line() {
    let hyp = HYPOTHESES.as_bytes();
    let short = refused("bleu --reference ref", b"A man.\n");
    let expected = "error: standard input ends after 1 lines and ref does not; expected the same number of lines in each";
    assert_eq!(short, (Some(1), expected.into()));
    let empty = refused("bleu --reference /dev/null", b"");
    assert_eq!(empty, (Some(1), "error: standard input: no lines to score".into()));
    let (status, message) = refused("chrf --reference ref", b"A man.\nTwo \xff dogs\nx\n");
    assert_eq!(
        (status, message.as_str()),
        (
            Some(1),
            "error: standard input, line 2: not UTF-8 (byte 5 is 0xff); it looks like Windows-1252: save it as UTF-8, or run iconv -f WINDOWS-1252 -t UTF-8"
        )
    );
    let (status, message) = refused("bleu --reference missing", hyp);
    assert!(status == Some(1) && message.starts_with("error: cannot read missing"), "{message}");
    for args in [
        "bleu",
        "bleu --reference ref --smooth-value 1",
        "bleu --reference ref --smooth floor --smooth-value=-1",
        "bleu --reference ref --tokenize ja-mecab",
        "bleu --reference ref --sentences --confidence",
        "bleu --reference ref --plot x.svg",
        "bleu --reference ref --samples 100",
        "bleu --reference ref --test randomization",
        "chrf --reference ref --char-order 0",
    ] {
        assert_eq!(refused(args, hyp).0, Some(2), "{args}");
    }
}

/// Three captions; the third image has no second reference.
fn captions() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("captions", "A dog runs on the beach.\nTwo men play chess.\nA dog runs on the beach.\n"),
        ("tokens", "a dog runs on the beach\ntwo men play chess\na dog runs on the beach\n"),
        (
            "first",
            "A dog runs along the beach.\nTwo old men play chess in a park.\nA woman's red hat lies on a chair.\n",
        ),
        ("second", "A brown dog is running on the sand.\nTwo men at a table, playing chess\n\n"),
        ("empty", "\n\n\n"),
    ];
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

// Scores of captions are those of pycocoevalcap 1.2.

#[test]
fn captions_are_scored() {
    let folder = captions();
    let printed = |args: &str| {
        let args = format!("{args} --tokenize simple --input captions --reference first second");
        let output = score(folder.path(), &args, b"");
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{args}");
        String::from_utf8(output.stdout).unwrap()
    };
    let end = "(3 captions, 66.7 % of them distinct)\n";
    assert_eq!(printed("cider"), format!("CIDEr-D = 1.780 {end}"));
    assert_eq!(printed("rouge-l --decimals 2"), format!("ROUGE-L = 0.57 {end}"));
    assert_eq!(printed("caption-bleu"), format!("BLEU-1/2/3/4 = 0.515/0.437/0.297/0.000 {end}"));
    assert_eq!(printed("cider --sentences"), "2.863\n2.418\n0.060\n");
    let bleu = "1.000 0.894 0.585 0.000\n0.472 0.472 0.375 0.000\n0.202 0.000 0.000 0.000\n";
    assert_eq!(printed("caption-bleu --sentences"), bleu);
    let json: Value = serde_json::from_str(&printed("caption-bleu --json")).unwrap();
    let expected = serde_json::json!({
        "Bleu_1": 0.515, "Bleu_2": 0.437, "Bleu_3": 0.297, "Bleu_4": 0.0, "captions": 3, "distinct": 0.667,
    });
    assert_eq!(json, expected);
    assert_eq!(printed("rouge-l --sentences --json").lines().next(), Some(r#"{"ROUGE_L":0.833}"#));
}

#[test]
fn captions_that_seem_not_to_be_tokenized_are_noticed() {
    let folder = captions();
    let noticed = |args: &str| {
        let output = score(folder.path(), args, b"");
        assert!(output.status.success(), "{args}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = noticed("cider --input captions --reference first");
    assert!(said.contains("3 captions have capitals") && said.lines().count() == 1, "{said}");
    assert_eq!(noticed("cider --input tokens --reference tokens"), "");
}

#[test]
fn captions_that_cannot_be_scored_are_one_line() {
    let folder = captions();
    for (args, input, expected) in [
        (
            "cider --reference first",
            "",
            "standard input ends after 0 lines and first does not; expected the same number of lines in each",
        ),
        ("cider --reference /dev/null", "", "standard input: no lines to score"),
        (
            "rouge-l --input captions --reference empty second",
            "",
            "line 3 is empty in all files of references; expected a reference in one of them",
        ),
        (
            "caption-bleu --reference first",
            "a\nb\n",
            "standard input ends after 2 lines and first does not; expected the same number of lines in each",
        ),
    ] {
        let output = score(folder.path(), args, input.as_bytes());
        assert!(output.stdout.is_empty() && output.status.code() == Some(1), "{args}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {expected}\n"), "{args}");
    }
    assert_eq!(score(folder.path(), "cider", b"").status.code(), Some(2));
}

#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_grow_with_the_lines_length() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("long"), format!("{}\n", "x".repeat(1_000_000)).repeat(96)).unwrap();
    let peak = |name: &str| {
        let file = path(name);
        let file = file.as_str();
        let args = ["score", "bleu", "--tokenize", "none", "--input", file, "--reference", file];
        crate::peak::of(&args, None)
    };
    let (short, long) = (peak("ref"), peak("long"));
    let grown = long.saturating_sub(short);
    println!("{grown} kB");
    assert!(grown < 80_000, "{grown} kB");
}
