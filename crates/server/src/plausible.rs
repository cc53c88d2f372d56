//! Results of nodes are added up: numbers that no task reaches would overflow the sums, and what is out of order would be
//! cut wrongly. Such a result is refused before anything follows from it.

use api::TaskResult;
use api::task::{ChunkSummary, Part, RunSummary};
use std::path::{Component, Path};

/// More records or bytes than a task handles; a quarter of a million such numbers can be added up.
const COUNT_MAX: u64 = 1 << 46;

/// What a result says that cannot be.
pub(crate) fn problem(result: &TaskResult) -> Option<&'static str> {
    match result {
        TaskResult::Map(map) => {
            let commits = map.commits.iter().flat_map(|commit| [commit.sum.records, commit.sum.bytes]);
            let counts = [map.input_bytes, map.input_records, map.output_records, map.output_bytes];
            let withheld = map.withheld.iter().flat_map(|(_, sum)| [sum.records, sum.bytes]);
            let spooled = map.spool.as_ref().map_or(0, |spool| spool.bytes);
            let counts = commits.chain(counts).chain(withheld).chain([map.unread_bytes, spooled]);
            let counts = counts.chain([map.resent_bytes]);
            too_large(counts).or_else(|| map.part.as_ref().and_then(problem_of_part))
        }
        TaskResult::Seal(seal) => too_large([seal.raw_spills, seal.raw_spill_bytes])
            .or_else(|| seal.chunks.iter().find_map(problem_of_chunk))
            .or_else(|| seal.runs.iter().find_map(problem_of_run)),
        TaskResult::Adopt(adopt) => {
            let of_chunks = adopt.chunks.iter().find_map(problem_of_chunk);
            of_chunks.or_else(|| adopt.runs.iter().find_map(problem_of_run))
        }
        TaskResult::Merge(merge) => {
            too_large([merge.retrievals, merge.retrieved_bytes]).or_else(|| problem_of_run(&merge.run))
        }
        TaskResult::Reduce(reduce) => {
            let merged = reduce.merged.iter().flat_map(|(_, sum)| [sum.records, sum.bytes]);
            let counts = [reduce.groups, reduce.unread_bytes, reduce.dropped_records];
            let counts = merged.chain(counts).chain([reduce.retrievals, reduce.retrieved_bytes]);
            too_large(counts).or_else(|| problem_of_part(&reduce.part))
        }
        TaskResult::Commit(_) | TaskResult::Run(_) => None,
    }
}

fn too_large(counts: impl IntoIterator<Item = u64>) -> Option<&'static str> {
    counts.into_iter().any(|count| count > COUNT_MAX).then_some("more than any task can have handled")
}

fn problem_of_chunk(chunk: &ChunkSummary) -> Option<&'static str> {
    let sources = chunk.sources.iter().flat_map(|(_, sum)| [sum.records, sum.bytes]);
    too_large(sources.chain([chunk.capacity_bytes, chunk.appended_bytes]))
}

fn problem_of_run(run: &RunSummary) -> Option<&'static str> {
    let weights = run.weights.iter().flat_map(|weight| [weight.bytes, weight.records]);
    let counts = [run.records, run.record_bytes, run.stored_bytes, run.block_bytes_max];
    too_large(weights.chain(counts)).or_else(|| {
        let in_order = run.weights.is_sorted_by(|before, after| before.first_key <= after.first_key);
        (!in_order).then_some("a key index out of order")
    })
}

/// The commit renames the file of this name; it may be no way to another directory.
fn problem_of_part(part: &Part) -> Option<&'static str> {
    let mut parts = Path::new(&part.attempt_name).components();
    let is_name = match (parts.next(), parts.next()) {
        (Some(Component::Normal(name)), None) => name == part.attempt_name.as_str(),
        _ => false,
    };
    if !is_name {
        return Some("a part whose file has no proper name");
    }
    too_large([part.bytes, part.records])
}

#[cfg(test)]
mod tests {
    use super::problem;
    use api::task::{KeyWeight, MapResult, MergeResult, Part, ReduceResult, RunSummary, SealResult};
    use api::{DataSum, KeyBytes, TaskResult};
    use ids::{DiskIndex, IfileIndex, RunId};

    fn part(attempt_name: &str) -> Part {
        Part { name: "part-00000".into(), attempt_name: attempt_name.into(), ..Part::default() }
    }

    fn run(weights: &[(&[u8], u64)]) -> RunSummary {
        let weight = |(key, bytes): &(&[u8], u64)| KeyWeight {
            first_key: KeyBytes(key.to_vec()),
            bytes: *bytes,
            records: 1,
        };
        RunSummary {
            run: RunId(1),
            ifile: IfileIndex(0),
            chunks: Vec::new(),
            records: 1,
            record_bytes: 1,
            stored_bytes: 1,
            in_memory: false,
            disk: DiskIndex(0),
            block_bytes_max: 1,
            weights: weights.iter().map(weight).collect(),
        }
    }

    #[test]
    fn what_cannot_be_is_found() {
        let check = |result: TaskResult, expected: Option<&str>| {
            let found = problem(&result);
            assert!(
                found.map_or(expected.is_none(), |found| expected.is_some_and(|text| found.contains(text)))
            );
        };
        check(TaskResult::Map(MapResult::default()), None);
        check(
            TaskResult::Map(MapResult { input_bytes: u64::MAX, ..MapResult::default() }),
            Some("more than"),
        );
        check(
            TaskResult::Seal(SealResult {
                runs: vec![run(&[(b"a", 1), (b"b", 1)])],
                ..SealResult::default()
            }),
            None,
        );
        let seal = |weights: &[(&[u8], u64)]| {
            TaskResult::Seal(SealResult { runs: vec![run(weights)], ..SealResult::default() })
        };
        check(seal(&[(b"b", 1), (b"a", 1)]), Some("order"));
        check(seal(&[(b"a", 1 << 50)]), Some("more than"));
        let merge =
            |retrievals| MergeResult { replaced: Vec::new(), run: run(&[]), retrievals, retrieved_bytes: 0 };
        check(TaskResult::Merge(merge(7)), None);
        check(TaskResult::Merge(merge(u64::MAX)), Some("more than"));
        let reduce = |name: &str, records| {
            let merged = vec![(IfileIndex(0), DataSum { records, ..DataSum::default() })];
            TaskResult::Reduce(ReduceResult { part: part(name), merged, ..ReduceResult::default() })
        };
        check(reduce(".part-00000.attempt-1", 3), None);
        check(reduce(".part-00000.attempt-1", u64::MAX), Some("more than"));
        for name in ["", "..", "a/b", "/a", "../part-00000"] {
            check(reduce(name, 3), Some("no proper name"));
        }
    }
}
