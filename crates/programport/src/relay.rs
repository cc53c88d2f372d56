//! The body of a request of a program, which goes on to a node while it arrives.

use axum::body::{Body, Bytes};
use http_body::Frame;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

/// A body for a client that may hold it on several threads. It is polled by one at a time, so the lock is never taken.
struct Relay(Mutex<Body>);

impl http_body::Body for Relay {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let body = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        Pin::new(body).poll_frame(context)
    }
}

/// Returns the body for a request to a node. It is never gathered: a part may have many bytes.
pub(crate) fn relayed(body: Body) -> reqwest::Body {
    reqwest::Body::wrap(Relay(Mutex::new(body)))
}
