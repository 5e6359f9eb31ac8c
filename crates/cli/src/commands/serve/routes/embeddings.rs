//! The vectors of texts, for all routes that have them.

use cloze_tokenizer::TruncationDirection;
use cloze_trainer::embed::{EmbedRequest, EmbedUnit, Embedding};
use serde_json::json;

use crate::commands::serve::asking::{Answers, Asking};
use crate::commands::serve::fields::{Fields, Input, Read, wrong};
use crate::commands::serve::models::{Kind, Served};
use crate::commands::serve::refusal::{Refusal, Why};
use crate::commands::serve::service::Service;

/// What a request says about its texts.
pub struct Options {
    pub cut: TruncationDirection,
    /// Whether texts that are too long are refused.
    pub refuses_long: bool,
    pub prompt: Option<String>,
    pub normalize: bool,
    pub dimensions: Option<usize>,
    pub each_token: bool,
}

/// `truncate`: whether texts that are too long are refused.
pub fn refuses_long(service: &Service, fields: &mut Fields) -> Read<bool> {
    Ok(fields.flag("truncate")?.map_or(service.refuses_long, |truncate| !truncate))
}

/// `truncation_direction`.
pub fn cut(fields: &mut Fields) -> Read<TruncationDirection> {
    match fields.text("truncation_direction")?.as_deref() {
        None | Some("Right" | "right") => Ok(TruncationDirection::Right),
        Some("Left" | "left") => Ok(TruncationDirection::Left),
        Some(other) => Err(wrong("truncation_direction", "\"left\" or \"right\"", &json!(other))),
    }
}

/// The options that `/embed`, `/embed_all` and `/similarity` share.
pub fn options(service: &Service, served: &Served, fields: &mut Fields) -> Read<Options> {
    let name = fields.text("prompt_name")?;
    let prompt = match (name, &served.kind) {
        (Some(name), Kind::Embeds(queue)) => {
            let of_field =
                |error: cloze_trainer::TrainerError| Refusal::field("prompt_name", error.to_string());
            Some(queue.model().prompt(&name).map_err(of_field)?.to_owned())
        }
        _ => None,
    };
    Ok(Options {
        cut: cut(fields)?,
        refuses_long: refuses_long(service, fields)?,
        prompt,
        normalize: true,
        dimensions: None,
        each_token: false,
    })
}

/// The vectors of texts. `name` is the field that they are in.
pub async fn embedded(
    served: &Served,
    inputs: Vec<Input>,
    options: &Options,
    name: &str,
) -> Read<Answers<Embedding>> {
    let Kind::Embeds(queue) = &served.kind else {
        return Err(Refusal::new(Why::Internal, "not an embedding model"));
    };
    let width = queue.model().width();
    if let Some(dimensions) = options.dimensions.filter(|dimensions| *dimensions > width) {
        return Err(wrong("dimensions", &format!("at most {width}, the model's"), &json!(dimensions)));
    }
    let is_single = inputs.len() == 1;
    let field = |i: usize| if is_single { name.to_owned() } else { format!("{name}[{i}]") };
    let mut bytes = 0;
    let mut requests = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.into_iter().enumerate() {
        let mut request = match input {
            Input::Text(text) if text.is_empty() => {
                return Err(Refusal { why: Why::Empty, ..Refusal::field(field(i), "an empty text") });
            }
            Input::Text(text) => EmbedRequest::of(text),
            Input::Ids(ids) => EmbedRequest { ids: Some(ids), ..EmbedRequest::of("") },
        };
        bytes += request.text.len();
        request.cut = options.cut;
        request.prompt.clone_from(&options.prompt);
        request.normalize = Some(options.normalize && options.dimensions.is_none());
        request.each_token = options.each_token;
        requests.push(request);
    }
    let asking = Asking {
        queue,
        field: &field,
        is_cut: &|unit: &EmbedUnit| unit.text().truncated,
        refuses_cut: options.refuses_long.then(|| queue.model().max_len()),
        bytes,
    };
    let mut found = asking.all(requests).await?;
    served.count_truncated(found.truncated);
    if let Some(dimensions) = options.dimensions {
        for embedding in &mut found.answers {
            embedding.values.truncate(dimensions);
            if options.normalize {
                normalize(&mut embedding.values);
            }
        }
    }
    Ok(found)
}

/// Scales a vector to length 1; zero stays zero.
pub fn normalize(values: &mut [f32]) {
    let norm = values.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-12);
    values.iter_mut().for_each(|x| *x /= norm);
}

/// The cosine of two vectors, as [`cloze::Embeddings::cosine`].
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let norms = (dot(a, a) * dot(b, b)).sqrt();
    if norms > 0.0 { (dot(a, b) / norms) as f32 } else { 0.0 }
}
