//! Reads of kept I-files on the disks of this node for a check of the server, in separate threads, so that slots
//! continue.

use crate::link::node_link::NodeLink;
use api::fsck::{CheckNews, CheckTask, CheckedFile};
use chunkserver::{Checking, check_kept};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of files that are read at once: the jobs of the node need its disks too.
const THREADS: usize = 2;
/// Interval between two reports to the server.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of files in a report.
const FILES_PER_NEWS_MAX: usize = 64;

/// The checks of a node; one reads at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptChecks {
    turn: Arc<Mutex<()>>,
}

impl KeptChecks {
    /// Begins a check, or queues it.
    pub fn begin(&self, link: &Arc<NodeLink>, check: String, task: CheckTask) {
        let teller = Teller { link: Arc::clone(link), check, made_by: task.made_by };
        let (turn, of_thread) = (Arc::clone(&self.turn), teller.clone());
        let work = move || {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            of_thread.read(&task);
        };
        if let Err(error) = std::thread::Builder::new().name("fsck".to_string()).spawn(work) {
            teller.cannot_read(&error);
        }
    }
}

/// Reports one check to the server.
#[derive(Clone)]
struct Teller {
    link: Arc<NodeLink>,
    check: String,
    made_by: ids::NodeId,
}

impl Teller {
    fn read(&self, task: &CheckTask) {
        // The check may have waited longer for its turn than a user for the answer.
        if !self.tell(CheckNews::default()) {
            return;
        }
        let checking = Checking::default();
        let (sender, results) = sync_channel(FILES_PER_NEWS_MAX);
        let ended = std::thread::scope(|scope| {
            let work = || {
                let sender = sender;
                // The receiver is gone: the check has been told to stop.
                check_kept(task, THREADS, &checking, |file| drop(sender.send(file)))
            };
            let reader = std::thread::Builder::new().name("fsck-files".to_string());
            let reader = reader.spawn_scoped(scope, work).map_err(|error| error.to_string())?;
            self.pass_on(results, &checking);
            match reader.join() {
                Ok(read) => read.map_err(|error| error.to_string()),
                Err(_) => Err("a thread that reads files panicked".to_string()),
            }
        });
        if let Err(error) = ended {
            self.cannot_read(&error);
        }
    }

    /// Reports the findings until there are no more, or until the server needs none.
    fn pass_on(&self, results: Receiver<CheckedFile>, checking: &Checking) {
        let mut files = Vec::new();
        let mut told = Instant::now();
        loop {
            let result = results.recv_timeout(TELL_EVERY.saturating_sub(told.elapsed()));
            let is_last = matches!(result, Err(RecvTimeoutError::Disconnected));
            files.extend(result);
            if !is_last && files.len() < FILES_PER_NEWS_MAX && told.elapsed() < TELL_EVERY {
                continue;
            }
            let read_bytes = checking.read_bytes.load(Ordering::Relaxed);
            let files = std::mem::take(&mut files);
            if !self.tell(CheckNews { read_bytes, files, ..CheckNews::default() }) {
                checking.stop.store(true, Ordering::Relaxed);
                return;
            }
            if is_last {
                return;
            }
            told = Instant::now();
        }
    }

    fn cannot_read(&self, error: &dyn std::fmt::Display) {
        let problem = Some(format!("the node cannot read them: {error}"));
        self.tell(CheckNews { problem, ..CheckNews::default() });
    }

    /// Returns whether the server wants more findings.
    fn tell(&self, news: CheckNews) -> bool {
        let news = CheckNews { check: self.check.clone(), made_by: self.made_by, ..news };
        match self.link.tell_check(news) {
            Ok(answer) => answer.goes_on,
            Err(error) => {
                tracing::info!(%error, "cannot report the findings in kept I-files to the server");
                false
            }
        }
    }
}
