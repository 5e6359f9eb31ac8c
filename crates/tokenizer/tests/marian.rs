//! Marian's tokenizers beside transformers' `MarianTokenizer`: ids of odd texts in both languages, decoded texts, and
//! what is wrong with folders.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use cloze_tokenizer::{MarianTokenizers, Sequence, Tokenizer, Truncation};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(untagged)]
enum Expected {
    Text { folder: String, text: String, source: Vec<u32>, target: Vec<u32>, decoded: String },
    Ids { folder: String, ids: Vec<u32>, skipped: String, whole: String },
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/marian")
}

fn load(folder: &str) -> MarianTokenizers {
    MarianTokenizers::load(data().join(folder)).unwrap()
}

#[test]
fn ids_and_texts_are_those_of_transformers() {
    let expected = fs::read_to_string(data().join("expected.json")).unwrap();
    let expected: Vec<Expected> = serde_json::from_str(&expected).unwrap();
    let (joint, separate) = (load("joint"), load("separate"));
    let of = |folder: &str| if folder == "joint" { &joint } else { &separate };
    let mut n = [0; 2];
    for expected in expected {
        match expected {
            Expected::Text { folder, text, source, target, decoded } => {
                let tokenizers = of(&folder);
                for (tokenizer, ids, side) in
                    [(&tokenizers.source, source, "source"), (&tokenizers.target, target, "target")]
                {
                    let encoding = tokenizer.encode(&text, true).unwrap();
                    assert_eq!(encoding.ids, ids, "{folder}, {side}: {text:?} {:?}", encoding.tokens);
                    assert_eq!(tokenizer.encode_ids(&text, true).unwrap(), ids, "{folder}, {side}: {text:?}");
                    let again = Tokenizer::from_json(&tokenizer.to_json()).unwrap();
                    assert_eq!(again.encode(&text, true).unwrap(), encoding, "{folder}, {side}: {text:?}");
                    for (start, end) in encoding.offsets {
                        assert!(text.get(start..end).is_some(), "{text:?}: {start}..{end}");
                    }
                    if side == "target" {
                        assert_eq!(tokenizer.decode(&ids, true).unwrap(), decoded, "{folder}: {text:?}");
                    }
                }
                n[0] += 1;
            }
            Expected::Ids { folder, ids, skipped, whole } => {
                let tokenizer = &of(&folder).target;
                assert_eq!(tokenizer.decode(&ids, true).unwrap(), skipped, "{folder}: {ids:?}");
                assert_eq!(tokenizer.decode(&ids, false).unwrap(), whole, "{folder}: {ids:?}");
                n[1] += 1;
            }
        }
    }
    assert!(n[0] > 60 && n[1] > 40, "{n:?}");
}

#[test]
fn a_folder_is_the_sources_tokenizer() {
    let folder = data().join("joint");
    assert!(MarianTokenizers::are_in(&folder) && !MarianTokenizers::are_in(data()));
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let source = load("joint").source;
    for text in ["The old sea", ">>fr<< sea"] {
        assert_eq!(tokenizer.encode(text, true).unwrap(), source.encode(text, true).unwrap());
    }
    assert_eq!(tokenizer.config().model_max_length, Some(512));
    let special = tokenizer.special_ids();
    assert_eq!((special.unk, special.pad), (Some(1), Some(tokenizer.vocab_size() as u32 - 1)));
}

/// Of a long text no more is read than decides what is left of it, which is the same.
#[test]
fn long_texts_are_read_as_far_as_needed() {
    let mut cut = load("joint").source;
    cut.set_truncation(Some(Truncation::to(40))).unwrap();
    let mut reading = cut.clone();
    reading.set_keep_overflow(false);
    for text in [">>fr<< The old  sailor, sails …. ", "A\u{30a}e\u{301}☃ ▁", "</s>>>fr<<sea </s>"] {
        let text = text.repeat(2_000);
        let ids = cut.encode(&text, true).unwrap().ids;
        assert_eq!(ids.len(), 40);
        assert_eq!(reading.encode(&text, true).unwrap().ids, ids);
        assert_eq!(reading.encode_ids(&text, true).unwrap(), ids);
    }
    let text = "The old sea. ".repeat(1_000);
    let beginning = [Sequence::Beginning(&text)];
    let encoding = &reading.encode_inputs(&beginning, true, cloze_tokenizer::OffsetUnit::Bytes).unwrap()[0];
    assert_eq!(encoding.ids, cut.encode(&text, true).unwrap().ids);
}

#[test]
fn what_is_wrong_with_a_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let restore = || {
        for entry in fs::read_dir(data().join("joint")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), path(entry.file_name().to_str().unwrap())).unwrap();
        }
    };
    let error = || {
        let error = MarianTokenizers::load(folder.path()).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        restore();
        format!("{error}: {source}")
    };
    restore();
    assert!(MarianTokenizers::load(folder.path()).is_ok());
    fs::write(path("vocab.json"), r#"{"</s>": 0, "<pad>": 1}"#).unwrap();
    let message = error();
    assert!(message.contains("vocab.json") && message.contains("there is no \"<unk>\""), "{message}");
    fs::write(path("vocab.json"), r#"{"</s>": 0, "<unk>": 1}"#).unwrap();
    assert!(error().contains("there is no \"<pad>\""));
    fs::write(path("vocab.json"), r#"{"</s>": 0, "<unk>": 0}"#).unwrap();
    assert!(error().contains("both have id 0"));
    fs::write(path("source.spm"), "no model").unwrap();
    assert!(error().contains("source.spm"));
    let bpe = data().join("../sentencepiece/bpe.model");
    fs::copy(bpe, path("target.spm")).unwrap();
    let message = error();
    assert!(message.contains("target.spm") && message.contains("expected 1 (UNIGRAM)"), "{message}");
    fs::write(path("tokenizer_config.json"), r#"{"separate_vocabs": true}"#).unwrap();
    assert!(error().contains("target_vocab.json"));
    fs::write(path("tokenizer_config.json"), r#"{"separate_vocabs": 3}"#).unwrap();
    assert!(error().contains("tokenizer_config.json"));
    // Damage anywhere ends in an error or a tokenizer that works.
    let model = fs::read(path("source.spm")).unwrap();
    for at in (0..model.len()).step_by(7) {
        let mut bytes = model.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(path("source.spm"), bytes).unwrap();
        if let Ok(tokenizers) = MarianTokenizers::load(folder.path()) {
            tokenizers.source.encode(">>fr<< a ship, e\u{301} ☃", true).unwrap();
        }
    }
}
