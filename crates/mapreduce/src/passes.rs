//! Extra merge passes: enough runs of an I-file are merged into fewer, so that a reduce task can open the rest within
//! the share of memory for sorting.

use api::task::{MergeTask, RunSummary};
use api::{Layout, Partitioning};
use ids::{IfileIndex, NodeId, RunId};
use std::collections::BTreeMap;

/// A merge holds the current block of a run and the next one.
const BLOCKS_PER_RUN: u64 = 2;
/// Memory for a run of another node in proportion to a local run: a merge holds its current block, and two in the
/// received form.
const AWAY_BLOCKS: (u64, u64) = (3, 2);
/// A merge of two runs is always permitted, whatever memory its blocks take.
const FAN_IN_MIN: usize = 2;

/// Returns the merges that must precede the reduce tasks; none in most jobs.
///
/// The smallest runs are merged first, and no more than needed. Every run is merged at most once: if one round within
/// the share is not enough (which takes blocks of a size near the share), the rest stays and the reduce merges runs one
/// at a time. Under range partitioning a task reads all I-files, so each gets its part of the share.
///
/// `home` returns the node of a run. All runs on a node of `leaving` are merged by one of the nodes listed with it, so
/// they move there.
pub fn merge_tasks(
    runs: &[RunSummary],
    layout: &Layout,
    partitioning: Partitioning,
    leaving: &BTreeMap<NodeId, Vec<NodeId>>,
    home: impl Fn(RunId) -> NodeId,
) -> Vec<MergeTask> {
    // A run is merged on its node; a reduce task opens the runs of all nodes.
    let mut by_place: BTreeMap<(IfileIndex, NodeId), Vec<&RunSummary>> = BTreeMap::new();
    for run in runs {
        by_place.entry((run.ifile, home(run.run))).or_default().push(run);
    }
    let mut nodes: BTreeMap<IfileIndex, u64> = BTreeMap::new();
    for (ifile, _) in by_place.keys() {
        *nodes.entry(*ifile).or_default() += 1;
    }
    let needed = |runs: &[&RunSummary]| runs.iter().map(|run| need_bytes(run, layout)).sum::<u64>();
    let all_needed: u64 = by_place.values().map(|runs| needed(runs)).sum();
    let share = layout.sort_share_bytes;
    let part = match partitioning {
        Partitioning::Range if all_needed > share => share / nodes.len().max(1) as u64,
        Partitioning::Range | Partitioning::Hash | Partitioning::Partitions => share,
    };
    let part_of = |nodes: u64| match nodes {
        1 => part,
        _ => part * AWAY_BLOCKS.1 / AWAY_BLOCKS.0 / nodes,
    };
    let mut tasks = Vec::new();
    for ((ifile, node), mut of_ifile) in by_place {
        if let Some(to) = leaving.get(&node).filter(|to| !to.is_empty()) {
            tasks.extend(moves_of_ifile(ifile, &of_ifile, layout, to));
            continue;
        }
        of_ifile.sort_by_key(|run| (run.record_bytes, run.run));
        tasks.extend(merges_of_ifile(ifile, &of_ifile, layout, part_of(nodes[&ifile])));
    }
    tasks
}

/// Returns the bytes of blocks that a merge holds for a run. A run never counts for more than half of the share: its
/// large record must be held anyway, and merging would not make it smaller.
fn need_bytes(run: &RunSummary, layout: &Layout) -> u64 {
    (BLOCKS_PER_RUN * run.block_bytes_max).min(layout.sort_share_bytes / 2)
}

/// Returns merges that move runs to other nodes, each with as many runs as fit the share.
fn moves_of_ifile(ifile: IfileIndex, runs: &[&RunSummary], layout: &Layout, to: &[NodeId]) -> Vec<MergeTask> {
    let mut tasks: Vec<MergeTask> = Vec::new();
    let mut needed = 0;
    for run in runs {
        let need = need_bytes(run, layout);
        match tasks.last_mut() {
            Some(task) if needed + need <= layout.sort_share_bytes => {
                task.runs.push(run.run);
                needed += need;
            }
            _ => {
                tasks.push(MergeTask { ifile, runs: vec![run.run], to: to.to_vec(), places: Vec::new() });
                needed = need;
            }
        }
    }
    tasks
}

/// Returns the merges of an I-file. `runs`: the smallest first. `part_bytes`: the memory for the remaining runs
/// together.
fn merges_of_ifile(
    ifile: IfileIndex,
    runs: &[&RunSummary],
    layout: &Layout,
    part_bytes: u64,
) -> Vec<MergeTask> {
    let mut needed: u64 = runs.iter().map(|run| need_bytes(run, layout)).sum();
    let mut left = runs.len();
    let mut rest = runs;
    let mut tasks = Vec::new();
    while needed > part_bytes && left > FAN_IN_MIN && rest.len() >= FAN_IN_MIN {
        let mut group_needed = 0;
        let mut group_need_max = 0;
        let mut count = 0;
        for run in rest {
            let need = need_bytes(run, layout);
            let fits = group_needed + need <= layout.sort_share_bytes || count < FAN_IN_MIN;
            // The merged run needs as much memory as the most demanding run of the group.
            let enough = count >= FAN_IN_MIN && needed - group_needed + group_need_max <= part_bytes;
            if !fits || enough {
                break;
            }
            group_needed += need;
            group_need_max = group_need_max.max(need);
            count += 1;
        }
        let (group, others) = rest.split_at(count);
        let runs = group.iter().map(|run| run.run).collect();
        tasks.push(MergeTask { ifile, runs, to: Vec::new(), places: Vec::new() });
        needed = needed - group_needed + group_need_max;
        left = left - count + 1;
        rest = others;
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::merge_tasks;
    use crate::test_job::{layout, run};
    use api::Partitioning;
    use api::task::{MergeTask, RunSummary};
    use ids::{NodeId, RunId};
    use std::collections::BTreeMap;

    /// A share of 1 MiB and blocks of 64 KiB: eight runs fit.
    fn groups(runs: &[RunSummary], partitioning: Partitioning) -> Vec<usize> {
        let mut layout = layout();
        layout.sort_share_bytes = 1 << 20;
        layout.block_bytes = 1 << 16;
        merge_tasks(runs, &layout, partitioning, &BTreeMap::new(), RunId::node)
            .iter()
            .map(|task| task.runs.len())
            .collect()
    }

    fn runs(count: u64, ifiles: u64, block_bytes: u64) -> Vec<RunSummary> {
        (0..count).map(|index| run(index, (index % ifiles) as u32, block_bytes, 1000 + index)).collect()
    }

    #[test]
    fn just_enough_is_merged() {
        let check = |count, expected: &[usize]| {
            assert_eq!(groups(&runs(count, 1, 1 << 16), Partitioning::Hash), expected, "{count} runs");
        };
        check(0, &[]);
        check(1, &[]);
        check(8, &[]);
        check(9, &[2]);
        check(12, &[5]);
        check(15, &[8]);
        check(16, &[8, 2]);
        check(64, &[8, 8, 8, 8, 8, 8, 8, 8]);
        // One round is not enough: it merges as much as possible.
        check(80, &[8; 10]);
    }

    #[test]
    fn the_smallest_go_first() {
        let mut layout = layout();
        layout.sort_share_bytes = 1 << 20;
        let mut all = runs(9, 1, 1 << 16);
        all.reverse();
        let tasks = merge_tasks(&all, &layout, Partitioning::Hash, &BTreeMap::new(), RunId::node);
        assert_eq!(tasks[0].runs, [ids::RunId(0), ids::RunId(1)]);
    }

    #[test]
    fn huge_record_in_one_run_forces_no_pass() {
        let mut all = runs(4, 1, 1 << 16);
        all.push(run(9, 0, 1 << 20, 1));
        assert_eq!(groups(&all, Partitioning::Hash), [0; 0]);
        // Four of them do not fit; pairs are merged.
        assert_eq!(groups(&runs(4, 1, 1 << 20), Partitioning::Hash), [2, 2]);
    }

    #[test]
    fn runs_of_a_node_that_leaves_move() {
        let mut layout = layout();
        layout.sort_share_bytes = 1 << 20;
        layout.block_bytes = 1 << 16;
        let on = |node, number, ifile| RunSummary {
            run: RunId::on(NodeId(node), number),
            ..run(number, ifile, 1 << 16, 1000)
        };
        let mut all: Vec<RunSummary> = (0..10).map(|number| on(1, number, 0)).collect();
        all.extend([on(1, 20, 1), on(2, 0, 0), on(3, 0, 1)]);
        let to = vec![NodeId(2), NodeId(3)];
        let leaving = BTreeMap::from([(NodeId(1), to.clone()), (NodeId(3), Vec::new())]);
        let tasks = merge_tasks(&all, &layout, Partitioning::Hash, &leaving, RunId::node);
        let counts: Vec<(u32, usize)> = tasks.iter().map(|task| (task.ifile.0, task.runs.len())).collect();
        // Eight fit the share. Runs without a target node stay.
        assert_eq!(counts, [(0, 8), (0, 2), (1, 1)]);
        let away = |task: &MergeTask| task.to == to && task.runs.iter().all(|run| run.node() == NodeId(1));
        assert!(tasks.iter().all(away), "{tasks:?}");
    }

    #[test]
    fn range_tasks_read_all_ifiles() {
        assert_eq!(groups(&runs(16, 4, 1 << 16), Partitioning::Hash), [0; 0]);
        assert_eq!(groups(&runs(8, 4, 1 << 16), Partitioning::Range), [0; 0]);
        assert_eq!(groups(&runs(16, 4, 1 << 16), Partitioning::Range), [3, 3, 3, 3]);
    }
}
