//! Routes in the shapes that `huggingface_hub.InferenceClient` reads, and our own.

use axum::extract::{Request, State};
use cloze_trainer::fill_mask::{Candidate, FillRequest, FillUnit};
use cloze_trainer::requests::TranslateRequest;
use cloze_trainer::translate::{EncodedSource, TranslateSettings};
use serde_json::{Value, json};

use super::pairs::predicted;
use super::writing::MAX_NEW;
use super::{Answer, Shared, json as response, with_counts};
use crate::commands::serve::asking::Asking;
use crate::commands::serve::fields::{Read, texts, wrong};
use crate::commands::serve::models::{Kind, Served};
use crate::commands::serve::refusal::Refusal;

/// The most hypotheses of a translation.
const MAX_BEAMS: usize = 32;

/// The name of a text's field: `inputs`, or `inputs[3]` of a list.
fn field_of(is_list: bool) -> impl Fn(usize) -> String + Sync {
    move |i| if is_list { format!("inputs[{i}]") } else { "inputs".into() }
}

/// `{inputs, parameters: {top_k}}` → `[{score, token, token_str, sequence}]`: of several masks or texts a list of
/// these for each.
pub async fn fill_mask(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let fills = |served: &Served| matches!(served.kind, Kind::Fills(_));
    let served = service.model(&mut fields, "/fill-mask", "fill-mask", fills)?;
    let Kind::Fills(queue) = &served.kind else { return Err(served.misfit("/fill-mask", "fill-mask")) };
    let (inputs, is_list) = texts("inputs", fields.required("inputs")?)?;
    let mut parameters = fields.object("parameters", "parameters.")?;
    fields.end()?;
    let top_k = parameters.count("top_k", 1, 10_000)?.unwrap_or(5);
    parameters.end()?;
    let bytes = inputs.iter().map(String::len).sum();
    let field = field_of(is_list);
    let is_cut = &|_: &FillUnit| false;
    let asking = Asking { queue, field: &field, is_cut, refuses_cut: None, bytes };
    let found = asking.all(inputs.into_iter().map(|text| FillRequest::of(text, top_k)).collect()).await?;
    let candidate = |one: &Candidate| {
        let written = served.tokenizer.as_ref().and_then(|tokenizer| tokenizer.decode(&[one.id], false).ok());
        let written = written.unwrap_or_else(|| one.token.clone());
        let score = one.probability.to_string().parse::<f64>().unwrap_or_default();
        json!({ "score": score, "token": one.id, "token_str": written, "sequence": one.filled })
    };
    let of_text = |masks: &Vec<Vec<Candidate>>| {
        let masks: Vec<Value> = masks.iter().map(|mask| mask.iter().map(candidate).collect()).collect();
        match <[Value; 1]>::try_from(masks) {
            Ok([only]) => only,
            Err(masks) => Value::Array(masks),
        }
    };
    let mut all: Vec<Value> = found.answers.iter().map(|answer| of_text(&answer.masks)).collect();
    let body = if is_list { Value::Array(all) } else { all.pop().unwrap_or_default() };
    Ok(with_counts(response(&body), found.tokens, 0))
}

/// `{inputs}` → `[{entity_group, score, word, start, end}]`, in characters.
pub async fn tag(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/tag", "tagging", |served| served.predicts("tagging"))?;
    let (inputs, is_list) = texts("inputs", fields.required("inputs")?)?;
    let mut parameters = fields.object("parameters", "parameters.")?;
    fields.end()?;
    parameters.only("aggregation_strategy", &[json!("simple")])?;
    parameters.end()?;
    let bytes = inputs.iter().map(String::len).sum();
    let lines = inputs.iter().map(|text| json!({ "text": text })).collect();
    let found = predicted(served, lines, bytes, &field_of(is_list), service.refuses_long).await?;
    let entity = |one: &Value| {
        // A tag sequence is the best as a whole, and its parts have no probabilities.
        json!({ "entity_group": one["type"], "score": null, "word": one["text"], "start": one["start"],
                "end": one["end"] })
    };
    let of_text =
        |value: &Value| -> Value { value["entities"].as_array().into_iter().flatten().map(entity).collect() };
    let mut all: Vec<Value> = found.answers.iter().map(|answer| of_text(&answer.value)).collect();
    let body = if is_list { Value::Array(all) } else { all.pop().unwrap_or_default() };
    Ok(with_counts(response(&body), found.tokens, found.truncated))
}

/// `{inputs: {question, context}}` → `{answer, score, start, end}`, in characters.
pub async fn answer(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/answer", "answers", |served| served.predicts("answers"))?;
    let (questions, is_list) = objects(fields.required("inputs")?)?;
    fields.object("parameters", "parameters.")?.end()?;
    fields.end()?;
    let bytes = questions.iter().map(|one| one.to_string().len()).sum();
    let found = predicted(served, questions, bytes, &field_of(is_list), service.refuses_long).await?;
    let of_one = |value: &Value| json!({ "answer": value["answer"], "score": value["score"], "start": value["start"], "end": value["end"] });
    let mut all: Vec<Value> = found.answers.iter().map(|answer| of_one(&answer.value)).collect();
    let body = if is_list { Value::Array(all) } else { all.pop().unwrap_or_default() };
    Ok(with_counts(response(&body), found.tokens, found.truncated))
}

/// `{inputs: {text, choices}}` → `{choice, score, scores}`, as `cloze predict` prints.
pub async fn choose(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let suits = |served: &Served| served.predicts("multiple-choice");
    let served = service.model(&mut fields, "/choose", "multiple-choice", suits)?;
    let (questions, is_list) = objects(fields.required("inputs")?)?;
    fields.end()?;
    let bytes = questions.iter().map(|one| one.to_string().len()).sum();
    let found = predicted(served, questions, bytes, &field_of(is_list), service.refuses_long).await?;
    let mut all: Vec<Value> = found.answers.into_iter().map(|answer| answer.value).collect();
    let body = if is_list { Value::Array(all) } else { all.pop().unwrap_or_default() };
    Ok(with_counts(response(&body), found.tokens, found.truncated))
}

/// `{inputs, parameters: {num_beams, max_new_tokens, alignment}}` → `[{translation_text}]`; with `alignment` also its pairs of
/// words, as `cloze translate --alignment` prints them.
pub async fn translate(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let translates = |served: &Served| matches!(served.kind, Kind::Translates(_));
    let served = service.model(&mut fields, "/translate", "translation", translates)?;
    let Kind::Translates(queue) = &served.kind else {
        return Err(served.misfit("/translate", "translation"));
    };
    let (inputs, is_list) = texts("inputs", fields.required("inputs")?)?;
    let mut parameters = fields.object("parameters", "parameters.")?;
    fields.end()?;
    let mut settings = TranslateSettings::default();
    settings.decoding.beams = parameters.count("num_beams", 1, MAX_BEAMS)?;
    settings.decoding.max_new = parameters.count("max_new_tokens", 1, MAX_NEW)?;
    settings.alignment = parameters.flag("alignment")?;
    parameters.only("clean_up_tokenization_spaces", &[json!(true), json!(false)])?;
    parameters.end()?;
    let bytes = inputs.iter().map(String::len).sum();
    let field = field_of(is_list);
    let asking = Asking {
        queue,
        field: &field,
        is_cut: &|source: &EncodedSource| source.is_cut(),
        refuses_cut: service.refuses_long.then(|| queue.model().max_len()),
        bytes,
    };
    let requests = inputs.into_iter().map(|text| TranslateRequest { text, settings: settings.clone() });
    let found = asking.all(requests.collect()).await?;
    served.count_truncated(found.truncated);
    let first = |all: &Vec<cloze::Translation>| {
        let best = all.first();
        let mut shown = json!({ "translation_text": best.map(|one| one.text.as_str()).unwrap_or_default() });
        if let Some(alignment) = best.and_then(|one| one.alignment.as_ref()) {
            shown["alignment"] = json!(alignment.pairs());
        }
        shown
    };
    let all: Vec<Value> = found.answers.iter().map(first).collect();
    Ok(with_counts(response(&all), found.tokens, found.truncated))
}

/// One object, or a list of objects.
fn objects(value: Value) -> Read<(Vec<Value>, bool)> {
    let not_object = |field: &str, found: &Value| Err::<Value, Refusal>(wrong(field, "an object", found));
    match value {
        Value::Array(all) => {
            let of_one = |(i, one): (usize, Value)| match one {
                Value::Object(_) => Ok(one),
                other => not_object(&format!("inputs[{i}]"), &other),
            };
            Ok((all.into_iter().enumerate().map(of_one).collect::<Read<_>>()?, true))
        }
        Value::Object(_) => Ok((vec![value], false)),
        other => not_object("inputs", &other).map(|one| (vec![one], false)),
    }
}
