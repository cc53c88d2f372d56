//! Reports of nodes about their machines, disks and programs. They are stored once a second, for all nodes together.

use crate::flows::parts_replicated;
use crate::interface::Outbox;
use crate::job::range_cuts::shortened;
use crate::loss::lost_on_disk;
use crate::membership::{Fleet, hear};
use crate::replication::replicated;
use crate::scheduling::{feed, progressed};
use crate::work::Work;
use api::control::JobLogs;
use api::history::usage::USAGE_KEPT_DAYS;
use api::machine::{DISKS_MAX, DiskReport, DiskState, MachineSample, NodeReport, SAMPLES_MAX};
use ids::{DiskIndex, JobId, NodeId};
use rows::{Change, DiskRow, SampleRow, day_of};
use scheduler::Event;
use std::path::PathBuf;
use std::time::Duration;

const WRITE_EVERY: Duration = Duration::from_secs(1);
/// How long samples are kept, and how often older ones are removed.
const SAMPLES_KEPT_NS: u64 = 3_600 * 1_000_000_000;
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of samples that wait for a write: those of a thousand nodes that come back at once after a minute.
const SAMPLES_WAITING_MAX: usize = 60_000;
/// Longest path of a disk that is shown, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Handles the report of a node.
pub(crate) fn reported(work: &mut Work, outbox: &mut Outbox, node: NodeId, report: NodeReport) {
    let Some((known, telemetry)) = work.fleet.reporting(node) else { return };
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
    let room = SAMPLES_WAITING_MAX.saturating_sub(telemetry.samples.len());
    telemetry.samples.extend(sample_rows(node, samples, outbox.now_ns()).into_iter().take(room));
    if !report.disks.is_empty() {
        let took_chunks = known.takes_chunks();
        let before = known.disks.iter().filter(|disk| is_broken(disk)).count();
        known.disks = report.disks.into_iter().take(DISKS_MAX).map(bounded).collect();
        let is_news = known.takes_chunks() != took_chunks;
        let has_lost_any = known.disks.iter().filter(|disk| is_broken(disk)).count() > before;
        telemetry.disks.insert(node);
        // Free bytes change all the time, and other nodes do not need them.
        if is_news {
            work.fleet.nodes_changed();
        }
        if has_lost_any {
            work.fleet.disk_was_lost(outbox.now());
        }
        let_nodes_rest(work, outbox);
    }
    work.fleet.unreached(node, &report.unreached);
    progressed(work, outbox, node, report.progress);
    replicated(work, outbox, node, report.replicated);
    parts_replicated(work, outbox, node, report.replicated_parts);
    shortened(work, outbox, node, report.shortened);
    lost_on_disk(work, outbox, node, report.lost);
}

/// Excludes nodes that cannot write from tasks that other nodes could run, and readmits them.
pub(crate) fn let_nodes_rest(work: &mut Work, outbox: &mut Outbox) {
    for (node, is_cordoned) in work.fleet.newly_cordoned() {
        let now = if is_cordoned { "cannot write to any of its disks" } else { "can write again" };
        outbox.warn(format!("{node} {now}"));
        feed(
            work,
            outbox,
            if is_cordoned { Event::NodeDraining { node } } else { Event::NodeResumes { node } },
        );
    }
}

/// Writes the collected reports if the interval has passed.
pub(crate) fn write_telemetry(fleet: &mut Fleet, outbox: &mut Outbox) {
    let moment = outbox.moment();
    let since = fleet.telemetry().written.map_or(WRITE_EVERY, |last| moment.since(last));
    if since < WRITE_EVERY {
        return;
    }
    let waiting = std::mem::take(fleet.telemetry());
    let seen = fleet.seen_within(since, outbox.now());
    if !seen.is_empty() {
        outbox.write(Change::NodesSeen { nodes: seen });
    }
    for node in waiting.disks {
        let Some(known) = fleet.get(node) else { continue };
        outbox.write(Change::Disks { node, disks: disk_rows(&known.disks) });
    }
    if !waiting.samples.is_empty() {
        outbox.write(Change::Samples { rows: waiting.samples });
    }
    let forgets = waiting.forgotten.is_none_or(|last| moment.since(last) >= FORGET_EVERY);
    if forgets && fleet.any() {
        outbox.write(Change::SamplesForgotten { before_ns: outbox.now_ns().saturating_sub(SAMPLES_KEPT_NS) });
    }
    if forgets {
        let before_day = day_of(outbox.now_ns()).saturating_sub(USAGE_KEPT_DAYS);
        outbox.write(Change::UsageForgotten { before_day });
    }
    let telemetry = fleet.telemetry();
    telemetry.written = Some(moment);
    telemetry.forgotten = if forgets { Some(moment) } else { waiting.forgotten };
}

/// Returns the output so far of the program of a job; None if no program runs or its node has reported nothing.
pub(crate) fn output_so_far(fleet: &Fleet, job: JobId) -> Option<JobLogs> {
    fleet.heard_of(job).map(|(attempt, heard)| JobLogs {
        attempt: Some(attempt.attempt),
        standard_output: heard.standard_output.text.clone(),
        standard_error: heard.standard_error.text.clone(),
        standard_output_bytes: heard.standard_output.end_bytes,
        standard_error_bytes: heard.standard_error.end_bytes,
        over: false,
    })
}

/// Converts samples to rows by the server's clock: the last one is from now, and the others are older by the
/// differences that the node reports. The clock of the node may be wrong.
fn sample_rows(node: NodeId, samples: &[MachineSample], now_ns: u64) -> Vec<SampleRow> {
    let Some(last) = samples.last() else { return Vec::new() };
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

/// Limits a number to the largest that the store accepts.
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
            DiskState::Usable => rows::DiskState::Usable,
            DiskState::Full => rows::DiskState::Full,
            DiskState::ReadOnly => rows::DiskState::ReadOnly,
            DiskState::Failed => rows::DiskState::Failed,
        },
    };
    disks.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::sample_rows;
    use api::machine::MachineSample;
    use ids::NodeId;

    #[test]
    fn samples_of_wrong_clocks_have_our_time() {
        let sample = |time_ns| MachineSample { time_ns, ..MachineSample::default() };
        let now_ns = 1 << 60;
        let stamped = sample_rows(NodeId(3), &[sample(5), sample(1_000), sample(u64::MAX)], now_ns);
        assert!(stamped[2].time_ns == now_ns && stamped[0].time_ns == 0, "{stamped:?}");
        let stamped = sample_rows(NodeId(3), &[sample(100), sample(350)], now_ns);
        assert_eq!(stamped[1].time_ns - stamped[0].time_ns, 250);
    }
}
