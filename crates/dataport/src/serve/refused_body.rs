//! The rest of the body of a refused request. If the connection closed while the sender still sends, it might break
//! before the answer is read, and the sender would consider this node lost. So the node answers at once, and afterwards
//! reads and drops the rest of the body, until the sender has ended or stopped.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// Limits for the dropped rest. A sender stops when it is answered, so the rest is the data in flight until then.
const REFUSED_BYTES_MAX: u64 = 64 << 20;
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(1);

/// Lets a route answer. If it refuses, goes on reading the body.
pub async fn pass_over_refused(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = SharedBody(Arc::new(Mutex::new(body)));
    let mut left = body.clone();
    let response = next.run(Request::from_parts(parts, Body::new(body))).await;
    if !response.status().is_success() {
        // A body that breaks off, or takes too long, is not awaited.
        tokio::spawn(async move { tokio::time::timeout(REFUSED_WAIT_MAX, left.pass_over()).await });
    }
    response
}

/// A body that the route reads first, and whose rest can be read after it.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<Body>>);

impl SharedBody {
    async fn pass_over(&mut self) {
        let mut passed = 0;
        while passed < REFUSED_BYTES_MAX {
            let Some(Ok(frame)) = self.frame().await else { return };
            passed += frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
        }
    }
}

impl http_body::Body for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).size_hint()
    }
}
