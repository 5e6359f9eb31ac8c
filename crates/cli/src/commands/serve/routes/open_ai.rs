//! Embeddings and models as OpenAI has them.

use axum::extract::{Path, Request, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::embeddings::{Options, embedded};
use super::{Answer, Shared, json as response, with_counts};
use crate::commands::serve::fields::{Input, wrong};
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
    let dimensions = fields.count("dimensions", 1, usize::MAX)?;
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
    let vector = |values: &'_ [f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        STANDARD.encode(bytes)
    };
    let datum =
        |(index, embedding): (usize, &'_ cloze_trainer::embed::Embedding)| (index, vector(&embedding.values));
    let data = found.answers.iter().enumerate().map(|(index, embedding)| {
        let embedding = match is_base64 {
            true => Vector::Base64(datum((index, embedding)).1),
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

pub async fn model(State(service): Shared, Path(name): Path<String>) -> Answer {
    let unknown = || Refusal::new(Why::NotFound, format!("there is no model {name:?}"));
    let found = service.models.iter().find(|served| served.name == name).ok_or_else(unknown)?;
    Ok(response(&entry(found)))
}
