//! Ctrl-C and requests to terminate: the first cancels the job, the second ends the process. A process that only waits
//! for a job of a cluster ends with the first, and the job goes on.

use crate::exit::{GOES_ON, INTERRUPTED};
use crate::show::terminal::tell;
use anyhow::Context;
use program::Programs;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The job to cancel, if there is one, and the effect of the next signal.
#[derive(Default)]
struct Target {
    cancel: Option<Arc<dyn Fn() + Send + Sync>>,
    /// True after a signal, perhaps before there was a job.
    signalled: bool,
    /// Directory to remove before a signal ends the process.
    last_dir: Option<PathBuf>,
    /// Message when the process ends while the job continues on a cluster.
    goes_on: Option<String>,
}

/// The signal handler for the rest of the process.
#[derive(Clone)]
pub struct Interrupt {
    target: Arc<Mutex<Target>>,
    programs: Arc<Programs>,
}

impl Interrupt {
    /// Starts to listen. From here on a signal does not end the process by itself.
    pub fn listen(programs: Arc<Programs>) -> anyhow::Result<Interrupt> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("listening for signals")?;
        let interrupt = Interrupt { target: Arc::default(), programs };
        let listener = interrupt.clone();
        let listen = move || {
            for _signal in signals.forever() {
                listener.signal();
            }
        };
        std::thread::Builder::new()
            .name("signals".to_string())
            .spawn(listen)
            .context("starting the thread that listens for signals")?;
        Ok(interrupt)
    }

    /// Sets the way to cancel the job. A signal that came before cancels it now.
    pub fn aim(&self, cancel: Arc<dyn Fn() + Send + Sync>) {
        let mut target = self.lock();
        target.cancel = Some(cancel);
        if target.signalled {
            drop(target);
            self.cancel();
        }
    }

    /// Records that the job runs on a cluster: a second signal ends the process and not the job, with this message.
    pub fn goes_on(&self, last_words: String) {
        self.lock().goes_on = Some(last_words);
    }

    /// Records that the job ends where it runs.
    pub fn ends_here(&self) {
        self.lock().goes_on = None;
    }

    /// Records that the job is over: there is nothing left to cancel, but a second signal still ends the process.
    pub fn disarm(&self) {
        let mut target = self.lock();
        (target.cancel, target.goes_on) = (None, None);
    }

    /// Records that only the output is left to print: from here on the first signal ends the process, and removes
    /// `dir`.
    pub fn end_at_once(&self, dir: &Path) {
        self.lock().last_dir = Some(dir.to_path_buf());
    }

    fn signal(&self) {
        if let Some(dir) = self.lock().last_dir.take() {
            // Remaining files are removed by the next run.
            let _ = std::fs::remove_dir_all(dir);
            std::process::exit(i32::from(INTERRUPTED));
        }
        let again = std::mem::replace(&mut self.lock().signalled, true);
        if again {
            if let Some(last_words) = self.lock().goes_on.take() {
                tell(&last_words);
                std::process::exit(i32::from(GOES_ON));
            }
            self.programs.end_all();
            tell("sailfish: stopped at once; the next run removes the files of this one");
            std::process::exit(i32::from(INTERRUPTED));
        }
        tell("sailfish: stopping the job; press Ctrl-C again to stop at once");
        // An unavailable server would block this thread, and the next signal must not wait.
        let cancelling = self.clone();
        let started =
            std::thread::Builder::new().name("cancel".to_string()).spawn(move || cancelling.cancel());
        if started.is_err() {
            self.cancel();
        }
    }

    fn cancel(&self) {
        let cancel = self.lock().cancel.clone();
        if let Some(cancel) = cancel {
            // First the flags of the attempts, then their programs: so these end as cancelled, not as failed.
            cancel();
            self.programs.kill_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message of this process when a signal ends it while it waits for a job of a cluster.
static LEAVING: OnceLock<Mutex<Option<String>>> = OnceLock::new();

/// Sets the message with which a signal ends the process from now on, or none. The exit code is that of an interrupt.
pub fn leave_with(last_words: Option<String>) -> anyhow::Result<()> {
    let lock = |words: &'static Mutex<Option<String>>| words.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(words) = LEAVING.get() {
        *lock(words) = last_words;
        return Ok(());
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("listening for signals")?;
    let words = LEAVING.get_or_init(|| Mutex::new(last_words));
    let leave = move || {
        if signals.forever().next().is_some() {
            lock(words).iter().for_each(|last_words| tell(last_words));
            std::process::exit(i32::from(INTERRUPTED));
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_string()).spawn(leave);
    thread.map(drop).context("starting the thread that listens for signals")
}
