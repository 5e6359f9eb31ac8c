//! What a request is refused with, in the shape of its route.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cloze_trainer::TrainerError;
use serde_json::json;

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Nothing to work on.
    Empty,
    /// A body that is no JSON.
    Malformed,
    /// A field that is missing, unknown or wrong.
    Invalid,
    /// A text that the tokenizer fails on.
    Tokenizer,
    /// A key that is missing or unknown.
    Unauthorized,
    /// A host or an origin that is not allowed.
    Forbidden,
    /// A route or a model that does not exist.
    NotFound,
    /// A route that has another method.
    Method,
    /// A body that did not arrive, or an answer that was not ready, in time.
    Timeout,
    /// A body that is too large.
    TooLarge,
    /// A path that is too long.
    Path,
    /// Too many headers, or too long ones.
    Headers,
    /// A content type other than JSON.
    ContentType,
    /// A full queue.
    Overloaded,
    /// A model that does not do this, or that failed.
    Backend,
    /// A model whose computation failed by a fault of the program's.
    Internal,
    /// Not ready yet, or stopping.
    Unhealthy,
}

/// The shapes of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// text-embeddings-inference's, `{"error", "error_type"}`.
    Tei,
    /// OpenAI's, `{"error": {"message", "type", "param", "code"}}`.
    OpenAi,
}

impl Shape {
    /// The shape of a path's errors.
    pub fn of(path: &str) -> Self {
        if path.starts_with("/v1/") || path.starts_with("/v2/") { Self::OpenAi } else { Self::Tei }
    }
}

/// A refused request. As a response it is empty until [`shaped`](Self::shaped) knows the route.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub why: Why,
    pub message: String,
    /// The field of the body.
    pub field: Option<String>,
}

impl Refusal {
    pub fn new(why: Why, message: impl Into<String>) -> Self {
        Self { why, message: message.into(), field: None }
    }

    /// A wrong field: `field: problem`.
    pub fn field(field: impl Into<String>, problem: impl AsRef<str>) -> Self {
        let field = field.into();
        let message = format!("{field}: {}", problem.as_ref());
        Self { why: Why::Invalid, message, field: Some(field) }
    }

    /// The error of a model about a request's field.
    pub fn of_model(field: &str, error: TrainerError) -> Self {
        let why = match &error {
            TrainerError::Tokenizer(_) => Why::Tokenizer,
            TrainerError::OutputNotFinite => Why::Backend,
            TrainerError::Panicked { .. } => Why::Internal,
            // The message names a folder.
            TrainerError::TextTooLong { tokens, max, .. } => {
                return Self::field(field, format!("{tokens} tokens, expected at most {max}"));
            }
            TrainerError::NothingToFill { mask, .. } => {
                return Self::field(field, format!("nothing to fill, expected a {mask} in the text"));
            }
            TrainerError::BadInput { .. } | TrainerError::Setting { .. } | TrainerError::EmptyPrompt => {
                Why::Invalid
            }
            _ => Why::Backend,
        };
        let is_of_field = matches!(why, Why::Tokenizer | Why::Invalid);
        let message = if is_of_field { format!("{field}: {error}") } else { error.to_string() };
        Self { why, message, field: is_of_field.then(|| field.to_owned()) }
    }

    /// The status on a route of this shape.
    pub fn status(&self, shape: Shape) -> StatusCode {
        match (self.why, shape) {
            (Why::Empty | Why::Malformed, _) => StatusCode::BAD_REQUEST,
            (Why::Invalid | Why::Tokenizer, Shape::OpenAi) => StatusCode::BAD_REQUEST,
            (Why::Invalid | Why::Tokenizer, Shape::Tei) => StatusCode::UNPROCESSABLE_ENTITY,
            (Why::Unauthorized, _) => StatusCode::UNAUTHORIZED,
            (Why::Forbidden, _) => StatusCode::FORBIDDEN,
            (Why::NotFound, _) => StatusCode::NOT_FOUND,
            (Why::Method, _) => StatusCode::METHOD_NOT_ALLOWED,
            (Why::Timeout, _) => StatusCode::REQUEST_TIMEOUT,
            (Why::TooLarge, _) => StatusCode::PAYLOAD_TOO_LARGE,
            (Why::Path, _) => StatusCode::URI_TOO_LONG,
            (Why::Headers, _) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            (Why::ContentType, _) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            (Why::Overloaded, _) => StatusCode::TOO_MANY_REQUESTS,
            (Why::Backend | Why::Internal, Shape::Tei) => StatusCode::FAILED_DEPENDENCY,
            (Why::Backend, Shape::OpenAi) => StatusCode::BAD_REQUEST,
            (Why::Internal, Shape::OpenAi) => StatusCode::INTERNAL_SERVER_ERROR,
            (Why::Unhealthy, _) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The name in `error_type`.
    fn tei_type(&self) -> &'static str {
        match self.why {
            Why::Empty => "Empty",
            Why::Tokenizer => "Tokenizer",
            Why::Overloaded => "Overloaded",
            Why::Backend | Why::Internal => "Backend",
            Why::Unhealthy => "Unhealthy",
            _ => "Validation",
        }
    }

    /// OpenAI's `type` and `code`.
    fn open_ai_type(&self) -> (&'static str, Option<&'static str>) {
        match self.why {
            Why::Unauthorized => ("authentication_error", Some("invalid_api_key")),
            Why::Forbidden => ("permission_error", None),
            Why::NotFound => ("invalid_request_error", Some("not_found")),
            Why::Overloaded => ("rate_limit_error", Some("queue_full")),
            Why::Internal | Why::Unhealthy => ("server_error", None),
            _ => ("invalid_request_error", None),
        }
    }

    /// The body, as JSON.
    pub fn body(&self, shape: Shape) -> String {
        match shape {
            Shape::Tei => json!({ "error": self.message, "error_type": self.tei_type() }).to_string(),
            Shape::OpenAi => {
                let (kind, code) = self.open_ai_type();
                let error =
                    json!({ "message": self.message, "type": kind, "param": self.field, "code": code });
                json!({ "error": error }).to_string()
            }
        }
    }

    /// The response on a route of this shape.
    pub fn shaped(&self, shape: Shape) -> Response {
        let mut response = Response::new(Body::from(self.body(shape)));
        *response.status_mut() = self.status(shape);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self.why, Why::Overloaded | Why::Unhealthy) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.why == Why::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.why == Why::Internal {
            // The same request would fail again.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status(Shape::Tei);
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_shape_of_their_route() {
        let refusal = Refusal::field("inputs[3]", "an empty text, expected one with characters");
        assert_eq!(Shape::of("/embed"), Shape::Tei);
        assert_eq!(refusal.status(Shape::Tei), 422);
        assert_eq!(
            refusal.body(Shape::of("/embed")),
            r#"{"error":"inputs[3]: an empty text, expected one with characters","error_type":"Validation"}"#
        );
        assert_eq!(refusal.status(Shape::of("/v1/embeddings")), 400);
        assert_eq!(
            refusal.body(Shape::OpenAi),
            r#"{"error":{"message":"inputs[3]: an empty text, expected one with characters","type":"invalid_request_error","param":"inputs[3]","code":null}}"#
        );
        let full = Refusal::new(Why::Overloaded, "the queue is full").shaped(Shape::Tei);
        assert_eq!(
            (full.status().as_u16(), &full.headers()["retry-after"]),
            (429, &HeaderValue::from_static("1"))
        );
    }

    #[test]
    fn folders_are_not_named() {
        let error = TrainerError::TextTooLong { folder: "/secret".into(), tokens: 9, max: 8 };
        let refusal = Refusal::of_model("inputs", error);
        assert_eq!(refusal.message, "inputs: 9 tokens, expected at most 8");
    }
}
