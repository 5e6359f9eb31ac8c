//! Classes and scores of texts and pairs: `/predict`, `/rerank`, and reranking as Cohere and Jina have it.

use axum::extract::{Request, State};
use cloze_trainer::finetune::{Answered, LineUnit, ValueLoss};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::embeddings::{cut, refuses_long};
use super::{Answer, Shared, images, json as response, with_counts};
use crate::commands::serve::asking::{Answers, Asking, too_long};
use crate::commands::serve::fields::{Fields, MAX_WHOLE, Read, texts, wrong};
use crate::commands::serve::models::{Kind, Scores, Served};
use crate::commands::serve::refusal::{Refusal, Why};
use crate::commands::serve::service::Service;
use cloze_tokenizer::TruncationDirection;

/// The answers of a predictor to lines as `cloze predict` reads them.
pub async fn predicted(
    served: &Served,
    lines: Vec<Value>,
    bytes: usize,
    field: &(dyn Fn(usize) -> String + Sync),
    refuses_long: bool,
) -> Read<Answers<Answered>> {
    let Kind::Predicts(queue) = &served.kind else {
        return Err(Refusal::new(Why::Internal, "not a predictor"));
    };
    let is_cut = &|_: &LineUnit| false;
    let mut found = Asking { queue, field, is_cut, refuses_cut: None, bytes }.all(lines).await?;
    found.truncated = found.answers.iter().filter(|answer| answer.truncated).count();
    if let Some(i) = found.answers.iter().position(|answer| answer.truncated).filter(|_| refuses_long) {
        return Err(too_long(&field(i), queue.model().max_len()));
    }
    served.count_truncated(found.truncated);
    Ok(found)
}

/// `truncate` and `truncation_direction`, which a predictor has at the end alone.
fn truncation(service: &Service, fields: &mut Fields) -> Read<bool> {
    if cut(fields)? == TruncationDirection::Left {
        return Err(Refusal::field("truncation_direction", "\"left\" is not supported by this route"));
    }
    refuses_long(service, fields)
}

#[derive(Serialize)]
struct Prediction {
    score: f64,
    label: String,
}

/// A text, or a pair of texts.
fn line(field: &str, all: Vec<Value>) -> Read<Value> {
    let (texts, _) = texts(field, Value::Array(all))?;
    match <[String; 1]>::try_from(texts) {
        Ok([text]) => Ok(json!({ "text": text })),
        Err(texts) => match <[String; 2]>::try_from(texts) {
            Ok([text, pair]) => Ok(json!({ "text": text, "pair": pair })),
            Err(texts) => {
                Err(Refusal::field(field, format!("{} texts, expected one, or a pair", texts.len())))
            }
        },
    }
}

pub async fn predict(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    if images::are_asked(&fields) {
        return images::predict(&service, fields).await;
    }
    let served = service.model(&mut fields, "/predict", "classification", Served::is_classifier)?;
    let refuses_long = truncation(&service, &mut fields)?;
    let is_raw = fields.flag("raw_scores")?.unwrap_or(false);
    let (lines, is_batch) = match fields.required("inputs")? {
        Value::String(text) => (vec![json!({ "text": text })], false),
        Value::Array(all) if all.first().is_some_and(Value::is_array) => {
            let of_one = |(i, one)| match one {
                Value::Array(texts) => line(&format!("inputs[{i}]"), texts),
                other => Err(wrong(&format!("inputs[{i}]"), "a list of one text or two", &other)),
            };
            (all.into_iter().enumerate().map(of_one).collect::<Read<Vec<_>>>()?, true)
        }
        Value::Array(all) => (vec![line("inputs", all)?], false),
        other => return Err(wrong("inputs", "a text, a pair of texts, or a list of such lists", &other)),
    };
    fields.end()?;
    let scores = |value: &Value| of_labels(served, value, is_raw);
    if is_raw {
        // Before anything is computed.
        scores(&Value::Null)?;
    }
    let field = |i: usize| if is_batch { format!("inputs[{i}]") } else { "inputs".into() };
    let bytes = lines.iter().map(|line| line.to_string().len()).sum();
    let found = predicted(served, lines, bytes, &field, refuses_long).await?;
    let all: Vec<Vec<Prediction>> =
        found.answers.iter().map(|answer| scores(&answer.value)).collect::<Read<_>>()?;
    let body = match is_batch {
        true => response(&all),
        false => response(all.first().map_or(&[][..], Vec::as_slice)),
    };
    Ok(with_counts(body, found.tokens, found.truncated))
}

/// The labels of an answer with their scores, best first.
fn of_labels(served: &Served, value: &Value, is_raw: bool) -> Read<Vec<Prediction>> {
    if let Some(Scores::Value(loss)) = served.pair_scores() {
        let score = of_value(loss, value, is_raw)?;
        return Ok(vec![Prediction { score, label: "LABEL_0".into() }]);
    }
    if is_raw {
        return Err(Refusal::field("raw_scores", "true is not supported: the model gives probabilities"));
    }
    let empty = Map::new();
    let scores = value.get("scores").and_then(Value::as_object).unwrap_or(&empty);
    let mut all: Vec<Prediction> = scores
        .iter()
        .map(|(label, score)| Prediction { score: score.as_f64().unwrap_or(f64::NAN), label: label.clone() })
        .collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(all)
}

/// The score of a model with one output: the output itself, or its sigmoid.
fn of_value(loss: ValueLoss, answer: &Value, is_raw: bool) -> Read<f64> {
    let value = answer.get("value").and_then(Value::as_f64);
    match (loss, is_raw) {
        (ValueLoss::BinaryCrossEntropy, true) => {
            Err(Refusal::field("raw_scores", "true is not supported: the model gives probabilities"))
        }
        (ValueLoss::SquaredError, false) => {
            Ok(value.map_or(f64::NAN, |value| rounded(1.0 / (1.0 + (-value).exp()))))
        }
        _ => Ok(value.unwrap_or(f64::NAN)),
    }
}

/// A number with the digits of FP32.
fn rounded(value: f64) -> f64 {
    (value as f32).to_string().parse().unwrap_or(value)
}

/// The scores of texts for a query, best first: each with the text's index.
async fn ranked(
    served: &Served,
    query: &str,
    texts: &[String],
    field: &str,
    is_raw: bool,
    refuses_long: bool,
) -> Read<(Vec<(usize, f64)>, usize, usize)> {
    let scores = served.pair_scores().ok_or_else(|| served.misfit("this route", "reranking"))?;
    let score = |value: &Value| match &scores {
        Scores::Value(loss) => of_value(*loss, value, is_raw),
        Scores::Class(_) if is_raw => {
            Err(Refusal::field("raw_scores", "true is not supported: the model gives probabilities"))
        }
        Scores::Class(name) => {
            let score = value.get("scores").and_then(|all| all.get(name)).and_then(Value::as_f64);
            Ok(score.unwrap_or(f64::NAN))
        }
    };
    score(&Value::Null)?;
    let lines = texts.iter().map(|text| json!({ "text": query, "pair": text })).collect();
    let bytes = texts.iter().map(|text| text.len() + query.len()).sum();
    let found = predicted(served, lines, bytes, &|i| format!("{field}[{i}]"), refuses_long).await?;
    let all = found.answers.iter().enumerate().map(|(i, answer)| Ok((i, score(&answer.value)?)));
    let mut all = all.collect::<Read<Vec<_>>>()?;
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    Ok((all, found.tokens, found.truncated))
}

fn reranks(served: &Served) -> bool {
    served.pair_scores().is_some()
}

/// `query`, which has to be there.
fn query(fields: &mut Fields) -> Read<String> {
    match fields.required("query")? {
        Value::String(query) if query.is_empty() => {
            Err(Refusal { why: Why::Empty, ..Refusal::field("query", "an empty text") })
        }
        Value::String(query) => Ok(query),
        other => Err(wrong("query", "a text", &other)),
    }
}

pub async fn rerank(State(service): Shared, request: Request) -> Answer {
    #[derive(Serialize)]
    struct Rank<'a> {
        index: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
        score: f64,
    }
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/rerank", "reranking", reranks)?;
    let query = query(&mut fields)?;
    let (texts, _) = texts("texts", fields.required("texts")?)?;
    let refuses_long = truncation(&service, &mut fields)?;
    let is_raw = fields.flag("raw_scores")?.unwrap_or(false);
    let returns_text = fields.flag("return_text")?.unwrap_or(false);
    fields.end()?;
    let (found, tokens, truncated) = ranked(served, &query, &texts, "texts", is_raw, refuses_long).await?;
    let ranks: Vec<Rank> = found
        .into_iter()
        .map(|(index, score)| Rank { index, text: returns_text.then(|| texts[index].as_str()), score })
        .collect();
    Ok(with_counts(response(&ranks), tokens, truncated))
}

/// `/v1/rerank` and `/v2/rerank`.
pub async fn rerank_documents(State(service): Shared, request: Request) -> Answer {
    #[derive(Serialize)]
    struct Document<'a> {
        text: &'a str,
    }
    #[derive(Serialize)]
    struct Rank<'a> {
        index: usize,
        relevance_score: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        document: Option<Document<'a>>,
    }
    #[derive(Serialize)]
    struct Usage {
        prompt_tokens: usize,
        total_tokens: usize,
    }
    #[derive(Serialize)]
    struct Ranks<'a> {
        id: String,
        model: &'a str,
        results: Vec<Rank<'a>>,
        usage: Usage,
        meta: Value,
    }
    let path = request.uri().path().to_owned();
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, &path, "reranking", reranks)?;
    let query = query(&mut fields)?;
    let documents = match fields.required("documents")? {
        Value::Array(all) => {
            let text = |(i, one): (usize, Value)| {
                let field = format!("documents[{i}]");
                match one {
                    Value::String(text) => Ok(text),
                    Value::Object(mut fields) => match fields.shift_remove("text") {
                        Some(Value::String(text)) => Ok(text),
                        _ => Err(Refusal::field(format!("{field}.text"), "missing, expected a text")),
                    },
                    other => Err(wrong(&field, "a text, or an object with one", &other)),
                }
            };
            all.into_iter().enumerate().map(text).collect::<Read<Vec<String>>>()?
        }
        other => return Err(wrong("documents", "a list of texts", &other)),
    };
    if documents.is_empty() {
        return Err(Refusal { why: Why::Empty, ..Refusal::field("documents", "an empty list") });
    }
    let top_n = fields.count("top_n", 1, MAX_WHOLE)?.unwrap_or(usize::MAX);
    let returns = fields.flag("return_documents")?.unwrap_or(false);
    // What others have to limit, the model limits.
    fields.only("max_chunks_per_doc", &[])?;
    fields.only("rank_fields", &[json!(["text"])])?;
    fields.count("max_tokens_per_doc", 1, MAX_WHOLE)?;
    fields.end()?;
    let (found, tokens, truncated) =
        ranked(served, &query, &documents, "documents", false, service.refuses_long).await?;
    let results = found.into_iter().take(top_n).map(|(index, relevance_score)| Rank {
        index,
        relevance_score,
        document: returns.then(|| Document { text: &documents[index] }),
    });
    let ranks = Ranks {
        id: service.id(),
        model: &served.name,
        results: results.collect(),
        usage: Usage { prompt_tokens: tokens, total_tokens: tokens },
        meta: json!({ "api_version": { "version": path[2..3] } }),
    };
    Ok(with_counts(response(&ranks), tokens, truncated))
}
