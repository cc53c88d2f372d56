//! Final messages of `sailfish run`.

use crate::engine::Ended;
use crate::options::connect::hint;
use crate::show::advice::advice;
use crate::show::escape;
use crate::show::quantity::{bytes, count, counted, percent, rate, seconds};
use crate::show::tables::facts;
use api::report::{ShuffleReport, StoredReport};
use api::{JobReport, OutputFormat, TaskFailure};
use ids::{AttemptKey, StageKind};
use jobspec::{duration, standard_output};
use std::path::Path;

/// Maximum number of warnings that are shown.
const WARNINGS_MAX: usize = 5;
/// Maximum number of tasks with unread input that are named.
const UNREAD_TASKS_MAX: usize = 5;

/// Summarizes a successful job in a few lines.
pub fn succeeded(ended: &Ended, report: &JobReport, start_dir: &Path) -> String {
    let elapsed = ended.elapsed.as_secs_f64();
    let output = ended.spec.output.strip_prefix(start_dir).unwrap_or(&ended.spec.output);
    let input = &report.input;
    let read = match report.reduce_again {
        Some(source) => format!("the I-files that job {source} kept"),
        None => format!(
            "{} in {}, {}, {}",
            counted(input.records, "record"),
            counted(input.files, "file"),
            bytes(input.bytes),
            rate(input.bytes as f64 / elapsed.max(0.001))
        ),
    };
    let mut rows = vec![("input", read)];
    rows.extend(
        report.warnings.iter().take(WARNINGS_MAX).map(|warning| ("warning", escape::sentence(warning))),
    );
    if let Some(more) = report.warning_count.checked_sub(WARNINGS_MAX as u64).filter(|more| *more > 0) {
        rows.push(("warning", format!("and {}", counted(more, "other warning"))));
    }
    if let Some(stored) = &report.map.stored {
        rows.push(("near data", near_data(stored)));
    }
    if report.map.unread_tasks > 0 {
        rows.push(("unread", unread(report)));
    }
    if report.has_shuffle() {
        rows.push(("shuffle", shuffle(&report.shuffle)));
        rows.push(("reduce", reduce(report)));
        rows.push(("proof", proof(report)));
    }
    let (part_bytes, part_records) = output_sums(report);
    rows.push((
        "output",
        format!(
            "{} ({}, {}, {})",
            standard_output::shown(output),
            counted(report.parts.len() as u64, "part"),
            counted(part_records, record_word(report)),
            bytes(part_bytes)
        ),
    ));
    if ended.spec.keep_ifiles {
        let time = ended.spec.keep_seconds.map(|seconds| format!(", for {}", duration::display(seconds)));
        rows.push(("I-files", format!("{}{}", ended.kept.join(" "), time.unwrap_or_default())));
    }
    let job = ended.submitted.job;
    format!(
        "sailfish: job {job} done in {}; more with {}\n{}",
        seconds(elapsed),
        hint(&format!("report {job}"), ended.server.as_deref()),
        facts(&rows)
    )
}

/// Describes how many maps read the stored files of a cluster from their own nodes.
fn near_data(stored: &StoredReport) -> String {
    let all_bytes = stored.here_bytes.saturating_add(stored.elsewhere_bytes);
    format!(
        "{} of {}; {} of {} from their own nodes",
        count(stored.near_tasks),
        counted(stored.tasks, "map"),
        bytes(stored.here_bytes),
        bytes(all_bytes)
    )
}

/// Returns the word for a record in the parts of an output: `line` or `record`.
pub fn record_word(report: &JobReport) -> &'static str {
    match report.formats.output {
        OutputFormat::Lines { .. } => "line",
        OutputFormat::Raw | OutputFormat::Discard => "record",
    }
}

/// Returns the sums over all parts: (bytes, records).
pub fn output_sums(report: &JobReport) -> (u64, u64) {
    (report.parts.iter().map(|part| part.bytes).sum(), report.parts.iter().map(|part| part.records).sum())
}

/// Describes mappers that ended before their input.
fn unread(report: &JobReport) -> String {
    let map = &report.map;
    let shown = map.unread.iter().take(UNREAD_TASKS_MAX);
    let tasks: Vec<String> = shown
        .map(|unread| format!("task {} left {} of {}", unread.task, bytes(unread.unread_bytes), unread.input))
        .collect();
    let more = map.unread_tasks.saturating_sub(tasks.len() as u64);
    let more = if more > 0 { format!("; and {}", counted(more, "other task")) } else { String::new() };
    format!(
        "{} ended before the end of the input, {} unread: {}{more} (--unread fail makes this an error)",
        counted(map.unread_tasks, "mapper"),
        bytes(map.unread_bytes),
        tasks.join("; ")
    )
}

fn shuffle(shuffle: &ShuffleReport) -> String {
    if shuffle.chunks == 0 {
        return "nothing: the maps emitted no records".to_string();
    }
    let mut text = format!(
        "{} in {} ({} would do), {} full, {}",
        bytes(shuffle.bytes),
        counted(shuffle.chunks, "chunk"),
        count(shuffle.chunks_optimum),
        percent(shuffle.fill_percent_mean),
        counted(shuffle.ifiles, "I-file"),
    );
    if shuffle.run_stored_bytes > 0 {
        text.push_str(&format!(", {} on disk", bytes(shuffle.run_stored_bytes)));
    }
    text
}

fn reduce(report: &JobReport) -> String {
    let reduce = &report.reduce;
    format!("{}, {} in groups of one key", counted(reduce.tasks, "task"), count(reduce.groups))
}

/// Returns a line about the proof.
pub fn proof(report: &JobReport) -> String {
    let proof = &report.proof;
    if !proof.agrees {
        return "DISAGREES: the merged records are not the records that the maps committed".to_string();
    }
    format!("agrees: {} and {} in, the same out", counted(proof.records, "record"), bytes(proof.bytes))
}

/// The attempt whose failure ended a job, and its stage.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt {
    pub stage: StageKind,
    pub attempt: AttemptKey,
}

/// Returns the failure of a job, its place, and the last lines of its program.
pub fn failed(ended: &Ended, failure: &TaskFailure, at: Option<FailedAttempt>, start_dir: &Path) -> String {
    let job = ended.submitted.job;
    let place = match at {
        Some(FailedAttempt { stage, attempt }) => {
            format!(" in {stage} task {}, attempt {}", attempt.task.task.0, attempt.attempt.0)
        }
        None => String::new(),
    };
    let mut text = format!("sailfish: job {job} failed{place}: {}\n", failure.message);
    if !failure.stderr_tail.is_empty() {
        text.push_str("  the last lines of its standard error:\n");
        failure.stderr_tail.iter().for_each(|line| text.push_str(&format!("  | {line}\n")));
    }
    let stage = at.map(|at| at.stage);
    if let Some(advice) = advice(&ended.spec, stage, failure, start_dir) {
        text.push_str(&format!("  {advice}\n"));
    }
    let more = hint(&format!("show {job}"), ended.server.as_deref());
    text.push_str(&format!("  there is no output; more with {more}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::shuffle;
    use api::report::ShuffleReport;

    #[test]
    fn shuffle_without_chunks_has_no_figures() {
        let check = |chunks, bytes, expected: &str| {
            let report = ShuffleReport {
                ifiles: 4,
                bytes,
                chunks,
                chunks_optimum: chunks,
                fill_percent_mean: 100.0,
                ..ShuffleReport::default()
            };
            assert_eq!(shuffle(&report), expected);
        };
        check(0, 0, "nothing: the maps emitted no records");
        check(1, 28, "28 B in 1 chunk (1 would do), 100.0 % full, 4 I-files");
    }
}
