//! How the service is.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::{Answer, Shared, json as response};
use crate::commands::serve::description;
use crate::commands::serve::refusal::{Refusal, Why};

pub async fn info(State(service): Shared) -> Answer {
    let models: Vec<Value> = service
        .models
        .iter()
        .map(|served| {
            let mut of_model = json!({ "name": served.name, "task": served.task(), "max_input_length": served.max_len(),
                "routes": served.routes() });
            if let Some(mask) = served.mask_token() {
                of_model["mask_token"] = mask.into();
            }
            if let Some([height, width]) = served.image_size() {
                of_model["image_size"] = json!({ "height": height, "width": width });
            }
            of_model
        })
        .collect();
    let indexes: Vec<Value> = service
        .indexes
        .iter()
        .map(|index| json!({ "name": index.name, "model": index.model.name }))
        .collect();
    let first = &service.models[0];
    Ok(response(&json!({
        "model_id": first.name,
        "model_type": { first.task(): {} },
        "max_input_length": first.max_len(),
        "auto_truncate": !service.refuses_long,
        "version": env!("CARGO_PKG_VERSION"),
        "models": models,
        "indexes": indexes,
    })))
}

/// Whether the process answers.
pub async fn health() -> Answer {
    Ok(response(&json!({ "status": "ok" })))
}

/// Whether requests should be sent.
pub async fn ready(State(service): Shared) -> Answer {
    match service.is_ready() {
        true => Ok(response(&json!({ "status": "ready" }))),
        false => Err(Refusal::new(Why::Unhealthy, "the service is starting, or stopping")),
    }
}

pub async fn metrics(State(service): Shared) -> Answer {
    let mut response = Response::new(Body::from(service.metrics.page(&service.models)));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

pub async fn open_api(State(service): Shared) -> Answer {
    Ok(response(&description::of(&service)))
}
