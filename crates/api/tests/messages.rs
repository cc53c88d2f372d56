//! Messages go through JSON and back unchanged, and refuse what they do not know.

use api::task::{
    AdoptResult, KeyWeight, MapAgain, MapResult, MapTask, Part, ReduceResult, ReduceTask, Resend, RunPlace,
    RunSummary, SealResult, SealTask, Spool,
};
use api::{Blame, DataSum, KeyBytes, Segment, SourceCommit, Split, Task, TaskFailure, TaskResult};
use ids::{AttemptNumber, ChunkId, DiskIndex, IfileIndex, NodeId, PlanVersion, RunId, TaskIndex};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T) {
    let text = serde_json::to_string(message).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), message, "{text}");
}

/// More than any number of JSON holds exactly.
const SUM: DataSum = DataSum { records: u64::MAX, bytes: 1 << 60, hash_sum: u128::MAX - 1 };

fn binary_key() -> KeyBytes {
    KeyBytes((0..=255).collect())
}

fn reduce_task() -> ReduceTask {
    ReduceTask {
        plan_version: PlanVersion(1),
        part_index: 3,
        ifiles: vec![IfileIndex(0), IfileIndex(7)],
        runs: vec![RunId(9)],
        places: vec![RunPlace { run: RunId(9), node: NodeId(1), replica: Some(NodeId(2)) }],
        lower_key: Some(binary_key()),
        upper_key: None,
        valid_attempts: vec![(TaskIndex(0), AttemptNumber(2))],
        older_attempts: vec![(IfileIndex(7), TaskIndex(0), AttemptNumber(1))],
        expected_bytes: u64::MAX,
        largest_blocks_bytes: u64::MAX,
        audits_sources: true,
    }
}

fn spool() -> Spool {
    let (name, attempt) = ("spool-00001.attempt-3.stage".to_string(), AttemptNumber(3));
    Spool { node: NodeId(4), name, attempt, bytes: u64::MAX, crc32c: u32::MAX }
}

#[test]
fn tasks_come_back_as_they_were() {
    let segment = Segment { file_index: 1, offset_bytes: 1 << 40, length_bytes: 5 };
    let split = Split { segments: vec![segment] };
    check(&Task::Map(MapTask { split: split.clone(), part_index: Some(0), again: None, places: Vec::new() }));
    let commit = SourceCommit { ifile: IfileIndex(2), chunk: ChunkId(1), sum: SUM };
    let again = Some(MapAgain {
        round: 2,
        ifiles: vec![IfileIndex(0)],
        expected: vec![(IfileIndex(0), SUM), (IfileIndex(2), SUM)],
        standing: vec![(AttemptNumber(3), commit)],
        resend: Some(Box::new(Resend { spool: spool(), told: MapResult::default() })),
    });
    check(&Task::Map(MapTask { split, part_index: None, again, places: Vec::new() }));
    check(&Task::Seal(SealTask::default()));
    check(&Task::Reduce(reduce_task()));
}

#[test]
fn results_come_back_as_they_were() {
    let commits = vec![SourceCommit { ifile: IfileIndex(1), chunk: ChunkId(u64::MAX), sum: SUM }];
    let withheld = vec![(IfileIndex(2), SUM)];
    let (spool, not_resent) = (Some(spool()), Some("gone".to_string()));
    let input_bytes = 7;
    check(&TaskResult::Map(MapResult {
        commits,
        withheld,
        input_bytes,
        spool,
        resent_bytes: 9,
        not_resent,
        ..MapResult::default()
    }));
    let run = RunSummary {
        run: RunId(1),
        ifile: IfileIndex(0),
        chunks: vec![ChunkId(0)],
        records: 2,
        record_bytes: 3,
        stored_bytes: 4,
        in_memory: false,
        disk: DiskIndex(1),
        block_bytes_max: 5,
        weights: vec![KeyWeight { first_key: binary_key(), bytes: 6, records: 7 }],
    };
    check(&TaskResult::Adopt(AdoptResult { runs: vec![run.clone()], ..AdoptResult::default() }));
    check(&TaskResult::Seal(SealResult { runs: vec![run], sort_seconds: 0.1, ..SealResult::default() }));
    let part = Part { name: "part-00003".to_string(), crc32c: u32::MAX, ..Part::default() };
    check(&TaskResult::Reduce(ReduceResult {
        part,
        merged: vec![(IfileIndex(0), SUM)],
        ..ReduceResult::default()
    }));
    check(&TaskFailure { exit_code: Some(7), ..TaskFailure::new(Blame::UserProgram, "tab\tand \"quotes\"") });
}

#[test]
fn unknown_fields_of_messages_are_refused() {
    let mut message = serde_json::to_value(reduce_task()).unwrap();
    message["surprise"] = 1.into();
    assert!(serde_json::from_value::<ReduceTask>(message).unwrap_err().to_string().contains("surprise"));
    assert!(serde_json::from_str::<KeyBytes>("\"0g\"").is_err());
}
