//! The routes as OpenAPI describes them: those that the served models answer, with what these models take.

use serde_json::{Map, Value, json};

use super::models::{Kind, Scores, Served};
use super::routes::tei;
use super::service::Service;
use cloze_trainer::finetune::ValueLoss;
use cloze_trainer::images::ImageRequest;

/// Summary, body and answer of each route, and the shapes that they share.
const ROUTES: &str = include_str!("routes.json");

/// Whether a model answers a route; all are there for those that say how the service is.
fn suits(path: &str, route: &Value, served: &Served) -> bool {
    match path {
        "/search" => matches!(served.kind, Kind::Embeds(_)),
        _ => route["body"].is_null() || served.routes().contains(&path),
    }
}

/// The document of `/openapi.json`.
pub fn of(service: &Service) -> Value {
    let mut written: Value = serde_json::from_str(ROUTES).unwrap_or_default();
    let routes = match written["routes"].take() {
        Value::Object(routes) => routes,
        _ => Map::new(),
    };
    let mut paths = Map::new();
    for (path, route) in routes {
        let all = service.models.iter().map(|served| &**served);
        let suitable: Vec<&Served> = all.filter(|served| suits(&path, &route, served)).collect();
        let is_there = if path == "/search" { !service.indexes.is_empty() } else { !suitable.is_empty() };
        if is_there {
            let operation = operation(&path, route, &suitable, service);
            paths.insert(path, operation);
        }
    }
    // The main route of the first model, and the page.
    if let Some(mut main) = paths.get(tei::main_route(&service.models[0])).cloned() {
        let page = json!({ "description": "The page.", "content": { "text/html": { "schema": { "type": "string" } } } });
        main["get"] =
            json!({ "summary": "A page on which people ask the models.", "responses": { "200": page } });
        paths.insert("/".into(), main);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "cloze serve", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": written["schemas"] },
    })
}

/// A route's operation.
fn operation(path: &str, mut route: Value, suitable: &[&Served], service: &Service) -> Value {
    let error = if path.starts_with("/v") { "OpenAiError" } else { "Error" };
    let kind = route["kind"].as_str().unwrap_or("application/json").to_owned();
    let mut content = Map::from_iter([(kind, json!({ "schema": route["answer"] }))]);
    if route["streams"] == true {
        content.insert("text/event-stream".into(), json!({ "schema": {} }));
    }
    let mut operation = json!({
        "summary": route["summary"],
        "responses": {
            "200": { "description": "The answer.", "content": content },
            "default": {
                "description": "What is wrong.",
                "content": { "application/json": { "schema": { "$ref": format!("#/components/schemas/{error}") } } },
            },
        },
    });
    let mut body = route["body"].take();
    if body.is_null() {
        return json!({ "get": operation });
    }
    replace(&mut body, &|name| limit(name, suitable, service));
    operation["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": body } } });
    json!({ "post": operation })
}

/// Replaces references in a schema.
fn replace(schema: &mut Value, by: &dyn Fn(&str) -> Option<Value>) {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next());
    if let Some(new) = name.and_then(by) {
        *schema = new;
        return;
    }
    match schema {
        Value::Array(all) => all.iter_mut().for_each(|one| replace(one, by)),
        Value::Object(fields) => fields.values_mut().for_each(|one| replace(one, by)),
        _ => {}
    }
}

/// What these models take in a field; none: what the written schema says.
fn limit(name: &str, suitable: &[&Served], service: &Service) -> Option<Value> {
    let embedders = || {
        suitable.iter().filter_map(|served| match &served.kind {
            Kind::Embeds(queue) => Some(queue.model()),
            _ => None,
        })
    };
    let widths = || {
        suitable.iter().filter_map(|served| match &served.kind {
            Kind::Embeds(queue) => Some(queue.model().width()),
            Kind::EmbedsImages(queue) => Some(queue.model().width()),
            _ => None,
        })
    };
    let has_images = suitable.iter().any(|served| served.image_size().is_some());
    let has_texts = suitable.iter().any(|served| served.tokenizer.is_some());
    // The smallest vocabulary's last id: a larger one is unknown to some model.
    let ids = || {
        let sizes = suitable.iter().filter_map(|served| Some(served.tokenizer.as_ref()?.vocab_size()));
        let n_ids = sizes.min().unwrap_or(1);
        let id = json!({ "type": "integer", "minimum": 0, "maximum": n_ids.saturating_sub(1) });
        json!({ "type": "array", "items": id, "minItems": 1 })
    };
    let text = || json!({ "type": "string", "minLength": 1 });
    let or_list = |one: Value| json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] });
    let texts_or_ids = || json!({ "anyOf": [text(), ids(), { "type": "array", "items": { "anyOf": [text(), ids()] }, "minItems": 1 }] });
    Some(match name {
        "Model" => {
            let names = suitable.iter().map(|served| json!(served.name));
            json!({ "enum": names.chain([Value::Null]).collect::<Vec<_>>() })
        }
        "Dimensions" => {
            let most = widths().min()?;
            json!({ "type": ["integer", "null"], "minimum": 1, "maximum": most })
        }
        // A request about images has none.
        "PromptName" if has_images => json!({ "type": "null" }),
        "PromptName" => {
            let all: Vec<_> = embedders().collect();
            let of_all = |name: &&str| all.iter().all(|embedder| embedder.prompt(name).is_ok());
            let names = all.first()?.prompt_names().filter(of_all).map(|name| json!(name));
            json!({ "enum": names.chain([Value::Null]).collect::<Vec<_>>() })
        }
        "RawScores" => {
            let has_raw = |served: &&Served| {
                matches!(served.pair_scores(), Some(Scores::Value(ValueLoss::SquaredError)))
            };
            match suitable.iter().all(has_raw) {
                true => json!({ "type": ["boolean", "null"] }),
                false => json!({ "enum": [false, null] }),
            }
        }
        "Ids" => ids(),
        "Inputs" if !has_images => texts_or_ids(),
        "Inputs" if has_texts => json!({ "anyOf": [texts_or_ids(), or_list(image())] }),
        "Inputs" => or_list(image()),
        "Predicted" if has_images => {
            let texts = has_texts.then(|| json!({ "$ref": "#/components/schemas/Predicted" }));
            json!({ "anyOf": texts.into_iter().chain([or_list(image())]).collect::<Vec<_>>() })
        }
        "OpenAiInput" if service.accepts_ids => {
            json!({ "anyOf": [text(), { "type": "array", "items": text(), "minItems": 1 }, ids(), { "type": "array", "items": ids(), "minItems": 1 }] })
        }
        "Masked" => {
            let masks: Vec<&str> = suitable
                .iter()
                .filter_map(|served| match &served.kind {
                    Kind::Fills(queue) => Some(queue.model().mask_token()),
                    _ => None,
                })
                .collect();
            let first = masks.first().filter(|first| masks.iter().all(|mask| mask == *first))?;
            or_list(json!({ "type": "string", "pattern": pattern(first) }))
        }
        _ => return None,
    })
}

/// An image in a request, with its limits.
fn image() -> Value {
    let limits = ImageRequest::of(Vec::new()).limits;
    let description = format!(
        "PNG, JPEG, GIF, WebP or BMP, with at most {} pixels and {} in a row or column.",
        limits.max_pixels, limits.max_side
    );
    json!({
        "type": "object",
        "properties": {
            "image": { "type": "string", "pattern": "^data:[^,]*;base64,", "description": description },
        },
        "additionalProperties": false,
        "required": ["image"],
    })
}

/// A regular expression for a text that has `part` in it.
fn pattern(part: &str) -> String {
    let escaped = |c: char| if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() };
    part.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::super::routes::PATHS;
    use super::*;

    #[test]
    fn every_route_is_described_once() {
        let written: Value = serde_json::from_str(ROUTES).unwrap();
        let described: Vec<&str> =
            written["routes"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(described, PATHS);
        // Each reference has a shape, and each shape is referred to.
        let shapes = written["schemas"].as_object().unwrap();
        for name in shapes.keys() {
            assert!(ROUTES.contains(&format!("schemas/{name}\"")) || name.ends_with("Error"), "{name}");
        }
        for part in ROUTES.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(shapes.contains_key(name), "{name}");
        }
    }

    #[test]
    fn references_are_replaced_where_a_model_has_limits() {
        let mut schema = json!({ "properties": { "a": [{ "$ref": "#/components/schemas/A" }], "b": { "$ref": "#/components/schemas/B" } } });
        replace(&mut schema, &|name| (name == "A").then(|| json!(7)));
        assert_eq!(schema, json!({ "properties": { "a": [7], "b": { "$ref": "#/components/schemas/B" } } }));
        assert_eq!(pattern("[MASK]"), "\\[MASK\\]");
    }
}
