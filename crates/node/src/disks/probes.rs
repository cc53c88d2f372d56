//! Threads that check each second, apart from the data path, whether disks return the written data. The loss of the
//! data on a failed disk is reported to the server before any task needs the data.

use crate::link::remote::Remote;
use crate::shared::Shared;
use api::machine::{AttemptRead, LostOnDisk, READS_TOLD_MAX};
use ids::{AttemptKey, DiskIndex, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Starts a thread for each disk, so that a hanging disk does not block the others. The threads end when the returned
/// value is dropped.
pub(crate) fn start(shared: &Arc<Shared>, remote: &Arc<Remote>) -> std::io::Result<Vec<SyncSender<()>>> {
    let probe = |index: usize| {
        let (ends, end) = sync_channel(1);
        let (shared, remote) = (Arc::clone(shared), Arc::clone(remote));
        let thread = std::thread::Builder::new().name(format!("disk-probe-{index}"));
        thread.spawn(move || probe_loop(&shared, &remote, index, &end))?;
        Ok(ends)
    };
    (0..remote.disks().count()).map(probe).collect()
}

fn probe_loop(shared: &Shared, remote: &Remote, index: usize, end: &Receiver<()>) {
    while end.recv_timeout(PROBE_EVERY) == Err(RecvTimeoutError::Timeout) {
        if !remote.disks().probe(index) {
            tell_losses(shared, remote, index);
        }
    }
}

/// Reports the unreadable runs that were not reported before.
fn tell_losses(shared: &Shared, remote: &Remote, index: usize) {
    let jobs: Vec<_> = shared.jobs().values().map(Arc::clone).collect();
    for job in jobs {
        let Some(chunkserver) = job.started_chunkserver() else { continue };
        let lost = chunkserver.look_for_losses(DiskIndex(index as u16));
        let runs = job.to_tell_lost(&lost.runs);
        if runs.is_empty() {
            continue;
        }
        let why = format!("the disk {index} of the node does not return the written data");
        tracing::warn!(job = %job.job, runs = runs.len(), why, "runs are lost");
        remote.link().lost_on_disk(LostOnDisk {
            job: job.job,
            chunks: lost.chunks.into_iter().collect(),
            why,
            read: reads(chunkserver.have_read(&runs)),
            runs: runs.into_iter().collect(),
        });
    }
}

/// Limited to one message: an attempt that is not named is stopped, and retried.
fn reads(have_read: BTreeMap<AttemptKey, BTreeSet<RunId>>) -> Vec<AttemptRead> {
    let mut room = READS_TOLD_MAX;
    let fits = |(_, runs): &(AttemptKey, BTreeSet<RunId>)| {
        room = room.saturating_sub(runs.len());
        room > 0
    };
    let told = have_read.into_iter().take_while(fits);
    told.map(|(attempt, runs)| AttemptRead { attempt, runs: runs.into_iter().collect() }).collect()
}
