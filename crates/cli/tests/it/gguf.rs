//! `cloze export gguf`, and GGUF files in place of folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf").join(name)
}

/// The program in a folder, which is also where it unpacks files: status, output, messages.
fn cloze(place: &Path, args: &[&str], input: &str) -> (i32, String, String) {
    fs::write(place.join("input"), input).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cloze"))
        .args(args)
        .current_dir(place)
        .env("HF_HOME", place.join("home"))
        .stdin(fs::File::open(place.join("input")).unwrap())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn vectors(lines: &str) -> Vec<Vec<f64>> {
    let vector = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let numbers = if line.is_array() { &line } else { &line["embedding"] };
        numbers.as_array().unwrap_or_else(|| panic!("{line}")).iter().map(|x| x.as_f64().unwrap()).collect()
    };
    lines.lines().map(vector).collect()
}

#[test]
fn a_file_embeds_as_its_folder_does() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let texts = "The old man sat by the sea.\nSailing boats!\n";
    let folder = fixture("bert");
    let embed = |model: &str| {
        let (status, out, err) = cloze(place, &["embed", "--model", model], texts);
        assert_eq!(status, 0, "{err}");
        vectors(&out)
    };
    let expected = embed(folder.to_str().unwrap());
    for (weights, least) in
        [("f32", 0.999_999), ("f16", 0.9999), ("bf16", 0.999), ("q8_0", 0.999), ("q4_0", 0.9)]
    {
        let file = format!("{weights}.gguf");
        let args =
            ["export", "gguf", "--model", folder.to_str().unwrap(), "--weights", weights, "--out", &file];
        let (status, out, err) = cloze(place, &args, "");
        assert_eq!((status, &*out), (0, &*format!("{file}\n")), "{err}");
        assert!(err.contains("omitted, because llama.cpp does not use them: pooler.dense.bias"), "{err}");
        for (found, expected) in embed(&file).iter().zip(&expected) {
            let cosine: f64 = found.iter().zip(expected).map(|(a, b)| a * b).sum();
            assert!(cosine >= least, "{weights}: {cosine}");
        }
    }
    assert_eq!(fs::read_dir(place.join("home/cloze/gguf")).unwrap().count(), 5);

    // A folder again, with weights of its own.
    let (status, _, err) = cloze(place, &["convert", "--model", "f32.gguf", "--out", "again"], "");
    assert_eq!(status, 0, "{err}");
    assert!(place.join("again/model.safetensors").is_file() && !place.join("again/model.gguf").exists());
    fs::remove_file(place.join("f32.gguf")).unwrap();
    assert_eq!(embed("again"), expected);
}

#[test]
fn language_models_and_tokenizers_are_read_from_files() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    for name in ["gpt2", "llama"] {
        let file = fixture(&format!("{name}.gguf"));
        let file = file.to_str().unwrap();
        let args = ["generate", "--model", file, "--max-new", "3", "The old"];
        let (status, out, err) = cloze(place, &args, "");
        assert_eq!(status, 0, "{name}: {err}");
        assert!(!out.trim().is_empty(), "{name}");
        let folder = fixture(name);
        let encode = |tokenizer: &str| {
            let (status, out, err) =
                cloze(place, &["tokenizer", "encode", "--tokenizer", tokenizer], "The old  sea\n");
            assert_eq!(status, 0, "{err}");
            out
        };
        assert_eq!(encode(file), encode(folder.to_str().unwrap()), "{name}");
    }
}

#[test]
fn mistakes_are_one_line_and_leave_nothing() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let bert = fixture("bert");
    let copy = |name: &str, from: &str, to: &str| {
        let folder = place.join(name);
        fs::create_dir(&folder).unwrap();
        for file in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
            let bytes = fs::read(bert.join(file)).unwrap();
            let text = String::from_utf8(bytes.clone()).map(|text| {
                let folded = text.replacen(from, to, 1);
                folded.into_bytes()
            });
            fs::write(folder.join(file), text.unwrap_or(bytes)).unwrap();
        }
    };
    copy("roberta", "\"model_type\": \"bert\"", "\"model_type\": \"roberta\"");
    copy("relu", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\"");
    copy("words", "\"type\": \"BertPreTokenizer\"", "\"type\": \"WhitespaceSplit\"");
    fs::write(place.join("damaged.gguf"), b"GGUF\x03\0\0\0").unwrap();
    fs::create_dir(place.join("folder")).unwrap();
    let export = |model: &'static str| vec!["export", "gguf", "--model", model, "--out", "out.gguf"];
    for (args, status, expected) in [
        (
            export("roberta"),
            1,
            "its `model_type` is \"roberta\"; expected one of bert, nomic_bert, gpt2, llama, mistral",
        ),
        (
            export("relu"),
            1,
            "config.json: `hidden_act` is \"relu\"; expected \"gelu\", which is what llama.cpp computes with",
        ),
        (export("words"), 1, "it cuts words with `WhitespaceSplit`; expected `BertPreTokenizer`"),
        (
            vec!["export", "gguf", "--model", "relu", "--out", "folder"],
            2,
            "--out: folder is a folder; name a file in it",
        ),
        (
            vec!["embed", "--model", "damaged.gguf"],
            1,
            "damaged.gguf, byte 8: the number of tensors takes 8 bytes, and the file ends after 0",
        ),
        (vec!["embed", "--model", "missing.gguf"], 1, "there is no file \"missing.gguf\""),
        (vec!["tokenizer", "encode", "--tokenizer", "damaged.gguf"], 1, "damaged.gguf, byte 8"),
    ] {
        let (found, out, err) = cloze(place, &args, "a text\n");
        assert_eq!((found, &*out), (status, ""), "{args:?}: {err}");
        let errors: Vec<&str> = err.lines().filter(|line| line.starts_with("error:")).collect();
        assert!(errors.len() == 1 && errors[0].contains(expected), "{err}\n{expected}");
    }
    assert!(!place.join("out.gguf").exists() && !place.join("out.partial").exists());
}
