//! Dead nodes: they stay in lists for a while, so that users see which node is missing.

use crate::clock::now_ns;
use api::control::{NodeState, NodeStatus};
use control::node_info;
use metastore::{Metastore, NodeRow, StoreError};
use std::time::Duration;

const SHOWN_FOR: Duration = Duration::from_secs(24 * 60 * 60);
const SHOWN_MAX: u32 = 1000;

/// Returns the nodes that died within a day and have not come back, most recent first.
pub async fn gone_nodes(store: &Metastore) -> Result<Vec<NodeStatus>, StoreError> {
    let now_ns = now_ns();
    let since_ns = now_ns.saturating_sub(SHOWN_FOR.as_nanos() as u64);
    let status = |row: NodeRow| NodeStatus {
        node: row.node,
        info: node_info(&row),
        running: 0,
        silent_ms: now_ns.saturating_sub(row.last_seen_ns) / 1_000_000,
        disks: Vec::new(),
        sample: None,
        state: NodeState::Dead,
        kept_jobs: Vec::new(),
        stored_need: None,
    };
    Ok(store.dead_nodes(since_ns, SHOWN_MAX).await?.into_iter().map(status).collect())
}
