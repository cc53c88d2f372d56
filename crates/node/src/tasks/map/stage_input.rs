//! Input of a map task from earlier stages: intermediate files on any node.

use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::shuffle::stage_files::{StageFileAt, StageFiles, StageRead};
use api::flow::StageFilePlace;
use api::task::MapTask;
use api::{Blame, InputFile, LostFile, LostInput, StageFile, TaskFailure};
use dataport::{AnyStageFile, StageReadError};
use ids::{AttemptKey, AttemptNumber};
use mapper::StageFileFailure;
use stagefile::Payload;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time that an attempt waits for a file that is being recomputed before it releases its slot; multiplied by the number
/// of attempts so far; also the interval between two checks of the stop flag. The server retries the task with the
/// current locations of its files.
const WAITS_FOR_FILE: Duration = Duration::from_secs(1);
const WAITS_MORE_MAX: u32 = 4;
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// The intermediate files of a map task.
pub(crate) struct StageInput {
    shared: Arc<Shared>,
    files: Vec<(StageFile, StageFilePlace)>,
    window_bytes: usize,
    attempt: AttemptNumber,
    cancelled: Arc<AtomicBool>,
}

impl StageInput {
    /// Returns the files of a task; None for a task that reads none.
    pub fn of(
        shared: &Arc<Shared>,
        job: &AttemptData,
        attempt: AttemptKey,
        task: &MapTask,
    ) -> Option<Arc<dyn mapper::StageFileSource>> {
        let inputs = &job.run.spec.inputs;
        let file = |place: &StageFilePlace| {
            Some((inputs.get(place.file_index as usize)?.stage_file?, place.clone()))
        };
        let files: Vec<_> = task.places.iter().filter_map(file).collect();
        if files.is_empty() {
            return None;
        }
        // Two windows are in memory if the data comes from another node.
        let window_bytes = job.object_buffer_bytes() / 2;
        let cancelled = Arc::clone(&job.cancelled);
        let (shared, attempt) = (Arc::clone(shared), attempt.attempt);
        Some(Arc::new(Self { shared, files, window_bytes, attempt, cancelled }))
    }

    /// Waits for a while, and returns the failure of an attempt whose file is being recomputed; a later attempt reads
    /// the file.
    fn not_there(&self, file: StageFile, input: &InputFile) -> TaskFailure {
        let (began, waits) = (Instant::now(), WAITS_FOR_FILE * (1 + self.attempt.0.min(WAITS_MORE_MAX)));
        while began.elapsed() < waits {
            if self.cancelled.load(Ordering::Relaxed) {
                return TaskFailure::new(Blame::Cancelled, "the attempt was cancelled");
            }
            std::thread::sleep(LOOKS_EVERY);
        }
        let message = format!("{} is being recomputed", input.path.display());
        let lost = LostFile::Intermediate(LostInput { file, name: String::new(), nodes: Vec::new() });
        TaskFailure { lost_file: Some(Box::new(lost)), ..TaskFailure::new(Blame::Environment, message) }
    }

    fn open_there(&self, file: StageFile, at: &StageFileAt, start: u64) -> Result<AnyStageFile, TaskFailure> {
        let known = self.shared.jobs().get(&file.job).map(|job| Arc::clone(&job.stage_files));
        // A node without attempts of that stage has none of its files.
        let files = known.unwrap_or_else(|| Arc::new(StageFiles::new(Vec::new())));
        let others = self.shared.other_nodes(file.job);
        let read = StageRead {
            job: file.job,
            here: self.shared.control.node(),
            others: others.as_ref(),
            offset: start,
            length: at.payload.bytes.saturating_sub(start),
            window_bytes: self.window_bytes,
            cancelled: &self.cancelled,
        };
        files.open(at, &read)
    }
}

impl mapper::StageFileSource for StageInput {
    fn open(&self, input: &InputFile, start: u64) -> std::io::Result<Box<dyn Read + Send>> {
        let known = self.files.iter().find(|(file, _)| Some(*file) == input.stage_file);
        let (file, place) = known.ok_or_else(|| std::io::Error::other("its location is unknown"))?;
        let failed = |failure| std::io::Error::other(StageFileFailure(failure));
        let Some(home) = place.node.or(place.replica) else {
            return Err(failed(self.not_there(*file, input)));
        };
        let payload = Payload { bytes: input.size_bytes, crc32c: file.crc32c };
        let at = StageFileAt { name: place.name.clone(), payload, home, replica: place.replica };
        let reader = self.open_there(*file, &at, start).map_err(failed)?;
        Ok(Box::new(ToldReader { reader, file: *file, name: at.name }))
    }
}

/// A reader whose errors tell the server which copies are lost.
struct ToldReader {
    reader: AnyStageFile,
    file: StageFile,
    name: String,
}

impl Read for ToldReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buffer).map_err(|error| match StageReadError::of(&error) {
            None => error,
            Some(known) => std::io::Error::other(StageFileFailure(self.told(known))),
        })
    }
}

/// If the damaged copy was not needed, only this message reports the damage: an operator must check the disk.
impl Drop for ToldReader {
    fn drop(&mut self) {
        for failure in self.reader.failures().filter(|failure| failure.problem.is_lost()) {
            let (job, name, node, problem) = (self.file.job, &self.name, failure.node, &failure.problem);
            tracing::warn!(%job, name, %node, %problem, "a part is damaged or lost on that node, and was read elsewhere");
        }
    }
}

impl ToldReader {
    fn told(&self, error: &StageReadError) -> TaskFailure {
        let lost = error.failures().iter().filter(|failure| failure.problem.is_lost());
        let nodes: Vec<_> = lost.map(|failure| failure.node).collect();
        let (file, name) = (self.file, self.name.clone());
        let is_lost = !nodes.is_empty();
        let lost_file = is_lost.then(|| Box::new(LostFile::Intermediate(LostInput { file, name, nodes })));
        TaskFailure { lost_file, ..error.to_failure() }
    }
}
