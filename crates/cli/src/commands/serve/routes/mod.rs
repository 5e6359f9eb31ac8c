//! The routes, a file for each family.

mod embeddings;
mod images;
mod open_ai;
mod ours;
mod page;
mod pairs;
mod search;
mod status;
pub mod tei;
mod tokens;
mod writing;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Serialize;

use super::guard::guard;
use super::refusal::{Refusal, Why};
use super::service::Service;

/// The state of every handler.
type Shared = State<Arc<Service>>;

/// What a handler returns.
type Answer = Result<Response, Refusal>;

/// All paths.
pub const PATHS: [&str; 26] = [
    "/",
    "/answer",
    "/choose",
    "/decode",
    "/embed",
    "/embed_all",
    "/embed_sparse",
    "/fill-mask",
    "/generate",
    "/health",
    "/info",
    "/metrics",
    "/openapi.json",
    "/predict",
    "/ready",
    "/rerank",
    "/search",
    "/similarity",
    "/tag",
    "/tokenize",
    "/translate",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/models",
    "/v1/rerank",
    "/v2/rerank",
];

/// The service.
pub fn router(service: &Arc<Service>) -> Router {
    let not_found =
        || async { Refusal::new(Why::NotFound, "there is no such route; `GET /openapi.json` lists them") };
    let other_method = || async { Refusal::new(Why::Method, "the route has another method") };
    Router::new()
        .route("/", get(page::page).post(tei::main))
        .route("/embed", post(tei::embed))
        .route("/embed_all", post(tei::embed_all))
        .route("/embed_sparse", post(tei::embed_sparse))
        .route("/similarity", post(tei::similarity))
        .route("/predict", post(pairs::predict))
        .route("/rerank", post(pairs::rerank))
        .route("/v1/rerank", post(pairs::rerank_documents))
        .route("/v2/rerank", post(pairs::rerank_documents))
        .route("/tokenize", post(tokens::tokenize))
        .route("/decode", post(tokens::decode))
        .route("/v1/embeddings", post(open_ai::embeddings))
        .route("/v1/models", get(open_ai::models))
        .route("/v1/models/{*name}", get(open_ai::model))
        .route("/fill-mask", post(ours::fill_mask))
        .route("/tag", post(ours::tag))
        .route("/answer", post(ours::answer))
        .route("/choose", post(ours::choose))
        .route("/translate", post(ours::translate))
        .route("/generate", post(writing::generate))
        .route("/v1/completions", post(writing::completions))
        .route("/search", post(search::search))
        .route("/openapi.json", get(status::open_api))
        .route("/info", get(status::info))
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/metrics", get(status::metrics))
        .fallback(not_found)
        .method_not_allowed_fallback(other_method)
        .layer(from_fn_with_state(service.clone(), guard))
        .with_state(service.clone())
}

/// A response with JSON.
fn json<T: Serialize + ?Sized>(value: &T) -> Response {
    // Plain data, whose numbers are finite or null.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The tokens that were read, and how many texts were cut.
fn with_counts(mut response: Response, tokens: usize, truncated: usize) -> Response {
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("x-compute-tokens"), HeaderValue::from(tokens));
    if truncated > 0 {
        headers.insert(HeaderName::from_static("x-cloze-truncated"), HeaderValue::from(truncated));
    }
    response
}
