//! A run of the binary that goes on.

use crate::{Finished, WAIT_MAX};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Output of a process so far.
#[derive(Default)]
struct Printed {
    bytes: Mutex<(Vec<u8>, bool)>,
    more: Condvar,
}

impl Printed {
    fn lock(&self) -> MutexGuard<'_, (Vec<u8>, bool)> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(self: Arc<Self>, mut source: impl Read + Send + 'static) -> JoinHandle<()> {
        std::thread::spawn(move || {
            let mut block = vec![0; 64 << 10];
            loop {
                let read = source.read(&mut block).unwrap_or(0);
                let mut printed = self.lock();
                printed.0.extend_from_slice(&block[..read]);
                printed.1 = read == 0;
                self.more.notify_all();
                if read == 0 {
                    return;
                }
            }
        })
    }
}

/// A started process; killed where the test does not wait for its end.
pub struct Running {
    command: String,
    child: Child,
    /// Names the process even when its number has been given to another.
    handle: OwnedFd,
    stdout: Arc<Printed>,
    stderr: Arc<Printed>,
    readers: Vec<JoinHandle<()>>,
    ended: bool,
}

impl Running {
    /// Starts a command with both outputs read as they come and an empty standard input.
    pub fn start(command: &mut Command) -> Running {
        Self::start_with_stdin(command, Stdio::null())
    }

    /// The same with a standard input.
    pub fn start_with_stdin(command: &mut Command, stdin: impl Into<Stdio>) -> Running {
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        let pid = Pid::from_child(&child);
        let handle = pidfd_open(pid, PidfdFlags::empty()).expect("a child that is not waited for exists");
        let (stdout, stderr) = (Arc::<Printed>::default(), Arc::<Printed>::default());
        let out = child.stdout.take().expect("standard output is a pipe");
        let err = child.stderr.take().expect("standard error is a pipe");
        let readers = vec![Arc::clone(&stdout).follow(out), Arc::clone(&stderr).follow(err)];
        Running { command: shown, child, handle, stdout, stderr, readers, ended: false }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal; a process that is over does not mind.
    pub fn signal(&self, signal: Signal) {
        // The only failure for a child of our own is that it has ended.
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    /// The most memory that it has had since it began.
    pub fn most_memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel says it");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }

    /// Returns the text on standard error so far.
    pub fn stderr_so_far(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().0).into_owned()
    }

    /// Waits until standard error holds a text. Fails the test where the process ends without it.
    #[track_caller]
    pub fn wait_for_stderr(&self, text: &str) {
        let deadline = Instant::now() + WAIT_MAX;
        let mut printed = self.stderr.lock();
        loop {
            let so_far = String::from_utf8_lossy(&printed.0);
            if so_far.contains(text) {
                return;
            }
            assert!(!printed.1, "{} ended without {text:?}:\n{so_far}", self.command);
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} did not say {text:?}:\n{so_far}", self.command);
            let waited = self.stderr.more.wait_timeout(printed, left);
            printed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        Self::wait_for_any(&[self], Duration::ZERO)
    }

    /// Waits until one of these processes has ended, or for so long; false where none has.
    pub fn wait_for_any(processes: &[&Running], limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).expect("a limit of a test fits");
        let mut waiting: Vec<PollFd<'_>> =
            processes.iter().map(|process| PollFd::new(&process.handle, PollFlags::IN)).collect();
        poll(&mut waiting, Some(&limit)).expect("processes can be waited for") > 0
    }

    /// Waits for the end of the process and of everything that holds its outputs.
    #[track_caller]
    pub fn wait(mut self) -> Finished {
        let limit = Timespec::try_from(WAIT_MAX).expect("minutes fit");
        let mut waiting = [PollFd::new(&self.handle, PollFlags::IN)];
        let over = poll(&mut waiting, Some(&limit)).expect("a process can be waited for") > 0;
        assert!(over, "{} did not end:\n{}", self.command, self.stderr_so_far());
        let status = self.child.wait().expect("a child can be waited for");
        self.ended = true;
        for reader in self.readers.drain(..) {
            reader.join().expect("reading an output does not panic");
        }
        let stdout = std::mem::take(&mut self.stdout.lock().0);
        Finished { command: self.command.clone(), status, stdout, stderr: self.stderr_so_far() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.signal(Signal::KILL);
            // Nobody is left to tell.
            let _ = self.child.wait();
        }
    }
}
