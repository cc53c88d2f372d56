//! Copies parts that later stages read to a second node, like its parent module for runs.

use crate::shared::Shared;
use crate::shuffle::remote::OtherNodes;
use crate::shuffle::replicate::{Offered, candidates, offer};
use api::machine::ReplicatedPart;
use dataport::{StageFileHere, StageFileName, StageFileRef};
use ids::{JobId, NodeId, TaskIndex};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// Nodes that got copies of a job's parts from here; None for a part that cannot be sent.
pub(crate) type SentParts = BTreeMap<StageFileName, Option<NodeId>>;

/// Copies newly completed parts, and those whose replica was lost. Returns whether any could not be sent now.
pub(crate) fn send_parts(shared: &Shared, job: JobId, sent: &mut SentParts) -> bool {
    let Some(files) = shared.jobs().get(&job).map(|data| std::sync::Arc::clone(&data.stage_files)) else {
        return false;
    };
    let own = files.own();
    if own.is_empty() {
        return false;
    }
    let Some(others) = shared.other_nodes(job) else { return true };
    let lives = |node: &NodeId| others.peers.iter().any(|peer| peer.node == *node);
    sent.retain(|_, to| to.as_ref().is_none_or(lives));
    let mut waits = false;
    for (name, here) in own {
        if sent.contains_key(&name) {
            continue;
        }
        match send(shared, job, &others, &name, &here) {
            Offered::Taken(node, ()) => drop(sent.insert(name, Some(node))),
            // A damaged one is recomputed.
            Offered::Unreadable | Offered::Cancelled => drop(sent.insert(name, None)),
            Offered::NotNow => waits = true,
        }
    }
    waits
}

fn send(
    shared: &Shared,
    job: JobId,
    others: &OtherNodes,
    name: &StageFileName,
    here: &StageFileHere,
) -> Offered<()> {
    let Some(task) = task_of(name) else { return Offered::Cancelled };
    let file = StageFileRef { name: name.clone(), payload: here.payload };
    let may_go_on = |_: usize| shared.jobs().contains_key(&job);
    let peers = candidates(others, name).into_iter().map(|peer| (peer, ()));
    offer(&format_args!("{name} of job {job}"), peers, |peer, ()| {
        let began = Instant::now();
        let bytes = others.client.copy_stage_file(peer, job, &file, &here.path, &may_go_on)?;
        let sending_ns = began.elapsed().as_nanos() as u64;
        let single_ns = (age(here).as_nanos() as u64).max(sending_ns);
        let (name, to) = (name.to_string(), peer.node);
        let told = ReplicatedPart { job, task, name, to, bytes, single_ns, sending_ns };
        if let Some(record_data) = shared.record_data.get() {
            record_data.replicated_part(told);
        }
        Ok(())
    })
}

/// Returns the time since its completion, by the clock of the file system.
pub(crate) fn age(here: &StageFileHere) -> Duration {
    let modified = std::fs::metadata(&here.path).and_then(|metadata| metadata.modified());
    modified.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok()).unwrap_or_default()
}

/// Returns the number in `part-00003.attempt-0.stage`.
fn task_of(name: &StageFileName) -> Option<TaskIndex> {
    let number = name.as_str().split('.').next()?.strip_prefix("part-")?;
    number.parse().ok().map(TaskIndex)
}

#[cfg(test)]
mod tests {
    use super::task_of;
    use api::flow::stage_file_name;
    use dataport::StageFileName;
    use ids::{AttemptNumber, TaskIndex};

    #[test]
    fn a_name_tells_its_task() {
        let name = StageFileName::new(stage_file_name(TaskIndex(123_456), AttemptNumber(7))).unwrap();
        assert_eq!(task_of(&name), Some(TaskIndex(123_456)));
        assert_eq!(task_of(&StageFileName::new("stage-2.part-1.stage").unwrap()), None);
    }
}
