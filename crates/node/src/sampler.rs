//! The thread that looks at the machine once a second and tells the server.

use crate::machine::Machine;
use crate::remote::Remote;
use crate::{Node, NodeError, Shared, disk_probes};
use api::machine::{DiskReport, DiskState, NodeReport};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Free bytes change all the time, and a server may have come back that knows of none: they are told so often, states at once.
const TELL_DISKS_EVERY: u32 = 10;

/// Ends the sampler and the threads that look at disks when it goes.
pub(crate) struct Sampling(#[expect(dead_code, reason = "their end is what they say")] Vec<SyncSender<()>>);

impl Node {
    /// Tells a server each second how this machine, its disks and the programs on it are.
    pub fn report_to(&mut self, remote: Arc<Remote>) -> Result<(), NodeError> {
        let mut probing = disk_probes::start(&self.shared, &remote)?;
        let (sampling, ends) = sync_channel(1);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("sampler".to_string());
        thread.spawn(move || sample(&shared, &remote, &ends)).map_err(NodeError)?;
        probing.push(sampling);
        self.sampling = Some(Sampling(probing));
        Ok(())
    }
}

fn sample(shared: &Shared, remote: &Remote, ends: &Receiver<()>) {
    let mut machine = Machine::new(remote.disks().paths());
    let mut told: Vec<DiskReport> = Vec::new();
    let mut since_told = 0;
    while ends.recv_timeout(SAMPLE_EVERY) == Err(RecvTimeoutError::Timeout) {
        let disks = remote.disks().look();
        let states =
            |disks: &[DiskReport]| -> Vec<DiskState> { disks.iter().map(|disk| disk.state).collect() };
        shared.use_disks(&disks);
        since_told += 1;
        let is_news = states(&disks) != states(&told) || since_told >= TELL_DISKS_EVERY;
        if is_news {
            since_told = 0;
            told.clone_from(&disks);
        }
        remote.link().report(NodeReport {
            samples: vec![machine.sample(shared.appended_bytes())],
            disks: if is_news { disks } else { Vec::new() },
            said: shared.saying.news(),
            progress: shared.meters.told(),
            ..NodeReport::default()
        });
    }
}

impl Shared {
    /// New runs and spilled chunks of all jobs go to disks that can take them.
    fn use_disks(&self, disks: &[DiskReport]) {
        let usable: Vec<bool> = disks.iter().map(|disk| disk.state == DiskState::Usable).collect();
        let jobs: Vec<_> = self.jobs().values().map(Arc::clone).collect();
        for chunkserver in jobs.iter().filter_map(|job| job.started_chunkserver()) {
            chunkserver.use_disks(&usable);
        }
    }

    fn appended_bytes(&self) -> u64 {
        let jobs = self.jobs();
        self.counters.snapshot(jobs.values().filter_map(|job| job.chunk_progress())).appended_bytes
    }
}
