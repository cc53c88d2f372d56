//! Second attempts beside slow ones: which jobs allow them, what nodes tell of their attempts, and what is remembered of
//! the decisions of the scheduler.

use crate::interface::Outbox;
use crate::job::Job;
use crate::membership::Fleet;
use crate::scheduling::feed;
use crate::work::Work;
use api::control::NodeOrder;
use api::machine::AttemptProgress;
use api::{JobSpec, Task, TaskResult};
use ids::{AttemptKey, JobId, NodeId, StageIndex};
use rows::SPECULATION_NOTE;
use scheduler::{Action, Event, Inputs, Label, Slot, Waits, WhyLeft};

/// Stages whose tasks may run twice at the same time: what an attempt leaves counts only if it wins. Seals and merges are bound to
/// their nodes, and a commit happens once.
const COPIED_STAGES: &[&str] = &["map", "reduce"];

/// The event by which a job allows copies; None for one that does not. The program of a job of one task is not the engine's: it
/// runs as often as its user says.
pub(crate) fn allowed(job: &Job) -> Option<Event> {
    let is_asked_for = |spec: &JobSpec| spec.speculation && spec.single.is_none();
    let names = job.stage_names.iter().enumerate();
    let copied = names.filter(|(_, name)| COPIED_STAGES.contains(name));
    let stages = copied.map(|(index, _)| StageIndex(index as u16)).collect();
    is_asked_for(&job.spec).then_some(Event::MayCopy { job: job.id, stages })
}

/// A node tells how far its attempts are.
pub(crate) fn progressed(work: &mut Work, outbox: &mut Outbox, node: NodeId, progress: Vec<AttemptProgress>) {
    let Some(known) = work.fleet.get_mut(node) else { return };
    let (running, slots) = (&known.running, known.info.slots as usize);
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
        // With none of it nobody could say how far the attempt is.
        Some(Task::Reduce(task)) => task.expected_bytes.max(1),
        _ => u64::MAX,
    }
}

/// An attempt has come to its end, perhaps before its node told anything of it: others are compared with it.
pub(crate) fn all_done(work: &mut Work, outbox: &mut Outbox, attempt: AttemptKey, result: &TaskResult) {
    let bytes = match result {
        TaskResult::Map(map) => map.input_bytes,
        TaskResult::Reduce(reduce) => reduce.merged.iter().map(|(_, sum)| sum.bytes).sum(),
        _ => return,
    };
    feed(work, outbox, Event::Progress { attempt, done: bytes, total: bytes, waits: None });
}

/// The task of an attempt has a winner, and the attempt holds a slot. What it says when it ends is discarded in any case.
pub(crate) fn stop_attempt(fleet: &mut Fleet, attempt: AttemptKey, slot: Slot) {
    if let Some(node) = fleet.get_mut(slot.node) {
        node.order(NodeOrder::StopAttempt { attempt });
    }
}

/// Remembers what was decided about a slow attempt, as a sentence for people.
pub(crate) fn decided(work: &mut Work, outbox: &mut Outbox, decision: Action) {
    let (job, detail) = match decision {
        Action::Speculated { attempt, of, label, inputs } => {
            let what = format!("attempt {} beside attempt {}", attempt.attempt.0, of.attempt.0);
            (of.task.job, sentence(work, of, &what, label, &inputs))
        }
        Action::SlowTask { attempt, label, left, inputs } => {
            let what = format!("attempt {} gets no copy, {}", attempt.attempt.0, reason(left));
            (attempt.task.job, sentence(work, attempt, &what, label, &inputs))
        }
        _ => return,
    };
    outbox.note(job, SPECULATION_NOTE, detail);
}

fn sentence(work: &Work, slow: AttemptKey, what: &str, label: Label, inputs: &Inputs) -> String {
    let stage = stage_name(work, slow.task.job, slow.task.stage);
    let (task, label, node) = (slow.task.task.0, label.word(), inputs.node);
    let times = times(inputs);
    format!("{stage}/{task}: {label}: {what}: on {node} {times}; {}", spent(inputs))
}

fn stage_name(work: &Work, job: JobId, stage: StageIndex) -> &'static str {
    let names = work.jobs.get(&job).map(|job| &job.stage_names);
    names.and_then(|names| names.get(usize::from(stage.0))).copied().unwrap_or("stage")
}

/// Describes how the time of an attempt was spent.
fn spent(inputs: &Inputs) -> String {
    let waits = &inputs.waits;
    let all_ns = waits.read_ns.saturating_add(waits.program_ns).saturating_add(waits.append_ns).max(1);
    let percent = |part_ns: u64| (part_ns as f64 * 100.0 / all_ns as f64) as u64;
    let node =
        |place: Option<NodeId>, word: &str| place.map_or_else(String::new, |node| format!(" {word} {node}"));
    format!(
        "of its time reading{} {} %, program {} %, writing{} {} %",
        node(waits.read_from, "from"),
        percent(waits.read_ns),
        percent(waits.program_ns),
        node(waits.append_to, "to"),
        percent(waits.append_ns),
    )
}

fn times(inputs: &Inputs) -> String {
    let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
    let left =
        inputs.left_ns.map_or_else(|| "no end in sight".to_string(), |ns| format!("{} left", seconds(ns)));
    format!(
        "after {} it had done {} of {} bytes, {} a second where {} are usual and below {} is slow ({} attempts \
         compared, usually {} bytes in {}); {left}, a copy takes {}",
        seconds(inputs.elapsed_ns),
        inputs.done,
        inputs.total,
        inputs.rate,
        inputs.usual_rate,
        inputs.slow_below,
        inputs.compared,
        inputs.usual_total,
        seconds(inputs.usual_ns),
        seconds(inputs.copy_ns),
    )
}

fn reason(left: WhyLeft) -> &'static str {
    match left {
        WhyLeft::LargeData => "it would have the same data",
        WhyLeft::OwnRecords => "the same program is as fast as ever on its node, so it is the records",
        WhyLeft::SameBottleneck => "it would wait for the same",
        WhyLeft::EndsBeforeCopy => "it would not end much sooner",
        WhyLeft::EnoughCopies => "enough of the job run",
        WhyLeft::BudgetSpent => "those before have cost enough",
        WhyLeft::NoSlot => "no slot was free where it would help",
    }
}
