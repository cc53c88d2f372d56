//! Steps that may begin before the step whose standard output they read has ended (Clustera, section 3.6.5). They were
//! not joined with it into one pipeline, because their cores do not fit on one node together, or because something that
//! holds for an attempt as a whole tells them apart.

use crate::PlannedWorkflow;
use crate::pipelines::pipelines;
use api::task::{RunTask, is_stored_path};
use ids::StepNumber;
use jobkind::{EarlyStep, FinishedSteps, NodeSize};

/// Returns the pipelines that may begin while a step runs: the first program of each reads the standard output of the
/// step, and all else that they need is finished.
pub(crate) fn early_readers(
    spec: &PlannedWorkflow,
    writer: StepNumber,
    finished: &FinishedSteps<'_>,
    size: NodeSize,
) -> Vec<EarlyStep> {
    let wrote = spec.step_at(writer);
    let is_ready = |reader: &StepNumber| {
        let before = &spec.step_at(*reader).after;
        !finished.begun.contains(reader)
            && before.iter().all(|before| *before == writer || finished.has(*before))
    };
    let ready = wrote.stream_readers.iter().copied().filter(is_ready);
    let steps = pipelines(spec, ready, |step| finished.has(step), finished.begun, size);
    let early = steps.into_iter().filter_map(|step| {
        let task = step.work.program()?;
        let mut made = spec.step_at(step.number).made_inputs.iter().filter(|made| made.writer == writer);
        // A named pipe cannot lead to another node.
        let made = made.next().filter(|first| first.is_standard && made.next().is_none())?;
        let path = wrote.program().outputs.get(made.output)?.path.clone();
        // A stored file has no path at which a node could write it.
        let waits = task.programs().all(may_wait) && !is_stored_path(&path);
        waits.then_some(EarlyStep { step, writer, path })
    });
    early.collect()
}

/// Returns whether a program may wait for its input as long as the writer runs: the wait would count against a limit of
/// its time.
fn may_wait(program: &RunTask) -> bool {
    program.limits.seconds.is_none() && !program.in_place
}
