//! The room that requests take until their answers are sent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body::{Frame, SizeHint};

use super::refusal::{Refusal, Why};
use super::service::Service;

/// A request that is being answered, and the bytes that it holds.
pub struct Room {
    service: Arc<Service>,
    bytes: usize,
}

impl Room {
    /// Room for a request with a body of this many bytes.
    ///
    /// # Errors
    /// Too many bytes are held already.
    pub fn take(service: &Arc<Service>, bytes: usize) -> Result<Self, Refusal> {
        service.answering.fetch_add(1, Ordering::AcqRel);
        let before = service.held.fetch_add(bytes, Ordering::AcqRel);
        let room = Self { service: service.clone(), bytes };
        // One request always has room.
        if before > 0 && bytes > 0 && before.saturating_add(bytes) > service.limits.all_bodies {
            let message = "too many bytes are being answered (--max-held-bytes)";
            return Err(Refusal::new(Why::Overloaded, message));
        }
        Ok(room)
    }

    /// A response that keeps the room until it is sent, or its client is gone.
    pub fn until_sent(mut self, response: Response) -> Response {
        let bytes = response.body().size_hint().exact().map_or(0, |bytes| bytes as usize);
        // The request's body is read, and gone.
        self.service.held.fetch_add(bytes, Ordering::AcqRel);
        self.service.held.fetch_sub(self.bytes, Ordering::AcqRel);
        self.bytes = bytes;
        response.map(|body| Body::new(Sent { body, _room: self }))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.service.held.fetch_sub(self.bytes, Ordering::AcqRel);
        if self.service.answering.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.service.answered.notify_waiters();
        }
    }
}

/// A body that holds room.
struct Sent {
    body: Body,
    _room: Room,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
