//! Progress of a job, phase by phase, from the counters of the node and the stages of the server.

use ids::StageKind;
use node::NodeProgress;
use server::{JobProgress, StageProgress};

/// Progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Waiting,
    Running,
    Done,
}

/// A phase of a job for users: its maps, its sorting, or its reduces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    pub name: &'static str,
    pub standing: Standing,
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// False while the previous phase runs and may add to it, and for compressed input beyond its stored bytes.
    pub total_is_known: bool,
}

/// Returns the phases in order: map, sort, reduce; a job without a shuffle has only the first.
pub fn phases(node: &NodeProgress, job: &JobProgress) -> Vec<Phase> {
    let stages = |kinds: &[StageKind]| -> Vec<&StageProgress> {
        job.stages.iter().filter(|stage| kinds.contains(&stage.kind)).collect()
    };
    let rows = [
        ("map", stages(&[StageKind::Map]), node.input_bytes_read, node.input_bytes_total),
        (
            "sort",
            stages(&[StageKind::Seal, StageKind::Adopt, StageKind::Merge]),
            node.sorted_bytes,
            node.appended_bytes,
        ),
        // Everything that was appended is merged again, except data of losing attempts.
        ("reduce", stages(&[StageKind::Reduce]), node.reduced_bytes, node.appended_bytes),
    ];
    let mut before_is_done = true;
    let mut phases = Vec::new();
    for (name, stages, done_bytes, total_bytes) in rows {
        if stages.is_empty() {
            continue;
        }
        let standing = standing(&stages, done_bytes);
        let total_is_known = before_is_done && done_bytes <= total_bytes;
        // Counters are read one after another, and compressed input yields more than its stored bytes.
        let done_bytes = if standing == Standing::Done { total_bytes } else { done_bytes.min(total_bytes) };
        phases.push(Phase { name, standing, done_bytes, total_bytes, total_is_known });
        before_is_done = standing == Standing::Done;
    }
    phases
}

fn standing(stages: &[&StageProgress], done_bytes: u64) -> Standing {
    if stages.iter().all(|stage| stage.expanded && stage.done == stage.tasks) {
        Standing::Done
    } else if done_bytes > 0 || stages.iter().any(|stage| stage.running > 0 || stage.done > 0) {
        Standing::Running
    } else {
        Standing::Waiting
    }
}

#[cfg(test)]
mod tests {
    use super::{Standing, phases};
    use ids::StageKind;
    use node::NodeProgress;
    use server::{JobProgress, StageProgress};

    fn check(stages: &[(StageKind, bool, u32, u32)], sorted_bytes: u64, expected: &[(&str, Standing, u64)]) {
        let stages = stages.iter().map(|(kind, expanded, tasks, done)| StageProgress {
            kind: *kind,
            expanded: *expanded,
            tasks: *tasks,
            done: *done,
            running: 0,
            skipped: 0,
        });
        let job = JobProgress { stages: stages.collect(), over: false, parts_ready: false };
        let node = NodeProgress {
            input_bytes_read: 150,
            input_bytes_total: 100,
            appended_bytes: 80,
            sorted_bytes,
            ..NodeProgress::default()
        };
        let phases = phases(&node, &job);
        let got: Vec<_> = phases.iter().map(|each| (each.name, each.standing, each.done_bytes)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn phases_follow_stages() {
        use Standing::{Done, Running, Waiting};
        let job = |map: u32, sealed: bool| {
            [
                (StageKind::Map, true, 4, map),
                (StageKind::Seal, sealed, u32::from(sealed), u32::from(sealed)),
                (StageKind::Merge, sealed, 0, 0),
                (StageKind::Reduce, false, 0, 0),
                (StageKind::Commit, false, 0, 0),
            ]
        };
        check(&job(1, false), 0, &[("map", Running, 100), ("sort", Waiting, 0), ("reduce", Waiting, 0)]);
        check(&job(1, false), 20, &[("map", Running, 100), ("sort", Running, 20), ("reduce", Waiting, 0)]);
        check(&job(4, true), 60, &[("map", Done, 100), ("sort", Done, 80), ("reduce", Waiting, 0)]);
        check(&[(StageKind::Map, true, 0, 0), (StageKind::Commit, false, 0, 0)], 0, &[("map", Done, 100)]);
    }
}
