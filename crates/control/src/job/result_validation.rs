//! Validation of the results of nodes: numbers that no task reaches would overflow sums, and an index out of order
//! would be cut wrongly. A bad result is refused before it has consequences.

use crate::job::Job;
use api::task::{
    AdoptResult, AdoptTask, AdoptedCopy, ChunkSummary, CommitTask, FinishedRun, KeptRun, MapResult, MapTask,
    Part, RunResult, RunSummary, RunTask, TASK_WARNINGS_MAX,
};
use api::{Blame, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, ChunkId, IfileIndex, RunId};
use std::collections::BTreeSet;
use std::path::{Component, Path};

/// More records or bytes than a task handles; a quarter of a million such numbers can be added up without an overflow.
const COUNT_MAX: u64 = 1 << 46;
/// Longest warning, in bytes: it names a path, which may be as long as the system permits.
const WARNING_BYTES_MAX: usize = 8 << 10;

/// Most bytes of program output: each byte that is not UTF-8 becomes a character of three bytes.
pub(crate) const SAID_BYTES_MAX: usize = 3 * api::task::RUN_OUTPUT_BYTES_MAX;

impl Job {
    /// Returns an error for an impossible result, before it reaches the store. Only the engine can be at fault.
    pub(crate) fn check_result(&self, attempt: AttemptKey, result: &TaskResult) -> Result<(), TaskFailure> {
        let wrong = |what: &str| Err(TaskFailure::new(Blame::Engine, format!("{attempt} reports {what}")));
        if let Some(what) = problem(result) {
            return wrong(what);
        }
        let (problem, part) = match (self.task(attempt), result) {
            (Some(Task::Map(task)), TaskResult::Map(map)) => {
                if task.part_index.is_some() != map.part.is_some() {
                    return wrong(
                        "a part that the task does not ask for, or no part although the task asks for one",
                    );
                }
                (self.problem_of_map(task, map), task.part_index.zip(map.part.as_ref()))
            }
            (Some(Task::Seal(task)), TaskResult::Seal(seal)) => {
                let replicas = &self.results.replicas;
                let is_own = |made_by, home| made_by == task.node || home == task.node;
                let chunks = seal.chunks.iter().map(|chunk| chunk.chunk);
                let mut chunks = chunks.map(|chunk| is_own(chunk.node(), replicas.chunk_home(chunk)));
                let mut runs = seal.runs.iter().map(|run| is_own(run.run.node(), replicas.home(run.run)));
                let foreign = !chunks.all(|own| own) || !runs.all(|own| own);
                let foreign = foreign.then_some("chunks or runs of another node");
                (foreign.or_else(|| self.problem_of_inventory(&seal.chunks, &seal.runs)), None)
            }
            (Some(Task::Adopt(task)), TaskResult::Adopt(adopt)) => {
                (self.problem_of_adopted(task, adopt), None)
            }
            (Some(Task::Merge(task)), TaskResult::Merge(merge)) => {
                let known: BTreeSet<RunId> = self.run_ids().collect();
                let problem = match () {
                    () if known.contains(&merge.run.run) => Some("a merged run under an old number"),
                    () if merge.run.ifile != task.ifile => Some("a merged run of another I-file"),
                    () if merge.replaced != task.runs => {
                        Some("replaced runs that differ from those it was given")
                    }
                    () => None,
                };
                (problem, None)
            }
            (Some(Task::Reduce(task)), TaskResult::Reduce(reduce)) => {
                let foreign = reduce.merged.iter().any(|(ifile, _)| !task.ifiles.contains(ifile));
                let problem = foreign.then_some("records of an I-file it was not given");
                (problem, Some((task.part_index, &reduce.part)))
            }
            (Some(Task::Commit(task)), TaskResult::Commit(commit)) => {
                let is_foreign = commit.run.as_ref().is_some_and(|run| !self.may_record(task, run));
                (is_foreign.then_some("a run of another job"), None)
            }
            (Some(Task::Run(task)), TaskResult::Run(run)) => (problem_of_program(task, run), None),
            _ => (Some("a result of another kind of task"), None),
        };
        if let Some(what) = problem {
            return wrong(what);
        }
        let Some((index, Part { name, .. })) = part else { return Ok(()) };
        let expected = self.spec.formats.part_name(index);
        match *name == expected {
            true => Ok(()),
            false => wrong(&format!("the part {name:?} instead of {expected}")),
        }
    }

    /// Returns whether a run has the files of this job, which remembers its runs.
    fn may_record(&self, task: &CommitTask, run: &FinishedRun) -> bool {
        let Some(recording) = &self.spec.recording else { return false };
        let parts = task.parts.iter().map(|part| self.spec.output.join(&part.name));
        let outputs = run.outputs.iter().map(|output| &output.path);
        let inputs = run.inputs.iter().map(|input| &input.path);
        let own = self.spec.inputs.iter().filter(|input| input.stage_file.is_none());
        outputs.eq(parts.collect::<Vec<_>>().iter())
            && inputs.eq(own.map(|input| &input.path).chain(&recording.streamed))
            && run.environment.iter().map(|file| &file.path).eq(&recording.files)
    }

    pub(crate) fn run_ids(&self) -> impl Iterator<Item = RunId> {
        let sealed = self.results.seal.iter().flat_map(|seal| seal.runs.iter().map(|run| run.run));
        sealed.chain(self.results.merges.values().map(|merge| merge.run.run))
    }

    fn problem_of_adopted(&self, task: &AdoptTask, adopt: &AdoptResult) -> Option<&'static str> {
        let others = (!is_as_given(task, adopt)).then_some("runs that differ from those it was given");
        let of_copy =
            |copy: &AdoptedCopy| self.problem_of_inventory(&copy.chunks, std::slice::from_ref(&copy.run));
        let of_copies = || adopt.copies.iter().find_map(of_copy);
        let of_runs = || self.problem_of_inventory(&adopt.chunks, &adopt.runs);
        others.or_else(of_runs).or_else(of_copies)
    }

    pub(crate) fn problem_of_map(&self, task: &MapTask, map: &MapResult) -> Option<&'static str> {
        let appended: BTreeSet<IfileIndex> = map.commits.iter().map(|commit| commit.ifile).collect();
        let withheld: BTreeSet<IfileIndex> = map.withheld.iter().map(|(ifile, _)| *ifile).collect();
        let is_as_asked = match &task.again {
            Some(again) if !withheld.is_empty() => {
                let is_own = |ifile: &IfileIndex| again.ifiles.contains(ifile);
                withheld.len() == map.withheld.len()
                    && appended.is_disjoint(&withheld)
                    && appended.iter().all(is_own)
            }
            // An attempt that began before the loss withholds nothing. `covers_task` handles an attempt that withheld
            // something and whose task must run in full by now.
            _ => true,
        };
        if !is_as_asked {
            return Some("withheld data that differs from its order");
        }
        let keys: BTreeSet<(IfileIndex, ChunkId)> =
            map.commits.iter().map(|commit| (commit.ifile, commit.chunk)).collect();
        if keys.len() != map.commits.len() {
            return Some("two commits to the same chunk");
        }
        let outside = keys.iter().any(|(ifile, _)| ifile.0 >= self.ifile_count());
        outside.then_some("a commit to an I-file that the job does not have")
    }

    pub(crate) fn problem_of_inventory(
        &self,
        chunks: &[ChunkSummary],
        runs: &[RunSummary],
    ) -> Option<&'static str> {
        let chunk_ids: BTreeSet<ChunkId> = chunks.iter().map(|chunk| chunk.chunk).collect();
        let run_ids: BTreeSet<RunId> = runs.iter().map(|run| run.run).collect();
        if chunk_ids.len() != chunks.len() || run_ids.len() != runs.len() {
            return Some("two chunks or two runs with the same number");
        }
        let mut ifiles = chunks.iter().map(|chunk| chunk.ifile).chain(runs.iter().map(|run| run.ifile));
        let outside = ifiles.any(|ifile| ifile.0 >= self.ifile_count());
        outside.then_some("a chunk or run of an I-file that the job does not have")
    }
}

/// Returns the reason why a result is impossible; None if it may be right.
pub(crate) fn problem(result: &TaskResult) -> Option<&'static str> {
    match result {
        TaskResult::Map(map) => {
            let commits = map.commits.iter().flat_map(|commit| [commit.sum.records, commit.sum.bytes]);
            let counts = [map.input_bytes, map.input_records, map.output_records, map.output_bytes];
            let withheld = map.withheld.iter().flat_map(|(_, sum)| [sum.records, sum.bytes]);
            let spooled = map.spool.as_ref().map_or(0, |spool| spool.bytes);
            let counts = commits.chain(counts).chain(withheld).chain([map.unread_bytes, spooled]);
            let stored = [map.stored_here_bytes, map.stored_elsewhere_bytes, map.stored_passed_on_bytes];
            let counts = counts.chain([map.resent_bytes]).chain(stored);
            let is_long = |warning: &String| warning.len() > WARNING_BYTES_MAX;
            if map.warnings.len() > TASK_WARNINGS_MAX || map.warnings.iter().any(is_long) {
                return Some("too many warnings");
            }
            too_large(counts).or_else(|| map.part.as_ref().and_then(problem_of_part))
        }
        TaskResult::Seal(seal) => too_large([seal.raw_spills, seal.raw_spill_bytes])
            .or_else(|| seal.chunks.iter().find_map(problem_of_chunk))
            .or_else(|| seal.runs.iter().find_map(problem_of_run)),
        TaskResult::Adopt(adopt) => {
            let copied = || adopt.copies.iter().flat_map(|copy| &copy.chunks);
            let of_chunks = adopt.chunks.iter().chain(copied()).find_map(problem_of_chunk);
            let mut runs = adopt.runs.iter().chain(adopt.copies.iter().map(|copy| &copy.run));
            of_chunks.or_else(|| runs.find_map(problem_of_run))
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

/// Returns whether a node opened the runs that it was given. Runs with replicas may be missing; replicas must be among
/// the given ones.
fn is_as_given(task: &AdoptTask, adopt: &AdoptResult) -> bool {
    let missing: BTreeSet<RunId> = adopt.missing.iter().copied().collect();
    let may_miss = |run: &&KeptRun| run.has_copy && missing.contains(&run.number());
    let opened = task.runs.iter().filter(|run| !may_miss(run)).map(KeptRun::number);
    let copies: BTreeSet<RunId> = task.copies.iter().map(KeptRun::number).collect();
    opened.eq(adopt.runs.iter().map(|run| run.run))
        && task.runs.iter().filter(may_miss).count() == adopt.missing.len()
        && adopt.copies.iter().all(|copy| copies.contains(&copy.run.run))
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

/// Checks the name of a part's file. The commit renames that file, so the name must not lead to another directory.
fn problem_of_part(part: &Part) -> Option<&'static str> {
    let mut parts = Path::new(&part.attempt_name).components();
    let is_name = match (parts.next(), parts.next()) {
        (Some(Component::Normal(name)), None) => name == part.attempt_name.as_str(),
        _ => false,
    };
    if !is_name {
        return Some("a part whose file name is not valid");
    }
    too_large([part.bytes, part.records])
}

fn problem_of_program(task: &RunTask, run: &RunResult) -> Option<&'static str> {
    let most = run.standard_output.len().max(run.standard_error.len());
    let foreign = || {
        let programs = task.programs().zip(&run.runs);
        let mut runs = programs.filter_map(|(program, run)| Some((program, run.as_ref()?)));
        runs.any(|(program, run)| !program.declares(run))
    };
    let counts = || !run.runs.is_empty() && run.runs.len() != task.programs().count();
    let unasked = || {
        let mut answers = task.looks.iter().zip(&run.looked);
        answers.any(|(look, answer)| answer.differences.iter().any(|found| !found.is_about(&look.run)))
    };
    match () {
        () if most > SAID_BYTES_MAX => Some("more program output than the history stores"),
        () if counts() || foreign() => Some("runs of other programs"),
        () if run.looked.len() != task.looks.len() || unasked() => Some("answers to other questions"),
        () => None,
    }
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
    fn impossible_results_are_found() {
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
            check(reduce(name, 3), Some("name is not valid"));
        }
    }
}
