//! `cloze translate` and `cloze generate` with small models of random weights: options, long and empty texts, errors.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{FloatType, save_published};
use cloze_model::seq2seq::{SpecialTokens, TransformerConfig};
use cloze_tokenizer::{MarianTokenizers, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::ran::{self, Ran};

const NAMES: [&str; 12] =
    ["<pad>", "</s>", "<unk>", "<s>", "a", "man", "rides", "the", "bicycle", "red", "sea", "."];

/// A tokenizer of words, which ends texts with a piece if it is given.
fn words(end: Option<&str>) -> Tokenizer {
    words_of(NAMES, end)
}

/// [`words`] of other names.
fn words_of(names: [&str; 12], end: Option<&str>) -> Tokenizer {
    let vocab: serde_json::Map<String, Value> =
        (0..).zip(names).map(|(id, name)| (name.into(), json!(id))).collect();
    let special = |id: usize| {
        json!({ "id": id, "content": names[id], "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
    };
    let post_processor = end.map(|end| {
        json!({
            "type": "TemplateProcessing",
            "single": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "SpecialToken": { "id": end, "type_id": 0 } }],
            "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 0 } }],
            "special_tokens": { end: { "id": end, "ids": [1], "tokens": [end] } },
        })
    });
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0), special(1), special(2), special(3)],
        "normalizer": null, "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": post_processor, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "<unk>" },
    });
    Tokenizer::from_json(&file.to_string()).unwrap()
}

fn run(command: &str, folder: &TempDir, args: &[&str], input: &[u8]) -> Ran {
    let folder = folder.path().to_str().unwrap();
    ran::run(&[&[command, "--model", folder][..], args].concat(), input)
}

#[track_caller]
fn done(command: &str, folder: &TempDir, args: &[&str], input: &str) -> Vec<String> {
    let ran = run(command, folder, args, input.as_bytes());
    assert_eq!(ran.status, 0, "{}", ran.err);
    ran.out.lines().map(str::to_owned).collect()
}

fn language_model() -> TempDir {
    language_model_of(3)
}

/// A language model with the weights of this seed.
fn language_model_of(seed: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    words(Some("</s>")).save(folder.path()).unwrap();
    let mut config = GptConfig::gpt2(12, 2, 32);
    config.max_positions = 24;
    (config.begin_token_id, config.end_token_id, config.init_std) = (Some(3), Some(1), 0.7);
    let model = config.init(&mut ParamInit::new(&Device::flex(), seed).with_std(0.7));
    save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
    folder
}

const PROMPTS: &str = "a man rides the\nthe sea\na red sea\n";

#[test]
fn words_that_a_folder_forbids_are_not_written() {
    let folder = language_model();
    let words = |folder: &TempDir| {
        let lines = done("generate", folder, &["--min-new", "8", "--max-new", "8"], "a man\n");
        lines[0].split_whitespace().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let written = words(&folder);
    let first = NAMES.iter().position(|name| *name == written[0]).unwrap();
    let settings = json!({ "eos_token_id": 1, "bad_words_ids": [[first]] });
    fs::write(folder.path().join("generation_config.json"), settings.to_string()).unwrap();
    let others = words(&folder);
    assert!(!others.is_empty() && !others.contains(&written[0]), "{others:?}");
}

#[test]
fn texts_go_on() {
    let folder = language_model();
    let generate = |args: &[&str], input: &str| done("generate", &folder, args, input);
    let alone: Vec<String> = PROMPTS.lines().flat_map(|line| generate(&[], &format!("{line}\n"))).collect();
    assert_eq!(alone.len(), 3);
    for (line, prompt) in alone.iter().zip(PROMPTS.lines()) {
        assert!(line.starts_with(prompt) && !line.contains("</s>"), "{line}");
    }
    for batch in ["1", "3", "100"] {
        assert_eq!(generate(&["--batch", batch], PROMPTS), alone);
    }
    assert_eq!(generate(&["a man rides the", "the sea", "a red sea"], ""), alone);
    // A blank line is no text, but an empty text of the command line is what its writer asks for.
    assert_eq!(generate(&["--batch", "2"], "a man rides the\n\n \t\nthe sea\na red sea\n\n"), alone);
    assert!(generate(&[], "\n \n").is_empty());
    assert_eq!(generate(&[""], "").len(), 1);
    let n_words = |line: &String| line.split_whitespace().count();
    assert!(generate(&["--max-new", "2"], "a man\n").iter().all(|line| n_words(line) <= 4));
    let found = generate(&["--max-new", "3", "--min-new", "3", "--json"], "a man\n");
    let found: Value = serde_json::from_str(&found[0]).unwrap();
    assert_eq!(found["continuations"][0]["tokens"], 3);
    for other in [&["--int8"][..], &["--precision", "bf16"], &["--beam", "3"], &["--no-repeat-ngram", "2"]] {
        assert_eq!(generate(other, PROMPTS).len(), 3);
    }
    assert!(generate(&[], "").is_empty());
    // A text that is one token has nothing behind it to see.
    let both = generate(&["--bidirectional-prompt"], PROMPTS);
    assert_ne!(both, alone, "longer texts are read otherwise");
    assert_eq!(generate(&["--bidirectional-prompt"], "sea\n"), generate(&[], "sea\n"));
}

#[test]
fn a_seed_and_a_text_give_the_same_samples() {
    let folder = language_model();
    let sample = |args: &[&str], input: &str| {
        done("generate", &folder, &[&["--temperature", "1.5", "--max-new", "8"], args].concat(), input)
    };
    let three = ["--n-best", "3"];
    let all = sample(&three, PROMPTS);
    assert_eq!(all.len(), 9);
    for (place, line) in PROMPTS.lines().enumerate() {
        assert_eq!(sample(&three, &format!("{line}\n")), all[3 * place..][..3]);
    }
    assert_ne!(sample(&["--n-best", "3", "--seed", "9"], PROMPTS), all);
    // The settings that draw are settings each by itself.
    for args in [&["--top-k", "3"][..], &["--top-p", "0.5"], &["--min-p", "0.2"]] {
        assert_eq!(done("generate", &folder, &[args, &["--n-best", "2"]].concat(), "the sea\n").len(), 2);
    }
    let found = done("generate", &folder, &["--json", "--top-p", "0.9", "--n-best", "2", "the sea"], "");
    let found: Value = serde_json::from_str(&found[0]).unwrap();
    assert_eq!(found["text"], "the sea");
    let continuations = found["continuations"].as_array().unwrap();
    assert_eq!(continuations.len(), 2);
    for continuation in continuations {
        assert!(
            continuation["log_probability"].as_f64().unwrap() < 0.0 && continuation["ended"].is_boolean()
        );
    }
}

#[test]
fn long_texts_and_wrong_settings() {
    let folder = language_model();
    let ran = run("generate", &folder, &["--max-new", "4"], "a man ".repeat(10_000).as_bytes());
    assert_eq!(ran.status, 0, "{}", ran.err);
    // 20 of 24 positions are the text's.
    assert!(ran.err.starts_with("the first 19,98"), "{}", ran.err);
    let told = " tokens of a text were dropped: the model has 24 positions, for a text and what is written; a smaller --max-new \
                keeps more of the text\n";
    assert!(ran.err.contains(" of 20,00") && ran.err.ends_with(told), "{}", ran.err);
    let two = run(
        "generate",
        &folder,
        &["--max-new", "4"],
        format!("{0}\na man\n{0}\n", "a ".repeat(30)).as_bytes(),
    );
    assert!(two.err.starts_with("2 of 3 texts lost their beginnings, "), "{}", two.err);
    let ran = run("generate", &folder, &["--max-new", "400", "--min-new", "400", "--json"], b"a man\n");
    assert!(ran.err.starts_with("1 continuation ends where the model's positions do"), "{}", ran.err);
    for (args, input, expected) in [
        (
            &["--n-best", "2"][..],
            &b"a\n"[..],
            "`--n-best` is 2; expected 1 without a beam and without sampling",
        ),
        (&["--temperature", "-1"], b"a\n", "`--temperature` is -1; expected a positive number"),
        (&["--temperature", "0"], b"a\n", "`--temperature` is 0; expected a positive number"),
        (&["--top-p", "1.5"], b"a\n", "`--top-p` is 1.5; expected above 0 and at most 1"),
        (&["--repetition-penalty", "-1"], b"a\n", "`--repetition-penalty` is -1"),
        (&["--max-line-bytes", "3"], b"a man\n", "longer than `--max-line-bytes` = 3"),
        (&[], b"a\n\xff\n", "standard input, line 2"),
    ] {
        let args: Vec<&str> = args.to_vec();
        let ran = run("generate", &folder, &args, input);
        assert_eq!(ran.status, if expected.starts_with('`') { 2 } else { 1 }, "{args:?} {}", ran.err);
        let is_line = ran.err.starts_with("error: ") && ran.err.lines().count() == 1;
        assert!(is_line && ran.err.contains(expected), "{}", ran.err);
    }
    // In the spelling that was used.
    let ran = run("generate", &folder, &["--n", "2"], b"a\n");
    assert!(ran.error_line(2).contains("`--n` is 2; expected 1 without a beam"), "{}", ran.err);
    let ran = run("generate", &folder, &["--n", "two"], b"a\n");
    assert!(ran.error_line(2).contains("for '--n <N>'"), "{}", ran.err);
    // Wrong usage.
    assert_eq!(run("generate", &folder, &["--beam", "2", "--top-k", "3"], b"a\n").status, 2);
}

fn translator() -> TempDir {
    translator_of(3)
}

/// A translator with the weights of this seed.
fn translator_of(seed: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    words(Some("</s>")).save(folder.path()).unwrap();
    let config = TransformerConfig::new(12, 2, 16).with_d_ff(24);
    let config =
        config.with_heads(2).with_max_positions(16).with_tokens(SpecialTokens::new(0, 1).with_bos(3));
    let model = config.init(&mut ParamInit::new(&Device::flex(), seed).with_std(0.7));
    save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
    folder
}

const SOURCES: &str = "a man rides the bicycle .\n\nthe sea\na red sea , the man\n";

#[test]
fn a_line_has_a_translation() {
    let folder = translator();
    let alone: Vec<String> =
        SOURCES.lines().flat_map(|line| done("translate", &folder, &[], &format!("{line}\n"))).collect();
    for batch in ["1", "2", "100"] {
        assert_eq!(done("translate", &folder, &["--batch", batch], SOURCES), alone);
    }
    assert_eq!((alone.len(), alone[1].as_str()), (4, ""));
    assert!(
        alone.iter().all(|line| !line.contains("</s>") && !line.contains("<pad>") && !line.contains("<s>"))
    );
    assert!(alone[0].split(' ').count() <= 2 * 7 + 10);
    assert!(done("translate", &folder, &[], "").is_empty());

    let short = done("translate", &folder, &["--max-new", "2"], SOURCES);
    assert!(short.iter().all(|line| line.split_whitespace().count() <= 2));
    let prefixed = done("translate", &folder, &["--prefix", "the red", "--beam", "3"], SOURCES);
    assert!(prefixed.iter().all(|line| line.starts_with("the red")), "{prefixed:?}");
    for other in [&["--int8"][..], &["--precision", "bf16"], &["--beam", "1"], &["--penalty", "gnmt"]] {
        assert_eq!(done("translate", &folder, other, SOURCES).len(), 4);
    }
}

/// A folder as the OPUS-MT models have it: no `tokenizer.json`, but two SentencePiece models and one vocabulary.
fn opus() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tokenizers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tokenizer/tests/data/marian/joint");
    for entry in fs::read_dir(tokenizers).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let size = MarianTokenizers::load(folder.path()).unwrap().source.vocab_size();
    let config = TransformerConfig::new(size, 2, 16).with_d_ff(24).with_heads(2).with_max_positions(24);
    let config = config.with_tokens(SpecialTokens::new(size - 1, 0));
    let model = config.init(&mut ParamInit::new(&Device::flex(), 3).with_std(0.7));
    save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
    folder
}

#[test]
fn a_folder_of_marians_needs_nothing_more() {
    let folder = opus();
    let found = done("translate", &folder, &["--json"], ">>fr<< The old sea\n\n \t \nships ☃\n");
    assert_eq!(found.len(), 4);
    let tokenizers = MarianTokenizers::load(folder.path()).unwrap();
    for (line, is_empty) in found.iter().zip([false, true, true, false]) {
        let found: Value = serde_json::from_str(line).unwrap();
        let translation = &found["translations"][0];
        let pieces: Vec<&str> =
            translation["tokens"].as_array().unwrap().iter().map(|x| x.as_str().unwrap()).collect();
        assert_eq!(pieces.is_empty(), is_empty);
        let ids: Vec<u32> =
            pieces.iter().map(|piece| tokenizers.target.token_to_id(piece).unwrap()).collect();
        let text = tokenizers.target.decode(&ids, true).unwrap();
        assert_eq!(translation["text"].as_str().unwrap(), text);
        assert!(!text.contains('▁') && !text.contains("</s>"), "{text}");
    }
    // What translations begin with is cut as the target's language is.
    let prefixed = done("translate", &folder, &["--prefix", "la mer"], "The sea\n");
    assert!(prefixed[0].starts_with("la mer"), "{prefixed:?}");
    // A text whose first megabyte is enough.
    let long = format!("{}\n", "The old sea ".repeat(100_000));
    let ran = run("translate", &folder, &["--max-new", "2"], long.as_bytes());
    assert_eq!((ran.status, ran.out.lines().count()), (0, 1), "{}", ran.err);
}

/// A folder with a tokenizer for each language, and `translation.json`.
fn two_sided() -> TempDir {
    let folder = translator();
    for side in ["source", "target"] {
        let side = folder.path().join(side);
        fs::create_dir(&side).unwrap();
        words(Some("</s>")).save(&side).unwrap();
    }
    for name in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    let file = json!({ "source": "en", "target": "de", "max_len": 5 });
    fs::write(folder.path().join("translation.json"), file.to_string()).unwrap();
    folder
}

/// A T5 of transformers.
fn t5() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/t5_translation");
    for entry in fs::read_dir(fixture).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

#[test]
fn a_converted_folder_says_the_same() {
    for (command, folder) in [
        ("translate", opus()),
        ("translate", translator()),
        ("translate", two_sided()),
        ("translate", t5()),
        ("generate", language_model()),
    ] {
        // A setting of decoding that no configuration has.
        let path = folder.path().join("generation_config.json");
        let settings = fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
        let mut settings: Value = serde_json::from_str(&settings).unwrap();
        settings["max_new_tokens"] = 7.into();
        fs::write(&path, settings.to_string()).unwrap();
        let out = tempfile::tempdir().unwrap();
        run("convert", &folder, &["--out", out.path().to_str().unwrap()], b"").done();
        let said = done(command, &folder, &["--beam", "2"], SOURCES);
        assert_eq!(done(command, &out, &["--beam", "2"], SOURCES), said);
        assert!(said.iter().any(|line| !line.is_empty()));
        let files = |folder: &TempDir| {
            let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            names.map(|name| name.into_string().unwrap()).collect::<BTreeSet<_>>()
        };
        // The fixture's own expectations are no part of a model.
        let left = files(&folder).difference(&files(&out)).cloned().collect::<Vec<_>>();
        assert!(left.iter().all(|name| ["expected.json", "export.py"].contains(&name.as_str())), "{left:?}");
        assert_eq!(fs::read(out.path().join("generation_config.json")).unwrap(), fs::read(&path).unwrap());
    }
    // Marian's files are as they were, and transformers finds no tokenizer.json that it would take for both languages.
    let (folder, out) = (opus(), tempfile::tempdir().unwrap());
    run("convert", &folder, &["--out", out.path().to_str().unwrap(), "--dtype", "bf16"], b"").done();
    for name in ["source.spm", "target.spm", "vocab.json", "tokenizer_config.json"] {
        assert_eq!(fs::read(out.path().join(name)).unwrap(), fs::read(folder.path().join(name)).unwrap());
    }
    assert!(!out.path().join("tokenizer.json").exists());
}

#[test]
fn lists_of_the_best_and_alignments() {
    let folder = translator();
    let lines = done(
        "translate",
        &folder,
        &["--n-best", "3", "--alignment", "--beam", "4"],
        "a man rides\nthe sea\n",
    );
    assert_eq!(lines.len(), 6);
    for (i, line) in lines.iter().enumerate() {
        let parts: Vec<&str> = line.split(" |||").collect();
        assert_eq!((parts.len(), parts[0]), (4, if i < 3 { "1" } else { "2" }));
        let n_words = [3, 2][i / 3];
        for (target, pair) in parts[3].split_whitespace().enumerate() {
            let (source, other) = pair.split_once('-').unwrap();
            assert!(source.parse::<usize>().unwrap() < n_words && other == target.to_string(), "{line}");
        }
    }
    let score = |line: &String| {
        line.split(" ||| ").nth(2).unwrap().split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(score(&lines[0]) >= score(&lines[1]) && score(&lines[1]) >= score(&lines[2]));

    let lines = done("translate", &folder, &["--json", "--alignment", "--n-best", "2"], "a man rides\n");
    let found: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(found["source"], "a man rides");
    let translations = found["translations"].as_array().unwrap();
    assert_eq!(translations.len(), 2);
    for translation in translations {
        let n_words = translation["text"].as_str().unwrap().split_whitespace().count();
        let weights = translation["weights"].as_array().unwrap();
        assert_eq!(weights.len(), n_words);
        for row in weights {
            let row: Vec<f64> = row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            assert!(row.len() == 3 && row.iter().sum::<f64>() <= 1.0 + 1e-5);
        }
    }
}

/// Runs a command with several models.
fn run_together(command: &str, folders: &[&TempDir], args: &[&str], input: &str) -> Ran {
    let models = folders.iter().flat_map(|folder| ["--model", folder.path().to_str().unwrap()]);
    ran::run(&[&[command][..], &models.collect::<Vec<&str>>(), args].concat(), input.as_bytes())
}

/// The texts, and their scores.
fn scored(command: &str, folders: &[&TempDir], args: &[&str], input: &str) -> Vec<(String, f64)> {
    let ran = run_together(command, folders, &[&["--json"], args].concat(), input);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let answers = ran.out.lines().map(|line| {
        let answer: Value = serde_json::from_str(line).unwrap();
        let texts = if command == "translate" { "translations" } else { "continuations" };
        (answer[texts][0]["text"].as_str().unwrap().to_owned(), answer[texts][0]["score"].as_f64().unwrap())
    });
    answers.collect()
}

#[test]
fn several_models_write_together() {
    // The second model has a tokenizer of its own for sources.
    let other = translator_of(5);
    for (side, names) in [
        ("target", NAMES),
        ("source", {
            let mut names = NAMES;
            names[4..].reverse();
            names
        }),
    ] {
        let side = other.path().join(side);
        fs::create_dir(&side).unwrap();
        words_of(names, Some("</s>")).save(&side).unwrap();
    }
    fs::write(
        other.path().join("translation.json"),
        json!({ "source": "en", "target": "de", "max_len": 20 }).to_string(),
    )
    .unwrap();
    for (command, input, first, second) in [
        ("translate", SOURCES, translator(), other),
        ("generate", PROMPTS, language_model(), language_model_of(5)),
    ] {
        let alone = [&first, &second].map(|folder| scored(command, &[folder], &[], input));
        let mut means = Vec::new();
        for mean in ["log", "probability"] {
            let args = ["--mean", mean];
            let twice = scored(command, &[&first, &first], &args, input);
            for ((text, score), (expected, expected_score)) in twice.iter().zip(&alone[0]) {
                assert_eq!(text, expected);
                assert!((score - expected_score).abs() < 1e-4, "{score} {expected_score}");
            }
            let both = scored(command, &[&first, &second], &args, input);
            assert!(both != alone[0] && both != alone[1], "{both:?}");
            for batch in ["1", "3"] {
                let args = [&args[..], &["--batch", batch]].concat();
                assert_eq!(scored(command, &[&first, &second], &args, input), both);
            }
            means.push(both);
        }
        assert_ne!(means[0], means[1]);
        // One model has no mean with others.
        let alone = run(command, &first, &["--mean", "probability"], input.as_bytes());
        let line = alone.error_line(2);
        assert!(
            line.contains("--mean combines several models: repeat --model, or leave --mean out"),
            "{line}"
        );
    }
    // Of two models, the one that is of another kind is named.
    let (first, second) = (translator(), language_model());
    words(None).save(second.path()).unwrap();
    let failed = run_together("translate", &[&first, &second], &[], SOURCES);
    let line = failed.error_line(2);
    assert!(line.contains(second.path().to_str().unwrap()), "{line}");
}

#[test]
fn only_the_candidates_are_written() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "man\nred\n").unwrap();
    let args = ["--candidates", file.path().to_str().unwrap()];
    for (command, folder, input, n_skipped) in
        [("translate", translator(), "a red man\n", 0), ("generate", language_model(), "a red man\n", 3)]
    {
        let lines = done(command, &folder, &args, input);
        let written: Vec<&str> = lines[0].split_whitespace().skip(n_skipped).collect();
        assert!(written.iter().all(|word| ["man", "red"].contains(word)), "{command}: {lines:?}");
        assert_ne!(lines, done(command, &folder, &[], input));
        fs::write(file.path(), "man\nwhale\n").unwrap();
        let ran = run(command, &folder, &args, input.as_bytes());
        let expected = format!("error: {}, line 2: \"whale\" is not a piece", file.path().display());
        assert!(
            ran.status == 1 && ran.err.starts_with(&expected) && ran.err.lines().count() == 1,
            "{}",
            ran.err
        );
        fs::write(file.path(), "man\nred\n").unwrap();
    }
}

#[test]
fn models_that_cannot_write_together_are_named() {
    let (first, second) = (translator(), translator_of(5));
    let other_words = translator_of(5);
    let mut names = NAMES;
    (names[10], names[11]) = ("whale", "sea");
    words_of(names, Some("</s>")).save(other_words.path()).unwrap();
    let other_end = translator_of(5);
    fs::write(other_end.path().join("generation_config.json"), json!({ "eos_token_id": 11 }).to_string())
        .unwrap();
    let (writer, other_writer) = (language_model(), language_model_of(5));
    words_of(names, Some("</s>")).save(other_writer.path()).unwrap();
    let missing = tempfile::tempdir().unwrap();
    let name = |folder: &TempDir| folder.path().display().to_string();
    let pieces = |first: &TempDir, second: &TempDir| {
        format!("{}: the piece 10 is \"whale\", but in {} it is \"sea\"", name(second), name(first))
    };
    for (command, folders, expected) in [
        ("translate", [&first, &other_words], pieces(&first, &other_words)),
        ("generate", [&writer, &other_writer], pieces(&writer, &other_writer)),
        (
            "translate",
            [&first, &other_end],
            format!(
                "{}: texts end with \".\", but in {} they end with \"</s>\"",
                name(&other_end),
                name(&first)
            ),
        ),
        ("translate", [&first, &writer], "`model_type` is \"gpt2\", expected a translation model's".into()),
        ("generate", [&writer, &second], "`model_type` is ".into()),
        ("translate", [&first, &missing], name(&missing)),
    ] {
        let ran = run_together(command, &folders, &[], "the sea\n");
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{}", ran.err);
        assert!(
            ran.err.lines().count() == 1 && ran.err.contains(&expected),
            "{}, expected {expected}",
            ran.err
        );
    }
}

#[test]
fn unknown_pieces_become_the_sources_words() {
    let folder = translator();
    let args = ["--prefix", "zzz zzz", "--max-new", "1", "--replace-unknown"];
    let found = done("translate", &folder, &args, "blue whale\n");
    let first: Vec<&str> = found[0].split(' ').take(2).collect();
    assert!(first.iter().all(|word| ["blue", "whale"].contains(word)), "{found:?}");
}

#[test]
fn long_lines_and_bad_ones() {
    let folder = translator();
    let long = format!("{}\nthe sea\n", "a man ".repeat(5_000));
    let ran = run("translate", &folder, &[], long.as_bytes());
    assert_eq!((ran.status, ran.out.lines().count()), (0, 2), "{}", ran.err);
    let said = "1 of 2 lines are longer than 16 tokens and were translated without their ends\n";
    assert!(ran.err.ends_with(said), "{}", ran.err);
    // Longer than a line may be: its beginning is enough.
    let ran = run("translate", &folder, &["--max-line-bytes", "200"], long.as_bytes());
    assert!(ran.status == 0 && ran.err.ends_with(said), "{}", ran.err);
    for (args, input, expected) in [
        (&[][..], &b"a man\nthe \xff\na\n"[..], "standard input, line 2"),
        (&["--max-line-bytes", "4"], b"a man\n", "longer than `--max-line-bytes` = 4"),
        (
            &["--n-best", "7", "--beam", "3"],
            b"a\n",
            "`--n-best` is 7; expected at most the number of beams, 3",
        ),
        (
            &["--groups", "2", "--beam", "3"],
            b"a\n",
            "`--groups` is 2; expected a divisor of the number of beams, 3",
        ),
        (&["--length-penalty", "nan"], b"a\n", "`--length-penalty` is NaN"),
    ] {
        let ran = run("translate", &folder, args, input);
        assert_eq!(ran.status, if expected.starts_with('`') { 2 } else { 1 }, "{}", ran.err);
        assert!(
            ran.err.starts_with("error: ") && ran.err.lines().count() == 1 && ran.err.contains(expected),
            "{}",
            ran.err
        );
    }
    // The lines before a bad one are translated.
    assert_eq!(run("translate", &folder, &[], b"a man\nthe \xff\n").out.lines().count(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_grow_with_the_input() {
    let place = tempfile::tempdir().unwrap();
    let input = |text: String| {
        let path = place.path().join("text");
        fs::write(&path, text).unwrap();
        Some(fs::File::open(path).unwrap())
    };
    for (folder, command) in
        [(translator(), "translate"), (opus(), "translate"), (language_model(), "generate")]
    {
        let args = [command, "--model", folder.path().to_str().unwrap(), "--max-new", "1", "--beam", "1"];
        let short = crate::peak::of(&args, input("a man\n".to_owned()));
        // What generate goes on from is the end of a line, so that it has to fit.
        let longest = if command == "translate" { 32 << 20 } else { 1 << 19 };
        for text in ["a man ".repeat(longest / 6) + "\n", "a\n".repeat(6_000)] {
            let n = text.len();
            let grown = crate::peak::of(&args, input(text)).saturating_sub(short);
            println!("{command}, {n} bytes: {grown} kB");
            assert!(grown < 100_000, "{command}, {n} bytes: {grown} kB");
        }
    }
}
