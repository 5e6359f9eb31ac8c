//! `bert`: WordPiece on BERT's words. llama.cpp marks the beginning of a word with U+2581, where BERT marks its continuation
//! with `##`.

use super::ends::{Ends, template};
use super::{FolderFile, Pieces, Source, piece, pretty, put_pieces, refuse, text, type_of};
use crate::architecture::Metadata;
use crate::{Result, Value};
use serde_json::{Value as Json, json};

/// What marks a beginning in llama.cpp.
const BEGINNING: char = '\u{2581}';
/// What marks a continuation in BERT.
const CONTINUATION: &str = "##";
const LOWERCASE: &str = "tokenizer.ggml.normalizer.lowercase";
const STRIP_ACCENTS: &str = "tokenizer.ggml.normalizer.strip_accents";

pub(super) fn write(source: &Source, to: &mut Metadata) -> Result<()> {
    let model = &source.json["model"];
    if text(model, "/continuing_subword_prefix") != CONTINUATION {
        let found = text(model, "/continuing_subword_prefix").escape_debug();
        return Err(refuse(format_args!("it marks continuations with `{found}`; expected `{CONTINUATION}`")));
    }
    let (lowercase, strip_accents) = normalizer(source)?;
    let words = &source.json["pre_tokenizer"];
    if text(words, "/type") != "BertPreTokenizer" {
        return Err(refuse(format_args!(
            "it cuts words with {}; expected `BertPreTokenizer`",
            type_of(words)
        )));
    }
    let ends = Ends::of(source)?;
    if ends.first.is_none() || ends.last.is_none() {
        return Err(refuse("it adds no pieces before and after a text, as llama.cpp's always does"));
    }
    ends.check(source, "cls_token", "sep_token")?;

    let (tokens, types) = source.pieces()?;
    let spelt = tokens.into_iter().zip(&types).map(|(token, kind)| match *kind {
        piece::NORMAL | piece::UNUSED => match token.strip_prefix(CONTINUATION) {
            Some(rest) => rest.to_owned(),
            None => format!("{BEGINNING}{token}"),
        },
        _ => token,
    });
    to.put("tokenizer.ggml.model", Value::Text("bert".into()));
    // Other names are for BPE, and llama.cpp reads none here.
    to.put("tokenizer.ggml.pre", Value::Text("default".into()));
    // As in BERT, where these roles have other names.
    let mut config = source.config.clone();
    for (role, like) in [("bos_token", "cls_token"), ("eos_token", "sep_token")] {
        if source.role(role).is_none() {
            config[role] = source.role(like).unwrap_or_default().into();
        }
    }
    if source.role("unk_token").is_none() {
        config["unk_token"] = text(model, "/unk_token").into();
    }
    put_pieces(&Source { config: &config, ..*source }, spelt.collect(), types.clone(), to)?;
    to.put("tokenizer.ggml.add_bos_token", Value::Bool(true));
    to.put("tokenizer.ggml.add_eos_token", Value::Bool(true));
    // Between two texts llama.cpp would put it beside the piece that ends the first, which is the same.
    to.put("tokenizer.ggml.add_sep_token", Value::Bool(false));
    to.put(LOWERCASE, Value::Bool(lowercase));
    to.put(STRIP_ACCENTS, Value::Bool(strip_accents));
    Ok(())
}

/// Whether texts are lower-cased, and lose their accents.
fn normalizer(source: &Source) -> Result<(bool, bool)> {
    let stage = &source.json["normalizer"];
    if text(stage, "/type") != "BertNormalizer" {
        return Err(refuse(format_args!("its normaliser is {}; expected `BertNormalizer`", type_of(stage))));
    }
    for key in ["clean_text", "handle_chinese_chars"] {
        if stage.get(key).and_then(Json::as_bool) == Some(false) {
            return Err(refuse(format_args!("its normaliser has {key} = false; llama.cpp's does it always")));
        }
    }
    let lowercase = stage.get("lowercase").and_then(Json::as_bool).unwrap_or(true);
    Ok((lowercase, stage.get("strip_accents").and_then(Json::as_bool).unwrap_or(lowercase)))
}

pub(super) fn read(pieces: &Pieces, max_len: usize) -> Result<Vec<FolderFile>> {
    // llama.cpp's defaults, the ids of BERT's published vocabularies.
    let id = |roles: [&str; 2], default: usize| {
        for role in roles {
            if let Some(id) = pieces.id(role)? {
                return Ok(id);
            }
        }
        match default < pieces.tokens.len() {
            true => Ok(default),
            false => Err(pieces.refuse(format!("it has no `{}`", roles[0]))),
        }
    };
    let (first, last) = (id(["cls_token", "bos_token"], 101)?, id(["sep_token", "eos_token"], 102)?);
    let unknown = id(["unk_token", "unk_token"], 100)?;
    let special = [first, last, unknown];
    let added = [piece::CONTROL, piece::USER_DEFINED];
    let spelling = |id: usize| -> String {
        let token = &pieces.tokens[id];
        // Earlier converters left all in brackets as it was.
        let bracketed = token.len() > 2 && token.starts_with('[') && token.ends_with(']');
        match token.strip_prefix(BEGINNING) {
            _ if added.contains(&pieces.types[id]) || special.contains(&id) => token.clone(),
            Some(word) => word.to_owned(),
            None if bracketed => token.clone(),
            None => format!("{CONTINUATION}{token}"),
        }
    };
    let file = pieces.file;
    let lowercase = file.flag(LOWERCASE)?.unwrap_or(true);
    let strip_accents = file.flag(STRIP_ACCENTS)?.unwrap_or(lowercase);
    let named = |id: usize| (&*pieces.tokens[id], id);
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": pieces.added(spelling),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": true,
            "strip_accents": strip_accents,
            "lowercase": lowercase,
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": template(Some(named(first)), Some(named(last))),
        "decoder": { "type": "WordPiece", "prefix": CONTINUATION, "cleanup": true },
        "model": {
            "type": "WordPiece",
            "unk_token": pieces.tokens[unknown],
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": 100,
            "vocab": pieces.vocab(spelling)?,
        },
    });
    let mut config = pieces.config("BertTokenizer", Some(max_len))?;
    // BERT has other names for them.
    config.shift_remove("bos_token");
    config.shift_remove("eos_token");
    for (role, id) in [("cls_token", first), ("sep_token", last), ("unk_token", unknown)] {
        config.insert(role.into(), (&*pieces.tokens[id]).into());
    }
    config.insert("do_lower_case".into(), lowercase.into());
    Ok(vec![("tokenizer.json", pretty(&tokenizer)), ("tokenizer_config.json", pretty(&config.into()))])
}
