//! The body of a request with a minimum pace, so that nobody holds a request open with a byte a minute.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Time limit of a body: an initial period, plus time for each byte that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPace {
    pub grace: Duration,
    pub bytes_per_second_min: u64,
}

/// Error: a body arrived more slowly than its pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body of the request arrives too slowly: {received_bytes} bytes in {} s", .within.as_secs())]
pub struct TooSlow {
    pub received_bytes: u64,
    pub within: Duration,
}

/// Error of an incomplete body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PacedBodyError {
    #[error(transparent)]
    TooSlow(#[from] TooSlow),
    #[error(transparent)]
    Broken(#[from] hyper::Error),
}

pub(crate) struct PacedBody {
    inner: Incoming,
    pace: BodyPace,
    began: Instant,
    received_bytes: u64,
    /// Created at the first wait: most bodies arrive with their head.
    late: Option<Pin<Box<Sleep>>>,
}

impl PacedBody {
    pub fn new(inner: Incoming, pace: BodyPace) -> Self {
        Self { inner, pace, began: Instant::now(), received_bytes: 0, late: None }
    }

    fn time_max(&self) -> Duration {
        let bytes_per_second = self.pace.bytes_per_second_min.max(1);
        self.pace.grace + Duration::from_secs(self.received_bytes / bytes_per_second)
    }

    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let end = self.began + self.time_max();
        let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if late.deadline() != end {
            late.as_mut().reset(end);
        }
        late.as_mut().poll(context)
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = PacedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, PacedBodyError>>> {
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.received_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(other) => Poll::Ready(other.map(|frame| frame.map_err(Into::into))),
            Poll::Pending => self.poll_late(context).map(|()| {
                let slow = TooSlow { received_bytes: self.received_bytes, within: self.time_max() };
                Some(Err(slow.into()))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
