//! Reports of nodes about their machines, their disks and the programs on them. They go into the store once a second,
//! for all nodes together.

use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use api::control::JobLogs;
use api::machine::{DISKS_MAX, DiskReport, DiskState, MachineSample, NodeReport, SAMPLES_MAX, SaidText};
use api::task::RUN_OUTPUT_BYTES_MAX;
use ids::{DiskIndex, JobId, NodeId};
use metastore::{Change, DiskRow, SampleRow};
use scheduler::Event;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const WRITE_EVERY: Duration = Duration::from_secs(1);
/// How long samples are kept, and how often the older ones are removed.
const SAMPLES_KEPT_NS: u64 = 3_600 * 1_000_000_000;
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// Samples that may wait for the next write: those of a thousand nodes that come back at once after a minute.
const SAMPLES_WAITING_MAX: usize = 60_000;
/// Longest path of a disk that is told to people.
const PATH_BYTES_MAX: usize = 4096;

/// Reports that wait for the next write to the store.
pub(crate) struct Telemetry {
    samples: Vec<SampleRow>,
    /// Nodes whose disks have changed.
    disks: BTreeSet<NodeId>,
    written: Instant,
    forgotten: Option<Instant>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { samples: Vec::new(), disks: BTreeSet::new(), written: Instant::now(), forgotten: None }
    }
}

/// The last of what a program wrote so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    standard_output: SaidText,
    standard_error: SaidText,
}

impl EventLoop {
    /// A node tells how it is.
    pub fn reported(&mut self, node: NodeId, report: NodeReport) {
        let Some(known) = self.fleet.get_mut(node) else { return };
        let said = report.said.into_iter().filter(|said| known.running.contains_key(&said.attempt));
        let said: Vec<_> = said.collect();
        for piece in said {
            let heard = known.heard.entry(piece.attempt).or_default();
            hear(&mut heard.standard_output, piece.standard_output);
            hear(&mut heard.standard_error, piece.standard_error);
        }
        let running = &known.running;
        known.heard.retain(|attempt, _| running.contains_key(attempt));
        let skipped = report.samples.len().saturating_sub(SAMPLES_MAX);
        let samples = &report.samples[skipped..];
        known.sample = samples.last().copied().or(known.sample);
        let room = SAMPLES_WAITING_MAX.saturating_sub(self.telemetry.samples.len());
        self.telemetry.samples.extend(rows(node, samples).into_iter().take(room));
        if !report.disks.is_empty() {
            let took_chunks = known.takes_chunks();
            let before = known.disks.iter().filter(|disk| is_broken(disk)).count();
            known.disks = report.disks.into_iter().take(DISKS_MAX).map(bounded).collect();
            let is_news = known.takes_chunks() != took_chunks;
            let has_lost_any = known.disks.iter().filter(|disk| is_broken(disk)).count() > before;
            self.telemetry.disks.insert(node);
            // Free bytes change all the time, and nobody else need know.
            if is_news {
                self.fleet.nodes_changed();
            }
            if has_lost_any {
                self.fleet.disk_was_lost();
            }
            self.let_nodes_rest();
        }
        self.fleet.unreached(node, &report.unreached);
        self.progressed(node, report.progress);
        self.replicated(node, report.replicated);
        self.parts_replicated(node, report.replicated_parts);
        self.shortened(node, report.shortened);
        self.lost_on_disk(node, report.lost);
    }

    /// A node that cannot write gets nothing that others could do.
    pub fn let_nodes_rest(&mut self) {
        for (node, rests) in self.fleet.who_rests() {
            tracing::warn!(%node, rests, "whether a node can write to any of its disks has changed");
            self.feed(if rests { Event::NodeDraining { node } } else { Event::NodeResumes { node } });
        }
    }

    /// Writes what has gathered, where it is time.
    pub fn write_telemetry(&mut self) {
        let since = self.telemetry.written.elapsed();
        if since < WRITE_EVERY {
            return;
        }
        let waiting = std::mem::take(&mut self.telemetry);
        let seen = self.fleet.seen_within(since, now_ns());
        if !seen.is_empty() {
            self.changes.push(Change::NodesSeen { nodes: seen });
        }
        for node in waiting.disks {
            let Some(known) = self.fleet.get_mut(node) else { continue };
            self.changes.push(Change::Disks { node, disks: disk_rows(&known.disks) });
        }
        if !waiting.samples.is_empty() {
            self.changes.push(Change::Samples { rows: waiting.samples });
        }
        let forgets = waiting.forgotten.is_none_or(|last| last.elapsed() >= FORGET_EVERY);
        if forgets && self.fleet.any() {
            self.changes
                .push(Change::SamplesForgotten { before_ns: now_ns().saturating_sub(SAMPLES_KEPT_NS) });
        }
        self.telemetry.forgotten = if forgets { Some(Instant::now()) } else { waiting.forgotten };
    }

    /// Answers with the output so far of the program of a job; with None if none runs or its node has told nothing.
    pub fn said(&self, job: JobId, reply: Reply<Option<JobLogs>>) {
        let logs = self.fleet.heard_of(job).map(|(attempt, heard)| JobLogs {
            attempt: Some(attempt.attempt),
            standard_output: heard.standard_output.text.clone(),
            standard_error: heard.standard_error.text.clone(),
            standard_output_bytes: heard.standard_output.end_bytes,
            standard_error_bytes: heard.standard_error.end_bytes,
            over: false,
        });
        drop(reply.send(Ok(logs)));
    }
}

/// Takes a piece of text that follows on what was heard, or stands for itself where something was lost between.
fn hear(heard: &mut SaidText, piece: SaidText) {
    let follows = piece.end_bytes == heard.end_bytes.saturating_add(piece.text.len() as u64);
    if !follows && piece.text.is_empty() {
        return;
    }
    if !follows {
        heard.text.clear();
    }
    heard.text.push_str(&piece.text);
    heard.end_bytes = piece.end_bytes;
    let cut = heard.text.ceil_char_boundary(heard.text.len().saturating_sub(RUN_OUTPUT_BYTES_MAX));
    heard.text.drain(..cut);
}

/// By our clock: the last one is of now, and the others are as much older as the node says. A node's own clock may
/// be wrong.
fn rows(node: NodeId, samples: &[MachineSample]) -> Vec<SampleRow> {
    let Some(last) = samples.last() else { return Vec::new() };
    let now_ns = now_ns();
    let row = |sample: &MachineSample| SampleRow {
        node,
        time_ns: now_ns.saturating_sub(last.time_ns.saturating_sub(sample.time_ns)),
        cpu_permille: sample.cpu_permille,
        memory_used_bytes: stored(sample.memory_used_bytes),
        disk_busy_permille: sample.disk_busy_permille,
        disk_read_bytes: stored(sample.disk_read_bytes),
        disk_written_bytes: stored(sample.disk_written_bytes),
        network_received_bytes: stored(sample.network_received_bytes),
        network_sent_bytes: stored(sample.network_sent_bytes),
        appended_bytes: stored(sample.appended_bytes),
    };
    samples.iter().map(row).collect()
}

/// The largest number that the store takes.
fn stored(count: u64) -> u64 {
    count.min(i64::MAX as u64)
}

fn is_broken(disk: &DiskReport) -> bool {
    matches!(disk.state, DiskState::ReadOnly | DiskState::Failed)
}

fn bounded(disk: DiskReport) -> DiskReport {
    let mut path = disk.path.replace('\0', "\u{fffd}");
    path.truncate(path.floor_char_boundary(PATH_BYTES_MAX));
    DiskReport { path, total_bytes: stored(disk.total_bytes), free_bytes: stored(disk.free_bytes), ..disk }
}

pub(crate) fn disk_rows(disks: &[DiskReport]) -> Vec<DiskRow> {
    let row = |(index, disk): (usize, &DiskReport)| DiskRow {
        disk: DiskIndex(index as u16),
        path: PathBuf::from(&disk.path),
        total_bytes: disk.total_bytes,
        free_bytes: disk.free_bytes,
        state: match disk.state {
            DiskState::Usable => metastore::DiskState::Usable,
            DiskState::Full => metastore::DiskState::Full,
            DiskState::ReadOnly => metastore::DiskState::ReadOnly,
            DiskState::Failed => metastore::DiskState::Failed,
        },
    };
    disks.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{RUN_OUTPUT_BYTES_MAX, SaidText, hear, rows};
    use api::machine::MachineSample;
    use ids::NodeId;

    #[test]
    fn pieces_follow_or_stand_for_themselves() {
        let mut heard = SaidText::default();
        let mut check = |text: &str, end_bytes, expected: &str| {
            hear(&mut heard, SaidText { text: text.to_string(), end_bytes });
            assert_eq!(heard.text, expected);
        };
        check("ab", 2, "ab");
        check("c", 3, "abc");
        check("", 0, "abc");
        check("xy", 90, "xy");
        check("z", 91, "xyz");
        check("evil", u64::MAX, "evil");
        let long = "a".repeat(RUN_OUTPUT_BYTES_MAX);
        check(&long, 91, &long);
        check("b", 92, &format!("{}b", &long[1..]));
    }

    #[test]
    fn a_node_with_a_wrong_clock_is_sampled_in_our_time() {
        let sample = |time_ns| MachineSample { time_ns, ..MachineSample::default() };
        let before = crate::clock::now_ns();
        let stamped = rows(NodeId(3), &[sample(5), sample(1_000), sample(u64::MAX)]);
        assert!(stamped[2].time_ns >= before && stamped[0].time_ns == 0, "{stamped:?}");
        let stamped = rows(NodeId(3), &[sample(100), sample(350)]);
        assert_eq!(stamped[1].time_ns - stamped[0].time_ns, 250);
    }
}
