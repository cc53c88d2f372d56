//! The record of a MapReduce job that is a step of a workflow: the contents of its programs, inputs and parts, by which a later
//! run is skipped. The commit makes it: after the last map, and before the parts are visible.

use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::tasks::finished_runs::{JobPrograms, Reading, executables, run_file};
use api::task::{CommitTask, FileContent, FileStamp, FinishedRun, JobRecording, Part};
use api::{Blame, InputFile, JobSpec, ShippedFile, TaskFailure};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum number of files that a commit hashes at once.
const THREADS_MAX: u32 = 8;

fn reading<'a>(shared: &'a Shared, job: &'a AttemptData) -> Reading<'a> {
    Reading { contents: &shared.contents, paths: &job.run.paths, cancelled: &job.cancelled }
}

/// Remembers the programs of a job before the first of them starts here, if its run is to be recorded.
pub(crate) fn begin(shared: &Shared, job: &AttemptData) {
    if let Some(recording) = &job.run.spec.recording {
        job.programs.get_or_init(|| programs(&job.run.spec, recording, reading(shared, job)));
    }
}

/// Returns the programs as they are now; None if one of their files cannot be read.
fn programs(spec: &JobSpec, recording: &JobRecording, reading: Reading<'_>) -> Option<JobPrograms> {
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for place in spec.program_places(&recording.directory) {
        let found = executables(&place, reading)?;
        counts.push(found.len() as u32);
        all.extend(found);
    }
    // A node runs its own copy of a shipped file, which is recorded under the path of its user.
    for file in &mut all {
        let is_it = |shipped: &&ShippedFile| {
            Some(shipped.sha256) == file.sha256 && shipped.path.file_name() == file.path.file_name()
        };
        if let Some(shipped) = spec.shipped.iter().find(is_it) {
            (file.path, file.real_path, file.stamp) = (shipped.path.clone(), None, None);
        }
    }
    let environment = recording.files.iter().map(|file| reading.file(file).ok());
    Some(JobPrograms { executables: all, counts, environment: environment.collect::<Option<_>>()? })
}

/// The place of the parts of a job at its commit.
#[derive(Clone, Copy)]
pub(super) enum PartsAt<'a> {
    /// Complete, and not visible yet.
    Staging(&'a Path),
    /// Published by an earlier attempt.
    Output(&'a Path),
    /// On the nodes, for later stages.
    Stages,
}

/// Opens a part that has its name already: whoever may write there may have put something else in its place.
fn open_published(path: &Path, part: &Part) -> Result<File, Error> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let (mut crc32c, mut bytes, mut piece) = (0, 0, vec![0; 256 << 10]);
    let mut rest = (&file).take(part.bytes.saturating_add(1));
    loop {
        match rest.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                crc32c = crc32c::crc32c_append(crc32c, &piece[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    match (crc32c, bytes) == (part.crc32c, part.bytes) {
        true => (&file).rewind().map(|()| file),
        false => Err(Error::other("it has other bytes than the part")),
    }
}

/// Returns the record of a job whose parts are complete; None if it is not asked for, or if its contents are not
/// known for sure. Errors: an input changed during the run; the job was stopped.
pub(super) fn record(
    shared: &Shared,
    job: &AttemptData,
    task: &CommitTask,
    parts: PartsAt<'_>,
) -> Result<Option<Box<FinishedRun>>, TaskFailure> {
    let spec = &job.run.spec;
    let Some(recording) = &spec.recording else { return Ok(None) };
    let reading = reading(shared, job);
    // Inputs of its own come before those of earlier stages, which are no files.
    let own = spec.inputs.iter().filter(|input| input.stage_file.is_none());
    let own: Vec<&InputFile> = own.collect();
    if own.len() != recording.inputs.len() {
        return Ok(None);
    }
    let pinned: Vec<(&InputFile, FileStamp)> =
        own.into_iter().zip(recording.inputs.iter().copied()).collect();
    let inputs = hashed(&pinned, job.slots, |(input, before)| read_input(reading, input, *before));
    let inputs = match (parts, inputs) {
        (PartsAt::Staging(_), inputs) => inputs?,
        // Others may have read the parts by now, and each map has compared its input.
        (_, Err(failure)) if failure.blame == Blame::UserData => None,
        (_, inputs) => inputs?,
    };
    let inputs = inputs.map(|inputs| {
        inputs
            .into_iter()
            .chain(recording.streamed.iter().cloned().map(FileContent::without_content))
            .collect()
    });
    let outputs = hashed(&task.parts, job.slots, |part| {
        let path = spec.output.join(&part.name);
        let opened = match parts {
            PartsAt::Stages => return Ok(Some(FileContent::without_content(path))),
            PartsAt::Staging(_) if part.sha256.is_some() => {
                return Ok(Some(FileContent {
                    sha256: part.sha256,
                    bytes: part.bytes,
                    ..FileContent::without_content(path)
                }));
            }
            // The store has no hashes of parts that were written before the server died.
            PartsAt::Staging(dir) => File::open(dir.join(&part.name)),
            PartsAt::Output(dir) => open_published(&dir.join(&part.name), part),
        };
        let content = opened.and_then(|file| reading.contents.of(&file, reading.cancelled));
        known(content.map(|content| run_file(&path, &content)))
    })?;
    let now = programs(spec, recording, reading);
    let is_same = |before: &Option<JobPrograms>| {
        before.as_ref().zip(now.as_ref()).is_some_and(|(before, now)| before.has_contents_of(now))
    };
    // No program of it ran on this node if nothing is remembered.
    if !job.programs.get().is_none_or(is_same) {
        return Ok(None);
    }
    let Some(((now, inputs), outputs)) = now.zip(inputs).zip(outputs) else { return Ok(None) };
    Ok(Some(Box::new(FinishedRun {
        executables: now.executables,
        executable_counts: now.counts,
        environment: now.environment,
        inputs,
        outputs,
        ran_ms: job.began.elapsed().as_millis() as u64,
    })))
}

/// Returns the content of an input that the maps have read; None if it is another file than they were given.
fn read_input(
    reading: Reading<'_>,
    input: &InputFile,
    before: FileStamp,
) -> Result<Option<FileContent>, TaskFailure> {
    let path = &input.path;
    if let Some(stored) = &input.stored {
        let (sha256, bytes) = (input.content, stored.bytes());
        let content = FileContent { sha256, bytes, ..FileContent::without_content(path.clone()) };
        return Ok(Some(content));
    }
    let changed = || {
        let message = format!("the input {} was changed during the run: run it again", path.display());
        TaskFailure::new(Blame::UserData, message)
    };
    match reading.stamped(path) {
        Ok((_, now)) if (now.bytes, now.modified_ns) != (before.bytes, before.modified_ns) => Err(changed()),
        Ok((_, now)) if now.inode != before.inode => Ok(None),
        Ok((file, _)) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(changed()),
        Err(error) => known(Err(error)),
    }
}

/// Returns the content of a file; None if it cannot be read, which makes no record and no failure.
fn known(content: Result<FileContent, Error>) -> Result<Option<FileContent>, TaskFailure> {
    match content {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            Err(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"))
        }
        Err(_) => Ok(None),
    }
}

/// Hashes files with some threads, in their order; None if one of them has no content.
fn hashed<T: Sync>(
    files: &[T],
    slots: u32,
    hash: impl Fn(&T) -> Result<Option<FileContent>, TaskFailure> + Sync,
) -> Result<Option<Vec<FileContent>>, TaskFailure> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![Ok(None); files.len()]);
    let work = || {
        while let Some((index, file)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            files.get(index).map(|file| (index, file))
        } {
            let result = hash(file);
            results.lock().unwrap_or_else(PoisonError::into_inner)[index] = result;
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..(slots.clamp(1, THREADS_MAX) as usize).min(files.len()) {
            scope.spawn(work);
        }
        work();
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}
