//! Text to ids and back.

use axum::extract::{Request, State};
use serde::Serialize;
use serde_json::Value;

use super::{Answer, Shared, json};
use crate::commands::serve::fields::{Read, ids, texts, wrong};
use crate::commands::serve::models::Served;
use crate::commands::serve::refusal::{Refusal, Why};

#[derive(Serialize)]
struct Token<'a> {
    id: u32,
    text: &'a str,
    special: bool,
    start: Option<usize>,
    stop: Option<usize>,
}

fn has_tokenizer(served: &Served) -> bool {
    served.tokenizer.is_some()
}

pub async fn tokenize(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/tokenize", "texts", has_tokenizer)?.clone();
    let (inputs, _) = texts("inputs", fields.required("inputs")?)?;
    let adds_special = fields.flag("add_special_tokens")?.unwrap_or(true);
    fields.end()?;
    let work = move || {
        let Some(tokenizer) = &served.tokenizer else { return Err(served.misfit("/tokenize", "texts")) };
        let mut all = Vec::with_capacity(inputs.len());
        for (i, text) in inputs.iter().enumerate() {
            let encoding = tokenizer.encode(text, adds_special);
            let refused =
                |error| Refusal::of_model(&format!("inputs[{i}]"), cloze_trainer::TrainerError::from(error));
            all.push((text, encoding.map_err(refused)?));
        }
        let tokens: Vec<Vec<Token>> = all
            .iter()
            .map(|(text, encoding)| {
                let token = |i: usize| {
                    let special = encoding.special_tokens_mask[i] == 1;
                    let (start, stop) = encoding.offsets[i];
                    let place = |at| (!special).then_some(at);
                    let piece = encoding.tokens[i].as_str();
                    let written = text.get(start..stop).filter(|text| !special && !text.is_empty());
                    let text = written.unwrap_or(piece);
                    Token { id: encoding.ids[i], text, special, start: place(start), stop: place(stop) }
                };
                (0..encoding.len()).map(token).collect()
            })
            .collect();
        Ok(json(&tokens))
    };
    apart(work).await
}

pub async fn decode(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/decode", "texts", has_tokenizer)?.clone();
    let all = match fields.required("ids")? {
        Value::Array(all) if all.first().is_some_and(Value::is_array) => {
            let of_one = |(i, one)| match one {
                Value::Array(all) => ids(&format!("ids[{i}]"), all),
                other => Err(wrong(&format!("ids[{i}]"), "a list of ids", &other)),
            };
            all.into_iter().enumerate().map(of_one).collect::<Read<Vec<_>>>()?
        }
        Value::Array(all) => vec![ids("ids", all)?],
        other => return Err(wrong("ids", "a list of ids, or of such lists", &other)),
    };
    if let Some(empty) = all.iter().position(Vec::is_empty) {
        return Err(Refusal { why: Why::Empty, ..Refusal::field(format!("ids[{empty}]"), "an empty list") });
    }
    let skips_special = fields.flag("skip_special_tokens")?.unwrap_or(true);
    fields.end()?;
    let work = move || {
        let Some(tokenizer) = &served.tokenizer else { return Err(served.misfit("/decode", "texts")) };
        let decode = |(i, ids): (usize, &Vec<u32>)| {
            if let Some(id) = ids.iter().find(|id| tokenizer.id_to_token(**id).is_none()) {
                let n = tokenizer.vocab_size();
                let problem = format!("{id}, expected ids of the vocabulary, which has {n} pieces");
                return Err(Refusal::field(format!("ids[{i}]"), problem));
            }
            let refused = |error: cloze_tokenizer::Error| Refusal::new(Why::Tokenizer, error.to_string());
            tokenizer.decode(ids, skips_special).map_err(refused)
        };
        Ok(json(&all.iter().enumerate().map(decode).collect::<Read<Vec<String>>>()?))
    };
    apart(work).await
}

/// Does work on a thread that may take its time; a panic is the request's alone.
async fn apart(work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    let failed = |_| Refusal::new(Why::Internal, "internal error in the tokenizer");
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}
