//! The rest of a refused request's body.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header;
use http_body::{Frame, SizeHint};
use tokio::time::timeout;

/// How long a refused body may go on.
const PATIENCE: Duration = Duration::from_secs(2);

/// A body that its route may leave unread.
///
/// A connection that is closed with unread bytes is reset: a client that is still sending would find a broken pipe
/// in place of the refusal.
pub struct Unread(Option<Part>);

impl Unread {
    /// The request, and what will be left of its body.
    pub fn of(request: Request) -> (Request, Self) {
        // Whoever asks before sending is answered before sending.
        if request.headers().contains_key(header::EXPECT) {
            return (request, Self(None));
        }
        let (head, body) = request.into_parts();
        let part = Part(Arc::new(Mutex::new(body)));
        (Request::from_parts(head, Body::new(part.clone())), Self(Some(part)))
    }

    /// Reads and drops the rest, for as long as it may go on.
    pub async fn read(self) {
        let Some(mut rest) = self.0 else { return };
        let read =
            async { while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {} };
        let _ = timeout(PATIENCE, read).await;
    }
}

/// A body with two readers, one after the other.
#[derive(Clone)]
struct Part(Arc<Mutex<Body>>);

impl Part {
    fn with<T>(&self, read: impl FnOnce(&mut Body) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl HttpBody for Part {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.with(|body| Pin::new(body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.with(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|body| body.size_hint())
    }
}
