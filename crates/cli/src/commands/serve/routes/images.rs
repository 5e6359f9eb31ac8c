//! Classes and vectors of images: `/predict` and `/embed` with `{"image": "data:…"}` in place of a text.

use std::path::Path;
use std::sync::Arc;

use cloze_data::images::ImageSource;
use cloze_trainer::images::{ImageRequest, ImageUnit};
use cloze_trainer::requests::{Queue, Respond};
use serde::Serialize;
use serde_json::Value;

use super::embeddings::{cut, normalize, refuses_long};
use super::{Answer, json as response, with_counts};
use crate::commands::serve::asking::{Answers, Asking};
use crate::commands::serve::fields::{Fields, MAX_WHOLE, Read, wrong};
use crate::commands::serve::models::{Kind, Served};
use crate::commands::serve::refusal::{Refusal, Why};
use crate::commands::serve::service::Service;

/// Whether a request asks about images.
pub fn are_asked(fields: &Fields) -> bool {
    match fields.get("inputs") {
        Some(Value::Array(all)) => all.first().is_some_and(Value::is_object),
        inputs => inputs.is_some_and(Value::is_object),
    }
}

/// `{inputs: {image}}` → `[{score, label}]`, best first; of a list of images a list of these.
pub async fn predict(service: &Service, mut fields: Fields) -> Answer {
    #[derive(Serialize)]
    struct Prediction<'a> {
        score: f64,
        label: &'a str,
    }
    // What is no request is told before what no model answers.
    let (images, is_list) = images(fields.required("inputs")?)?;
    let suits = |served: &Served| matches!(served.kind, Kind::Classifies(_));
    let served = service.model(&mut fields, "/predict", "classification of images", suits)?;
    let Kind::Classifies(queue) = &served.kind else {
        return Err(served.misfit("/predict", "classification of images"));
    };
    nothing_is_cut(service, &mut fields)?;
    fields.only("raw_scores", &[false.into()])?;
    fields.end()?;
    let found = asked(queue, images, is_list).await?;
    let labels = queue.model().labels();
    // A number with the digits of FP32.
    let score = |p: f64| (p as f32).to_string().parse().unwrap_or(p);
    let all: Vec<Vec<Prediction>> = found
        .answers
        .iter()
        .map(|output| {
            let scores = output.probabilities.iter().zip(labels);
            let mut all: Vec<Prediction> =
                scores.map(|(p, label)| Prediction { score: score(*p), label }).collect();
            all.sort_by(|a, b| b.score.total_cmp(&a.score));
            all
        })
        .collect();
    let body = match is_list {
        true => response(&all),
        false => response(all.first().map_or(&[][..], Vec::as_slice)),
    };
    Ok(with_counts(body, found.tokens, 0))
}

/// `{inputs: {image}}` → a list of its vector; of a list of images their vectors.
pub async fn embed(service: &Service, mut fields: Fields) -> Answer {
    // What is no request is told before what no model answers.
    let (images, is_list) = images(fields.required("inputs")?)?;
    let suits = |served: &Served| matches!(served.kind, Kind::EmbedsImages(_));
    let served = service.model(&mut fields, "/embed", "embedding of images", suits)?;
    let Kind::EmbedsImages(queue) = &served.kind else {
        return Err(served.misfit("/embed", "embedding of images"));
    };
    nothing_is_cut(service, &mut fields)?;
    fields.only("prompt_name", &[])?;
    let is_unit = fields.flag("normalize")?.unwrap_or(true);
    let dimensions = fields.count("dimensions", 1, MAX_WHOLE)?;
    fields.end()?;
    let width = queue.model().width();
    if let Some(dimensions) = dimensions.filter(|dimensions| *dimensions > width) {
        return Err(wrong("dimensions", &format!("at most {width}, the model's"), &dimensions.into()));
    }
    let mut found = asked(queue, images, is_list).await?;
    for values in &mut found.answers {
        values.truncate(dimensions.unwrap_or(width));
        if is_unit {
            normalize(values);
        }
    }
    Ok(with_counts(response(&found.answers), found.tokens, 0))
}

/// Reads the options of texts that are too long, which no image is.
fn nothing_is_cut(service: &Service, fields: &mut Fields) -> Read<()> {
    cut(fields)?;
    refuses_long(service, fields)?;
    Ok(())
}

/// The answers about images.
async fn asked<R>(queue: &Arc<Queue<R>>, images: Vec<Arc<[u8]>>, is_list: bool) -> Read<Answers<R::Answer>>
where
    R: Respond<Request = ImageRequest, Unit = ImageUnit>,
{
    let field = |i: usize| if is_list { format!("inputs[{i}].image") } else { "inputs.image".into() };
    // An image of few bytes may take long to decode, so none is decoded where others are waiting.
    let bytes = usize::MAX;
    let asking = Asking { queue, field: &field, is_cut: &|_: &ImageUnit| false, refuses_cut: None, bytes };
    asking.all(images.into_iter().map(ImageRequest::of).collect()).await
}

/// One image, or a list of images, of which there is one at least.
fn images(value: Value) -> Read<(Vec<Arc<[u8]>>, bool)> {
    match value {
        Value::Array(all) if all.is_empty() => {
            Err(Refusal { why: Why::Empty, ..Refusal::field("inputs", "an empty list") })
        }
        Value::Array(all) => {
            let named = all.into_iter().enumerate().map(|(i, one)| (format!("inputs[{i}]"), one));
            Ok((named.map(|(field, one)| image(&field, one)).collect::<Read<_>>()?, true))
        }
        one => Ok((vec![image("inputs", one)?], false)),
    }
}

/// The bytes of an image. Files of this machine are not read.
fn image(field: &str, value: Value) -> Read<Arc<[u8]>> {
    const EXPECTED: &str = "expected the image itself: \"data:image/png;base64,…\"";
    let Value::Object(mut fields) = value else {
        return Err(wrong(field, "an object with an image", &value));
    };
    let found = fields.shift_remove("image");
    if let Some(name) = fields.keys().next() {
        return Err(Refusal::field(format!("{field}.{}", name.escape_debug()), "not supported"));
    }
    let field = format!("{field}.image");
    let uri = match found {
        None | Some(Value::Null) => return Err(Refusal::field(field, "missing")),
        Some(Value::String(uri)) if uri.starts_with("data:") => uri,
        Some(Value::String(_)) => return Err(Refusal::field(field, format!("no data URI, {EXPECTED}"))),
        Some(other) => return Err(wrong(&field, "a text", &other)),
    };
    match ImageSource::of_text(&uri, Path::new(""), &field) {
        Ok(ImageSource::Bytes { bytes, .. }) => Ok(bytes),
        Ok(_) => Err(Refusal::field(field, format!("no data URI, {EXPECTED}"))),
        Err(problem) => Err(Refusal::field(field, format!("{problem}, {EXPECTED}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn images_are_bytes_and_never_paths() {
        let (read, is_list) = images(json!({"image": "data:image/png;base64,AAEC"})).unwrap();
        assert_eq!((&read[0][..], is_list), (&[0, 1, 2][..], false));
        let (read, is_list) =
            images(json!([{"image": "data:;base64,"}, {"image": "data:x;base64,/w=="}])).unwrap();
        assert_eq!((&read[0][..], &read[1][..], is_list), (&[][..], &[255][..], true));
        for (value, message) in [
            (json!([]), "inputs: an empty list"),
            (json!({}), "inputs.image: missing"),
            (json!([{"image": 7}]), "inputs[0].image: 7, expected a text"),
            (json!({"image": "Cargo.toml"}), "inputs.image: no data URI, expected the image itself"),
            (json!({"image": "file:///etc/passwd"}), "inputs.image: no data URI"),
            (json!({"image": "data:Cargo.toml"}), "inputs.image: a data URI without `;base64,`"),
            (json!({"image": "data:;base64,?"}), "inputs.image: not base64"),
            (json!({"image": "data:;base64,", "text": "a"}), "inputs.text: not supported"),
            (json!([{"image": "data:;base64,"}, "a"]), "inputs[1]: a text, expected an object with an image"),
        ] {
            let found = images(value).unwrap_err().message;
            assert!(found.starts_with(message), "{found}");
        }
    }
}
