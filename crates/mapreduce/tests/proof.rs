//! The proof finds every single change of what was merged.

use api::task::{MapResult, ReduceResult};
use api::{DataSum, SourceCommit};
use ids::{AttemptNumber, ChunkId, IfileIndex, JobId, TaskIndex};
use mapreduce::{JobResults, prove};
use proptest::prelude::*;

const IFILES: u32 = 4;

fn record_of(ifile: u32, bytes: u64, hash: u128) -> (IfileIndex, DataSum) {
    (IfileIndex(ifile % IFILES), DataSum { records: 1, bytes, hash_sum: hash })
}

/// Every record is committed by one map and merged by some reduce task.
fn results(records: &[(IfileIndex, DataSum)], maps: usize, reduces: usize) -> JobResults {
    let mut results = JobResults::new(JobId(1), Vec::new());
    for task in 0..maps {
        let commits = records.iter().skip(task).step_by(maps).map(|(ifile, sum)| SourceCommit {
            ifile: *ifile,
            chunk: ChunkId(u64::from(ifile.0)),
            sum: *sum,
        });
        let result = MapResult { commits: commits.collect(), ..MapResult::default() };
        results.maps.insert(TaskIndex(task as u32), (AttemptNumber(0), result));
    }
    for task in 0..reduces {
        let merged = records.iter().rev().skip(task).step_by(reduces).copied().collect();
        results.reduces.insert(TaskIndex(task as u32), ReduceResult { merged, ..ReduceResult::default() });
    }
    results
}

proptest! {
    #[test]
    fn any_single_change_is_found(
        raw in proptest::collection::vec((any::<u32>(), 1u64..1000, 1u128..), 1..60),
        maps in 1usize..5,
        reduces in 1usize..5,
        which in any::<prop::sample::Index>(),
        change in 0u8..5,
    ) {
        let records: Vec<_> = raw.into_iter().map(|(ifile, bytes, hash)| record_of(ifile, bytes, hash)).collect();
        let agreeing = results(&records, maps, reduces);
        prop_assert!(prove(&agreeing, IFILES).agrees());

        let mut damaged = agreeing;
        let mut merged: Vec<&mut Vec<(IfileIndex, DataSum)>> =
            damaged.reduces.values_mut().map(|reduce| &mut reduce.merged).filter(|rows| !rows.is_empty()).collect();
        let task = which.index(merged.len());
        let rows = &mut *merged[task];
        let row = which.index(rows.len());
        match change {
            // Lost, taken twice, altered, shortened, in the wrong I-file.
            0 => drop(rows.remove(row)),
            1 => rows.push(rows[row]),
            2 => rows[row].1.hash_sum ^= 1,
            3 => rows[row].1.bytes -= 1,
            _ => rows[row].0 = IfileIndex((rows[row].0.0 + 1) % IFILES),
        }
        prop_assert!(!prove(&damaged, IFILES).agrees());
    }
}
