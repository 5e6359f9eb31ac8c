//! Embeddings as text-embeddings-inference serves them.

use axum::extract::{Request, State};
use cloze_trainer::fill_mask::{FillRequest, FillUnit};
use serde::Serialize;

use super::embeddings::{cosine, cut, embedded, options, refuses_long};
use super::{Answer, Shared, images, json as json_of, ours, pairs, with_counts, writing};
use crate::commands::serve::asking::Asking;
use crate::commands::serve::fields::{Input, MAX_WHOLE, texts, wrong};
use crate::commands::serve::models::{Kind, Served};

fn embeds(served: &Served) -> bool {
    matches!(served.kind, Kind::Embeds(_))
}

/// `POST /`: the first model's main route.
pub async fn main(State(service): Shared, request: Request) -> Answer {
    let route = main_route(&service.models[0]);
    let service = State(service);
    match route {
        "/embed" => embed(service, request).await,
        "/fill-mask" => ours::fill_mask(service, request).await,
        "/translate" => ours::translate(service, request).await,
        "/generate" => writing::generate(service, request).await,
        "/answer" => ours::answer(service, request).await,
        "/tag" => ours::tag(service, request).await,
        "/choose" => ours::choose(service, request).await,
        "/rerank" => pairs::rerank(service, request).await,
        _ => pairs::predict(service, request).await,
    }
}

/// The route that a model is for.
pub fn main_route(served: &Served) -> &'static str {
    match &served.kind {
        Kind::Embeds(_) | Kind::EmbedsImages(_) => "/embed",
        Kind::Classifies(_) => "/predict",
        Kind::Fills(_) => "/fill-mask",
        Kind::Translates(_) => "/translate",
        Kind::Generates(_) => "/generate",
        Kind::Predicts(queue) => match queue.model().kind() {
            "answers" => "/answer",
            "tagging" => "/tag",
            "multiple-choice" => "/choose",
            "regression" => "/rerank",
            _ => "/predict",
        },
    }
}

pub async fn embed(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    if images::are_asked(&fields) {
        return images::embed(&service, fields).await;
    }
    let served = service.model(&mut fields, "/embed", "embedding", embeds)?;
    let inputs = Input::all("inputs", fields.required("inputs")?)?;
    let mut options = options(&service, served, &mut fields)?;
    options.normalize = fields.flag("normalize")?.unwrap_or(true);
    options.dimensions = fields.count("dimensions", 1, MAX_WHOLE)?;
    fields.end()?;
    let found = embedded(served, inputs, &options, "inputs").await?;
    let vectors: Vec<&[f32]> = found.answers.iter().map(|embedding| &embedding.values[..]).collect();
    Ok(with_counts(json_of(&vectors), found.tokens, found.truncated))
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
    Ok(with_counts(json_of(&vectors), found.tokens, found.truncated))
}

/// The weights of a masked LM's pieces.
pub async fn embed_sparse(State(service): Shared, request: Request) -> Answer {
    #[derive(Serialize)]
    struct Weight {
        index: u32,
        value: f32,
    }
    let mut fields = service.fields(request).await?;
    let fills = |served: &Served| matches!(served.kind, Kind::Fills(_));
    let served = service.model(&mut fields, "/embed_sparse", "fill-mask", fills)?;
    let Kind::Fills(queue) = &served.kind else { return Err(served.misfit("/embed_sparse", "fill-mask")) };
    let (inputs, is_list) = texts("inputs", fields.required("inputs")?)?;
    let (refuses_long, direction) = (refuses_long(&service, &mut fields)?, cut(&mut fields)?);
    fields.end()?;
    let field = |i: usize| if is_list { format!("inputs[{i}]") } else { "inputs".into() };
    let bytes = inputs.iter().map(String::len).sum();
    let refuses_cut = refuses_long.then(|| queue.model().max_len());
    let asking = Asking { queue, field: &field, is_cut: &FillUnit::is_cut, refuses_cut, bytes };
    let request = |text| FillRequest { weighs: true, cut: direction, ..FillRequest::of(text, 0) };
    let found = asking.all(inputs.into_iter().map(request).collect()).await?;
    served.count_truncated(found.truncated);
    let weight = |&(index, value): &(u32, f32)| Weight { index, value };
    let all: Vec<Vec<Weight>> =
        found.answers.iter().map(|answer| answer.weights.iter().map(weight).collect()).collect();
    Ok(with_counts(json_of(&all), found.tokens, found.truncated))
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
    let Some((source, others)) = found.answers.split_first() else { return Ok(json_of(&[0.0_f32; 0])) };
    let scores: Vec<f32> = others.iter().map(|other| cosine(&source.values, &other.values)).collect();
    Ok(with_counts(json_of(&scores), found.tokens, found.truncated))
}
