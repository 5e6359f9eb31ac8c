//! Training, from configs to saved models: in one binary, as each one has to instantiate burn anew.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

mod asking;
mod awd_lstm;
mod bench;
mod configs;
mod copying;
mod denoising;
mod elmo;
mod embedding;
mod engine;
mod finetune_answers;
mod finetuning;
mod inspect;
mod language_model;
mod languages;
mod masked_lm;
mod multi30k;
mod notes;
mod permutation;
mod pruning;
mod recurrent;
mod stop_after;
mod tagging;
mod training;
mod translation;

use cloze_model::huggingface::Family;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// burn has one random generator for all of a process's models on the CPU, and `cargo test` has one process for all
/// tests: each test that trains holds this.
fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts around texts what XLNet's tokenizer puts around them, if the checkpoint in the folder is of that family: the
/// special tokens end a text, and the last one is of a segment of its own.
fn frame_for(family: Family, folder: &Path) {
    if family != Family::XLNET {
        return;
    }
    let path = folder.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let special = |token: &str| {
        let id = tokenizer["model"]["vocab"][token].clone();
        assert!(id.is_u64(), "{token}: {id}");
        json!({"id": token, "ids": [id], "tokens": [token]})
    };
    let specials = json!({"[SEP]": special("[SEP]"), "[CLS]": special("[CLS]")});
    let text = |id: &str, segment: usize| json!({"Sequence": {"id": id, "type_id": segment}});
    let token = |id: &str, segment: usize| json!({"SpecialToken": {"id": id, "type_id": segment}});
    tokenizer["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [text("A", 0), token("[SEP]", 0), token("[CLS]", 2)],
        "pair": [text("A", 0), token("[SEP]", 0), text("B", 1), token("[SEP]", 1), token("[CLS]", 2)],
        "special_tokens": specials,
    });
    fs::write(&path, tokenizer.to_string()).unwrap();
}
