//! Embeddings as text-embeddings-inference serves them.

use axum::extract::{Request, State};

use super::embeddings::{cosine, embedded, options};
use super::{Answer, Shared, json, ours, pairs, with_counts, writing};
use crate::commands::serve::fields::{Input, texts, wrong};
use crate::commands::serve::models::{Kind, Served};
use crate::commands::serve::refusal::{Refusal, Why};

fn embeds(served: &Served) -> bool {
    matches!(served.kind, Kind::Embeds(_))
}

/// `POST /`: the first model's main route.
pub async fn main(State(service): Shared, request: Request) -> Answer {
    let service = State(service);
    let first = service.models[0].clone();
    match &first.kind {
        Kind::Embeds(_) => embed(service, request).await,
        Kind::Fills(_) => ours::fill_mask(service, request).await,
        Kind::Translates(_) => ours::translate(service, request).await,
        Kind::Generates(_) => writing::generate(service, request).await,
        Kind::Predicts(queue) => match queue.model().kind() {
            "answers" => ours::answer(service, request).await,
            "tagging" => ours::tag(service, request).await,
            "multiple-choice" => ours::choose(service, request).await,
            "regression" => pairs::rerank(service, request).await,
            _ => pairs::predict(service, request).await,
        },
    }
}

pub async fn embed(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/embed", "embedding", embeds)?;
    let inputs = Input::all("inputs", fields.required("inputs")?)?;
    let mut options = options(&service, served, &mut fields)?;
    options.normalize = fields.flag("normalize")?.unwrap_or(true);
    options.dimensions = fields.count("dimensions", 1, usize::MAX)?;
    fields.end()?;
    let found = embedded(served, inputs, &options, "inputs").await?;
    let vectors: Vec<&[f32]> = found.answers.iter().map(|embedding| &embedding.values[..]).collect();
    Ok(with_counts(json(&vectors), found.tokens, found.truncated))
}

pub async fn embed_all(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/embed_all", "embedding", embeds)?;
    let inputs = Input::all("inputs", fields.required("inputs")?)?;
    let mut options = options(&service, served, &mut fields)?;
    options.each_token = true;
    fields.end()?;
    let Kind::Embeds(queue) = &served.kind else { return Err(served.misfit("/embed_all", "embedding")) };
    let width = queue.model().token_width().max(1);
    let found = embedded(served, inputs, &options, "inputs").await?;
    let rows = |values: &[f32]| values.chunks(width).map(<[f32]>::to_vec).collect::<Vec<_>>();
    let vectors: Vec<Vec<Vec<f32>>> = found.answers.iter().map(|embedding| rows(&embedding.values)).collect();
    Ok(with_counts(json(&vectors), found.tokens, found.truncated))
}

pub async fn embed_sparse(State(_): Shared, _: Request) -> Answer {
    Err(Refusal::new(Why::Backend, "/embed_sparse is not supported yet"))
}

pub async fn similarity(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/similarity", "embedding", embeds)?;
    let mut inputs = fields.object("inputs", "inputs.")?;
    let mut parameters = fields.object("parameters", "parameters.")?;
    fields.end()?;
    let source = match inputs.required("source_sentence")? {
        serde_json::Value::String(text) => text,
        other => return Err(wrong("inputs.source_sentence", "a text", &other)),
    };
    let (sentences, _) = texts("inputs.sentences", inputs.required("sentences")?)?;
    inputs.end()?;
    let options = options(&service, served, &mut parameters)?;
    parameters.end()?;
    let all = std::iter::once(source).chain(sentences).map(Input::Text).collect();
    let found = embedded(served, all, &options, "inputs").await?;
    let Some((source, others)) = found.answers.split_first() else { return Ok(json(&[0.0_f32; 0])) };
    let scores: Vec<f32> = others.iter().map(|other| cosine(&source.values, &other.values)).collect();
    Ok(with_counts(json(&scores), found.tokens, found.truncated))
}
