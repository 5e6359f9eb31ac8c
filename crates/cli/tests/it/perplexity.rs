//! `cloze perplexity`: figures and failures.

use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{Architecture, FloatType, SaveConfig, save_pretrained, save_published};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::WordPieceTrainer;
use std::fs;
use std::path::Path;
use std::process::Command;

const TEXT: &str = "the old sea and the old boats\n";

fn cloze(args: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    let output = command.arg("perplexity").args(args).current_dir(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A folder with a left-to-right model, a masked one, and texts.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let folder = place.path().join("gpt");
    let tokenizer = Tokenizer::characters(TEXT.chars(), ["<unk>"], Some("<unk>")).unwrap();
    let mut config = GptConfig::gpt2(tokenizer.vocab_size(), 1, 16);
    config.max_positions = 8;
    save_published(&folder, &config.init(&mut ParamInit::new(&device, 1)), &config, FloatType::F32).unwrap();
    tokenizer.save(&folder).unwrap();

    let folder = place.path().join("bert");
    let tokenizer =
        WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([TEXT.repeat(9)]).unwrap();
    let mut config = BertConfig::new(tokenizer.vocab_size(), 1, 16);
    (config.n_heads, config.max_positions) = (2, 16);
    let model = config.init(&mut ParamInit::new(&device, 1));
    save_pretrained(&folder, &model, &config, &SaveConfig::new(Architecture::PreTraining)).unwrap();
    tokenizer.save(&folder).unwrap();
    fs::write(place.path().join("a.txt"), TEXT).unwrap();
    fs::write(place.path().join("b.txt"), TEXT.repeat(20)).unwrap();
    fs::write(place.path().join("empty.txt"), "").unwrap();
    fs::write(place.path().join("bytes.txt"), [b'a', 0xFF]).unwrap();
    place
}

#[test]
fn figures_of_each_file_and_of_all() {
    let place = place();
    for model in ["gpt", "bert"] {
        let (code, out, err) = cloze(&["--model", model, "--json", "a.txt", "b.txt"], place.path());
        assert_eq!(code, Some(0), "{err}");
        let lines: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [a, b, all] = &lines[..] else { panic!("{out}") };
        assert_eq!((&a["file"], &all["file"]), (&"a.txt".into(), &serde_json::Value::Null));
        assert_eq!((a["bytes"].as_u64(), a["words"].as_u64()), (Some(TEXT.len() as u64), Some(7)));
        for key in ["nats", "tokens", "bytes", "words"] {
            let [a, b, all] = [a, b, all].map(|line| line[key].as_f64().unwrap());
            assert!((a + b - all).abs() < 1e-6 * all, "{key}");
        }
        let value = |key: &str| all[key].as_f64().unwrap();
        let expected = (value("nats") / value("tokens")).exp();
        assert!((value("perplexity") - expected).abs() < 1e-9 * expected);
        // A model that has learnt nothing wavers among about as many pieces as there are.
        assert!((5.0..80.0).contains(&expected), "{expected}");
        let (_, table, _) = cloze(&["--model", model, "a.txt"], place.path());
        let name = if model == "gpt" { "│ perplexity " } else { "│ pseudo-perplexity " };
        assert!(table.contains(name) && table.contains("│ a.txt"), "{table}");
    }
}

#[test]
fn texts_of_a_table_are_predicted_one_by_one() {
    let place = place();
    let text = fs::read_to_string(place.path().join("a.txt")).unwrap();
    let (first, second) = ("the old man sat by the sea", text.lines().next().unwrap());
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    write("one.txt", first);
    write("two.txt", second);
    write("rows.csv", &format!("id,body\n1,\"{first}\"\n2,\"{second}\"\n"));
    let score = |args: &[&str]| -> Vec<f64> {
        let (code, out, err) = cloze(&[&["--model", "gpt", "--json"], args].concat(), place.path());
        assert_eq!(code, Some(0), "{err}");
        let line: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        ["nats", "tokens", "words"].map(|key| line[key].as_f64().unwrap()).to_vec()
    };
    let (apart, table) = (score(&["one.txt", "two.txt"]), score(&["--columns", "text=body", "rows.csv"]));
    assert!(apart.iter().zip(&table).all(|(a, b)| (a - b).abs() < 1e-6 * a), "{apart:?} {table:?}");
    write("short.csv", &format!("text\n\"\"\n\"{first}\"\n"));
    let (code, _, err) = cloze(&["--model", "gpt", "short.csv"], place.path());
    assert!(code == Some(1) && err.contains("short.csv:2: the text is empty"), "{err}");
    assert_eq!(score(&["--on-bad-row", "skip", "short.csv"]), score(&["one.txt"]));
    let (code, _, err) = cloze(&["--model", "gpt", "--on-bad-row", "skip", "one.txt"], place.path());
    assert!(code == Some(2) && err.contains("one.txt: --on-bad-row skip is for the rows of tables"), "{err}");
}

#[test]
fn failures_are_one_line() {
    let place = place();
    for (args, code, expected) in [
        (&["--model", "gpt", "absent.txt"][..], 1, "cannot read absent.txt: No such file"),
        (&["--model", "gpt", "bert"], 1, "cannot read bert: is a directory"),
        (&["--model", "gpt", "empty.txt"], 1, "empty.txt: has no token to predict"),
        (&["--model", "gpt", "bytes.txt"], 1, "bytes.txt: not UTF-8 (byte 2 is 0xff)"),
        (
            &["--model", "gpt", "--stride", "9", "a.txt"],
            2,
            "`--stride` is 9; expected from 1 to 8, the model's positions",
        ),
        (
            &["--model", "bert", "--stride", "3", "a.txt"],
            2,
            "`--stride` is 3; expected none: the model of `--model` is a masked one",
        ),
        (&["--model", "gpt", "--stride", "0", "a.txt"], 2, "--stride"),
        (&["--model", "gpt"], 2, "<FILE>"),
    ] {
        let (found, out, err) = cloze(args, place.path());
        assert_eq!(found, Some(code), "{args:?}: {err}");
        assert!(out.is_empty() && err.contains(expected), "{args:?}: {err}");
        assert!(err.lines().count() == 1 || code == 2, "{err}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_grow_with_a_words_length() {
    let place = place();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("word.txt"), format!("to be {}", "x".repeat(48 << 20))).unwrap();
    let peak = |name: &str| crate::peak::of(&["perplexity", "--model", &path("bert"), &path(name)], None);
    let (short, long) = (peak("a.txt"), peak("word.txt"));
    let grown = long.saturating_sub(short);
    println!("{grown} kB");
    assert!(grown < 40_000, "{grown} kB");
}
