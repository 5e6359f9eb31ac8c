//! Embeddings and models as OpenAI has them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Uri;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::embeddings::{Options, embedded};
use super::{Answer, Shared, json as response, with_counts};
use crate::commands::serve::fields::{Input, MAX_WHOLE, wrong};
use crate::commands::serve::models::{Kind, Served};
use crate::commands::serve::refusal::{Refusal, Why};
use cloze_tokenizer::TruncationDirection;

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector<'a> {
    Numbers(&'a [f32]),
    /// Of little-endian FP32.
    Base64(String),
}

#[derive(Serialize)]
struct Datum<'a> {
    object: &'static str,
    index: usize,
    embedding: Vector<'a>,
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Datum<'a>>,
    model: &'a str,
    usage: Usage,
}

pub async fn embeddings(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let embeds = |served: &Served| matches!(served.kind, Kind::Embeds(_));
    let served = service.model(&mut fields, "/v1/embeddings", "embedding", embeds)?;
    let inputs = Input::all("input", fields.required("input")?)?;
    let is_base64 = match fields.text("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => return Err(wrong("encoding_format", "\"float\" or \"base64\"", &json!(other))),
    };
    let dimensions = fields.count("dimensions", 1, MAX_WHOLE)?;
    // Who asks is not recorded.
    fields.text("user")?;
    fields.end()?;
    if !service.accepts_ids && inputs.iter().any(|input| matches!(input, Input::Ids(_))) {
        let problem = "ids, expected texts: the ids of another tokenizer would give wrong vectors; if they are this \
                       model's own, start the service with --ids";
        return Err(Refusal::field("input", problem));
    }
    let options = Options {
        cut: TruncationDirection::Right,
        refuses_long: service.refuses_long,
        prompt: None,
        normalize: true,
        dimensions,
        each_token: false,
    };
    let found = embedded(served, inputs, &options, "input").await?;
    let encoded = |values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        STANDARD.encode(bytes)
    };
    let data = found.answers.iter().enumerate().map(|(index, embedding)| {
        let embedding = match is_base64 {
            true => Vector::Base64(encoded(&embedding.values)),
            false => Vector::Numbers(&embedding.values),
        };
        Datum { object: "embedding", index, embedding }
    });
    let usage = Usage { prompt_tokens: found.tokens, total_tokens: found.tokens };
    let list = List { object: "list", data: data.collect(), model: &served.name, usage };
    Ok(with_counts(response(&list), found.tokens, found.truncated))
}

/// A model as `/v1/models` lists it.
fn entry(served: &Served) -> Value {
    json!({ "id": served.name, "object": "model", "created": served.opened, "owned_by": "cloze" })
}

pub async fn models(State(service): Shared) -> Answer {
    let all: Vec<Value> = service.models.iter().map(|served| entry(served)).collect();
    Ok(response(&json!({ "object": "list", "data": all })))
}

pub async fn model(State(service): Shared, uri: Uri) -> Answer {
    let name = decoded(uri.path().strip_prefix("/v1/models/").unwrap_or_default());
    let unknown = || {
        let message = format!("there is no model {:?}", name.as_deref().unwrap_or(uri.path()));
        Refusal::new(Why::NotFound, message)
    };
    let is_named = |served: &&Arc<Served>| Some(served.name.as_str()) == name.as_deref();
    Ok(response(&entry(service.models.iter().find(is_named).ok_or_else(unknown)?)))
}

/// A part of a path without percent signs; none if it is not UTF-8.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| first == b'%');
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_decoded() {
        assert_eq!(decoded("org%2Fmodel").unwrap(), "org/model");
        assert_eq!(decoded("org/model%").unwrap(), "org/model%");
        assert_eq!(decoded("%zz%c3%A9").unwrap(), "%zzé");
        assert_eq!(decoded("%ff"), None);
    }
}
