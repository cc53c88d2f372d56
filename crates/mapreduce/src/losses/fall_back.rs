//! Promotion of replicas of lost runs, and re-replication of runs that lost one of two nodes.

use crate::{FallenBack, JobResults, LostData, Replica, SealState};
use api::orphaned::LeftRun;
use api::task::{MapResult, Task};
use ids::{ChunkId, NodeId, RunId, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// A node, and the runs that it must copy to a second node from now on; other promoted replicas there are not copied.
pub type CopyAgain = (NodeId, Vec<RunId>);

impl JobResults {
    /// Promotes the replicas of lost runs, and forgets lost replicas. Returns the part of `gone` that is really lost.
    pub fn fall_back(&mut self, gone: &LostData, seal_state: SealState) -> (LostData, FallenBack) {
        let mut fallen = self.replicas.leave_second(gone);
        let mut gone = gone.clone();
        gone.runs.retain(|run| !fallen.standing.contains(run));
        let mut lost = gone.clone();
        let is_gone = |run: RunId, replica: &Replica| {
            Some(replica.node) == gone.node
                || (replica.stands && gone.runs.contains(&run))
                || replica.chunks.iter().any(|chunk| gone.chunks.contains(chunk))
        };
        // Once they are forgotten, their location would be another one, so they are named.
        let gone_for_good: Vec<(RunId, Vec<ChunkId>)> = self
            .replicas
            .iter()
            .filter(|(run, replica)| replica.stands && is_gone(*run, replica))
            .map(|(run, replica)| (run, replica.chunks.clone()))
            .collect();
        for (run, chunks) in gone_for_good {
            lost.runs.insert(run);
            if seal_state == SealState::Open {
                lost.chunks.extend(chunks);
            }
        }
        fallen.dropped.extend(self.replicas.forget(is_gone));
        let falls_back = |run: RunId| Some(run.node()) == gone.node || gone.runs.contains(&run);
        for (run, replica) in &mut self.replicas.by_run {
            if !replica.stands && falls_back(*run) {
                replica.stands = true;
                lost.runs.remove(run);
                fallen.standing.push(*run);
            }
        }
        (lost, fallen)
    }

    /// Readmits a file that another process found on the disks of a dead one; the new process has the number `node`. A
    /// run that `before` made becomes a replica there. It is promoted as soon as `before` is lost, or becomes the
    /// second copy of a promoted one. A replica becomes a replica again. Returns false if the job does not need the
    /// file, or knows another one under its number.
    pub fn readmit_run(
        &mut self,
        before: NodeId,
        node: NodeId,
        left: &LeftRun,
        seal_state: SealState,
    ) -> bool {
        if let Some(replica) = self.replicas.by_run.get_mut(&left.run) {
            if !replica.holds(&left.chunks) {
                return false;
            }
            // The abandoned file may have been damaged.
            let is_other = replica.node != before && replica.node != node;
            let is_own = left.run.node() == before && !replica.stands;
            if is_own && is_other && replica.second.is_none() {
                replica.second = Some(node);
                return true;
            }
            let is_it = replica.nodes().any(|known| known == before);
            self.replicas.moved(left.run, before, node);
            return is_it;
        }
        let known = self.surviving_runs().into_iter().find(|run| run.run == left.run);
        let counts = match known {
            Some(known) => {
                let mut chunks = known.chunks.clone();
                chunks.sort_unstable();
                let is_long = (known.records, known.record_bytes) == (left.records, left.record_bytes);
                is_long && chunks == left.chunks
            }
            None => seal_state == SealState::Open,
        };
        let (chunks, single_ns) = (left.chunks.clone(), 0);
        let replica = Replica { node, chunks, single_ns, stands: false, second: None };
        counts && left.run.node() == before && self.add_replica(left.run, replica)
    }

    /// Returns the map tasks with data that only this node has, according to their commits.
    pub fn maps_on(&self, node: NodeId) -> BTreeSet<TaskIndex> {
        let is_only_there = |chunk: ChunkId| {
            let run = self.replicas.run_of.get(&chunk).and_then(|run| self.replicas.by_run.get(run));
            match run {
                Some(replica) => replica.stands && replica.second.is_none() && replica.node == node,
                None => chunk.node() == node,
            }
        };
        let has_any = |(_, (_, map)): &(&TaskIndex, &(_, MapResult))| {
            map.commits.iter().any(|commit| is_only_there(commit.chunk))
        };
        self.maps.iter().filter(has_any).map(|(task, _)| *task).collect()
    }

    /// Handles a node's report that another node has a copy of a run: one that it made, or whose replica there is
    /// promoted. Returns false if the report is useless: the run is not read there, or is known to be on two nodes.
    pub fn add_copy(&mut self, from: NodeId, run: RunId, copy: Replica) -> bool {
        match self.replicas.by_run.get_mut(&run) {
            Some(known) if known.stands => {
                let is_of_use = known.node == from && known.second.is_none() && copy.node != from;
                if !is_of_use || !known.holds(&copy.chunks) {
                    return false;
                }
                known.second = Some(copy.node);
                known.single_ns = known.single_ns.max(copy.single_ns);
                self.replicas.asked.remove(&run);
                true
            }
            _ => run.node() == from && self.add_replica(run, copy),
        }
    }

    /// Returns the nodes that must copy runs to a second node, each with all its runs, for nodes whose list has
    /// changed. These runs lost one of two nodes and have readers to come.
    pub fn copy_again(&mut self, seal_state: SealState) -> Vec<CopyAgain> {
        let is_single = |replica: &Replica| replica.stands && replica.second.is_none();
        if self.replicas.asked.is_empty() && !self.replicas.by_run.values().any(is_single) {
            return Vec::new();
        }
        let (needed_runs, needed_chunks): (BTreeSet<RunId>, BTreeSet<ChunkId>) = match seal_state {
            SealState::Sealed => {
                let read = self.surviving_runs().into_iter().filter(|run| self.is_read(run.ifile));
                (read.map(|run| run.run).collect(), BTreeSet::new())
            }
            SealState::Open => (BTreeSet::new(), self.all_chunks().collect()),
        };
        let is_needed = |run: &RunId, replica: &Replica| match seal_state {
            SealState::Sealed => needed_runs.contains(run),
            SealState::Open => replica.chunks.iter().any(|chunk| needed_chunks.contains(chunk)),
        };
        let (mut wanted, mut changed) = (BTreeMap::<NodeId, Vec<RunId>>::new(), BTreeSet::new());
        for (run, replica) in &self.replicas.by_run {
            let is_wanted = is_single(replica) && is_needed(run, replica);
            let is_news = match is_wanted {
                true => self.replicas.asked.insert(*run),
                false => self.replicas.asked.remove(run),
            };
            if is_news {
                changed.insert(replica.node);
            }
            if is_wanted {
                wanted.entry(replica.node).or_default().push(*run);
            }
        }
        changed.into_iter().map(|node| (node, wanted.remove(&node).unwrap_or_default())).collect()
    }

    /// Adds a replica that a node reports. Returns false if it is useless: the run was merged meanwhile, or the replica
    /// is known.
    pub fn add_replica(&mut self, run: RunId, replica: Replica) -> bool {
        let is_merged_away = self.merges.values().any(|merge| merge.replaced.contains(&run));
        !is_merged_away && self.replicas.add(run, replica)
    }

    /// Forgets the replicas of merged runs, and returns them.
    pub fn forget_merged(&mut self, replaced: &[RunId]) -> Vec<(RunId, NodeId)> {
        let replaced: BTreeSet<RunId> = replaced.iter().copied().collect();
        self.replicas.forget(|run, _| replaced.contains(&run))
    }

    /// Returns a task as it is sent to a node, with the current locations of its runs.
    pub fn placed_now(&self, mut task: Task) -> Task {
        match &mut task {
            Task::Reduce(reduce) => reduce.places = self.replicas.places(&reduce.runs),
            Task::Merge(merge) => merge.places = self.replicas.places(&merge.runs),
            _ => {}
        }
        task
    }
}

#[cfg(test)]
mod tests {
    use crate::Inventories::{self, ReportAgain};
    use crate::SealState::{self, Open, Sealed};
    use crate::test_job::{finish_reduces, map_result, run, seal_of, spec, split, sum};
    use crate::{FallenBack, JobResults, LostData, Replica, expand};
    use api::orphaned::LeftRun;
    use api::task::{MergeResult, RunPlace, RunSummary, SealTask};
    use api::{SourceCommit, Task};
    use ids::StageKind;
    use ids::*;

    fn chunk(node: u32, number: u64) -> ChunkId {
        ChunkId::on(NodeId(node), number)
    }

    fn run_on(node: u32, number: u64) -> RunId {
        RunId::on(NodeId(node), number)
    }

    /// Returns a replica of the run of one chunk with the same number.
    fn replica(run: RunId, node: u32) -> (RunId, Replica) {
        let chunks = vec![ChunkId::on(run.node(), run.number())];
        (run, Replica { node: NodeId(node), chunks, single_ns: 0, stands: false, second: None })
    }

    /// Returns a map for each of nodes 1 and 2, with its data there.
    fn mapped() -> JobResults {
        let mut results = JobResults::new(JobId(7), vec![split(), split()]);
        for task in 0..2 {
            let commit = SourceCommit { ifile: IfileIndex(0), chunk: chunk(task + 1, 0), sum: sum(3) };
            results.maps.insert(TaskIndex(task), (AttemptNumber(0), map_result(&[commit])));
        }
        results
    }

    /// Returns the same job, sealed and planned.
    fn planned() -> JobResults {
        let mut results = mapped();
        results.seal = Some(seal_of(&results));
        expand(StageKind::Reduce, &spec(), &mut results).unwrap();
        results
    }

    /// Loses a node. Returns the map tasks that run again, and the effect on the replicas.
    fn lose(
        results: &mut JobResults,
        node: u32,
        seal_state: SealState,
    ) -> (Option<Vec<TaskIndex>>, FallenBack) {
        let (gone, fallen) = results.fall_back(&LostData::node(NodeId(node)), seal_state);
        (results.lose(&gone, seal_state, |left| left == NodeId(node), Inventories::Stand), fallen)
    }

    #[test]
    fn replica_replaces_run_of_a_lost_node() {
        let mut results = planned();
        let (first, second) = (run_on(1, 0), run_on(2, 0));
        assert!(results.add_replica(first, replica(first, 3).1));
        let Task::Reduce(before) = results.placed_now(Task::Reduce(results.plan[0].clone())) else {
            panic!()
        };
        let place = RunPlace { run: first, node: NodeId(1), replica: Some(NodeId(3)) };
        assert_eq!((before.places, before.runs), (vec![place], vec![first, second]));
        let stands = FallenBack { standing: vec![first], dropped: Vec::new() };
        assert_eq!(lose(&mut results, 1, Sealed), (None, stands));
        assert!(results.needs(NodeId(3), Sealed) && !results.needs(NodeId(1), Sealed));
        let place = RunPlace { run: first, node: NodeId(3), replica: None };
        assert_eq!(results.replicas.places(&[second, first]), [place]);
        // Now it is lost.
        let gone = FallenBack { standing: Vec::new(), dropped: vec![(first, NodeId(3))] };
        assert_eq!(lose(&mut results, 3, Sealed), (Some(vec![TaskIndex(0)]), gone));
        assert_eq!(results.replicas.held().count(), 0);
    }

    #[test]
    fn before_the_seal_chunks_stand_in_replicas() {
        let mut results = mapped();
        let first = run_on(1, 0);
        results.add_replica(first, replica(first, 2).1);
        assert_eq!(lose(&mut results, 1, Open).0, None);
        let seals = expand(StageKind::Seal, &spec(), &mut results).unwrap();
        assert_eq!(seals, [Task::Seal(SealTask { node: NodeId(2), standing: vec![first] })]);
        // The loss of the node with both loses both.
        let both = Some(vec![TaskIndex(0), TaskIndex(1)]);
        assert_eq!(lose(&mut results, 2, Open).0, both);
    }

    /// One node has reported its runs, the other not yet: a replica of an unknown run counts.
    #[test]
    fn replicas_count_that_are_told_while_nodes_seal() {
        let mut results = mapped();
        let mut seal = seal_of(&results);
        seal.runs.retain(|run| run.run.node() == NodeId(2));
        results.seal = Some(seal);
        let first = run_on(1, 0);
        assert!(results.add_replica(first, replica(first, 3).1));
    }

    #[test]
    fn a_replica_that_is_gone_costs_nothing() {
        let mut results = planned();
        let first = run_on(1, 0);
        results.add_replica(first, replica(first, 3).1);
        let gone = FallenBack { standing: Vec::new(), dropped: vec![(first, NodeId(3))] };
        assert_eq!(lose(&mut results, 3, Sealed), (None, gone));
        assert_eq!(lose(&mut results, 1, Sealed).0, Some(vec![TaskIndex(0)]));
    }

    #[test]
    fn damaged_run_uses_its_replica_then_is_lost() {
        let mut results = planned();
        let first = run_on(1, 0);
        results.add_replica(first, replica(first, 2).1);
        let damaged = LostData::runs(&[first]);
        let (gone, fallen) = results.fall_back(&damaged, Sealed);
        assert_eq!((gone, fallen.standing), (LostData::default(), vec![first]));
        let (gone, fallen) = results.fall_back(&damaged, Sealed);
        assert_eq!((gone, fallen.dropped.len()), (damaged, 1));
    }

    #[test]
    fn tasks_bound_to_lost_node_are_made_anew() {
        let mut results = planned();
        let first = run_on(1, 0);
        results.add_replica(first, replica(first, 2).1);
        let (gone, _) = results.fall_back(&LostData::node(NodeId(1)), Sealed);
        assert_eq!(results.lose(&gone, Sealed, |_| false, ReportAgain), Some(Vec::new()));
        assert!(results.seal.is_none() && results.regenerations == 0 && results.maps.len() == 2);
    }

    /// Nodes are lost one after the other, and in between the run is copied to a third one.
    #[test]
    fn a_run_that_lost_a_home_gets_another() {
        for seal_state in [Sealed, Open] {
            let mut results = if seal_state == Sealed { planned() } else { mapped() };
            let first = run_on(1, 0);
            let copy = |node| replica(first, node).1;
            assert!(results.add_copy(NodeId(1), first, copy(3)));
            assert!(!results.add_copy(NodeId(1), first, copy(4)), "one is enough");
            assert_eq!(results.copy_again(seal_state), []);
            lose(&mut results, 1, seal_state);
            assert_eq!(results.copy_again(seal_state), [(NodeId(3), vec![first])]);
            assert_eq!(results.copy_again(seal_state), [], "it was asked");
            let other = Replica { chunks: vec![chunk(1, 7)], ..copy(4) };
            assert!(
                !results.add_copy(NodeId(3), first, other) && !results.add_copy(NodeId(2), first, copy(4))
            );
            assert!(
                results.add_copy(NodeId(3), first, copy(4)) && !results.add_copy(NodeId(3), first, copy(5))
            );
            let place = RunPlace { run: first, node: NodeId(3), replica: Some(NodeId(4)) };
            assert_eq!(
                (results.replicas.places(&[first]), results.copy_again(seal_state)),
                (vec![place], vec![])
            );
            assert!(results.maps_on(NodeId(3)).is_empty());
            let fallen = FallenBack { standing: vec![first], dropped: vec![(first, NodeId(3))] };
            assert_eq!(lose(&mut results, 3, seal_state), (None, fallen));
            assert_eq!(results.replicas.home(first), NodeId(4));
            assert_eq!(results.copy_again(seal_state), [(NodeId(4), vec![first])]);
            assert!(results.add_copy(NodeId(4), first, copy(5)));
            // The second copy is lost: it gets another one.
            let fallen = FallenBack { standing: Vec::new(), dropped: vec![(first, NodeId(5))] };
            assert_eq!(lose(&mut results, 5, seal_state), (None, fallen));
            assert_eq!(results.copy_again(seal_state), [(NodeId(4), vec![first])]);
            assert_eq!(lose(&mut results, 4, seal_state).0, Some(vec![TaskIndex(0)]));
            assert_eq!(results.copy_again(seal_state), []);
        }
    }

    #[test]
    fn data_without_later_readers_is_not_copied_again() {
        let mut results = planned();
        let (first, second) = (run_on(1, 0), run_on(2, 0));
        assert!(results.add_copy(NodeId(1), first, replica(first, 3).1));
        lose(&mut results, 1, Sealed);
        assert_eq!(results.copy_again(Sealed), [(NodeId(3), vec![first])]);
        finish_reduces(&mut results);
        assert_eq!(results.copy_again(Sealed), [(NodeId(3), vec![])], "its readers are over");
        assert_eq!(results.copy_again(Sealed), []);
        assert!(results.add_copy(NodeId(2), second, replica(second, 3).1));
        lose(&mut results, 2, Sealed);
        assert_eq!(results.copy_again(Sealed), []);
        results.keeps_runs = true;
        assert_eq!(results.copy_again(Sealed), [(NodeId(3), vec![first, second])]);
    }

    #[test]
    fn a_damaged_copy_leaves_the_second() {
        let mut results = planned();
        let first = run_on(1, 0);
        results.add_copy(NodeId(1), first, replica(first, 2).1);
        let damaged = LostData::runs(&[first]);
        results.fall_back(&damaged, Sealed);
        assert!(results.add_copy(NodeId(2), first, replica(first, 3).1));
        let fallen = FallenBack { standing: vec![first], dropped: vec![(first, NodeId(2))] };
        assert_eq!(results.fall_back(&damaged, Sealed), (LostData::default(), fallen));
        assert_eq!(results.fall_back(&damaged, Sealed).0, damaged);
    }

    fn left(run: RunId, chunks: Vec<ChunkId>, records: u64) -> LeftRun {
        LeftRun { run, chunks, records, record_bytes: 30 * records, stored_bytes: 1000 }
    }

    /// Node 1 died, and comes back as 4.
    #[test]
    fn returned_data_is_not_made_again() {
        let mut results = planned();
        let known = results.surviving_runs()[0].clone();
        let first = known.run;
        let is_back = LeftRun {
            record_bytes: known.record_bytes,
            stored_bytes: known.stored_bytes,
            ..left(first, known.chunks.clone(), known.records)
        };
        let (before, node) = (NodeId(1), NodeId(4));
        for wrong in [
            LeftRun { records: known.records + 1, ..is_back.clone() },
            LeftRun { chunks: vec![chunk(1, 9)], ..is_back.clone() },
            LeftRun { run: run_on(1, 77), ..is_back.clone() },
            LeftRun { run: run_on(2, 0), ..is_back.clone() },
        ] {
            assert!(!results.readmit_run(before, node, &wrong, Sealed), "{wrong:?}");
        }
        assert!(results.readmit_run(before, node, &is_back, Sealed));
        assert!(!results.readmit_run(before, node, &is_back, Sealed), "it is known by now");
        let (none, fallen) = lose(&mut results, 1, Sealed);
        assert_eq!((none, fallen.standing), (None, vec![first]));
        assert_eq!(results.replicas.places(&[first]), [RunPlace { run: first, node, replica: None }]);
        // Once more, under the number 5; it is promoted too.
        assert!(results.readmit_run(node, NodeId(5), &is_back, Sealed));
        assert_eq!((lose(&mut results, 4, Sealed).0, results.replicas.home(first)), (None, NodeId(5)));
        assert_eq!(lose(&mut results, 5, Sealed).0, Some(vec![TaskIndex(0)]));
        // It was abandoned.
        assert!(!results.replicas.held().any(|(run, _)| run == first));
    }

    /// Node 1 died and comes back as 4 with a run that has a replica: it need not be copied.
    #[test]
    fn returned_data_becomes_the_second_copy() {
        let mut results = planned();
        let known = results.surviving_runs()[0].clone();
        let is_back = left(known.run, known.chunks.clone(), known.records);
        assert!(results.add_copy(NodeId(1), known.run, replica(known.run, 3).1));
        assert!(results.readmit_run(NodeId(1), NodeId(4), &is_back, Sealed));
        assert_eq!(lose(&mut results, 1, Sealed).1.standing, [known.run]);
        assert_eq!(results.copy_again(Sealed), []);
        // It dies and comes back again; after that the other node dies.
        assert!(results.readmit_run(NodeId(4), NodeId(5), &is_back, Sealed));
        assert_eq!(lose(&mut results, 4, Sealed), (None, FallenBack::default()));
        assert_eq!((lose(&mut results, 3, Sealed).0, results.replicas.home(known.run)), (None, NodeId(5)));
    }

    /// Tests the loss of a node while maps run: one of two chunks is in a run on disk.
    #[test]
    fn only_sorted_data_returns_before_the_seal() {
        let mut results = JobResults::new(JobId(7), vec![split(), split()]);
        for task in 0..2 {
            let commit = SourceCommit { ifile: IfileIndex(0), chunk: chunk(1, task), sum: sum(3) };
            results.maps.insert(TaskIndex(task as u32), (AttemptNumber(0), map_result(&[commit])));
        }
        assert!(results.readmit_run(NodeId(1), NodeId(4), &left(run_on(1, 6), vec![chunk(1, 1)], 3), Open));
        assert_eq!(lose(&mut results, 1, Open).0, Some(vec![TaskIndex(0)]));
        assert_eq!(results.replicas.chunk_home(chunk(1, 1)), NodeId(4));
    }

    #[test]
    fn only_one_replica_of_each_run_counts() {
        let mut results = planned();
        let first = run_on(1, 0);
        assert!(results.add_replica(first, replica(first, 2).1));
        assert!(!results.add_replica(first, replica(first, 3).1));
        // A run merged from it has the same chunk; after that the merged run counts.
        let merged = run_on(1, 9);
        let chunks = vec![chunk(1, 0)];
        let of_merged = Replica { node: NodeId(2), chunks, single_ns: 0, stands: false, second: None };
        assert!(!results.add_replica(merged, of_merged.clone()));
        let summary = RunSummary { run: merged, ..run(0, 0, 1 << 16, 30) };
        let merge = MergeResult { replaced: vec![first], run: summary, retrievals: 1, retrieved_bytes: 30 };
        results.merges.insert(TaskIndex(0), merge);
        assert_eq!(results.forget_merged(&[first]), [(first, NodeId(2))]);
        assert!(results.add_replica(merged, of_merged) && !results.add_replica(first, replica(first, 2).1));
    }
}
