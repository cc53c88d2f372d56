//! The thread that samples the machine once a second and reports to the server.

use crate::disks::probes;
use crate::link::machine::Machine;
use crate::link::remote::Remote;
use crate::shared::Shared;
use api::machine::{DiskReport, DiskState, NodeReport};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Interval of repeated disk reports: free bytes change all the time, and a restarted server knows none. Changed states
/// are reported at once.
const TELL_DISKS_EVERY: u32 = 10;

/// Ends the sampler and the disk probes when it is dropped.
pub(crate) struct Sampling(#[expect(dead_code, reason = "their end is what they say")] Vec<SyncSender<()>>);

/// Starts the threads that sample this machine, its disks and its programs, and report to a server.
pub(crate) fn start(shared: &Arc<Shared>, remote: Arc<Remote>) -> std::io::Result<Sampling> {
    let mut probing = probes::start(shared, &remote)?;
    let (sampling, ends) = sync_channel(1);
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("sampler".to_string());
    thread.spawn(move || sample(&shared, &remote, &ends))?;
    probing.push(sampling);
    Ok(Sampling(probing))
}

fn sample(shared: &Shared, remote: &Remote, ends: &Receiver<()>) {
    let mut machine = Machine::new(remote.disks().paths());
    let mut told: Vec<DiskReport> = Vec::new();
    let mut since_told = 0;
    while ends.recv_timeout(SAMPLE_EVERY) == Err(RecvTimeoutError::Timeout) {
        let disks = remote.disks().look();
        let states =
            |disks: &[DiskReport]| -> Vec<DiskState> { disks.iter().map(|disk| disk.state).collect() };
        use_disks(shared, &disks);
        since_told += 1;
        let is_news = states(&disks) != states(&told) || since_told >= TELL_DISKS_EVERY;
        if is_news {
            since_told = 0;
            told.clone_from(&disks);
        }
        remote.link().report(NodeReport {
            samples: vec![machine.sample(appended_bytes(shared))],
            disks: if is_news { disks } else { Vec::new() },
            said: shared.outputs.news(),
            progress: shared.meters.told(),
            ..NodeReport::default()
        });
    }
}

/// Directs new runs and spilled chunks of all jobs to disks that accept data.
fn use_disks(shared: &Shared, disks: &[DiskReport]) {
    let usable: Vec<bool> = disks.iter().map(|disk| disk.state == DiskState::Usable).collect();
    let jobs: Vec<_> = shared.jobs().values().map(Arc::clone).collect();
    for chunkserver in jobs.iter().filter_map(|job| job.started_chunkserver()) {
        chunkserver.use_disks(&usable);
    }
}

fn appended_bytes(shared: &Shared) -> u64 {
    let jobs = shared.jobs();
    shared.counters.snapshot(jobs.values().filter_map(|job| job.chunk_progress())).appended_bytes
}
