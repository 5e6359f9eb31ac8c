//! Tokenizers: a folder's `tokenizer.json` and the keys `tokenizer.ggml.*` of a file.
//!
//! llama.cpp has three that this crate knows: `bert` (WordPiece), `gpt2` (BPE of bytes) and `llama` (SentencePiece's BPE).
//! Each fixes the stages before and after the pieces, so a tokenizer with other stages is refused by their names.

mod byte_bpe;
mod ends;
mod sentencepiece;
mod splits;
mod wordpiece;

use crate::architecture::Metadata;
use crate::{Array, GgufError, GgufFile, Result, Value};
use serde_json::{Map, Value as Json, json};

/// The types of pieces, by ggml's numbers.
pub(crate) mod piece {
    pub const NORMAL: i32 = 1;
    pub const UNKNOWN: i32 = 2;
    pub const CONTROL: i32 = 3;
    pub const USER_DEFINED: i32 = 4;
    pub const UNUSED: i32 = 5;
    pub const BYTE: i32 = 6;
}

/// The roles of pieces: transformers' keys, and those of the file.
const ROLES: [(&str, &str); 7] = [
    ("bos_token", "tokenizer.ggml.bos_token_id"),
    ("eos_token", "tokenizer.ggml.eos_token_id"),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    // Spelt so in all files.
    ("sep_token", "tokenizer.ggml.seperator_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
    ("cls_token", "tokenizer.ggml.cls_token_id"),
    ("mask_token", "tokenizer.ggml.mask_token_id"),
];

/// A folder's tokenizer, as it is written to a file.
pub(crate) struct Source<'a> {
    /// `tokenizer.json`.
    pub json: &'a Json,
    /// `tokenizer_config.json`.
    pub config: &'a Json,
    /// The rows of the embedding table.
    pub vocab_size: usize,
}

fn refuse(reason: impl std::fmt::Display) -> GgufError {
    GgufError::Export(format!("tokenizer: {reason}"))
}

/// A value of a JSON object as it is named in errors.
fn type_of(stage: &Json) -> String {
    match stage.get("type").and_then(Json::as_str) {
        Some(name) => format!("`{}`", name.escape_debug()),
        None => stage.to_string().chars().take(60).collect(),
    }
}

/// A text at a JSON pointer; empty if there is none.
fn text<'a>(json: &'a Json, pointer: &str) -> &'a str {
    json.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

impl<'a> Source<'a> {
    /// The piece with a role.
    pub fn role(&self, key: &str) -> Option<&'a str> {
        let token = self.config.get(key)?;
        token.as_str().or_else(|| token.get("content")?.as_str())
    }

    /// The pieces by id with their types; ids without one are unused. Added pieces are control pieces if they are special.
    fn pieces(&self) -> Result<(Vec<String>, Vec<i32>)> {
        let vocab = self.json.pointer("/model/vocab").and_then(Json::as_object);
        let vocab = vocab.ok_or_else(|| refuse("it has no vocabulary of pieces with ids"))?;
        let mut tokens: Vec<Option<String>> = vec![None; self.vocab_size];
        let mut types = vec![piece::UNUSED; self.vocab_size];
        let added = self.json.get("added_tokens").and_then(Json::as_array).map_or(&[][..], |all| all);
        let added = added.iter().map(|token| {
            let special = token.get("special").and_then(Json::as_bool).unwrap_or(false);
            let kind = if special { piece::CONTROL } else { piece::USER_DEFINED };
            (text(token, "/content"), token.get("id"), kind)
        });
        let own = vocab.iter().map(|(token, id)| (&**token, Some(id), piece::NORMAL));
        for (token, id, kind) in own.chain(added) {
            let id = id.and_then(Json::as_u64).unwrap_or(u64::MAX);
            let Some(place) = usize::try_from(id).ok().filter(|id| *id < self.vocab_size) else {
                return Err(refuse(format_args!(
                    "the piece `{}` has id {id}, and the model has {} embeddings",
                    token.escape_debug(),
                    self.vocab_size
                )));
            };
            tokens[place] = Some(token.to_owned());
            types[place] = kind;
        }
        let named = |(id, token): (usize, Option<String>)| token.unwrap_or_else(|| format!("[PAD{id}]"));
        Ok((tokens.into_iter().enumerate().map(named).collect(), types))
    }
}

/// Adds the keys of a tokenizer; returns what a user should know.
pub(crate) fn write(source: &Source, to: &mut Metadata) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    match text(source.json, "/model/type") {
        "WordPiece" => wordpiece::write(source, to)?,
        "BPE" if source.json.pointer("/model/byte_fallback") == Some(&json!(true)) => {
            sentencepiece::write(source, to)?;
        }
        "BPE" => byte_bpe::write(source, to, &mut notes)?,
        other => {
            return Err(refuse(format_args!(
                "its model is `{}`; expected WordPiece, BPE of bytes, or BPE with byte fallback",
                other.escape_debug()
            )));
        }
    }
    if let Some(template) = source.config.get("chat_template").and_then(Json::as_str) {
        to.put("tokenizer.chat_template", Value::Text(template.into()));
    }
    let added = source.json.get("added_tokens").and_then(Json::as_array).map_or(&[][..], |all| all);
    for token in added {
        let on = |flag: &str| token.get(flag).and_then(Json::as_bool) == Some(true);
        let flags: Vec<&str> =
            ["single_word", "lstrip", "rstrip"].into_iter().filter(|flag| on(flag)).collect();
        if !flags.is_empty() {
            let shown = text(token, "/content").escape_debug().to_string();
            notes.push(format!("llama.cpp ignores {} of the piece `{shown}`", flags.join(" and ")));
        }
    }
    Ok(notes)
}

/// Adds the pieces, their types, and the ids of those with a role.
fn put_pieces(source: &Source, tokens: Vec<String>, types: Vec<i32>, to: &mut Metadata) -> Result<()> {
    let mut ids = std::collections::HashMap::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate() {
        if let Some(other) = ids.insert(token.clone(), id) {
            let token = token.escape_debug();
            return Err(refuse(format_args!(
                "the pieces {other} and {id} are both `{token}` in llama.cpp's spelling, which needs distinct ones"
            )));
        }
    }
    let roles = ROLES.map(|(role, key)| (key, source.role(role).and_then(|token| ids.get(token).copied())));
    to.put("tokenizer.ggml.tokens", Value::Array(Array::Text(tokens)));
    to.put("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    for (key, id) in roles {
        if let Some(id) = id {
            to.put(key, Value::U32(id as u32));
        }
    }
    Ok(())
}

/// A file of a folder: its name, and what is in it.
pub(crate) type FolderFile = (&'static str, Vec<u8>);

/// A file's pieces.
pub(crate) struct Pieces<'a> {
    file: &'a GgufFile,
    pub tokens: &'a [String],
    pub types: Vec<i32>,
}

impl<'a> Pieces<'a> {
    fn of(file: &'a GgufFile) -> Result<Self> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let tokens = file.needed(TOKENS, "the pieces of the vocabulary", file.texts(TOKENS))?;
        const TYPES: &str = "tokenizer.ggml.token_type";
        let types = match file.get(TYPES) {
            None => vec![piece::NORMAL; tokens.len()],
            Some(Value::Array(Array::I32(types))) if types.len() == tokens.len() => types.clone(),
            Some(Value::Array(Array::U32(types))) if types.len() == tokens.len() => {
                types.iter().map(|kind| i32::try_from(*kind).unwrap_or(0)).collect()
            }
            Some(_) => return Err(file.wrong(TYPES, format!("a list of {} whole numbers", tokens.len()))),
        };
        Ok(Self { file, tokens, types })
    }

    fn refuse(&self, reason: impl Into<String>) -> GgufError {
        GgufError::Tokenizer { path: self.file.path().into(), reason: reason.into() }
    }

    /// The id of a role's piece.
    fn id(&self, role: &str) -> Result<Option<usize>> {
        let key = ROLES.iter().find(|(known, _)| *known == role).map(|(_, key)| *key).unwrap_or(role);
        match self.file.size(key)? {
            Some(id) if id >= self.tokens.len() => Err(self
                .file
                .wrong(key, format!("a number below {}, the number of pieces", self.tokens.len()))),
            id => Ok(id),
        }
    }

    /// The piece with a role.
    fn role(&self, role: &str) -> Result<Option<&'a str>> {
        Ok(self.id(role)?.map(|id| &*self.tokens[id]))
    }

    /// The pieces that are found in texts before all others, as entries of a `tokenizer.json`; spelt by `spelling`.
    fn added(&self, spelling: impl Fn(usize) -> String) -> Vec<Json> {
        let is_added = |id: &usize| matches!(self.types[*id], piece::CONTROL | piece::USER_DEFINED);
        (0..self.tokens.len())
            .filter(is_added)
            .map(|id| {
                json!({
                    "id": id,
                    "content": spelling(id),
                    "single_word": false,
                    "lstrip": false,
                    "rstrip": false,
                    "normalized": false,
                    "special": self.types[id] == piece::CONTROL,
                })
            })
            .collect()
    }

    /// A `vocab` of distinct pieces.
    fn vocab(&self, spelling: impl Fn(usize) -> String) -> Result<Map<String, Json>> {
        let mut vocab = Map::with_capacity(self.tokens.len());
        for id in 0..self.tokens.len() {
            let token = spelling(id);
            if let Some(other) = vocab.insert(token.clone(), id.into()) {
                let token = token.escape_debug();
                return Err(self.refuse(format!("the pieces {other} and {id} are both `{token}`")));
            }
        }
        Ok(vocab)
    }

    /// A `tokenizer_config.json` of this class.
    fn config(&self, class: &str, max_len: Option<usize>) -> Result<Map<String, Json>> {
        let mut config = Map::new();
        config.insert("tokenizer_class".into(), class.into());
        for (role, _) in ROLES {
            if let Some(token) = self.role(role)? {
                config.insert(role.into(), token.into());
            }
        }
        if let Some(len) = max_len {
            config.insert("model_max_length".into(), len.into());
        }
        if let Some(template) = self.file.text("tokenizer.chat_template")? {
            config.insert("chat_template".into(), template.into());
        }
        Ok(config)
    }
}

/// The files of a folder's tokenizer. `max_len` is the number of tokens that the model reads.
pub(crate) fn read(file: &GgufFile, max_len: usize) -> Result<Vec<FolderFile>> {
    const MODEL: &str = "tokenizer.ggml.model";
    let pieces = Pieces::of(file)?;
    match file.text(MODEL)? {
        Some("bert") => wordpiece::read(&pieces, max_len),
        Some("gpt2") => byte_bpe::read(&pieces, max_len),
        Some("llama") => sentencepiece::read(&pieces, max_len),
        _ => Err(file.wrong(MODEL, "\"bert\", \"gpt2\" or \"llama\": other tokenizers are not supported")),
    }
}

fn pretty(json: &Json) -> Vec<u8> {
    format!("{json:#}\n").into_bytes()
}
