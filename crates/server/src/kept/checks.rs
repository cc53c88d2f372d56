//! Checks of kept I-files (`sailfish fsck --server`): control orders nodes to read, and gathers their findings; the
//! user polls for the result.

use crate::event_loop::{EventLoop, Reply};
use crate::kept::fsck::check_on_nodes;
use crate::kept::runs::kept_source;
use crate::{ServerError, clock};
use api::fsck::FsckAnswer;
use control::ControlError;
use control::retention::CheckBegin;
use ids::JobId;
use metastore::StoreError;
use uuid::Uuid;

impl EventLoop {
    /// Begins a check of a job's kept I-files, or returns the progress of the check of this name.
    pub async fn fsck(
        &mut self,
        job: JobId,
        check: Option<String>,
        reply: Reply<FsckAnswer>,
    ) -> Result<(), StoreError> {
        // The store is read below: earlier decisions must be written first.
        self.write_and_reply().await?;
        let answer = match check {
            None => self.begin_check(job).await,
            Some(name) => self.look_at_check(job, &name).await,
        };
        match answer {
            Err(ServerError::Store(error)) if !error.retryable() => Err(error),
            answer => {
                drop(reply.send(answer));
                Ok(())
            }
        }
    }

    async fn begin_check(&mut self, job: JobId) -> Result<FsckAnswer, ServerError> {
        let source = kept_source(&self.store, job).await?.row.job;
        match self.control.begin_check(source, clock::now())? {
            CheckBegin::GoesOn(answer) => Ok(answer),
            CheckBegin::ReadKept => {
                let kept = check_on_nodes(&self.store, job, &self.control).await?;
                Ok(self.control.start_check(Uuid::new_v4().to_string(), kept, clock::now())?)
            }
        }
    }

    async fn look_at_check(&mut self, job: JobId, name: &str) -> Result<FsckAnswer, ServerError> {
        if !self.control.knows_check(name, clock::now()) {
            return Err(ControlError::UnknownCheck.into());
        }
        // Files that were collected in between are missing and not damaged.
        let source = kept_source(&self.store, job).await?.row.job;
        Ok(self.control.look_at_check(name, source, clock::now())?)
    }
}
