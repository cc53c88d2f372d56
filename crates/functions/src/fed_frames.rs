//! Frames for a program.

use crate::map::BlockPlace;
use crate::reduce::{GroupedRecords, ReduceCounts};
use api::program::{JobFrame, ProgramRole};
use api::{Blame, RecordFormat, TaskFailure};
use program::{Feed, FunctionContext};
use program_protocol::{FrameKind, GroupBatch, head};

/// Returns the first frame for a program in this context.
pub fn job_frame(role: ProgramRole, input: Option<RecordFormat>, context: &FunctionContext) -> JobFrame<'_> {
    JobFrame {
        version: JobFrame::VERSION,
        role,
        input,
        record_bytes_max: context.record_bytes_max,
        frame_bytes: context.buffer_bytes as u64,
        env: context.task_env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        work_dir: &context.work_dir,
    }
}

/// Sends the program its job frame.
pub fn write_job(feed: &mut Feed, job: &JobFrame<'_>) -> Result<(), TaskFailure> {
    let json = serde_json::to_vec(job).map_err(|error| {
        TaskFailure::new(Blame::Engine, format!("cannot make the first frame for the program: {error}"))
    })?;
    write_frame(feed, FrameKind::Job, &[&json])
}

/// Sends a block of the input to the program, with its place and the name of its source.
pub fn write_records(
    feed: &mut Feed,
    place: BlockPlace,
    name: &str,
    records: &[u8],
) -> Result<(), TaskFailure> {
    let BlockPlace { named_input, offset_bytes, .. } = place;
    let (named_input, name_length) = (named_input.to_le_bytes(), (name.len() as u32).to_le_bytes());
    let head = [&offset_bytes.to_le_bytes()[..], &named_input, &name_length, name.as_bytes()].concat();
    write_frame(feed, FrameKind::Records, &[&head, records])
}

/// Sends the buffered groups to the program, and empties the buffer.
fn write_groups(
    feed: &mut Feed,
    batch: &mut GroupBatch,
    context: &FunctionContext,
) -> Result<(), TaskFailure> {
    if !batch.is_empty() {
        write_frame(feed, FrameKind::Groups, &batch.payload())?;
        batch.clear(context.buffer_bytes);
    }
    Ok(())
}

/// Feeds sorted records to a program in frames, and ends its input.
pub fn feed_groups(
    input: &mut (impl GroupedRecords + ?Sized),
    mut feed: Feed,
    role: ProgramRole,
    context: &FunctionContext,
) -> Result<ReduceCounts, TaskFailure> {
    write_job(&mut feed, &job_frame(role, None, context))?;
    let mut counts = ReduceCounts::default();
    let mut batch = GroupBatch::default();
    while let Some(record) = input.next()? {
        counts.groups += u64::from(record.starts_group);
        match record.starts_group {
            true => batch.start_group(record.key, record.value),
            false => batch.continue_group(record.key, record.value),
        }
        if batch.bytes() >= context.buffer_bytes {
            write_groups(&mut feed, &mut batch, context)?;
            if feed.abandoned() {
                return Ok(counts);
            }
        }
    }
    write_groups(&mut feed, &mut batch, context)?;
    write_end(&mut feed)?;
    counts.unread_bytes = feed.unread_bytes();
    Ok(counts)
}

/// Tells the program that its input has ended.
pub fn write_end(feed: &mut Feed) -> Result<(), TaskFailure> {
    write_frame(feed, FrameKind::End, &[])
}

/// Writes a frame whose payload is in pieces.
fn write_frame(feed: &mut Feed, kind: FrameKind, payload: &[&[u8]]) -> Result<(), TaskFailure> {
    let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
    let Some(head) = head(kind, bytes) else {
        let message = format!("a frame for the program has {bytes} bytes, more than the limit of 4 GiB");
        return Err(TaskFailure::new(Blame::UserData, message));
    };
    // Small pieces share one write, because each write is a call to the kernel.
    let small = payload.iter().take_while(|piece| piece.len() <= SMALL_BYTES_MAX).count();
    let begin: Vec<u8> = [&head[..]].iter().chain(&payload[..small]).copied().flatten().copied().collect();
    feed.write(&begin)?;
    payload[small..].iter().try_for_each(|piece| feed.write(piece))
}

/// Largest piece that is copied after the header of the frame.
const SMALL_BYTES_MAX: usize = 4096;
