//! Speculative attempts beside slow ones: the jobs that allow them, the reports of nodes, and the decisions of the
//! scheduler for the history.

use crate::interface::Outbox;
use crate::job::Job;
use crate::work::Work;
use api::JobSpec;
use api::history::EventKind;
use ids::{AttemptKey, JobId, NodeId, StageIndex, StageKind};
use scheduler::{Action, Event, Label, SpeculationFigures, WhyLeft};

/// Stages with speculative attempts: the output of an attempt counts only if it wins. Seals and merges are bound to
/// their nodes, and a commit happens once.
const COPIED_STAGES: &[StageKind] = &[StageKind::Map, StageKind::Reduce];

/// Returns the event that allows speculative attempts for a job; None if the job does not allow them. The program of a
/// job of one task is outside the engine: it runs as often as its user says.
pub(crate) fn allowed(job: &Job) -> Option<Event> {
    let is_asked_for = |spec: &JobSpec| spec.speculation && spec.kind.program().is_none();
    let kinds = job.stage_kinds().iter().enumerate();
    let copied = kinds.filter(|(_, kind)| COPIED_STAGES.contains(kind));
    let stages = copied.map(|(index, _)| StageIndex(index as u16)).collect();
    is_asked_for(job.spec()).then_some(Event::MayCopy { job: job.id(), stages })
}

/// Notes the decision about a slow attempt in the history.
pub(crate) fn decided(work: &mut Work, outbox: &mut Outbox, decision: Action) {
    let (job, detail) = match decision {
        Action::Speculated { attempt, of, label, inputs } => {
            let what = format!("attempt {} beside attempt {}", attempt.attempt.0, of.attempt.0);
            (of.task.job, sentence(work, of, &what, label, &inputs))
        }
        Action::SlowTask { attempt, label, left, inputs } => {
            let what = format!("attempt {} gets no speculative attempt: {}", attempt.attempt.0, reason(left));
            (attempt.task.job, sentence(work, attempt, &what, label, &inputs))
        }
        _ => return,
    };
    outbox.note(job, EventKind::Speculation, detail);
}

fn sentence(work: &Work, slow: AttemptKey, what: &str, label: Label, inputs: &SpeculationFigures) -> String {
    let stage = stage_name(work, slow.task.job, slow.task.stage);
    let (task, label, node) = (slow.task.task.0, label.word(), inputs.node);
    let times = times(inputs);
    format!("{stage}/{task}: {label}: {what}: on {node} {times}; {}", spent(inputs))
}

fn stage_name(work: &Work, job: JobId, stage: StageIndex) -> &'static str {
    let kinds = work.jobs.get(&job).map(|job| job.stage_kinds());
    kinds.and_then(|kinds| kinds.get(usize::from(stage.0))).map_or("stage", |kind| kind.word())
}

/// Describes how the time of an attempt was spent.
fn spent(inputs: &SpeculationFigures) -> String {
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

fn times(inputs: &SpeculationFigures) -> String {
    let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
    let left =
        inputs.left_ns.map_or_else(|| "no end is in sight".to_string(), |ns| format!("{} left", seconds(ns)));
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
        WhyLeft::OwnRecords => {
            "the same program runs at its usual speed on this node, so the records are the cause"
        }
        WhyLeft::SameBottleneck => "it would wait for the same disk, link or node",
        WhyLeft::EndsBeforeCopy => "it would not end much sooner",
        WhyLeft::EnoughCopies => "the job has its maximum of speculative attempts",
        WhyLeft::BudgetSpent => "earlier ones have used up the budget of the job",
        WhyLeft::NoSlot => "no slot was free on a node where it would help",
    }
}
