//! `cloze export gguf`, and GGUF files in place of folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use burn::tensor::Device;
use cloze_gguf::{GgufFile, TensorInfo, TensorType};
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
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

/// The tensors of a file: name, type and bytes.
fn tensors(path: &Path) -> BTreeMap<String, (Option<TensorType>, Vec<u8>)> {
    let file = GgufFile::open(path).unwrap();
    let one =
        |tensor: &TensorInfo| (tensor.name.clone(), (tensor.kind(), file.bytes(tensor).unwrap().1.to_vec()));
    file.tensors().iter().map(one).collect()
}

#[test]
fn a_quantised_folders_blocks_go_into_a_file_bit_for_bit() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let run = |args: &[&str], input: &str| {
        let (status, out, err) = cloze(place, args, input);
        assert_eq!(status, 0, "{err}");
        (out, err)
    };
    let texts = "The old man sat by the sea.\nSailing boats!\n";
    fs::write(place.join("texts.txt"), texts.repeat(60)).unwrap();
    for (name, kind) in [("bert", "q8_0"), ("bert", "q4_0"), ("llama", "q4_0")] {
        let folder = fixture(name);
        let folder = folder.to_str().unwrap();
        let [quantised, direct, file] =
            ["", "-direct.gguf", ".gguf"].map(|end| format!("{name}-{kind}{end}"));
        run(&["quantize", "--model", folder, "--weights", kind, "--tables", "--out", &quantised], "");
        run(&["export", "gguf", "--model", folder, "--weights", kind, "--out", &direct], "");
        let (_, err) = run(&["export", "gguf", "--model", &quantised, "--out", &file], "");
        assert!(err.contains("matrices have the folder's blocks, bit for bit"), "{err}");
        // The folder's rounding is GGUF's. What is in FP16 in the folder is so in the file, in 32 bits.
        let (found, expected) = (tensors(&place.join(&file)), tensors(&place.join(&direct)));
        let mut n_blocks = 0;
        for (tensor, (kind, bytes)) in &found {
            assert_eq!(*kind, expected[tensor].0, "{name}, {tensor}");
            if *kind != Some(TensorType::F32) {
                assert!(*bytes == expected[tensor].1, "{name}, {tensor}");
                n_blocks += 1;
            }
        }
        assert!(n_blocks >= 7, "{name}: {n_blocks}");
        if name == "bert" {
            let [ours, its] =
                [&quantised, &file].map(|model| vectors(&run(&["embed", "--model", model], texts).0));
            for (found, expected) in its.iter().zip(&ours) {
                let cosine: f64 = found.iter().zip(expected).map(|(a, b)| a * b).sum();
                assert!(cosine > 0.999, "{kind}: {cosine}");
            }
        }
    }

    // Another type of the same folder: its numbers, rounded once more.
    let args = ["export", "gguf", "--model", "bert-q4_0", "--weights", "f32", "--out", "numbers.gguf"];
    let (_, err) = run(&args, "");
    assert!(err.contains("matrices of integers are written as F32: GGUF has no such blocks"), "{err}");
    let (numbers, blocks) = (tensors(&place.join("numbers.gguf")), tensors(&place.join("bert-q4_0.gguf")));
    for (tensor, (kind, bytes)) in &blocks {
        let values = kind.unwrap().decode(bytes);
        assert_eq!(TensorType::F32.decode(&numbers[tensor].1), values, "{tensor}");
    }

    // Integers that GGUF has no blocks for become floats: those with a scale for each output, and smoothed ones with the
    // factors of their inputs.
    let bert = fixture("bert");
    let bert = bert.to_str().unwrap();
    let expected = vectors(&run(&["embed", "--model", bert], texts).0);
    for (out, words) in [
        ("int8", &["--weights", "int8"][..]),
        ("smooth", &["--weights", "q8_0", "--smooth", "--calibrate", "texts.txt"]),
    ] {
        run(&[&["quantize", "--model", bert, "--out", out], words].concat(), "");
        let file = format!("{out}.gguf");
        let (_, err) = run(&["export", "gguf", "--model", out, "--out", &file], "");
        assert!(err.contains("6 matrices of integers are written as F16: GGUF has no such blocks"), "{err}");
        for (found, expected) in vectors(&run(&["embed", "--model", &file], texts).0).iter().zip(&expected) {
            let cosine: f64 = found.iter().zip(expected).map(|(a, b)| a * b).sum();
            assert!(cosine > 0.999, "{out}: {cosine}");
        }
    }
}

#[test]
fn heads_that_layers_lack_are_zeros_in_a_file() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let bert = fixture("bert");
    let folder = place.join("pruned");
    fs::create_dir(&folder).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(bert.join(file), folder.join(file)).unwrap();
    }
    let mut config = BertConfig::new(320, 2, 128);
    (config.d_ff, config.n_heads, config.max_positions) = (64, 4, 64);
    config.pruned_heads = vec![vec![], vec![0, 2]];
    let model = config.init_encoder(&mut ParamInit::new(&Device::flex(), 3).with_std(0.2));
    save_pretrained(&folder, &model, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
    let texts = "The old man sat by the sea.\nSailing boats!\n";
    let run = |args: &[&str], input: &str| {
        let (status, out, err) = cloze(place, args, input);
        assert_eq!(status, 0, "{err}");
        out
    };
    run(&["quantize", "--model", "pruned", "--weights", "q4_0", "--out", "pruned-q4"], "");
    for (model, words, most) in [("pruned", &["--weights", "f32"][..], 1e-5), ("pruned-q4", &[], 0.05)] {
        let file = format!("{model}.gguf");
        run(&[&["export", "gguf", "--model", model, "--out", &file], words].concat(), "");
        let embed = |model: &str| vectors(&run(&["embed", "--model", model, "--pooling", "mean"], texts));
        for (found, expected) in embed(&file).iter().zip(&embed(model)) {
            let scale = expected.iter().fold(0f64, |most, x| most.max(x.abs()));
            let off = found.iter().zip(expected).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(off < most * scale, "{model}: {off} of {scale}");
        }
        let query = &tensors(&place.join(&file))["blk.1.attn_q.weight"];
        let values = query.0.unwrap().decode(&query.1);
        let is_zero = |head: usize| values[head * 32 * 128..(head + 1) * 32 * 128].iter().all(|x| *x == 0.0);
        assert_eq!([0, 1, 2, 3].map(is_zero), [true, false, true, false], "{model}");
    }
    assert_eq!(tensors(&place.join("pruned-q4.gguf"))["blk.1.attn_output.weight"].0, Some(TensorType::Q4_0));
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
    copy("heads", "\"model_type\": \"bert\"", "\"model_type\": \"bert\", \"pruned_heads\": {\"0\": [2]}");
    copy(
        "scheme",
        "\"model_type\": \"bert\"",
        "\"model_type\": \"bert\", \"quantization_config\": {\"quant_method\": \"gptq\"}",
    );
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
        (
            export("heads"),
            1,
            "config.json: `pruned_heads` is {\"0\":[2]}; expected lists of heads from 0 to 1 by layer, from \"0\" to \"0\"",
        ),
        (
            export("scheme"),
            1,
            "`quant_method` is \"gptq\", which is not supported, expected compressed-tensors",
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
