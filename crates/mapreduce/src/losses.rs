//! Recomputation of lost data, and of no more than was lost (Sailfish section 6.3.3; `docs/internals/lost-data.md`).
//!
//! A map task that lost some of its data runs again. It appends to the I-files that lost data, and only counts its
//! records for all others. If the counts equal, I-file by I-file, the commits of the earlier attempt, the data is the
//! same: the new attempt replaces the earlier one in the I-files that lost data, and the earlier data in the others
//! stays valid, as does every finished reduce task. If they differ, the task is not deterministic: it runs in full, and
//! all reduce tasks run again.
//!
//! If the data of a task was spooled (mode `selective`) and its spool still exists, the same is done from the spool:
//! the attempt replaces the earlier one in the same way, without the user's program.

mod fall_back;
mod kept_copies;
mod repair;

pub use fall_back::CopyAgain;
pub use repair::Repair;

use crate::{JobResults, LostData};
use api::DataSum;
use api::task::{MapAgain, MapResult, Resend, RunSummary, SealResult};
use ids::{AttemptNumber, ChunkId, IfileIndex, NodeId, RunId, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// The verdict on a result of a map task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The result counts.
    Good,
    /// The attempt ran for less data than is lost by now: the task runs again.
    Stale,
    /// The data differs from before: no earlier data of the task is valid any more.
    Differs,
}

/// The state of the chunks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealState {
    /// Maps append to chunks: chunks count.
    Open,
    /// The maps are over and their chunks are runs, which may have moved: runs count.
    Sealed,
}

/// The inventories of nodes after data was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inventories {
    /// Nodes report their inventory again only if a task needs the lost data.
    Stand,
    /// Nodes report their inventory again in any case.
    ReportAgain,
}

impl JobResults {
    /// Returns whether the next stages read any data on a node.
    pub fn needs(&self, node: NodeId, seal_state: SealState) -> bool {
        self.needs_any(&LostData::node(node), seal_state)
    }

    /// Does the same for any data.
    pub fn needs_any(&self, gone: &LostData, seal_state: SealState) -> bool {
        match seal_state {
            SealState::Sealed => {
                let is_there = |run: &&RunSummary| gone.takes_run(run, &self.replicas);
                let mut there = self.surviving_runs().into_iter().filter(is_there);
                there.any(|run| self.is_read(run.ifile))
                    || self.all_chunks().any(|chunk| gone.chunks.contains(&chunk))
            }
            SealState::Open => self.all_chunks().any(|chunk| gone.takes_chunk(chunk, &self.replicas)),
        }
    }

    /// Returns whether a planned or future reduce task reads an I-file.
    pub(crate) fn is_read(&self, ifile: IfileIndex) -> bool {
        let is_done = |part_index| self.reduces.contains_key(&TaskIndex(part_index));
        self.keeps_runs
            || self.plan.is_empty()
            || self.plan.iter().any(|task| task.ifiles.contains(&ifile) && !is_done(task.part_index))
    }

    /// Returns the chunks of all data that counts: the data of winners, and the valid data of tasks that run again.
    pub(crate) fn all_chunks(&self) -> impl Iterator<Item = ChunkId> {
        let committed = self.maps.values().flat_map(|(_, map)| &map.commits);
        let standing = self.again.values().flat_map(|again| again.standing.iter().map(|(_, commit)| commit));
        committed.chain(standing).map(|commit| commit.chunk)
    }

    /// Handles lost data. Returns the map tasks that must run again for the lost data: the data in lost runs, or before
    /// the seal in lost chunks, and the data that was appended on nodes that left before. Finished reduce tasks and the
    /// ranges of the plan stay valid. Returns None, and forgets nothing, if no task needs the data and the inventories
    /// stand. If nodes report their inventory again, the list of tasks may be empty.
    ///
    /// [`Self::fall_back`] must have replaced as much as possible by replicas before.
    pub fn lose(
        &mut self,
        gone: &LostData,
        seal_state: SealState,
        has_left: impl Fn(NodeId) -> bool,
        inventories: Inventories,
    ) -> Option<Vec<TaskIndex>> {
        if !self.needs_any(gone, seal_state) && inventories == Inventories::Stand {
            return None;
        }
        self.regenerations += 1;
        let replicas = std::mem::take(&mut self.replicas);
        let in_lost_runs: BTreeSet<ChunkId> = match seal_state {
            SealState::Sealed => {
                let is_gone = |run: &&RunSummary| gone.takes_run(run, &replicas);
                let lost = self.surviving_runs().into_iter().filter(is_gone);
                lost.flat_map(|run| run.chunks.iter().copied()).collect()
            }
            SealState::Open => BTreeSet::new(),
        };
        let is_lost = |chunk: ChunkId| {
            gone.chunks.contains(&chunk)
                || (seal_state == SealState::Open && gone.takes_chunk(chunk, &replicas))
                || in_lost_runs.contains(&chunk)
                || has_left(replicas.chunk_home(chunk))
        };
        let lives = |node: NodeId| Some(node) != gone.node && !has_left(node);
        let mut victims = self.lose_standing(&is_lost, &lives);
        victims.extend(self.lose_commits(&is_lost, &lives));
        victims.sort_unstable();
        if victims.is_empty() {
            self.regenerations -= 1;
        }
        let of_lost_data: BTreeSet<RunId> = replicas
            .iter()
            .filter(|(_, replica)| replica.chunks.iter().any(|chunk| is_lost(*chunk)))
            .map(|(run, _)| run)
            .collect();
        self.replicas = replicas;
        self.replicas.forget(|run, _| of_lost_data.contains(&run));
        self.seal = None;
        self.merges.clear();
        if !self.plan.is_empty() {
            self.planned_before = std::mem::take(&mut self.plan);
        }
        Some(victims)
    }

    fn lose_commits(
        &mut self,
        is_lost: &impl Fn(ChunkId) -> bool,
        lives: &impl Fn(NodeId) -> bool,
    ) -> Vec<TaskIndex> {
        let has_lost = |map: &MapResult| map.commits.iter().any(|commit| is_lost(commit.chunk));
        let victims = self.maps.iter().filter(|(_, (_, map))| has_lost(map)).map(|(task, _)| *task);
        let victims: Vec<TaskIndex> = victims.collect();
        for task in &victims {
            let Some((attempt, map)) = self.maps.remove(task) else { continue };
            let older = self.older.remove(task).unwrap_or_default();
            let round = self.regenerations;
            let mut again = MapAgain { expected: sums(&map), round, ..MapAgain::default() };
            again.standing = map
                .commits
                .iter()
                .map(|commit| (older.get(&commit.ifile).copied().unwrap_or(attempt), *commit))
                .collect();
            give_up_lost(&mut again, is_lost);
            again.resend = resend(map, lives);
            self.again.insert(*task, again);
        }
        victims
    }

    /// Returns the tasks that run again already and of which more is lost now.
    fn lose_standing(
        &mut self,
        is_lost: &impl Fn(ChunkId) -> bool,
        lives: &impl Fn(NodeId) -> bool,
    ) -> Vec<TaskIndex> {
        let lose = |(task, again): (&TaskIndex, &mut MapAgain)| {
            again.resend.take_if(|resend| !lives(resend.spool.node));
            give_up_lost(again, is_lost).then_some(*task)
        };
        self.again.iter_mut().filter_map(lose).collect()
    }

    /// Judges a result of a map task before it counts.
    pub fn verdict(&self, task: TaskIndex, result: &MapResult) -> Verdict {
        let Some(again) = self.again.get(&task) else { return Verdict::Good };
        if result.withheld.iter().any(|(ifile, _)| again.ifiles.contains(ifile)) {
            return Verdict::Stale;
        }
        if sums(result) == again.expected { Verdict::Good } else { Verdict::Differs }
    }

    /// Returns whether a map task that runs again gives other data than before.
    pub fn differs(&self, task: TaskIndex, result: &MapResult) -> bool {
        self.verdict(task, result) == Verdict::Differs
    }

    /// Removes from an inventory the chunks that do not count or that are known already, and the runs without a chunk
    /// that counts and is in no other run. These are data of attempts that lost, and lost data that was recomputed on
    /// other nodes: damaged data would be read for nothing. Entries that another node reported before stay as they are:
    /// that node has a replica of a damaged run.
    pub fn retain_committed(&self, seal: &mut SealResult) {
        let committed: BTreeSet<ChunkId> = self.all_chunks().collect();
        let told = self.seal.as_ref();
        let chunks: BTreeSet<ChunkId> =
            told.into_iter().flat_map(|told| told.chunks.iter().map(|chunk| chunk.chunk)).collect();
        let mut covered = self.covered();
        seal.chunks.retain(|chunk| committed.contains(&chunk.chunk) && !chunks.contains(&chunk.chunk));
        seal.runs.retain(|run| {
            let counts = run.chunks.iter().filter(|chunk| committed.contains(chunk));
            let counts: Vec<ChunkId> = counts.copied().collect();
            let is_new = counts.iter().any(|chunk| !covered.contains(chunk));
            covered.extend(counts);
            is_new
        });
    }

    /// Returns the chunks of the runs that nodes have reported since the last loss.
    fn covered(&self) -> BTreeSet<ChunkId> {
        self.seal.iter().flat_map(|told| &told.runs).flat_map(|run| run.chunks.iter().copied()).collect()
    }

    /// Returns the chunks that count and are only in runs of this inventory that must not be read, because another
    /// reported run has some of the same chunks. This happens after a merge whose result did not count, if a replica
    /// replaces one of its runs.
    pub fn in_clashing_runs(&self, seal: &SealResult) -> Vec<ChunkId> {
        let committed: BTreeSet<ChunkId> = self.all_chunks().collect();
        let mut covered = self.covered();
        let mut clashing = Vec::new();
        for run in &seal.runs {
            let counts = run.chunks.iter().copied().filter(|chunk| committed.contains(chunk));
            let (known, new): (Vec<ChunkId>, Vec<ChunkId>) =
                counts.partition(|chunk| covered.contains(chunk));
            match known.is_empty() {
                true => covered.extend(new),
                false => clashing.extend(new),
            }
        }
        clashing
    }

    /// Resets a map task that gave other data than before: nothing of it is valid any more, nor anything made from it.
    pub fn run_in_full(&mut self, task: TaskIndex) {
        self.again.remove(&task);
        self.planned_before.clear();
        self.reduces.clear();
    }

    /// Records the valid result of the winner of a map task.
    pub(crate) fn record_map(&mut self, task: TaskIndex, attempt: AttemptNumber, mut result: MapResult) {
        if result.part.is_some() {
            self.part_is_new(task);
        }
        if let Some(again) = self.again.remove(&task) {
            // Valid data of earlier attempts is in their spool too, but a new spool has only its own data.
            let spool = again.resend.as_ref().map(|resend| &resend.spool);
            if !result.withheld.is_empty() {
                result.spool.take_if(|told| Some(&*told) != spool);
            }
            // An attempt that ran in full, because it began before the loss, needs nothing of the others.
            let withheld: BTreeSet<IfileIndex> = result.withheld.iter().map(|(ifile, _)| *ifile).collect();
            let standing = again.standing.iter().filter(|(_, commit)| withheld.contains(&commit.ifile));
            let mut older = BTreeMap::new();
            for (number, commit) in standing {
                result.commits.push(*commit);
                older.insert(commit.ifile, *number);
            }
            // Withheld records are among its commits from now on: if they counted twice, the next rerun could never
            // match.
            result.withheld.clear();
            if !older.is_empty() {
                self.older.insert(task, older);
            }
        }
        self.maps.insert(task, (attempt, result));
    }

    /// Returns the attempt of a map task that counts in an I-file.
    pub fn attempt_in(&self, task: TaskIndex, attempt: AttemptNumber, ifile: IfileIndex) -> AttemptNumber {
        self.older.get(&task).and_then(|older| older.get(&ifile)).copied().unwrap_or(attempt)
    }

    /// Returns, in order, the I-files and map tasks for which another attempt counts than the one in
    /// [`Self::valid_attempts`].
    pub fn older_attempts(&self) -> Vec<(IfileIndex, TaskIndex, AttemptNumber)> {
        let of_task = |(task, older): (&TaskIndex, &BTreeMap<IfileIndex, AttemptNumber>)| {
            let task = *task;
            let rows: Vec<_> = older.iter().map(|(ifile, attempt)| (*ifile, task, *attempt)).collect();
            rows
        };
        let mut rows: Vec<_> = self.older.iter().flat_map(of_task).collect();
        rows.sort_unstable();
        rows
    }
}

/// Abandons valid data in lost chunks, with all other data of the task in the same I-files. Returns whether there was
/// any.
fn give_up_lost(again: &mut MapAgain, is_lost: &impl Fn(ChunkId) -> bool) -> bool {
    let lost: BTreeSet<IfileIndex> = again
        .standing
        .iter()
        .filter(|(_, commit)| is_lost(commit.chunk))
        .map(|(_, commit)| commit.ifile)
        .collect();
    again.standing.retain(|(_, commit)| !lost.contains(&commit.ifile));
    again.ifiles.extend(&lost);
    again.ifiles.sort_unstable();
    !lost.is_empty()
}

/// Returns the way to send the data of a task again, if it has a spool on a live node.
fn resend(map: MapResult, lives: &impl Fn(NodeId) -> bool) -> Option<Box<Resend>> {
    let spool = map.spool.clone().filter(|spool| lives(spool.node))?;
    let told = MapResult {
        commits: Vec::new(),
        withheld: Vec::new(),
        spool: None,
        resent_bytes: 0,
        not_resent: None,
        ..map
    };
    Some(Box::new(Resend { spool, told }))
}

/// Returns the sums of the output of an attempt, per I-file with data.
fn sums(map: &MapResult) -> Vec<(IfileIndex, DataSum)> {
    let mut sums: BTreeMap<IfileIndex, DataSum> = BTreeMap::new();
    let appended = map.commits.iter().map(|commit| (commit.ifile, commit.sum));
    for (ifile, sum) in appended.chain(map.withheld.iter().copied()) {
        sums.entry(ifile).or_default().add(&sum);
    }
    sums.into_iter().filter(|(_, sum)| sum.records > 0).collect()
}

#[cfg(test)]
mod tests {
    use crate::losses::Inventories::{ReportAgain, Stand};
    use crate::losses::SealState::{Open, Sealed};
    use crate::losses::Verdict;
    use crate::test_job::{finish_reduces, map_result, run, seal_of, spec, split, sum};
    use crate::{JobResults, LostData, expand, prove};
    use api::task::{MapResult, MapTask, MergeResult, ReduceTask, RunSummary, SealResult, Spool};
    use api::{SourceCommit, Task, TaskResult};
    use ids::StageKind;
    use ids::*;

    #[test]
    fn surviving_data_is_expected_once_over_several_losses() {
        let on = |node, ifile| SourceCommit {
            ifile: IfileIndex(ifile),
            chunk: ChunkId::on(NodeId(node), ifile.into()),
            sum: sum(1),
        };
        let mut results = JobResults::default();
        results.maps.insert(TaskIndex(0), (AttemptNumber(0), map_result(&[on(1, 0), on(2, 1)])));
        let task = TaskKey { job: JobId(1), stage: StageIndex(0), task: TaskIndex(0) };
        // Each rerun appends where the one before it did, and that node dies too.
        for (lost, next) in [(1, 3), (3, 4), (4, 5)] {
            let victims = results.lose(&LostData::node(NodeId(lost)), Open, |_| false, Stand);
            assert_eq!(victims, Some(vec![TaskIndex(0)]));
            let stand_in =
                MapResult { withheld: vec![(IfileIndex(1), sum(1))], ..map_result(&[on(next, 0)]) };
            assert_eq!(results.verdict(TaskIndex(0), &stand_in), Verdict::Good, "after node {lost}");
            results.record(AttemptKey { task, attempt: AttemptNumber(next) }, TaskResult::Map(stand_in));
        }
        assert_eq!(results.older_attempts(), [(IfileIndex(1), TaskIndex(0), AttemptNumber(0))]);
    }

    #[test]
    fn data_on_a_lost_node_is_made_again() {
        let commit = |node, ifile| SourceCommit {
            ifile: IfileIndex(ifile),
            chunk: ChunkId::on(NodeId(node), ifile.into()),
            sum: sum(1),
        };
        let mut results = JobResults::default();
        for (task, node) in [(0, 1), (1, 2), (2, 2)] {
            let map = map_result(&[commit(node, 0), commit(1, 1)][..if task == 1 { 1 } else { 2 }]);
            results.maps.insert(TaskIndex(task), (AttemptNumber(0), map));
        }
        let task = TaskKey { job: JobId(1), stage: StageIndex(1), task: TaskIndex(0) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
        let seal = seal_of(&results);
        // Nodes report one after the other; a repeated report counts once.
        let mut of_others = seal.clone();
        let first = SealResult {
            chunks: vec![of_others.chunks.remove(0)],
            runs: vec![of_others.runs.remove(0)],
            ..SealResult::default()
        };
        for told in [first, of_others, seal] {
            results.record(attempt, TaskResult::Seal(told));
        }
        assert_eq!(results.surviving_runs().len(), 3);
        let nobody = |_| false;
        assert_eq!(results.lose(&LostData::node(NodeId(3)), Open, nobody, Stand), None);
        assert!(results.seal.is_some());
        assert_eq!(
            results.lose(&LostData::node(NodeId(1)), Open, nobody, Stand),
            Some(vec![TaskIndex(0), TaskIndex(2)])
        );
        assert!(results.seal.is_none() && results.maps.len() == 1);
    }

    /// Node 1 merged the runs of chunks 0 and 1, and that result did not count; node 2 has a promoted replica of the
    /// run of chunk 1. Only one of the two inventories may count for chunk 1, in any order of the reports.
    #[test]
    fn chunk_in_merge_and_replica_is_read_once() {
        let chunk = |number| ChunkId::on(NodeId(1), number);
        let over = |number, chunks: &[ChunkId]| {
            let run = RunSummary { run: RunId::on(NodeId(1), number), ..run(number, 0, 1 << 16, 100) };
            SealResult { runs: vec![RunSummary { chunks: chunks.to_vec(), ..run }], ..SealResult::default() }
        };
        let (merged, replica) = (over(9, &[chunk(0), chunk(1)]), over(1, &[chunk(1)]));
        let mut results = JobResults::default();
        let commits: Vec<SourceCommit> = (0..2)
            .map(|number| SourceCommit { ifile: IfileIndex(0), chunk: chunk(number), sum: sum(1) })
            .collect();
        results.maps.insert(TaskIndex(0), (AttemptNumber(0), map_result(&commits)));

        let mut merged_first = JobResults { seal: Some(merged.clone()), ..results.clone() };
        assert_eq!(merged_first.in_clashing_runs(&replica), []);
        let mut told = replica.clone();
        merged_first.retain_committed(&mut told);
        assert_eq!(told.runs, []);
        merged_first.add_seal(told);
        assert_eq!(merged_first.surviving_runs(), merged.runs.iter().collect::<Vec<_>>());

        // Chunk 0 is only in the merged run, which must not be read any more: its data is recomputed.
        let replica_first = JobResults { seal: Some(replica), ..results };
        assert_eq!(replica_first.in_clashing_runs(&merged), [chunk(0)]);
    }

    #[test]
    fn moved_data_is_lost_with_its_new_node() {
        let run_on = |node, number| {
            let moved = run(number, 0, 1 << 16, 100);
            RunSummary { run: RunId::on(NodeId(node), number), ..moved }
        };
        let mut results = JobResults::default();
        for node in [1, 2] {
            let chunk = ChunkId::on(NodeId(node), 0);
            let commit = SourceCommit { ifile: IfileIndex(0), chunk, sum: sum(1) };
            results.maps.insert(TaskIndex(node - 1), (AttemptNumber(0), map_result(&[commit])));
        }
        let seal = SealResult { runs: vec![run_on(1, 0), run_on(2, 0)], ..SealResult::default() };
        results.seal = Some(seal);
        let merge = MergeResult {
            replaced: vec![RunId::on(NodeId(1), 0)],
            run: run_on(3, 7),
            retrievals: 1,
            retrieved_bytes: 100,
        };
        results.merges.insert(TaskIndex(0), merge);
        assert!(!results.needs(NodeId(1), Sealed) && results.needs(NodeId(3), Sealed));
        assert!(results.needs(NodeId(1), Open) && !results.needs(NodeId(3), Open));
        // The drained node leaves, and no data is lost.
        assert_eq!(results.lose(&LostData::node(NodeId(1)), Sealed, |_| false, Stand), None);
        let left = |node| node == NodeId(1);
        assert_eq!(results.lose(&LostData::node(NodeId(3)), Sealed, left, Stand), Some(vec![TaskIndex(0)]));
        assert!(results.merges.is_empty() && results.maps.contains_key(&TaskIndex(1)));
    }

    const IFILES: u32 = 2;

    fn on(node: u32, number: u64, ifile: u32) -> SourceCommit {
        let chunk = ChunkId::on(NodeId(node), number);
        SourceCommit { ifile: IfileIndex(ifile), chunk, sum: sum(u64::from(3 + ifile)) }
    }

    /// Two maps. The first has its data of I-file 0 on node 1 and the rest on node 2. All reduce tasks but the last are
    /// done.
    fn reducing() -> JobResults {
        let mut results = JobResults::new(JobId(7), vec![split(), split()]);
        for (task, commits) in [(0, [on(1, 0, 0), on(2, 1, 1)]), (1, [on(2, 0, 0), on(2, 1, 1)])] {
            results.maps.insert(TaskIndex(task), (AttemptNumber(0), map_result(&commits)));
        }
        results.seal = Some(seal_of(&results));
        expand(StageKind::Reduce, &spec_of_two(), &mut results).unwrap();
        assert_eq!(results.plan.len(), 2);
        finish_reduces(&mut results);
        assert!(prove(&results, IFILES).agrees());
        results.reduces.remove(&TaskIndex(0));
        results
    }

    fn spec_of_two() -> api::JobSpec {
        let mut spec = spec();
        spec.layout.ifile_count = IFILES;
        spec
    }

    fn stand_in(commits: &[SourceCommit], withheld: &[(u32, u64)]) -> MapResult {
        let withheld = withheld.iter().map(|(ifile, records)| (IfileIndex(*ifile), sum(*records))).collect();
        MapResult { withheld, ..map_result(commits) }
    }

    #[test]
    fn equal_data_stands_in_for_lost_data() {
        let mut results = reducing();
        let before = results.plan.clone();
        assert_eq!(
            results.lose(&LostData::node(NodeId(1)), Sealed, |_| false, Stand),
            Some(vec![TaskIndex(0)])
        );
        let again = results.again[&TaskIndex(0)].clone();
        assert_eq!(again.ifiles, [IfileIndex(0)]);
        assert_eq!(again.standing, [(AttemptNumber(0), on(2, 1, 1))]);
        assert_eq!(again.expected, [(IfileIndex(0), sum(3)), (IfileIndex(1), sum(4))]);
        assert_eq!((results.reduces.len(), results.planned_before.len()), (1, 2));
        let check = |results: &JobResults, result: &MapResult, expected| {
            assert_eq!(results.verdict(TaskIndex(0), result), expected, "{result:?}");
        };
        let good = stand_in(&[on(2, 2, 0)], &[(1, 4)]);
        check(&results, &good, Verdict::Good);
        check(&results, &stand_in(&[on(2, 2, 0)], &[(1, 5)]), Verdict::Differs);
        check(&results, &stand_in(&[on(2, 2, 0)], &[]), Verdict::Differs);
        check(&results, &stand_in(&[on(2, 2, 0), on(2, 3, 1)], &[]), Verdict::Good);
        check(&results, &stand_in(&[on(2, 3, 1)], &[(0, 3)]), Verdict::Stale);
        results.record(map_attempt(0, 1), TaskResult::Map(good));
        assert_eq!(
            results.valid_attempts(),
            [(TaskIndex(0), AttemptNumber(1)), (TaskIndex(1), AttemptNumber(0))]
        );
        assert_eq!(results.older_attempts(), [(IfileIndex(1), TaskIndex(0), AttemptNumber(0))]);
        results.seal = Some(seal_of(&results));
        expand(StageKind::Reduce, &spec_of_two(), &mut results).unwrap();
        for (task, before) in results.plan.iter().zip(&before) {
            assert_eq!((task.plan_version.0, before.plan_version.0), (2, 1));
            let range = |task: &ReduceTask| (task.part_index, task.ifiles.clone(), task.lower_key.clone());
            assert_eq!((range(task), &task.upper_key), (range(before), &before.upper_key));
            assert_eq!(task.older_attempts, results.older_attempts());
        }
        assert!(results.plan[0].runs.iter().all(|run| run.node() == NodeId(2)));
        let standing = results.reduces.clone();
        finish_reduces(&mut results);
        assert_eq!(results.reduces[&TaskIndex(1)], standing[&TaskIndex(1)]);
        assert!(prove(&results, IFILES).agrees(), "{:?}", prove(&results, IFILES).findings);
        // All readers are done: no task needs the data.
        assert_eq!(results.lose(&LostData::node(NodeId(2)), Sealed, |_| false, Stand), None);
        results.keeps_runs = true;
        let both = Some(vec![TaskIndex(0), TaskIndex(1)]);
        assert_eq!(results.lose(&LostData::node(NodeId(2)), Sealed, |_| false, Stand), both);
    }

    #[test]
    fn further_losses_during_regeneration_are_counted() {
        let mut results = reducing();
        results.lose(&LostData::node(NodeId(1)), Sealed, |_| false, Stand).unwrap();
        // Now the valid data of the first map is lost, and all data of the second.
        let both = Some(vec![TaskIndex(0), TaskIndex(1)]);
        assert_eq!(results.lose(&LostData::node(NodeId(2)), Open, |_| false, Stand), both);
        for again in results.again.values() {
            assert_eq!((again.ifiles.len(), again.standing.len(), again.expected.len()), (2, 0, 2));
        }
        let late = stand_in(&[on(3, 0, 0)], &[(1, 4)]);
        assert_eq!(results.verdict(TaskIndex(0), &late), Verdict::Stale);
        assert_eq!(results.lose(&LostData::node(NodeId(3)), Open, |_| false, Stand), None);
    }

    #[test]
    fn differing_data_ends_the_surviving_results() {
        let mut results = reducing();
        results.lose(&LostData::node(NodeId(1)), Sealed, |_| false, Stand).unwrap();
        results.run_in_full(TaskIndex(0));
        assert!(results.again.is_empty() && results.planned_before.is_empty() && results.reduces.is_empty());
        let other = stand_in(&[on(2, 2, 0), on(2, 3, 1)], &[]);
        assert_eq!(results.verdict(TaskIndex(0), &other), Verdict::Good);
        results.record(map_attempt(0, 2), TaskResult::Map(other));
        assert!(results.older_attempts().is_empty());
    }

    fn spool(node: u32) -> Option<Spool> {
        Some(Spool { node: NodeId(node), name: "spool".into(), bytes: 70, ..Spool::default() })
    }

    /// Both maps have spooled their data, on nodes 3 and 1.
    fn spooled() -> JobResults {
        let mut results = reducing();
        for (task, node) in [(0, 3), (1, 1)] {
            let (_, map) = results.maps.get_mut(&TaskIndex(task)).unwrap();
            map.spool = spool(node);
            map.counters.insert("words".into(), 5);
        }
        results
    }

    #[test]
    fn spooled_data_is_resent_from_its_spool() {
        let mut results = spooled();
        let nobody = |_: NodeId| false;
        assert_eq!(results.lose(&LostData::node(NodeId(1)), Sealed, nobody, Stand), Some(vec![TaskIndex(0)]));
        let resend = results.again[&TaskIndex(0)].resend.clone().unwrap();
        assert_eq!((&resend.spool, resend.told.counters["words"]), (&spool(3).unwrap(), 5));
        assert!(resend.told.commits.is_empty() && resend.told.spool.is_none());
        let again = expand::placement(&map_again(&results, 0));
        assert_eq!(again, ids::Placement::Near(vec![NodeId(3)]));
        // After it is sent again, it still has its spool.
        let sent = MapResult { spool: spool(3), ..stand_in(&[on(2, 2, 0)], &[(1, 4)]) };
        assert_eq!(results.verdict(TaskIndex(0), &sent), Verdict::Good);
        results.record(map_attempt(0, 1), TaskResult::Map(sent));
        assert_eq!(results.maps[&TaskIndex(0)].1.spool, spool(3));
        // The other spool was lost with node 1.
        let left = |node: NodeId| node == NodeId(1);
        let both = Some(vec![TaskIndex(0), TaskIndex(1)]);
        assert_eq!(results.lose(&LostData::node(NodeId(2)), Open, left, Stand), both);
        assert!(
            results.again[&TaskIndex(0)].resend.is_some() && results.again[&TaskIndex(1)].resend.is_none()
        );
    }

    #[test]
    fn a_spool_that_is_gone_is_not_read() {
        let mut results = spooled();
        let nobody = |_: NodeId| false;
        results.lose(&LostData::node(NodeId(1)), Sealed, nobody, Stand).unwrap();
        let left = |node: NodeId| node == NodeId(1);
        results.lose(&LostData::node(NodeId(3)), Open, left, ReportAgain).unwrap();
        assert!(results.again[&TaskIndex(0)].resend.is_none());
        assert_eq!(expand::placement(&map_again(&results, 0)), ids::Placement::Anywhere);
        // The user's program ran, and reports a spool with only its own data.
        let part = MapResult { spool: spool(2), ..stand_in(&[on(2, 2, 0)], &[(1, 4)]) };
        results.record(map_attempt(0, 1), TaskResult::Map(part));
        assert!(results.maps[&TaskIndex(0)].1.spool.is_none());
        results.lose(&LostData::node(NodeId(2)), Open, nobody, Stand).unwrap();
        let whole = MapResult { spool: spool(3), ..stand_in(&[on(4, 2, 0), on(4, 3, 1)], &[]) };
        results.record(map_attempt(0, 2), TaskResult::Map(whole));
        assert_eq!(results.maps[&TaskIndex(0)].1.spool, spool(3));
    }

    fn map_again(results: &JobResults, task: u32) -> Task {
        let again = results.again.get(&TaskIndex(task)).cloned();
        Task::Map(MapTask { split: split(), part_index: None, again, places: Vec::new() })
    }

    fn map_attempt(task: u32, attempt: u32) -> AttemptKey {
        let task = TaskKey { job: JobId(7), stage: StageIndex(0), task: TaskIndex(task) };
        AttemptKey { task, attempt: AttemptNumber(attempt) }
    }
}
