//! Copies sorted runs of a job to a second node, one after the other, oldest first, while the job runs (intermediate
//! storage system, ISS, section 4; `docs/internals/replication.md`).
//!
//! It yields: while map tasks append here it sends slowly, but faster the longer a run has been on one node only.

pub(crate) mod parts;
pub(crate) mod waiting;

use crate::job_data::JobData;
use crate::shared::Shared;
use crate::shuffle::remote::OtherNodes;
use crate::shuffle::replicate::parts::{SentParts, send_parts};
use api::Replication;
use api::machine::ReplicatedRun;
use chunkserver::{ChunkServer, Progress, RunToCopy, copy_pace};
use dataport::{CopyError, Peer};
use ids::{ChunkId, JobId, NodeId, RunId};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Starts a thread that replicates the runs of a job, if it is wanted and not running.
pub(crate) fn replicate(shared: &Arc<Shared>, job: &Arc<JobData>) {
    if job.begins_to_replicate() {
        let (shared, id) = (Arc::clone(shared), job.job);
        let thread = std::thread::Builder::new().name("replicator".to_string());
        // Without it runs are on one node: less safe, but correct.
        if let Err(error) = thread.spawn(move || replicate_runs(&shared, id)) {
            job.replicates_no_more();
            tracing::warn!(job = %id, %error, "cannot replicate runs");
        }
    }
}

/// Replicates runs until the job is over.
fn replicate_runs(shared: &Arc<Shared>, job: JobId) {
    let (mut replicas, mut parts) = (BTreeMap::new(), SentParts::new());
    let mut waiting = Waiting::default();
    while let Some((server, wants_runs, began)) = server_of(shared, job) {
        if wants_runs {
            server.begin_copying();
            shared.to_replicate_again(job).iter().for_each(|runs| server.copy_standing(runs));
            waiting.close_old(&server, copy_pace::open_chunk_waits_max(began.elapsed()));
        }
        send_again(shared, job, &server, &mut replicas);
        let parts_wait = send_parts(shared, job, &mut parts);
        let Some(run) = server.next_to_copy(copy_pace::LOOK_EVERY) else {
            drop(server);
            if parts_wait {
                std::thread::sleep(copy_pace::REFUSED_PAUSE);
            }
            continue;
        };
        let sent = match shared.other_nodes(job) {
            Some(others) => send(shared, job, &others, &server, &run),
            None => Offered::NotNow,
        };
        match sent {
            Offered::Taken(node, ()) => {
                server.copied(run.run);
                // The server orders when promoted replicas are copied again.
                if run.run.node() == shared.control.node() {
                    replicas.insert(run.run, (node, run));
                }
            }
            // A damaged one is recomputed.
            Offered::Unreadable | Offered::Cancelled => server.copied(run.run),
            Offered::NotNow => {
                server.copy_again(run);
                drop(server);
                std::thread::sleep(copy_pace::REFUSED_PAUSE);
            }
        }
    }
}

/// Times since which chunks have waited to be full.
#[derive(Default)]
struct Waiting {
    since: BTreeMap<ChunkId, Instant>,
}

impl Waiting {
    fn close_old(&mut self, server: &ChunkServer, waits_max: Duration) {
        let begun = server.begun_chunks();
        self.since.retain(|chunk, _| begun.contains(chunk));
        let now = Instant::now();
        for chunk in begun {
            self.since.entry(chunk).or_insert(now);
        }
        let is_old = |since: &Instant| now.duration_since(*since) >= waits_max;
        let old: Vec<ChunkId> =
            self.since.iter().filter(|(_, since)| is_old(since)).map(|(chunk, _)| *chunk).collect();
        if !old.is_empty() {
            server.close_chunks(&old);
        }
    }
}

/// Returns whether its runs must be copied, and the time at which the job began here; None when it is over here. With
/// `selective` only parts are copied: spools have the data of all runs.
fn server_of(shared: &Shared, job: JobId) -> Option<(Arc<ChunkServer>, bool, Instant)> {
    let data = shared.jobs().get(&job).map(Arc::clone)?;
    if data.run.cancelled.load(Ordering::Relaxed) {
        return None;
    }
    let wants_runs = data.run.spec.replication != Replication::Selective;
    // If it cannot be started, attempts here report the reason.
    Some((data.chunkserver().ok()?, wants_runs, data.began))
}

/// Copies runs again whose replica was on a lost node.
fn send_again(
    shared: &Shared,
    job: JobId,
    server: &ChunkServer,
    replicas: &mut BTreeMap<RunId, (NodeId, RunToCopy)>,
) {
    let Some(others) = shared.other_nodes(job) else { return };
    let lives = |node: NodeId| others.peers.iter().any(|peer| peer.node == node);
    let gone: Vec<RunId> =
        replicas.iter().filter(|(_, (node, _))| !lives(*node)).map(|(run, _)| *run).collect();
    for run in gone {
        if let Some((_, run)) = replicas.remove(&run) {
            server.copy_again(run);
        }
    }
}

/// Result of offering a file to other nodes: `T` are facts about the copy.
pub(crate) enum Offered<T> {
    Taken(NodeId, T),
    /// No other node accepts it for the moment.
    NotNow,
    /// It cannot be read here.
    Unreadable,
    /// Nobody needs it any more.
    Cancelled,
}

/// Offers a file to nodes until one of them takes it: a run, a part or an intermediate file. `copy` sends it to a node
/// that is listed with `P`.
pub(crate) fn offer<'a, P, T>(
    file: &dyn Display,
    peers: impl IntoIterator<Item = (&'a Peer, P)>,
    mut copy: impl FnMut(&Peer, P) -> Result<T, CopyError>,
) -> Offered<T> {
    for (peer, with) in peers {
        match copy(peer, with) {
            Ok(copied) => return Offered::Taken(peer.node, copied),
            Err(CopyError::Cancelled) => return Offered::Cancelled,
            Err(error) if error.is_about_peer() => {
                tracing::debug!(%file, peer = %peer.node, %error, "a node did not take a copy");
            }
            Err(error) => {
                // Its readers notice it too.
                tracing::warn!(%file, %error, "a file cannot be replicated");
                return Offered::Unreadable;
            }
        }
    }
    Offered::NotNow
}

fn send(
    shared: &Shared,
    job: JobId,
    others: &OtherNodes,
    server: &Arc<ChunkServer>,
    run: &RunToCopy,
) -> Offered<()> {
    let pace = Pace::new(server.progress(), run.sorted_at);
    let may_go_on = |bytes: usize| {
        pace.wait(bytes);
        shared.jobs().contains_key(&job)
    };
    // The node that made it may be alive: its file was damaged, or lost with a disk.
    let peers = candidates(others, run.run).into_iter().filter(|peer| peer.node != run.run.node());
    offer(&format_args!("run {} of job {job}", run.run), peers.map(|peer| (peer, ())), |peer, ()| {
        let began = Instant::now();
        let copied = others.client.copy_run(peer, job, server, run.run, &may_go_on)?;
        let told = ReplicatedRun {
            job,
            run: run.run,
            chunks: copied.chunks,
            to: peer.node,
            bytes: copied.bytes,
            single_ns: run.sorted_at.elapsed().as_nanos() as u64,
            sending_ns: began.elapsed().as_nanos() as u64,
        };
        if let Some(record_data) = shared.record_data.get() {
            record_data.replicated(told);
        }
        Ok(())
    })
}

/// Returns the nodes that may take a file, in a different order for each file, so that they get even shares.
pub(crate) fn candidates(others: &OtherNodes, file: impl Hash) -> Vec<&Peer> {
    let mut peers: Vec<&Peer> =
        others.peers.iter().filter(|peer| others.replica_hosts.contains(&peer.node)).collect();
    peers.sort_by_key(|peer| copy_pace::turn(&file, peer.node));
    peers
}

/// The speed limit of a run.
struct Pace {
    progress: Arc<Progress>,
    sorted: Instant,
    /// Bytes appended here at the last check.
    appended: AtomicU64,
}

impl Pace {
    fn new(progress: Arc<Progress>, sorted: Instant) -> Self {
        let appended = AtomicU64::new(progress.appended_bytes.load(Ordering::Relaxed));
        Self { progress, sorted, appended }
    }

    /// Waits until this many bytes may be sent, if others need the disks and the network too.
    fn wait(&self, bytes: usize) {
        let appended = self.progress.appended_bytes.load(Ordering::Relaxed);
        if self.appended.swap(appended, Ordering::Relaxed) != appended {
            std::thread::sleep(copy_pace::yielding(bytes, self.sorted.elapsed()));
        }
    }
}
