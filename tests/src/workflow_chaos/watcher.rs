//! A thread that reads all outputs of a workflow all the time.

use super::flow::Flow;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// Pause between two rounds: the programs need the cores.
const PAUSE: Duration = Duration::from_millis(1);

/// Identity of a file: its inode, the time of its last change in nanoseconds, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    inode: u64,
    changed_ns: i64,
    bytes: u64,
}

impl Identity {
    fn of_metadata(facts: &Metadata) -> Identity {
        let changed_ns = facts.mtime() * 1_000_000_000 + facts.mtime_nsec();
        Identity { inode: facts.ino(), changed_ns, bytes: facts.len() }
    }

    /// Returns that of a file; None if there is none.
    pub fn of(path: &Path) -> Option<Identity> {
        std::fs::symlink_metadata(path).ok().map(|facts| Identity::of_metadata(&facts))
    }
}

/// Everything that a watcher has seen.
#[derive(Default)]
pub(super) struct Seen {
    /// The files that stood at the path of each output, in their order, with the times when they were first seen.
    pub files: Vec<Vec<(Identity, SystemTime)>>,
    pub problems: Vec<String>,
    pub rounds: u64,
    pub bytes: u64,
}

/// A watcher that goes on until it is stopped.
pub(super) struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

impl Watcher {
    pub fn start(flow: &Arc<Flow>) -> Watcher {
        let stop = Arc::<AtomicBool>::default();
        let (stopped, flow) = (Arc::clone(&stop), Arc::clone(flow));
        let thread = Some(std::thread::spawn(move || watch(&flow, &stopped)));
        Watcher { stop, thread }
    }

    pub fn finish(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it ends once").join().expect("watching does not panic")
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn watch(flow: &Flow, stopped: &AtomicBool) -> Seen {
    let mut seen = Seen { files: vec![Vec::new(); flow.outputs.len()], ..Seen::default() };
    let mut visible: Vec<Option<Identity>> = vec![None; flow.outputs.len()];
    loop {
        // One more round after the end: each output is looked at as it stays.
        let is_last = stopped.load(Ordering::Relaxed);
        for (index, last) in visible.iter_mut().enumerate() {
            look(flow, index, last, &mut seen);
        }
        seen.rounds += 1;
        if is_last {
            return seen;
        }
        std::thread::sleep(PAUSE);
    }
}

fn look(flow: &Flow, index: usize, visible: &mut Option<Identity>, seen: &mut Seen) {
    let output = &flow.outputs[index];
    let path = output.path.display();
    let now = Identity::of(&output.path);
    if now == *visible {
        return;
    }
    let opened = now.and_then(|_| File::open(&output.path).ok());
    let Some(mut file) = opened else {
        if visible.take().is_some() {
            let all_have_run = || flow.outputs.iter().all(|other| other.temporary || other.path.exists());
            if !output.temporary || !all_have_run() {
                seen.problems.push(format!("{path} was visible, and is gone"));
            }
        }
        return;
    };
    let mut bytes = Vec::new();
    // The identity is that of the opened file: a rename may have come between.
    let read = file.metadata().map(|facts| Identity::of_metadata(&facts));
    let identity = read.and_then(|identity| file.read_to_end(&mut bytes).map(|_| identity));
    let identity = identity.expect("a visible output can be read");
    if bytes != output.expected {
        let text: String = String::from_utf8_lossy(&bytes).chars().filter(|letter| *letter != '0').collect();
        seen.problems.push(format!("{path} is torn or wrong, {} bytes: {text:?}", bytes.len()));
    }
    seen.bytes += bytes.len() as u64;
    *visible = Some(identity);
    if seen.files[index].last().map(|(last, _)| *last) != Some(identity) {
        seen.files[index].push((identity, SystemTime::now()));
    }
}
