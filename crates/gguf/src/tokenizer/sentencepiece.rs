//! `llama`: SentencePiece's BPE with byte fallback, which knows the order of merges by the scores of their results.

use super::byte_bpe::merges;
use super::ends::Ends;
use super::{FolderFile, Pieces, Source, piece, pretty, put_pieces, refuse, text, type_of};
use crate::architecture::Metadata;
use crate::{Array, Result, Value};
use serde_json::{Value as Json, json};
use std::collections::HashMap;

/// SentencePiece's symbol for a space.
const SPACE: &str = "\u{2581}";
const SCORES: &str = "tokenizer.ggml.scores";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
const ADD_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
const REMOVE_SPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";

pub(super) fn write(source: &Source, to: &mut Metadata) -> Result<()> {
    let prefix = adds_prefix(source)?;
    let ends = Ends::of(source)?;
    ends.check(source, "bos_token", "eos_token")?;
    let (tokens, mut types) = source.pieces()?;
    let unknown = source.role("unk_token").unwrap_or_else(|| text(source.json, "/model/unk_token"));
    for (token, kind) in tokens.iter().zip(&mut types) {
        if token == unknown {
            *kind = piece::UNKNOWN;
        } else if *kind == piece::NORMAL && is_byte(token) {
            *kind = piece::BYTE;
        }
    }
    // SentencePiece merges the pair whose result has the greatest score; the merges are in that order.
    let merges = merges(&source.json["model"])?;
    let mut ranks = HashMap::with_capacity(merges.len());
    for (rank, merge) in merges.iter().enumerate() {
        ranks.entry(merge.replacen(' ', "", 1)).or_insert(rank);
    }
    let score = |(token, kind): (&String, &i32)| match *kind {
        piece::NORMAL => -(ranks.get(token).copied().unwrap_or(merges.len()) as f32),
        piece::USER_DEFINED | piece::UNUSED => -1000.0,
        _ => 0.0,
    };
    let scores = tokens.iter().zip(&types).map(score).collect();
    to.put("tokenizer.ggml.model", Value::Text("llama".into()));
    to.put("tokenizer.ggml.pre", Value::Text("default".into()));
    put_pieces(source, tokens, types, to)?;
    to.put(SCORES, Value::Array(Array::F32(scores)));
    to.put(ADD_BOS, Value::Bool(ends.first.is_some()));
    to.put(ADD_EOS, Value::Bool(ends.last.is_some()));
    to.put(ADD_PREFIX, Value::Bool(prefix));
    Ok(())
}

/// `<0x0A>`
fn is_byte(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}

/// Whether a space is put before a text.
///
/// # Errors
/// Stages other than SentencePiece's: a prefix, and its symbol in place of each space.
fn adds_prefix(source: &Source) -> Result<bool> {
    let (mut prefix, mut replaces) = (false, false);
    let normalizer = &source.json["normalizer"];
    let stages = match text(normalizer, "/type") {
        "Sequence" => normalizer["normalizers"].as_array().map_or(&[][..], |all| all),
        _ if normalizer.is_null() => &[],
        _ => std::slice::from_ref(normalizer),
    };
    for stage in stages {
        match text(stage, "/type") {
            "Prepend" if text(stage, "/prepend") == SPACE => prefix = true,
            "Replace" if text(stage, "/pattern/String") == " " && text(stage, "/content") == SPACE => {
                replaces = true
            }
            _ => {
                return Err(refuse(format_args!(
                    "its normaliser has the stage {}, which llama.cpp's has not",
                    type_of(stage)
                )));
            }
        }
    }
    let words = &source.json["pre_tokenizer"];
    match text(words, "/type") {
        _ if words.is_null() => {}
        "Metaspace" if text(words, "/replacement") == SPACE && words.get("split") == Some(&json!(false)) => {
            replaces = true;
            prefix |= text(words, "/prepend_scheme") != "never";
        }
        _ => {
            return Err(refuse(format_args!(
                "it cuts words with {}; llama.cpp's `llama` cuts none",
                type_of(words)
            )));
        }
    }
    if !replaces {
        return Err(refuse("it does not put U+2581 in place of spaces, as llama.cpp's `llama` does"));
    }
    Ok(prefix)
}

pub(super) fn read(pieces: &Pieces, max_len: usize) -> Result<Vec<FolderFile>> {
    let file = pieces.file;
    let scores = match file.get(SCORES) {
        Some(Value::Array(Array::F32(scores))) if scores.len() == pieces.tokens.len() => scores,
        _ => return Err(file.wrong(SCORES, format!("a list of {} numbers", pieces.tokens.len()))),
    };
    // Converters that had only a tokenizer.json gave all pieces one score.
    let normal = |id: &usize| pieces.types[*id] == piece::NORMAL;
    let mut distinct = (0..pieces.tokens.len()).filter(normal).map(|id| scores[id]);
    let one = distinct.next();
    if pieces.tokens.len() > 300 && distinct.all(|score| Some(score) == one) {
        return Err(pieces.refuse("all its pieces have one score, so the order of merges is unknown"));
    }
    let unknown = match pieces.id("unk_token")? {
        Some(id) => id,
        None => pieces.types.iter().position(|kind| *kind == piece::UNKNOWN).unwrap_or(0),
    };
    let prefix = file.flag(ADD_PREFIX)?.unwrap_or(true);
    let removes = file.flag(REMOVE_SPACES)?.unwrap_or(false);
    let mut config = pieces.config("LlamaTokenizer", Some(max_len))?;
    for (key, name, default) in [(ADD_BOS, "add_bos_token", true), (ADD_EOS, "add_eos_token", false)] {
        config.insert(name.into(), file.flag(key)?.unwrap_or(default).into());
    }
    // llama.cpp's defaults.
    for (role, id) in [("bos_token", 1), ("eos_token", 2)] {
        if !config.contains_key(role)
            && let Some(token) = pieces.tokens.get(id)
        {
            config.insert(role.into(), (&**token).into());
        }
    }
    config.insert("unk_token".into(), (&*pieces.tokens[unknown]).into());
    let model = protobuf(pieces, scores, unknown, prefix, removes);
    Ok(vec![("tokenizer.model", model), ("tokenizer_config.json", pretty(&Json::Object(config)))])
}

/// A SentencePiece model (`sentencepiece_model.proto`).
fn protobuf(pieces: &Pieces, scores: &[f32], unknown: usize, prefix: bool, removes: bool) -> Vec<u8> {
    let mut to = Vec::new();
    for ((token, kind), score) in pieces.tokens.iter().zip(&pieces.types).zip(scores) {
        let mut message = Vec::new();
        bytes(&mut message, 1, token.as_bytes());
        varint(&mut message, 2 << 3 | 5);
        message.extend(score.to_le_bytes());
        number(&mut message, 3, u64::try_from(*kind).unwrap_or(1));
        bytes(&mut to, 1, &message);
    }
    let mut trainer = Vec::new();
    const BPE: u64 = 2;
    number(&mut trainer, 3, BPE);
    number(&mut trainer, 35, u64::from(pieces.types.contains(&piece::BYTE)));
    number(&mut trainer, 40, unknown as u64);
    bytes(&mut trainer, 45, pieces.tokens[unknown].as_bytes());
    bytes(&mut to, 2, &trainer);
    let mut normalizer = Vec::new();
    number(&mut normalizer, 3, u64::from(prefix));
    number(&mut normalizer, 4, u64::from(removes));
    number(&mut normalizer, 5, 1);
    bytes(&mut to, 3, &normalizer);
    to
}

fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// A whole number, as field `field`.
fn number(to: &mut Vec<u8>, field: u64, value: u64) {
    varint(to, field << 3);
    varint(to, value);
}

/// A text or a message, as field `field`.
fn bytes(to: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(to, field << 3 | 2);
    varint(to, value.len() as u64);
    to.extend(value);
}
