//! Files of jobs that the event loop handles: shipped files of clients, and directories that are removed after a job.

use crate::directories::Directories;
use crate::event_loop::Request;
use crate::submission::shipping;
use api::JobSpec;
use control::program_jobs::FileHold;
use control::{DiskDirs, JobDirs};
use ids::JobId;
use roots::JobPaths;
use shipped::Depot;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

pub(crate) struct JobFiles {
    /// Shipped files of clients.
    pub depot: Option<Arc<Depot>>,
    pub paths: JobPaths,
    pub state_dir: PathBuf,
    /// Sender for the threads that clean and check.
    sender: mpsc::Sender<Request>,
    cleaners: Vec<JoinHandle<()>>,
}

impl JobFiles {
    pub fn new(
        depot: Option<Arc<Depot>>,
        paths: JobPaths,
        state_dir: PathBuf,
        sender: mpsc::Sender<Request>,
    ) -> Self {
        Self { depot, paths, state_dir, sender, cleaners: Vec::new() }
    }

    /// Holds the shipped files of a recovered job, as far as this server has them.
    pub fn hold_what_is_here(&self, spec: &JobSpec) -> Option<FileHold> {
        let contents = shipping::contents(spec);
        let depot = self.depot.as_ref().filter(|_| !contents.is_empty())?;
        Some(Arc::new(depot.hold_what_is_here(&contents)) as FileHold)
    }

    /// Removes directories on a separate thread, which reports to the event loop.
    pub fn clean(&mut self, job: JobId, dirs: JobDirs, disk_dirs: DiskDirs) -> std::io::Result<()> {
        self.cleaners.retain(|cleaner| !cleaner.is_finished());
        let (directories, sender, paths) = (Directories::from(dirs), self.sender.clone(), self.paths.clone());
        let work = move || {
            let problem = directories.remove(&paths, disk_dirs).err().map(|error| error.to_string());
            // Nobody receives this if the server ends at the same time; the server cleans by itself in that case.
            let _ = sender.blocking_send(Request::Cleaned { job, problem });
        };
        let cleaner = std::thread::Builder::new().name(format!("clean-{job}")).spawn(work)?;
        self.cleaners.push(cleaner);
        Ok(())
    }

    pub fn remove_now(&self, dirs: JobDirs, disk_dirs: DiskDirs) -> std::io::Result<()> {
        Directories::from(dirs).remove(&self.paths, disk_dirs)
    }

    /// Returns a sender for threads that report to the event loop.
    pub fn sender(&self) -> mpsc::Sender<Request> {
        self.sender.clone()
    }

    pub fn wait_for_cleaners(&mut self) {
        for cleaner in self.cleaners.drain(..) {
            if cleaner.join().is_err() {
                tracing::warn!("a thread that removes the files of a job panicked");
            }
        }
    }
}
