//! Copies that are made before an attempt needs them: of files that programs of many tasks open.

use crate::stored::files::StoredFiles;
use crate::stored::job_input::PartsOfCluster;
use crate::stored::local_files::{CopyUse, LocalFiles, WantedFile};
use api::stored::cluster::EarlyCopy;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};

/// Copies that wait for the thread; a task makes those beyond it.
const WAITING_MAX: usize = 64;

/// The queue of the thread that makes copies early; it ends with the queue.
pub(crate) struct EarlyCopies {
    queue: SyncSender<EarlyCopy>,
}

impl EarlyCopies {
    /// Starts the thread.
    pub fn start(copies: &Arc<LocalFiles>, files: &Arc<StoredFiles>) -> std::io::Result<Self> {
        let (queue, inbox) = sync_channel(WAITING_MAX);
        let (copies, files) = (Arc::downgrade(copies), Arc::clone(files));
        let thread = std::thread::Builder::new().name("early-copies".to_string());
        thread.spawn(move || make_all(&copies, &files, &inbox))?;
        Ok(Self { queue })
    }

    pub fn take(&self, copies: Vec<EarlyCopy>) {
        for copy in copies {
            if self.queue.try_send(copy).is_err() {
                tracing::debug!("a copy of a stored file is not made early: too many wait");
            }
        }
    }
}

fn make_all(copies: &Weak<LocalFiles>, files: &Arc<StoredFiles>, inbox: &Receiver<EarlyCopy>) {
    while let Ok(EarlyCopy { job, user, file }) = inbox.recv() {
        let Some(copies) = copies.upgrade().filter(|_| !files.ending.has_ended()) else { break };
        let parts = PartsOfCluster { job, files: Arc::clone(files), reads: Arc::default(), cache: None };
        let wanted =
            WantedFile { user: &user, path: &file.path, content: &file.stored, of: CopyUse::Program };
        if let Err(failure) = copies.bring_early(&wanted, &Arc::new(parts)) {
            tracing::debug!(file = %file.path.display(), %failure.message, "a copy was not made early");
        }
    }
}
