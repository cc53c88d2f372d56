//! Frames from appenders on other nodes, received into the memory of this node's chunkserver.

use crate::serve::body_reader::BodyReader;
use crate::serve::port::Refusal;
use crate::wire::messages::{APPEND_HEAD_BYTES, AppendAnswers, AppendHead, FRAME_HEAD_BYTES, FrameHead};
use arena::{FrameBytes, SlabWriter};
use chunkserver::ChunkServer;
use iappender::{AppendError, AppendFrame, AppendReply};
use ids::ChunkId;
use ifile::FrameHeader;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Takes the frames of a request in turn and answers each. Frames taken before the request broke off stay; the sender
/// sends all again and those are acknowledged.
pub(crate) async fn frames(server: &Arc<ChunkServer>, mut body: BodyReader) -> Result<Vec<u8>, Refusal> {
    let mut head = [0; APPEND_HEAD_BYTES];
    body.fill(&mut head).await?;
    let head = AppendHead::decode(&head)?;
    let mut answers = Vec::with_capacity(head.frame_count as usize);
    // A chunk that refused a frame of this request gets no later one of it: otherwise the refused one would look like a
    // repetition when the request comes again.
    let mut refused: BTreeMap<ChunkId, u64> = BTreeMap::new();
    for _ in 0..head.frame_count {
        let mut frame_head = [0; FRAME_HEAD_BYTES];
        body.fill(&mut frame_head).await?;
        let FrameHead { chunk, header } = FrameHead::decode(&frame_head)?;
        if header.source != head.source {
            return Err(Refusal::Contradiction("a frame of another source"));
        }
        if header.key_shape != server.key_shape() || header.ifile.0 >= server.layout().ifile_count {
            return Err(Refusal::Contradiction("a frame of another job"));
        }
        if let Some(standing_end) = refused.get(&chunk) {
            body.each(header.sum.bytes as usize, |_| ()).await?;
            answers.push(Some(*standing_end));
            continue;
        }
        let payload = payload(server, &mut body, &header).await?;
        match server.service().append(chunk, AppendFrame { header, payload })? {
            AppendReply::Acked => answers.push(None),
            AppendReply::Closed { standing_end } => {
                refused.insert(chunk, standing_end);
                answers.push(Some(standing_end));
            }
            AppendReply::Sent => unreachable!("a chunkserver answers at once"),
        }
    }
    if !body.is_at_end().await? {
        return Err(Refusal::Contradiction("bytes after the last frame"));
    }
    Ok(AppendAnswers { closed: answers }.encode())
}

/// Reads a payload into memory of the job's budget and checks it.
async fn payload(
    server: &Arc<ChunkServer>,
    body: &mut BodyReader,
    header: &FrameHeader,
) -> Result<FrameBytes, Refusal> {
    let bytes = header.sum.bytes as usize;
    if header.sum.bytes > server.layout().frame_bytes.max(4096) {
        return oversize_payload(server, body, header).await;
    }
    let mut slab = slab(server, header, bytes).await?;
    let read = body.each(bytes, |piece| slab.write(piece)).await;
    let checked = match read {
        Ok(()) => header.check_payload(slab.pending()).map_err(Refusal::from),
        Err(error) => Err(error.into()),
    };
    let sealed = checked.map(|()| slab.seal());
    server.park_slab(header.ifile, slab);
    sealed
}

async fn slab(server: &Arc<ChunkServer>, header: &FrameHeader, bytes: usize) -> Result<SlabWriter, Refusal> {
    if let Some(slab) = server.try_receiving_slab(header.ifile, bytes) {
        return Ok(slab);
    }
    wait_for_memory(server, |server| server.receiving_slab()).await
}

async fn oversize_payload(
    server: &Arc<ChunkServer>,
    body: &mut BodyReader,
    header: &FrameHeader,
) -> Result<FrameBytes, Refusal> {
    let bytes = header.sum.bytes;
    let charge = wait_for_memory(server, move |server| server.service().oversize(bytes)).await?;
    let mut payload = Vec::with_capacity(bytes as usize);
    body.each(bytes as usize, |piece| payload.extend_from_slice(piece)).await?;
    header.check_payload(&payload)?;
    Ok(FrameBytes::on_heap(payload, Some(charge)))
}

/// Waits on a blocking thread: the work that frees memory needs the other threads.
async fn wait_for_memory<T: Send + 'static>(
    server: &Arc<ChunkServer>,
    wait: impl FnOnce(&ChunkServer) -> Result<T, AppendError> + Send + 'static,
) -> Result<T, Refusal> {
    let server = Arc::clone(server);
    let waited = tokio::task::spawn_blocking(move || wait(&server)).await;
    Ok(waited.map_err(|_| Refusal::Thread)??)
}
