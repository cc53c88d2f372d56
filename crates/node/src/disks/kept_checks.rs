//! Reading what jobs keep on the disks of this node, for a check of the server: in threads of its own, so that slots go on.

use crate::link::node_link::NodeLink;
use api::fsck::{CheckNews, CheckTask, CheckedFile};
use chunkserver::{Checking, check_kept};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Files that are read at once: the jobs of the node need its disks too.
const THREADS: usize = 2;
/// How often the server hears of it.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Files that are told of at once.
const FILES_PER_NEWS_MAX: usize = 64;

/// The checks of a node, of which one reads at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptChecks {
    turn: Arc<Mutex<()>>,
}

impl KeptChecks {
    /// Begins a check, or lets it wait for its turn.
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

/// Tells the server of one check.
#[derive(Clone)]
struct Teller {
    link: Arc<NodeLink>,
    check: String,
    made_by: ids::NodeId,
}

impl Teller {
    fn read(&self, task: &CheckTask) {
        // It may have waited for its turn longer than somebody for its answer.
        if !self.tell(CheckNews::default()) {
            return;
        }
        let checking = Checking::default();
        let (sender, results) = sync_channel(FILES_PER_NEWS_MAX);
        let ended = std::thread::scope(|scope| {
            let work = || {
                let sender = sender;
                // Nobody listens any more: it has been told to stop.
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

    /// Hands on what is found until there is no more, or nobody wants it.
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

    /// Whether the server wants to hear more.
    fn tell(&self, news: CheckNews) -> bool {
        let news = CheckNews { check: self.check.clone(), made_by: self.made_by, ..news };
        match self.link.tell_check(news) {
            Ok(answer) => answer.goes_on,
            Err(error) => {
                tracing::info!(%error, "cannot tell the server what was found in kept I-files");
                false
            }
        }
    }
}
