//! `gpt2`: BPE of bytes.

use super::ends::{Ends, template};
use super::splits::Split;
use super::{FolderFile, Pieces, Source, pretty, put_pieces, refuse, text, type_of};
use crate::architecture::Metadata;
use crate::{Array, Result, Value};
use serde_json::{Value as Json, json};

const MERGES: &str = "tokenizer.ggml.merges";
const PRE: &str = "tokenizer.ggml.pre";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";

pub(super) fn write(source: &Source, to: &mut Metadata, notes: &mut Vec<String>) -> Result<()> {
    let model = &source.json["model"];
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if !text(model, &format!("/{key}")).is_empty() {
            return Err(refuse(format_args!("its BPE has `{key}`, which llama.cpp's has not")));
        }
    }
    if !source.json["normalizer"].is_null() {
        let stage = type_of(&source.json["normalizer"]);
        return Err(refuse(format_args!("its normaliser is {stage}; llama.cpp's BPE has none")));
    }
    let words = &source.json["pre_tokenizer"];
    let Some(split) = Split::of(words) else {
        return Err(refuse(format_args!(
            "llama.cpp has no name for how it cuts words ({}); expected GPT-2's, Llama 3's, Qwen 2's or SmolLM's expression",
            type_of(words)
        )));
    };
    let ignores = model.get("ignore_merges").and_then(Json::as_bool).unwrap_or(false);
    if ignores != split.ignores_merges() {
        let (here, there) = if ignores { ("", " not") } else { (" not", "") };
        notes.push(format!(
            "words that are pieces are{here} taken as they are by this tokenizer, and are{there} by llama.cpp's `{}`",
            split.name()
        ));
    }
    let ends = Ends::of(source)?;
    ends.check(source, "bos_token", "eos_token")?;
    let (tokens, types) = source.pieces()?;
    to.put("tokenizer.ggml.model", Value::Text("gpt2".into()));
    to.put(PRE, Value::Text(split.name().into()));
    put_pieces(source, tokens, types, to)?;
    to.put(MERGES, Value::Array(Array::Text(merges(model)?)));
    to.put(ADD_BOS, Value::Bool(ends.first.is_some()));
    to.put(ADD_EOS, Value::Bool(ends.last.is_some()));
    Ok(())
}

/// The merges of a `tokenizer.json` of any version, each as two pieces with a space between them.
pub(super) fn merges(model: &Json) -> Result<Vec<String>> {
    let all = model.get("merges").and_then(Json::as_array).map_or(&[][..], |all| all);
    let merge = |merge: &Json| match merge {
        Json::String(text) => Some(text.clone()),
        Json::Array(pair) => match &**pair {
            [Json::String(a), Json::String(b)] if !a.contains(' ') && !b.contains(' ') => {
                Some(format!("{a} {b}"))
            }
            _ => None,
        },
        _ => None,
    };
    all.iter()
        .map(|found| {
            merge(found)
                .ok_or_else(|| refuse(format_args!("the merge {found} is not two pieces without spaces")))
        })
        .collect()
}

pub(super) fn read(pieces: &Pieces, max_len: usize) -> Result<Vec<FolderFile>> {
    let file = pieces.file;
    let split = match file.text(PRE)? {
        // Files from before there were names.
        None if file.text("general.architecture")? == Some("gpt2") => Split::Gpt2,
        name => Split::named(name.unwrap_or_default())
            .ok_or_else(|| file.wrong(PRE, format!("one of {}: others are not supported", Split::names())))?,
    };
    let merges = file.needed(MERGES, "the merges of BPE", file.texts(MERGES))?;
    if let Some(wrong) =
        merges.iter().find(|merge| merge.split(' ').count() != 2 || merge.split(' ').any(str::is_empty))
    {
        let wrong = wrong.escape_debug();
        return Err(pieces.refuse(format!("the merge `{wrong}` is not two pieces with a space between them")));
    }
    let adds = |key: &str, role: &str, default: bool| {
        if !file.flag(key)?.unwrap_or(default) {
            return Ok(None);
        }
        match pieces.id(role)? {
            Some(id) => Ok(Some((&*pieces.tokens[id], id))),
            None => Err(pieces.refuse(format!("`{key}` is true, and there is no `{role}`"))),
        }
    };
    // llama.cpp's defaults.
    let first = adds(ADD_BOS, "bos_token", split == Split::Llama3)?;
    let last = adds(ADD_EOS, "eos_token", false)?;
    let bytes =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let post_processor = match (first, last) {
        (None, None) => bytes.clone(),
        _ => json!({ "type": "Sequence", "processors": [bytes, template(first, last)] }),
    };
    let spelling = |id: usize| pieces.tokens[id].clone();
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": pieces.added(spelling),
        "normalizer": null,
        "pre_tokenizer": split.stage(),
        "post_processor": post_processor,
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": split.ignores_merges(),
            "vocab": pieces.vocab(spelling)?,
            "merges": merges,
        },
    });
    let config = pieces.config("PreTrainedTokenizerFast", Some(max_len))?;
    Ok(vec![("tokenizer.json", pretty(&tokenizer)), ("tokenizer_config.json", pretty(&config.into()))])
}
