//! The commit: parts get their names, report and mark are written, everything is synced, and the staging directory
//! becomes the output by one rename. If the output is a prefix of objects, `objects` has the protocol.

pub(crate) mod recording;

use recording::PartsAt;

use crate::attempt::{Assignment, JobRun};
use crate::failure::{file_failure, named_failure};
use crate::job_data::AttemptData;
use crate::shared::Shared;
use api::task::{CommitResult, CommitTask, FinishedRun, Part};
use api::{Blame, JobSpec, TaskFailure, is_object_url};
use faults::{CrashPoint, IoCall, crash_point, io_call};
use objects::ObjectUrl;
use objects::staging::Publication;
use output::output_dir::{ForeignEntry, REPORT_NAME, SUCCESS_NAME, foreign_entry, read_report};
use roots::{HeldDir, shown};
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest relative error of a fraction that is converted to text and back.
const FRACTION_LOSS_MAX: f64 = 1e-12;

/// Publishes the output. A later attempt may repeat every step.
pub(crate) fn run(
    shared: &Shared,
    data: &AttemptData,
    assignment: &Assignment,
    task: &CommitTask,
) -> Result<CommitResult, TaskFailure> {
    if let Some(output) = &data.stored_output {
        output.publish(&task.parts, &assignment.cancelled)?;
        crash_point(CrashPoint::CommitAfterRename);
        return Ok(CommitResult::default());
    }
    if data.run.spec.feeds() {
        return Ok(CommitResult {
            replaced: false,
            run: recording::record(shared, data, task, PartsAt::Stages)?,
        });
    }
    let report = serde_json::to_vec_pretty(&task.report).map_err(|error| {
        TaskFailure::new(Blame::Engine, format!("cannot write the report as JSON: {error}"))
    })?;
    let (job, cancelled) = (&*assignment.job, &*assignment.cancelled);
    match is_object_url(&job.staging) {
        true => publish_objects(job, cancelled, task, report),
        false => publish_directory(job, cancelled, &task.parts, &report, |parts| {
            recording::record(shared, data, task, parts)
        }),
    }
}

fn publish_objects(
    job: &JobRun,
    cancelled: &AtomicBool,
    task: &CommitTask,
    report: Vec<u8>,
) -> Result<CommitResult, TaskFailure> {
    let is_cancelled = || cancelled.load(Ordering::Relaxed);
    let published = ObjectUrl::from_path(&job.staging).and_then(|staging| {
        let (parts, overwrite) = (task.parts.clone(), job.spec.overwrite);
        objects::staging::publish(Publication { staging, parts, report, overwrite }, &is_cancelled)
    });
    match published {
        Ok(replaced) => Ok(CommitResult { replaced, run: None }),
        Err(error) => Err(TaskFailure::new(error.blame(), error.to_string())),
    }
}

/// The two paths of an output, before and after it is published, and their common directory.
struct Names {
    staging: PathBuf,
    output: PathBuf,
    parent: PathBuf,
    /// Open parent directory, if there are roots: the paths above go through it, and stay the same if it is renamed.
    _held: Option<HeldDir>,
}

impl Names {
    fn of(job: &JobRun) -> Result<Names, TaskFailure> {
        let (output, staging) = (&job.spec.output, shown(&job.staging));
        let unnamed = || TaskFailure::new(Blame::Engine, format!("{} has no parent", output.display()));
        let parent = output.parent().ok_or_else(unnamed)?;
        if !job.paths.are_bounded() {
            let (staging, output, parent) = (staging, output.clone(), parent.to_path_buf());
            return Ok(Names { staging, output, parent, _held: None });
        }
        let held = job.paths.open_dir(parent);
        let held = held.map_err(|error| named_failure("open", parent, error))?;
        let named = staging.file_name().zip(output.file_name()).ok_or_else(unnamed)?;
        let parent = held.path();
        Ok(Names { staging: parent.join(named.0), output: parent.join(named.1), parent, _held: Some(held) })
    }
}

fn publish_directory(
    job: &JobRun,
    cancelled: &AtomicBool,
    parts: &[Part],
    report: &[u8],
    record: impl FnOnce(PartsAt<'_>) -> Result<Option<Box<FinishedRun>>, TaskFailure>,
) -> Result<CommitResult, TaskFailure> {
    let (spec, names) = (&job.spec, Names::of(job)?);
    let staging = &names.staging;
    let run;
    let replaced = match is_published(&names.output, report) {
        // The attempt that published it was lost. The staging path has the older output now, if anything.
        true => {
            run = record(PartsAt::Output(&names.output))?;
            spec.overwrite && staging.exists()
        }
        false => {
            prepare(spec, &job.staging, parts, report)?;
            run = record(PartsAt::Staging(staging))?;
            if cancelled.load(Ordering::Relaxed) {
                return Err(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"));
            }
            publish(spec, &names, report)?
        }
    };
    crash_point(CrashPoint::CommitAfterRename);
    // The output is visible already; an error here must not mark a published job as failed. But a power failure may
    // still lose its name, which an operator must know.
    if spec.sync
        && let Err(failure) = sync_dir(&names.parent)
    {
        let output = spec.output.display();
        tracing::warn!(%output, failure.message, "the output may be lost in a power failure");
    }
    crash_point(CrashPoint::CommitAfterParentSync);
    if replaced {
        // The staging path has the older output now. The new one is published, so the job has succeeded in any case:
        // the server removes the staging directory again.
        let _ = std::fs::remove_dir_all(staging);
    }
    Ok(CommitResult { replaced, run })
}

/// Does everything except the rename of the output.
fn prepare(spec: &JobSpec, staging: &Path, parts: &[Part], report: &[u8]) -> Result<(), TaskFailure> {
    for part in parts {
        crash_point(CrashPoint::CommitBeforePartRename);
        name_part(staging, part)?;
        crash_point(CrashPoint::CommitAfterPartRename);
    }
    remove_strays(staging, parts)?;
    write_file(&staging.join(REPORT_NAME), report, spec.sync)?;
    write_file(&staging.join(SUCCESS_NAME), b"", spec.sync)?;
    crash_point(CrashPoint::CommitReportWritten);
    crash_point(CrashPoint::CommitBeforeSync);
    if spec.sync {
        sync_dir(staging)?;
    }
    crash_point(CrashPoint::CommitAfterSync);
    Ok(())
}

/// Returns whether the output is the one of this report: an earlier attempt has published it. The report is made once
/// for all attempts, and contains the times of this run.
fn is_published(output: &Path, report: &[u8]) -> bool {
    let read = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    let published = read_report(output).ok().flatten().and_then(|text| read(&text));
    published.zip(read(report)).is_some_and(|(published, ours)| is_same(&published, &ours))
}

/// Returns whether two values are equal, except for the error of fractions as text.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) if left.is_f64() && right.is_f64() => {
            let (left, right) = (left.as_f64().unwrap_or_default(), right.as_f64().unwrap_or_default());
            (left - right).abs() <= FRACTION_LOSS_MAX * left.abs().max(right.abs())
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same =
                |(name, value): (&String, &Value)| right.get(name).is_some_and(|other| is_same(value, other));
            left.len() == right.len() && left.iter().all(same)
        }
        _ => left == right,
    }
}

fn name_part(staging: &Path, part: &Part) -> Result<(), TaskFailure> {
    let from = staging.join(&part.attempt_name);
    let to = staging.join(&part.name);
    match io_call(IoCall::Rename, &from).and_then(|()| std::fs::rename(&from, &to)) {
        Ok(()) => Ok(()),
        // An earlier attempt of the commit came this far.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && to.exists() => Ok(()),
        Err(error) => Err(file_failure("rename", &from, error)),
    }
}

/// Removes the parts of attempts that lost.
fn remove_strays(staging: &Path, parts: &[Part]) -> Result<(), TaskFailure> {
    let failed = |error| file_failure("list", staging, error);
    for entry in std::fs::read_dir(staging).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let known = name.to_str().is_some_and(|name| parts.iter().any(|part| part.name == name));
        if !known {
            std::fs::remove_file(entry.path())
                .map_err(|error| file_failure("remove", &entry.path(), error))?;
        }
    }
    Ok(())
}

fn write_file(path: &Path, bytes: &[u8], sync: bool) -> Result<(), TaskFailure> {
    let write = || -> std::io::Result<()> {
        io_call(IoCall::Create, path)?;
        let no_link = OFlags::NOFOLLOW.bits() as i32;
        let mut file =
            File::options().create(true).truncate(true).write(true).custom_flags(no_link).open(path)?;
        io_call(IoCall::Write, path)?;
        file.write_all(bytes)?;
        if !sync {
            return Ok(());
        }
        io_call(IoCall::Sync, path)?;
        file.sync_all()
    };
    write().map_err(|error| file_failure("write", path, error))
}

fn sync_dir(path: &Path) -> Result<(), TaskFailure> {
    let asked = io_call(IoCall::Sync, path);
    let synced = asked.and_then(|()| File::open(path)?.sync_all());
    synced.map_err(|error| file_failure("sync", path, error))
}

/// Renames the staging directory to the output. Returns true if it was exchanged with an older output.
fn publish(spec: &JobSpec, names: &Names, report: &[u8]) -> Result<bool, TaskFailure> {
    let Names { staging, output, .. } = names;
    io_call(IoCall::Rename, staging)
        .map_err(|error| file_failure("rename the output to", &spec.output, error))?;
    let renamed = renameat_with(CWD, staging, CWD, output, RenameFlags::NOREPLACE);
    match renamed {
        Ok(()) => return Ok(false),
        Err(rustix::io::Errno::EXIST) if spec.overwrite => {}
        Err(rustix::io::Errno::EXIST) => {
            let message = format!(
                "the output {} appeared while the job ran; nothing was written there",
                spec.output.display()
            );
            return Err(TaskFailure::new(Blame::UserData, message));
        }
        // On a file system without the flag, the check and the rename are two steps.
        Err(rustix::io::Errno::INVAL) if !output.exists() => {
            std::fs::rename(staging, output)
                .map_err(|error| file_failure("rename the output to", &spec.output, error))?;
            return Ok(false);
        }
        Err(error) => return Err(file_failure("rename the output to", &spec.output, error)),
    }
    // Two concurrent attempts, one of which was considered dead: a second exchange would restore the older output.
    if is_published(output, report) {
        return Ok(true);
    }
    refuse_foreign(spec, output)?;
    exchange(spec, names)?;
    // Files that were put there just before the exchange go back.
    if let Err(refused) = refuse_foreign(spec, staging) {
        exchange(spec, names)?;
        return Err(refused);
    }
    Ok(true)
}

fn exchange(spec: &JobSpec, names: &Names) -> Result<(), TaskFailure> {
    io_call(IoCall::Rename, &names.staging)
        .and_then(|()| Ok(renameat_with(CWD, &names.staging, CWD, &names.output, RenameFlags::EXCHANGE)?))
        .map_err(|error| file_failure("exchange the output with", &spec.output, error))
}

/// Returns an error if anything but an older output would be replaced. `older` is its path.
fn refuse_foreign(spec: &JobSpec, older: &Path) -> Result<(), TaskFailure> {
    let foreign = foreign_entry(older).map_err(|error| file_failure("list", &spec.output, error))?;
    let Some(name) = foreign else { return Ok(()) };
    let error = ForeignEntry { path: spec.output.clone(), entry: name };
    Err(TaskFailure::new(Blame::UserData, error.to_string()))
}

#[cfg(test)]
mod tests;
