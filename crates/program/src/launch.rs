//! Starting a program without a copy of the engine's address space.
//!
//! A fork copies the page tables of the whole engine, which may have gigabytes mapped, and both sides pay for each page
//! that is written again. Here the child shares the engine's memory until it is the program (`CLONE_VM`), and the
//! starting thread waits so long (`CLONE_VFORK`), as in the C library's `posix_spawn`. That function cannot be used: it
//! supports neither a parent's death signal nor a sandbox.

use crate::sandbox::Prepared;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::ptr;

/// Stack of a child until it is the program: a handful of system calls.
const STACK_BYTES: usize = 64 << 10;
/// Exit code of a child that could not become the program; only its parent sees it.
const NOT_STARTED: c_int = 127;
/// Shell for files that the kernel cannot execute, as is usual: a script without an interpreter line.
const SHELL: &CStr = c"/bin/sh";

/// A started program, with the engine's ends of its pipes.
pub(crate) struct Started {
    pub pid: Pid,
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

impl Started {
    /// Waits for its end and reaps it.
    pub fn wait(pid: Pid) -> io::Result<ExitStatus> {
        loop {
            match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
                Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Strings in the kernel's form: a list of pointers that ends with null.
struct Strings {
    pointers: Vec<*const c_char>,
    /// The strings to which the pointers point.
    _owned: Vec<CString>,
}

impl Strings {
    fn new(owned: Vec<CString>) -> Self {
        let pointers = owned.iter().map(|each| each.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, _owned: owned }
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// Everything that a child needs, made before it exists: it must not allocate.
struct Launch<'a> {
    executable: CString,
    arguments: Strings,
    /// The same for [`SHELL`].
    shell_arguments: Strings,
    environment: Strings,
    work_dir: CString,
    /// File descriptors that become standard input, output and error.
    ends: [RawFd; 3],
    sandbox: Option<&'a Prepared>,
    parent: Pid,
    /// The reason why the child did not become the program; written by the child.
    error: c_int,
}

/// Starts `executable` with `words` (the first is the user's name for it) in its own process group, with pipes. It is
/// killed when the thread that started it ends. Error: the system's, of any step.
pub(crate) fn launch(
    executable: &Path,
    words: &[String],
    environment: &BTreeMap<OsString, OsString>,
    work_dir: &Path,
    sandbox: Option<&Prepared>,
) -> io::Result<Started> {
    let (its_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, its_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, its_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let executable = CString::new(executable.as_os_str().as_bytes())?;
    // Its own path and not the user's name for it: an interpreter searches its library beside it, and runs in another
    // directory.
    let words = words.iter().skip(1).map(|word| CString::new(word.as_bytes()));
    let arguments = [Ok(executable.clone())].into_iter().chain(words).collect::<Result<Vec<_>, _>>()?;
    let shell_arguments = [SHELL.to_owned()].into_iter().chain(arguments.iter().cloned()).collect();
    let variable = |(name, value): (&OsString, &OsString)| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())
    };
    let mut launch = Launch {
        arguments: Strings::new(arguments),
        shell_arguments: Strings::new(shell_arguments),
        environment: Strings::new(environment.iter().map(variable).collect::<Result<_, _>>()?),
        work_dir: CString::new(work_dir.as_os_str().as_bytes())?,
        ends: [its_stdin.as_raw_fd(), its_stdout.as_raw_fd(), its_stderr.as_raw_fd()],
        executable,
        sandbox,
        parent: rustix::process::getpid(),
        error: 0,
    };
    let pid = start_child(&mut launch)?;
    // The child's result, written without the compiler's knowledge.
    // SAFETY: a reference to an initialized number, to which nothing else refers by now.
    match unsafe { ptr::read_volatile(&launch.error) } {
        0 => Ok(Started { pid, stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into() }),
        error => {
            Started::wait(pid)?;
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// Makes the child, and returns when it has become the program or has failed.
fn start_child(launch: &mut Launch<'_>) -> io::Result<Pid> {
    let mut stack = Box::<[u128]>::new_uninit_slice(STACK_BYTES / size_of::<u128>());
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let mut every_signal = MaybeUninit::<libc::sigset_t>::uninit();
    let mut mask_before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the stack has the given end, is aligned, and belongs to the child alone; `launch` outlives the child's
    // use of it because the call returns after the child has left our memory. Signals are blocked around it, so that no
    // handler of the engine runs in the child. The sets are initialized by the first calls.
    let made = unsafe {
        libc::sigfillset(every_signal.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, every_signal.as_ptr(), mask_before.as_mut_ptr());
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let made = libc::clone(become_program, top, flags, ptr::from_mut(launch).cast());
        let result = if made < 0 { Err(io::Error::last_os_error()) } else { Ok(made) };
        libc::pthread_sigmask(libc::SIG_SETMASK, mask_before.as_ptr(), ptr::null_mut());
        result
    };
    Pid::from_raw(made?).ok_or_else(|| io::Error::other("the kernel gave no process id"))
}

/// Runs in the child, on its own stack in the engine's memory: system calls alone, nothing allocated, nothing dropped.
extern "C" fn become_program(launch: *mut c_void) -> c_int {
    // SAFETY: `start_child` passes a launch that nothing else touches until the child has left its memory.
    let launch = unsafe { &mut *launch.cast::<Launch<'_>>() };
    let Err(error) = exec(launch);
    // SAFETY: the parent reads it after this process has left its memory.
    unsafe { ptr::write_volatile(&mut launch.error, error.raw_os_error()) };
    // SAFETY: ends this process without the engine's exit handlers.
    unsafe { libc::_exit(NOT_STARTED) }
}

fn exec(launch: &Launch<'_>) -> Result<std::convert::Infallible, Errno> {
    rustix::process::setpgid(None, None)?;
    // A kill -9 of the engine ends the program too. The parent may have died before the call.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(launch.parent) {
        return Err(Errno::SRCH);
    }
    for (number, end) in launch.ends.into_iter().enumerate() {
        // SAFETY: replaces a standard stream of this process; none of the ends has such a number, for the streams of
        // the engine are open.
        if unsafe { libc::dup2(end, number as RawFd) } < 0 {
            return Err(last_error());
        }
    }
    rustix::process::chdir(launch.work_dir.as_c_str())?;
    if let Some(sandbox) = launch.sandbox {
        sandbox.put_on()?;
    }
    default_signals();
    // SAFETY: all strings end with zero bytes and all lists with null pointers; they were made before.
    unsafe {
        libc::execve(launch.executable.as_ptr(), launch.arguments.as_ptr(), launch.environment.as_ptr());
        if last_error() == Errno::NOEXEC {
            libc::execve(SHELL.as_ptr(), launch.shell_arguments.as_ptr(), launch.environment.as_ptr());
        }
    }
    Err(last_error())
}

/// Removes the engine's handlers before its blocked signals are unblocked; a broken pipe ends a program, as programs
/// expect. Signals that the engine ignores stay ignored.
fn default_signals() {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a valid action (the default one); numbers of missing signals are refused.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            let known = libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0;
            let handler = (*action.as_ptr()).sa_sigaction;
            let ignored = handler == libc::SIG_IGN && signal != libc::SIGPIPE;
            if known && handler != libc::SIG_DFL && !ignored {
                let default = MaybeUninit::<libc::sigaction>::zeroed();
                libc::sigaction(signal, default.as_ptr(), ptr::null_mut());
            }
        }
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
