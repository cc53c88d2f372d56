//! Properties that the spawner and the inits give themselves.

use crate::channel::is_ready_within;
use crate::message::Refusal;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// Signals that a terminal or an operator sends to the engine: it decides about the programs.
const SIGNALS_OF_ENGINE: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Numbers from here on are not those of standard streams, nor of descriptors that are about to be renumbered.
const FREE_DESCRIPTOR: i32 = 100;

/// Returns a failure of this step.
pub(crate) fn refused(step: &str) -> impl FnOnce(Errno) -> Refusal {
    move |error| Refusal { step: step.to_string(), errno: error.raw_os_error() }
}

/// Changes the name under which `ps` shows this process.
pub(crate) fn name(name: &CStr) {
    // A wrong name in a list is no reason to fail.
    let _ = rustix::thread::set_name(name);
}

/// Fields of `/proc/self/stat` after the name: bounds of the words and variables with which the process was started.
const FIELD_OF_WORDS: usize = 45;
const FIELD_AFTER_VARIABLES: usize = 48;

/// Erases the words and variables of the engine from this copy of it: a contained program sees the init of its slot, and
/// could read them there. Nothing in this process uses them.
pub(crate) fn erase_words_and_variables() {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').collect()).unwrap_or_default();
    let address = |field: usize| fields.get(field)?.trim().parse::<usize>().ok();
    // Without the numbers, which the kernel gives a process about itself, they stay.
    let (Some(begin), Some(end)) = (address(FIELD_OF_WORDS), address(FIELD_AFTER_VARIABLES)) else { return };
    if begin == 0 || end <= begin {
        return;
    }
    // SAFETY: the kernel has put these strings at the top of the initial stack, above all frames, where they are
    // writable; this process has one thread, and calls nothing that looks at them.
    unsafe { ptr::write_bytes(begin as *mut u8, 0, end - begin) };
}

/// Makes orphans below this process its children.
pub(crate) fn adopt_orphans(step: &str) -> Result<(), Refusal> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(refused(step))
}

extern "C" fn do_nothing(_signal: i32) {}

/// Leaves the terminal's signals to the engine. They are not ignored, because programs would inherit that; signals
/// that are ignored already (`nohup`) stay so.
pub(crate) fn leave_signals_to_engine() {
    // SAFETY: installs a handler that does nothing; zeros are a valid action.
    unsafe {
        for signal in SIGNALS_OF_ENGINE {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            if libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
                && (*action.as_ptr()).sa_sigaction != libc::SIG_IGN
            {
                let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                action.sa_sigaction = do_nothing as extern "C" fn(i32) as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, ptr::null_mut());
            }
        }
    }
}

/// Closes all descriptors except the standard streams, which become empty, and the given ones, whose numbers change.
pub(crate) fn keep_only<const N: usize>(kept: [OwnedFd; N]) -> Result<[OwnedFd; N], Errno> {
    let nothing = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut high = [0; N];
    // SAFETY: this process has just been made, and the owners of its other descriptors run no more in it.
    unsafe {
        for (kept, high) in kept.iter().zip(&mut high) {
            *high = checked(libc::fcntl(kept.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FREE_DESCRIPTOR))?;
        }
        for number in 0..3 {
            checked(libc::dup2(nothing.as_raw_fd(), number))?;
        }
        let mut next = 3;
        for high in &mut high {
            *high = checked(libc::dup3(*high, next, libc::O_CLOEXEC))?;
            next += 1;
        }
        // The call of the C library is missing in older ones.
        checked(libc::syscall(libc::SYS_close_range, next, u32::MAX, 0) as i32)?;
        std::mem::forget((nothing, kept));
        Ok(high.map(|number| OwnedFd::from_raw_fd(number)))
    }
}

fn checked(result: i32) -> Result<i32, Errno> {
    match result {
        ..0 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(result),
    }
}

/// News of ended children, as a descriptor.
pub(crate) struct ChildNews(OwnedFd);

impl ChildNews {
    /// Blocks the signal that announces the end of a child, and takes it from a descriptor instead.
    pub fn new() -> std::io::Result<Self> {
        // SAFETY: the set is initialized before it is used; the new descriptor belongs to nobody else.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut());
            let descriptor = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            match descriptor {
                ..0 => Err(std::io::Error::last_os_error()),
                descriptor => Ok(Self(OwnedFd::from_raw_fd(descriptor))),
            }
        }
    }

    pub fn as_descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub fn clear(&self) {
        let mut signals = [0; 512];
        while rustix::io::read(&self.0, &mut signals).is_ok_and(|count| count == signals.len()) {}
    }

    /// Waits at most this long for news.
    pub fn wait(&self, patience: Duration) {
        let _ = is_ready_within(self.0.as_fd(), patience);
    }
}

/// Runs the rest of this process, a copy made by a fork, and ends it: it must not return into the copied frames.
pub(crate) fn run_to_end(rest: impl FnOnce()) -> ! {
    // A panic must not unwind into them either. Its message has nowhere to go.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(rest));
    // SAFETY: ends this process without the engine's exit handlers.
    unsafe { libc::_exit(i32::from(outcome.is_err())) }
}
