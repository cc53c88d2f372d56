//! Progress of attempts, for the scheduler.

use crate::interface::Outbox;
use crate::scheduling::feed;
use crate::work::Work;
use api::machine::AttemptProgress;
use api::{Task, TaskResult};
use ids::{AttemptKey, NodeId};
use scheduler::{Event, Waits};

/// Handles a node's report on the progress of its attempts.
pub(crate) fn progressed(work: &mut Work, outbox: &mut Outbox, node: NodeId, progress: Vec<AttemptProgress>) {
    let Some(known) = work.fleet.get_mut(node) else { return };
    let (running, slots) = (known.running(), known.info().slots as usize);
    let own = progress.into_iter().take(slots).filter(|told| running.contains_key(&told.attempt));
    for told in own.collect::<Vec<_>>() {
        let waits = Waits {
            read_ns: told.read_ns,
            program_ns: told.program_ns,
            append_ns: told.append_ns,
            read_from: told.read_from,
            append_to: told.append_to,
        };
        let (attempt, done) = (told.attempt, told.done_bytes);
        let total = told.total_bytes.min(expected_bytes(work, attempt));
        feed(work, outbox, Event::Progress { attempt, done, total, waits: Some(waits) });
    }
}

/// Returns the bytes that a reduce task is expected to read, at least 1: fewer than at the start of the attempt
/// if the task was cut since. u64::MAX for other tasks.
fn expected_bytes(work: &Work, attempt: AttemptKey) -> u64 {
    match work.jobs.get(&attempt.task.job).and_then(|job| job.task(attempt)) {
        // With zero bytes no progress could be computed.
        Some(Task::Reduce(task)) => task.expected_bytes.max(1),
        _ => u64::MAX,
    }
}

/// Reports an attempt as complete, perhaps before its node reported any progress: other attempts are compared with it.
pub(crate) fn all_done(work: &mut Work, outbox: &mut Outbox, attempt: AttemptKey, result: &TaskResult) {
    let bytes = match result {
        TaskResult::Map(map) => map.input_bytes,
        TaskResult::Reduce(reduce) => reduce.merged.iter().map(|(_, sum)| sum.bytes).sum(),
        _ => return,
    };
    feed(work, outbox, Event::Progress { attempt, done: bytes, total: bytes, waits: None });
}
