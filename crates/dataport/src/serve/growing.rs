//! Answers to readers of outputs that programs of this node are writing.

use crate::serve::body_reader::BodyReader;
use crate::serve::port::{Port, Refusal};
use crate::serve::services::GrowingOutputService;
use crate::wire::growing::{GrowingPiece, GrowingRead};
use crate::wire::messages::MESSAGE_BYTES_MAX;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use ids::JobId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which a reader waits here for news of an output. A second without an answer would count as silence.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Time between two looks at an output. The file of a running program tells nobody that it grows.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Returns the next bytes of an output, as soon as there are any.
pub(crate) async fn outputs(
    State(port): State<Port>,
    Path(job): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<Vec<u8>, Refusal> {
    let outputs = port.admit_to_growing_outputs(job, &headers)?;
    let message = BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?;
    let request = Arc::new(GrowingRead::decode(JobId(job), &message)?);
    let _permit = port.growing_reads.try_acquire().map_err(|_| Refusal::Busy)?;
    let until = Instant::now() + WAIT_MAX;
    loop {
        let piece = look(&outputs, &request).await?;
        let is_news = !matches!(&piece, GrowingPiece::Unknown)
            && !matches!(&piece, GrowingPiece::Grows(bytes) if bytes.is_empty());
        if is_news || Instant::now() >= until {
            return Ok(piece.encode());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn look(
    outputs: &Arc<dyn GrowingOutputService>,
    request: &Arc<GrowingRead>,
) -> Result<GrowingPiece, Refusal> {
    let (outputs, request) = (Arc::clone(outputs), Arc::clone(request));
    let looked = tokio::task::spawn_blocking(move || outputs.read(&request));
    looked.await.map_err(|_| Refusal::Thread)?.map_err(Refusal::GrowingOutput)
}
