//! The kept files of a job for `sailfish fsck`.

use crate::kept::runs::{KeptSource, kept_source, present_places, surviving_runs};
use crate::{NotReducible, ServerError};
use control::Control;
use control::retention::KeptCheck;
use ids::{JobId, RunId};
use metastore::{CLUSTER_OWNER, Metastore, ReplicaRow};
use std::collections::BTreeMap;

/// Returns the kept files of a job of one machine.
///
/// Fails if the job is unknown, if it kept nothing, or if nodes of a cluster have its files.
pub async fn check_here(store: &Metastore, job: JobId) -> Result<KeptCheck, ServerError> {
    let kept = kept_source(store, job).await?;
    if kept.row.owner == CLUSTER_OWNER {
        return Err(NotReducible::OfCluster { job: kept.row.job }.into());
    }
    let mut check = new_check(store, &kept).await?;
    check.lies_here(kept.row.disk_dirs);
    Ok(check)
}

/// Returns the kept files of a job of a cluster, with the nodes that have them: for each run its own file or the
/// promoted replica, and every other replica that was kept.
///
/// Fails if the job is unknown, if it kept nothing, or if a node that has some of it is not in the cluster.
pub(crate) async fn check_on_nodes(
    store: &Metastore,
    job: JobId,
    control: &Control,
) -> Result<KeptCheck, ServerError> {
    let kept = kept_source(store, job).await?;
    let source = kept.row.job;
    if kept.row.owner != CLUSTER_OWNER {
        return Err(NotReducible::OfOneMachine { job: source }.into());
    }
    let places = present_places(store, source, control).await?;
    let mut check = new_check(store, &kept).await?;
    let mut replicas: BTreeMap<RunId, Vec<ReplicaRow>> = BTreeMap::new();
    for row in store.replicas(source).await? {
        replicas.entry(row.run).or_default().push(row);
    }
    check.lies_on_nodes(&places, &replicas);
    Ok(check)
}

async fn new_check(store: &Metastore, kept: &KeptSource) -> Result<KeptCheck, ServerError> {
    let source = kept.row.job;
    let runs = surviving_runs(store, source).await?;
    let commits = store.winning_commits(source).await?;
    Ok(KeptCheck::new(source, runs, commits, kept.spec.layout.ifile_count))
}
