//! `GET /`: the page on which people ask the models.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use cloze_evaluation::report::ServicePage;

use super::Answer;
use crate::commands::serve::refusal::{Refusal, Why};

static PAGE: LazyLock<ServicePage> = LazyLock::new(ServicePage::new);

/// The page, which is the same for everyone and has no secret: its script asks with the reader's key.
pub async fn page() -> Answer {
    let policy = HeaderValue::from_str(&PAGE.policy)
        .map_err(|error| Refusal::new(Why::Internal, error.to_string()))?;
    let mut response = Response::new(Body::from(PAGE.html.as_str()));
    let headers: [(HeaderName, HeaderValue); 4] = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    response.headers_mut().extend(headers);
    Ok(response)
}
