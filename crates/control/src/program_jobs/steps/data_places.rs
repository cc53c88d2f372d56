//! Nodes that have data of the steps of a job: replicas and copies of its stored inputs, and large outputs of finished
//! steps. All of it is a hint, and a restarted server learns it anew.

use api::task::{FinishedRun, RunTask};
use api::{ContentHash, StoredContent};
use ids::NodeId;
use jobkind::{InputPlace, InputPlaces};
use mapreduce::PartNodes;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Bytes from which on the place of inputs matters.
const LARGE_BYTES: u64 = 1 << 20;
/// Outputs of a job whose nodes are remembered.
const OUTPUTS_MAX: usize = 10_000;
/// Nodes with the inputs of a step, beyond which any node will do: the inputs are nearly everywhere.
const NEAR_NODES_MAX: usize = 16;

/// The nodes with the inputs of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NearStep {
    /// Those with at least half of the bytes, most bytes first.
    pub nodes: Vec<NodeId>,
    /// Bytes that the first of them has.
    pub bytes: u64,
}

/// Nodes with data of the steps of a job.
#[derive(Debug, Default)]
pub(super) struct DataPlaces {
    inputs: InputPlaces,
    /// Node and bytes of large outputs, by path.
    outputs: BTreeMap<PathBuf, (NodeId, u64)>,
}

impl DataPlaces {
    pub fn inputs(&self) -> &InputPlaces {
        &self.inputs
    }

    /// Takes the nodes with replicas of the parts of stored inputs. Copies that nodes made for steps stay.
    pub fn learn(&mut self, pinned: &BTreeMap<ContentHash, StoredContent>, parts: &PartNodes) {
        for (content, stored) in pinned {
            let mut place = InputPlace { bytes: stored.bytes(), ..InputPlace::default() };
            for part in &stored.parts {
                for node in parts.get(&part.concrete).into_iter().flatten() {
                    *place.by_node.entry(*node).or_default() += part.bytes;
                }
            }
            let copies = self.inputs.get(content).into_iter().flat_map(|before| &before.by_node);
            let copies = copies.filter(|(_, bytes)| **bytes == place.bytes).map(|(node, _)| *node);
            let copies: Vec<NodeId> = copies.collect();
            place.by_node.extend(copies.into_iter().map(|node| (node, place.bytes)));
            self.inputs.insert(*content, place);
        }
    }

    /// Notes that an attempt begins on a node, which makes copies of its stored inputs.
    pub fn begins(&mut self, task: &RunTask, node: NodeId) {
        let contents = task.programs().flat_map(|program| &program.inputs).filter_map(|input| input.content);
        contents.for_each(|content| self.inputs.add_copy(&content, node));
    }

    /// Notes the node that wrote the outputs of a run.
    pub fn wrote(&mut self, run: &FinishedRun, node: NodeId) {
        for output in run.outputs.iter().filter(|output| output.bytes >= LARGE_BYTES) {
            if self.outputs.len() < OUTPUTS_MAX || self.outputs.contains_key(&output.path) {
                self.outputs.insert(output.path.clone(), (node, output.bytes));
            }
        }
    }

    /// Returns the nodes near the inputs of a step; None if these are small, or not known, or nearly everywhere.
    pub fn near(&self, task: &RunTask) -> Option<NearStep> {
        if self.inputs.is_empty() && self.outputs.is_empty() {
            return None;
        }
        let (mut by_node, mut all): (BTreeMap<NodeId, u64>, u64) = (BTreeMap::new(), 0);
        let mut add = |node: NodeId, bytes: u64| {
            let sum = by_node.entry(node).or_default();
            *sum = sum.saturating_add(bytes);
        };
        let mut counted: Vec<ContentHash> = Vec::new();
        for input in task.programs().flat_map(|program| &program.inputs) {
            let new = input.content.filter(|content| !counted.contains(content));
            if let Some(place) = new.and_then(|content| self.inputs.get(&content)) {
                all = all.saturating_add(place.bytes);
                place.by_node.iter().for_each(|(node, bytes)| add(*node, *bytes));
            } else if let Some((node, bytes)) = self.outputs.get(&input.path) {
                all = all.saturating_add(*bytes);
                add(*node, *bytes);
            }
            counted.extend(new);
        }
        let mut near: Vec<(NodeId, u64)> = by_node.into_iter().collect();
        near.retain(|(_, bytes)| bytes.saturating_mul(2) >= all);
        near.sort_by_key(|(node, bytes)| (Reverse(*bytes), *node));
        let bytes = near.first().map_or(0, |(_, bytes)| *bytes);
        let matters = bytes >= LARGE_BYTES && near.len() <= NEAR_NODES_MAX;
        matters.then(|| NearStep { nodes: near.into_iter().map(|(node, _)| node).collect(), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::{DataPlaces, NearStep};
    use api::task::{FileContent, FinishedRun, RunTask, TaskFile};
    use api::{ContentHash, StoredContent, StoredPart};
    use ids::{ConcreteId, NodeId};
    use std::collections::BTreeMap;

    const MIB: u64 = 1 << 20;

    fn stored(parts: &[(i64, u64)]) -> StoredContent {
        let part = |(concrete, bytes): &(i64, u64)| StoredPart {
            concrete: ConcreteId(*concrete),
            bytes: *bytes,
            crc32c: 0,
        };
        StoredContent { parts: parts.iter().map(part).collect() }
    }

    fn reads(contents: &[ContentHash], paths: &[&str]) -> RunTask {
        let stored =
            contents.iter().map(|content| TaskFile { content: Some(*content), ..TaskFile::default() });
        let plain = paths.iter().map(|path| TaskFile { path: path.into(), ..TaskFile::default() });
        RunTask { inputs: stored.chain(plain).collect(), ..RunTask::default() }
    }

    fn run(outputs: &[(&str, u64)]) -> FinishedRun {
        let output = |(path, bytes): &(&str, u64)| FileContent {
            path: path.into(),
            real_path: None,
            sha256: None,
            bytes: *bytes,
            stamp: None,
            made_by: None,
            stored: None,
            compression: None,
        };
        FinishedRun { outputs: outputs.iter().map(output).collect(), ..FinishedRun::default() }
    }

    fn near(nodes: &[u32], mib: u64) -> Option<NearStep> {
        Some(NearStep { nodes: nodes.iter().copied().map(NodeId).collect(), bytes: mib * MIB })
    }

    #[test]
    fn most_bytes_decide_where_a_step_is_near() {
        let (large, small) = (stored(&[(1, 2 * MIB), (2, 4 * MIB)]), stored(&[(3, 1000)]));
        let (large_id, small_id) = (large.identity(), small.identity());
        let pinned = BTreeMap::from([(large_id, large), (small_id, small)]);
        let parts = BTreeMap::from([
            (ConcreteId(1), vec![NodeId(1), NodeId(2)]),
            (ConcreteId(2), vec![NodeId(2)]),
            (ConcreteId(3), vec![NodeId(3)]),
        ]);
        let mut places = DataPlaces::default();
        assert_eq!(places.near(&reads(&[large_id], &[])), None);
        places.learn(&pinned, &parts);
        assert_eq!(places.near(&reads(&[large_id, large_id], &[])), near(&[2], 6));
        assert_eq!(places.near(&reads(&[small_id], &["/a"])), None);
        // A node that has run such a step has a copy; it stays when replicas move.
        places.begins(&reads(&[large_id], &[]), NodeId(3));
        places.learn(&pinned, &BTreeMap::from([(ConcreteId(2), vec![NodeId(1)])]));
        assert_eq!(places.near(&reads(&[large_id], &[])), near(&[2, 3, 1], 6));
        // Outputs of finished steps count by their sizes.
        places.wrote(&run(&[("/a", 20 * MIB), ("/b", 10)]), NodeId(4));
        places.wrote(&run(&[("/c", 30 * MIB)]), NodeId(5));
        assert_eq!(places.near(&reads(&[], &["/a", "/b"])), near(&[4], 20));
        assert_eq!(places.near(&reads(&[], &["/b"])), None);
        assert_eq!(places.near(&reads(&[large_id], &["/a", "/c"])), near(&[5], 30));
    }

    #[test]
    fn inputs_that_are_everywhere_prefer_nobody() {
        let large = stored(&[(1, 2 * MIB)]);
        let content = large.identity();
        let parts = BTreeMap::from([(ConcreteId(1), (0..17).map(NodeId).collect())]);
        let mut places = DataPlaces::default();
        places.learn(&BTreeMap::from([(content, large)]), &parts);
        assert_eq!(places.near(&reads(&[content], &[])), None);
    }
}
