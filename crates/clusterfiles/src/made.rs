//! Files that programs of jobs made: all of them are written before the first one gets its name.

use crate::ClusterFiles;
use crate::numbers::Numbers;
use crate::put_parts::PutParts;
use crate::reading::text_of;
use api::stored::cluster::{BeginStored, BegunStored};
use api::stored::{MakingJob, STEP_SOURCE};
use filestore::{FilesError, MadeFile, is_made_by};
use filetransfer::Watch;
use filetree::TreeName;

impl ClusterFiles {
    /// Stores files that a job made: see [`filestore::StoredTree::store_made`].
    pub(crate) fn store_files(
        &self,
        files: &mut [MadeFile<'_>],
        job: &MakingJob,
        watch: &Watch,
    ) -> Result<(), FilesError> {
        let mut begun = Vec::new();
        let stored = self.write_made(files, job, watch, &mut begun).and_then(|()| {
            begun.iter().try_for_each(|begun| self.commit(begun.of, Vec::new(), watch).map(drop))
        });
        if stored.is_err() {
            for begun in &begun {
                // The first error is the one to report. A put that was committed is none any more.
                let _ = self.connection.ask(async |client| client.abandon_stored(&begun.of).await);
            }
        }
        stored
    }

    /// Writes the files that no earlier attempt of the job has stored.
    fn write_made(
        &self,
        files: &mut [MadeFile<'_>],
        job: &MakingJob,
        watch: &Watch,
        all_begun: &mut Vec<BegunStored>,
    ) -> Result<(), FilesError> {
        for file in files {
            let name = TreeName { path: file.name.clone(), version: None };
            if is_made_by(self.making_job(&name), job)? {
                continue;
            }
            let begin = BeginStored {
                path: text_of(&file.name),
                // Attempts of the job share a put: the later one ends the session of the other.
                source: format!("{STEP_SOURCE}{}", job.job),
                is_directory: false,
                replicas: None,
                keep_versions: 1,
                ttl_seconds: None,
                user: self.connection.user.clone(),
            };
            let begun = self.connection.ask(async |client| client.begin_stored(&begin).await)?;
            if begun.goes_on && !self.known(begun.of)?.is_empty() {
                let parts =
                    PutParts::new(&self.connection, begun.of, begun.replicas, Numbers::of_stream(begun.of));
                parts.record(Vec::new(), vec![String::new()])?;
            }
            all_begun.push(begun);
            if let Some(begun) = all_begun.last() {
                self.write_stream(begun, file.bytes, watch)?;
            }
        }
        Ok(())
    }
}
