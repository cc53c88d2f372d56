//! Frames on their way to a program.

use crate::reduce::{GroupedRecords, ReduceCounts};
use api::program::{JobFrame, ProgramRole};
use api::{Blame, RecordFormat, TaskFailure};
use frames::{FrameKind, GroupBatch, head};
use program::{Feed, FunctionContext};

/// The first frame for a program under this context.
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

/// Tells the program what it is to do.
pub fn write_job(feed: &mut Feed, job: &JobFrame<'_>) -> Result<(), TaskFailure> {
    let json = serde_json::to_vec(job).map_err(|error| {
        TaskFailure::new(Blame::Engine, format!("cannot make the first frame for the program: {error}"))
    })?;
    write_frame(feed, FrameKind::Job, &[&json])
}

/// Hands records of the input to the program. `place`: which of the inputs that were named they are from, what their source is
/// called, and where in it they begin.
pub fn write_records(feed: &mut Feed, place: (u32, &str, u64), records: &[u8]) -> Result<(), TaskFailure> {
    let (named_input, name, offset_bytes) = place;
    let (named_input, name_length) = (named_input.to_le_bytes(), (name.len() as u32).to_le_bytes());
    let head = [&offset_bytes.to_le_bytes()[..], &named_input, &name_length, name.as_bytes()].concat();
    write_frame(feed, FrameKind::Records, &[&head, records])
}

/// Hands the groups that were gathered to the program, and forgets them.
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
        batch.push(record.key, record.value, record.starts_group);
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

/// Tells the program that there is nothing more.
pub fn write_end(feed: &mut Feed) -> Result<(), TaskFailure> {
    write_frame(feed, FrameKind::End, &[])
}

/// A frame whose payload lies in pieces.
fn write_frame(feed: &mut Feed, kind: FrameKind, payload: &[&[u8]]) -> Result<(), TaskFailure> {
    let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
    let Some(head) = head(kind, bytes) else {
        let message = format!("a frame for the program has {bytes} bytes, more than the limit of 4 GiB");
        return Err(TaskFailure::new(Blame::UserData, message));
    };
    // One write for the small pieces: each is a call to the kernel.
    let small = payload.iter().take_while(|piece| piece.len() <= SMALL_BYTES_MAX).count();
    let begin: Vec<u8> = [&head[..]].iter().chain(&payload[..small]).copied().flatten().copied().collect();
    feed.write(&begin)?;
    payload[small..].iter().try_for_each(|piece| feed.write(piece))
}

/// Pieces that are copied behind the head.
const SMALL_BYTES_MAX: usize = 4096;
