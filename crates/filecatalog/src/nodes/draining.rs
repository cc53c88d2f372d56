//! Nodes that are being drained: the stored files that need them until others have copies.

use crate::asked::now_ns;
use crate::{Catalog, CatalogError};
use api::stored::need::{DrainingNode, NodeNeed, STORED_NEED_NAMES_MAX, StoredNeed};
use ids::{ContentId, NodeId};
use rows::FileSpace;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time in which clients record files that they had put on a node when its drain began.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);
/// A put whose client was not heard for this long records nothing soon.
const PUT_HEARD_WITHIN: Duration = Duration::from_secs(60);

/// The need for a node, as a scan counts it.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    files: u64,
    without_place: u64,
    contents: BTreeSet<ContentId>,
}

/// The needs for all nodes that were being drained when a scan began.
#[derive(Debug, Default)]
pub(crate) struct Needs(BTreeMap<NodeId, Needed>);

impl Needs {
    pub fn of(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self(nodes.into_iter().map(|node| (node, Needed::default())).collect())
    }

    /// Counts a file that needs these nodes.
    pub fn count(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            if let Some(needed) = self.0.get_mut(node) {
                needed.files += 1;
            }
        }
    }

    /// Counts a file that needs these nodes and finds no place on others.
    pub fn has_no_place(&mut self, nodes: &[NodeId], content: ContentId) {
        for node in nodes {
            let Some(needed) = self.0.get_mut(node) else { continue };
            needed.without_place += 1;
            if needed.contents.len() < STORED_NEED_NAMES_MAX {
                needed.contents.insert(content);
            }
        }
    }
}

impl Catalog {
    /// Notes all nodes that are being drained, or were drained and have not left yet. Their replicas do not count, and
    /// copies are made on others at once.
    pub fn drain(&self, nodes: &[DrainingNode]) {
        let mut state = self.state();
        state.disks.set_draining(nodes, Instant::now());
        state.needs.retain(|node, _| nodes.iter().any(|each| each.node == *node));
        for DrainingNode { node, .. } in nodes {
            if !state.disks.has_disks(*node) {
                state.needs.insert(*node, StoredNeed::default());
            }
        }
    }

    /// Returns the needs for nodes that are being drained, as far as a scan has found them.
    pub fn needs(&self) -> Vec<NodeNeed> {
        let need = |(node, need): (&NodeId, &StoredNeed)| NodeNeed { node: *node, need: need.clone() };
        self.state().needs.iter().map(need).collect()
    }

    pub(crate) fn any_drains(&self) -> bool {
        !self.state().disks.draining().is_empty()
    }

    /// Stores the needs that a scan has found. A node that nothing needs is not named before puts that were under way
    /// have recorded their files; those of jobs do so when the job is committed.
    pub(crate) async fn note_needs(&self, needs: Needs) -> Result<(), CatalogError> {
        if needs.0.is_empty() {
            return Ok(());
        }
        let heard_ns = now_ns().saturating_sub(PUT_HEARD_WITHIN.as_nanos() as u64);
        let are_putting = self.store.cluster_puts().await?.iter().any(|put| put.heard_ns >= heard_ns);
        let mut found = Vec::with_capacity(needs.0.len());
        for (node, needed) in needs.0 {
            let mut names = BTreeSet::new();
            for content in needed.contents {
                names.extend(self.store.path_of_content(FileSpace::Cluster, content).await?);
            }
            let (files, without_place) = (needed.files, needed.without_place);
            found.push((node, StoredNeed { files, without_place, names: names.into_iter().collect() }));
        }
        let mut state = self.state();
        for (node, need) in found {
            let Some(since) = state.disks.draining().get(&node).map(|draining| draining.since) else {
                continue;
            };
            let may_record =
                (are_putting && since.elapsed() < RECORDED_WITHIN) || state.outputs.any_before(since);
            if need.files > 0 || !may_record {
                state.needs.insert(node, need);
            }
        }
        Ok(())
    }
}
