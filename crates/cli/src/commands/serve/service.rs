//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::fields::{Fields, Read};
use super::indexes::Searched;
use super::metrics::Metrics;
use super::models::Served;
use super::refusal::{Refusal, Why};
use super::tally::note;

/// The models, and how they are served.
pub struct Service {
    pub models: Vec<Arc<Served>>,
    pub indexes: Vec<Arc<Searched>>,
    pub limits: Limits,
    pub access: Access,
    /// Whether ids are accepted by `/v1/embeddings`.
    pub accepts_ids: bool,
    /// Whether texts that are too long are refused unless a request says otherwise.
    pub refuses_long: bool,
    pub is_warm: AtomicBool,
    pub is_stopping: AtomicBool,
    /// Requests that are being answered.
    pub answering: AtomicUsize,
    /// Told when there are none.
    pub answered: Notify,
    /// Bytes of bodies that are read or sent.
    pub held: AtomicUsize,
    /// Answers that were given a number.
    pub n_ids: AtomicUsize,
    pub metrics: Metrics,
}

/// What a request may take.
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of all bodies that are being answered.
    pub all_bodies: usize,
    /// Tokens that wait for a model.
    pub queue_tokens: usize,
    /// From a request's first byte to its answer.
    pub time: Duration,
    /// Connections at a time.
    pub connections: usize,
}

/// Who may ask.
pub struct Access {
    /// Hashes of the keys; none: no key is needed.
    pub keys: Vec<blake3::Hash>,
    /// Other sites whose pages may ask.
    pub origins: Vec<String>,
    /// The names by which the service may be called; none: any.
    pub hosts: Option<Vec<String>>,
}

impl Service {
    /// Reads a request's body.
    pub async fn fields(&self, request: Request) -> Read<Fields> {
        let (parts, body) = request.into_parts();
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            let found = content_type.map_or("no content type".into(), |found| format!("{found:?}"));
            let message = format!("{found}, expected the content type \"application/json\"");
            return Err(Refusal::new(Why::ContentType, message));
        }
        let late = |_| Refusal::new(Why::Timeout, "the body did not arrive in time");
        let body = timeout(self.limits.time, to_bytes(body, self.limits.body)).await.map_err(late)?;
        let body = body.map_err(|error| {
            let is_long = std::error::Error::source(&error)
                .is_some_and(|source| source.to_string().contains("length limit"));
            match is_long {
                true => self.too_large(),
                false => Refusal::new(Why::Malformed, "the body ended before its announced length"),
            }
        })?;
        Fields::parse(&body)
    }

    pub fn too_large(&self) -> Refusal {
        let message = format!("the body is larger than {} bytes (--max-body-bytes)", self.limits.body);
        Refusal::new(Why::TooLarge, message)
    }

    /// The model of a request: the one that it names, or the first that is suitable.
    pub fn model(
        &self,
        fields: &mut Fields,
        route: &str,
        needs: &str,
        suits: impl Fn(&Served) -> bool,
    ) -> Read<&Arc<Served>> {
        let name = fields.text("model")?;
        self.named(name.as_deref(), route, needs, suits)
    }

    /// Same as [`model`](Self::model), by an optional name.
    pub fn named(
        &self,
        name: Option<&str>,
        route: &str,
        needs: &str,
        suits: impl Fn(&Served) -> bool,
    ) -> Read<&Arc<Served>> {
        let found = match name {
            Some(name) => {
                let unknown = || {
                    let message = format!("model: there is no model {name:?}; `GET /v1/models` lists them");
                    Refusal { field: Some("model".into()), ..Refusal::new(Why::NotFound, message) }
                };
                self.models.iter().find(|served| served.name == name).ok_or_else(unknown)?
            }
            None => self.models.iter().find(|served| suits(served)).unwrap_or_else(|| &self.models[0]),
        };
        note(|tally| tally.model = Some(found.name.clone()));
        if !suits(found) {
            return Err(found.misfit(route, needs));
        }
        if found.counts().waiting_tokens >= self.limits.queue_tokens {
            let message = format!("the queue of model `{}` is full (--max-queue-tokens)", found.name);
            return Err(Refusal::new(Why::Overloaded, message));
        }
        Ok(found)
    }

    /// A name for an answer, another each time.
    pub fn id(&self) -> String {
        format!("cloze-{}-{}", self.models[0].opened, self.n_ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Waits until nothing is being answered.
    pub async fn idle(&self) {
        loop {
            let told = self.answered.notified();
            if self.answering.load(Ordering::Acquire) == 0 {
                return;
            }
            told.await;
        }
    }

    /// Whether requests are taken.
    pub fn is_ready(&self) -> bool {
        self.is_warm.load(Ordering::Acquire) && !self.is_stopping.load(Ordering::Acquire)
    }
}
