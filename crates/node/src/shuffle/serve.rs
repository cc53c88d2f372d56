//! Data of jobs and users on this node, for its data port.

use crate::job_data::JobData;
use crate::link::data_access::DataAccess;
use crate::shared::Shared;
use crate::shuffle::replicate::replicate;
use crate::shuffle::stage_files::StageFiles;
use chunkserver::ChunkServer;
use dataport::{Chunkservers, GrowingOutputService, StageFileService, StoredFileService};
use ids::{IntermediateId, JobId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use trust::{FileGrant, FileRight, StoredGrant};

/// Data that the data port of this node serves.
pub(crate) struct Served {
    pub shared: Arc<Shared>,
    pub incarnation: u64,
    pub access: Arc<DataAccess>,
}

impl Served {
    /// Returns the data of a job here, for a caller with its token; None if the job is over or unknown.
    fn job(&self, job: JobId, shown: &str) -> Option<Arc<JobData>> {
        let known = self.shared.jobs().get(&job).map(Arc::clone);
        // Data may arrive before the first attempt. The request runs on a separate thread, because this one answers
        // requests and must not wait for another runtime.
        known.or_else(|| {
            let control = &self.shared.control;
            let ask = || {
                let data = self.shared.job_data(job, &control.job_run(job, Some(shown))?);
                replicate(&self.shared, &data);
                Some(data)
            };
            std::thread::scope(|scope| scope.spawn(ask).join().ok().flatten())
        })
    }
}

impl Chunkservers for Served {
    fn chunkserver(&self, job: JobId, shown: &str) -> Option<Arc<ChunkServer>> {
        // If it cannot be started, attempts on this node report the reason; for others it does not exist.
        self.job(job, shown)?.chunkserver().ok()
    }

    fn stage_files(&self, job: JobId, shown: &str) -> Option<Arc<dyn StageFileService>> {
        let files: Arc<dyn StageFileService> = Arc::<StageFiles>::clone(&self.job(job, shown)?.stage_files);
        Some(files)
    }

    fn user_files(&self) -> Option<Arc<dyn dataport::IntermediateFileService>> {
        let files: Arc<dyn dataport::IntermediateFileService> =
            self.shared.record_data.get()?.user_files()?;
        Some(files)
    }

    fn stored_files(&self) -> Option<Arc<dyn StoredFileService>> {
        self.shared.record_data.get()?.stored_files()
    }

    fn growing_outputs(&self) -> Option<Arc<dyn GrowingOutputService>> {
        let outputs: Arc<dyn GrowingOutputService> = self.shared.record_data.get()?.growing_outputs()?;
        Some(outputs)
    }

    fn takes_chunks(&self) -> bool {
        !self.shared.draining.load(Ordering::Relaxed)
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn admits_to_job(&self, job: JobId, shown: &str) -> bool {
        self.access.admits_to_job(job, shown)
    }

    fn admits_to_file(&self, file: IntermediateId, right: FileRight, shown: &str) -> Option<FileGrant> {
        self.access.admits_to_file(file, right, shown)
    }

    fn admits_to_stored(&self, shown: &str) -> Option<StoredGrant> {
        self.access.admits_to_stored(shown)
    }

    fn admits_copy(&self, shown: &str) -> Option<IntermediateId> {
        self.access.admits_copy(shown)
    }
}
