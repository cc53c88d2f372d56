//! Starting a program without a copy of the init's address space.
//!
//! The child shares the init's memory until it is the program (`CLONE_VM`), and the init waits so long
//! (`CLONE_VFORK`), as in the C library's `posix_spawn`. That function cannot be used: it supports neither a parent's
//! death signal nor restrictions.

use crate::message::{Capabilities, Launch, OwnPath, ProcessLimits, Restrictions};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

/// Stack of a child until it is the program: a handful of system calls.
const STACK_BYTES: usize = 64 << 10;
/// Exit code of a child that could not become the program; only the init sees it.
const NOT_STARTED: c_int = 127;
/// Shell for files that the kernel cannot execute, as is usual: a script without an interpreter line.
const SHELL: &CStr = c"/bin/sh";

/// Bytes of an instruction of a filter.
const INSTRUCTION_BYTES: usize = size_of::<libc::sock_filter>();
/// More than the kernel has.
const CAPABILITIES_MAX: libc::c_ulong = 64;
/// The kernel's name for sets of 64 capabilities.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// The kernel's name for a rule about a path and everything below it.
const PATH_BENEATH: libc::c_int = 1;

/// The file descriptors of a new program.
pub(crate) struct Ends<'a> {
    /// They become standard input, output and error.
    pub streams: [BorrowedFd<'a>; 3],
    /// Landlock's rules, for a program with restrictions.
    pub rules: Option<BorrowedFd<'a>>,
}

/// Strings in the kernel's form: a list of pointers that ends with null.
struct Strings {
    pointers: Vec<*const c_char>,
    /// The strings to which the pointers point.
    _owned: Vec<CString>,
}

impl Strings {
    fn new(strings: Vec<Vec<u8>>) -> io::Result<Self> {
        let owned = strings.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = owned.iter().map(|each| each.as_ptr()).chain([ptr::null()]).collect();
        Ok(Self { pointers, _owned: owned })
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// Everything that a child needs, made before it exists: it must not allocate.
struct Child<'a> {
    executable: CString,
    arguments: Strings,
    /// The same for [`SHELL`].
    shell_arguments: Strings,
    environment: Strings,
    work_dir: CString,
    ends: Ends<'a>,
    restrictions: Option<Restrictions>,
    limits: ProcessLimits,
    /// Files by which it enters control groups.
    groups: &'a [OwnedFd],
    /// Those of the restrictions.
    filters: Vec<libc::sock_fprog>,
    parent: Pid,
    /// The reason why the child did not become the program; written by the child.
    error: c_int,
}

/// Starts a program in its own process group. It is killed when this process ends. Error: the system's, of any step.
pub(crate) fn launch(launch: Launch, ends: Ends<'_>, groups: &[OwnedFd]) -> io::Result<Pid> {
    let Launch { executable, arguments, environment, work_dir, restrictions, limits } = launch;
    let shell = SHELL.to_bytes().to_vec();
    let shell_arguments = [shell].into_iter().chain(arguments.iter().cloned()).collect();
    if let (Some(restrictions), Some(rules)) = (&restrictions, ends.rules) {
        add_own_paths(rules, &restrictions.own_paths)?;
    }
    let filters = restrictions.iter().flat_map(|restrictions| &restrictions.syscall_filters);
    // The kernel copies the instructions, and does not write to them.
    let program = |bytes: &Vec<u8>| libc::sock_fprog {
        len: (bytes.len() / INSTRUCTION_BYTES) as u16,
        filter: bytes.as_ptr().cast_mut().cast(),
    };
    let mut child = Child {
        filters: filters.map(program).collect(),
        executable: CString::new(executable)?,
        arguments: Strings::new(arguments)?,
        shell_arguments: Strings::new(shell_arguments)?,
        environment: Strings::new(environment)?,
        work_dir: CString::new(work_dir)?,
        ends,
        restrictions,
        limits,
        groups,
        parent: rustix::process::getpid(),
        error: 0,
    };
    let pid = start_child(&mut child)?;
    // The child's result, written without the compiler's knowledge.
    // SAFETY: a reference to an initialized number, to which nothing else refers by now.
    match unsafe { ptr::read_volatile(&child.error) } {
        0 => Ok(pid),
        error => {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// Makes the child, and returns when it has become the program or has failed.
fn start_child(child: &mut Child<'_>) -> io::Result<Pid> {
    let mut stack = Box::<[u128]>::new_uninit_slice(STACK_BYTES / size_of::<u128>());
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    // SAFETY: the stack has the given end, is aligned, and belongs to the child alone; `child` outlives its use because
    // the call returns after the child has left our memory. The init's only handlers do nothing, so that they may run
    // in the child.
    let made = unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(become_program, top, flags, ptr::from_mut(child).cast())
    };
    match made {
        made if made < 0 => Err(io::Error::last_os_error()),
        made => Pid::from_raw(made).ok_or_else(|| io::Error::other("the kernel gave no process id")),
    }
}

/// Runs in the child, on its own stack in the init's memory: system calls alone, nothing allocated, nothing dropped.
extern "C" fn become_program(child: *mut c_void) -> c_int {
    // SAFETY: `start_child` passes a child that nothing else touches until it has left the init's memory.
    let child = unsafe { &mut *child.cast::<Child<'_>>() };
    let Err(error) = exec(child);
    // SAFETY: the parent reads it after this process has left its memory.
    unsafe { ptr::write_volatile(&mut child.error, error.raw_os_error()) };
    // SAFETY: ends this process without exit handlers.
    unsafe { libc::_exit(NOT_STARTED) }
}

fn exec(child: &Child<'_>) -> Result<std::convert::Infallible, Errno> {
    rustix::process::setpgid(None, None)?;
    // A kill -9 of the init ends the program too. The init may have died before the call.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The first process of a PID namespace sees itself as number 1.
    if rustix::process::getppid() != Some(child.parent) {
        return Err(Errno::SRCH);
    }
    for (number, end) in child.ends.streams.iter().enumerate() {
        // SAFETY: replaces a standard stream of this process; none of the ends has such a number, for the streams of
        // the init are open.
        if unsafe { libc::dup2(end.as_raw_fd(), number as RawFd) } < 0 {
            return Err(last_error());
        }
    }
    for group in child.groups {
        // The kernel takes 0 for this process.
        rustix::io::write(group, b"0")?;
    }
    if let Some(files) = child.limits.open_files {
        limit(Resource::Nofile, files)?;
    }
    if let Some(bytes) = child.limits.file_bytes {
        limit(Resource::Fsize, bytes)?;
    }
    rustix::process::chdir(child.work_dir.as_c_str())?;
    if let Some(restrictions) = &child.restrictions {
        restrict(restrictions, child.ends.rules, &child.filters)?;
    }
    default_signals();
    // SAFETY: all strings end with zero bytes and all lists with null pointers; they were made before.
    unsafe {
        libc::execve(child.executable.as_ptr(), child.arguments.as_ptr(), child.environment.as_ptr());
        if last_error() == Errno::NOEXEC {
            libc::execve(SHELL.as_ptr(), child.shell_arguments.as_ptr(), child.environment.as_ptr());
        }
    }
    Err(last_error())
}

/// Restricts this process, permanently, and any program that it becomes.
fn restrict(
    restrictions: &Restrictions,
    rules: Option<BorrowedFd<'_>>,
    filters: &[libc::sock_fprog],
) -> Result<(), Errno> {
    if let Some(bytes) = restrictions.core_bytes_max {
        limit(Resource::Core, bytes)?;
    }
    if let Some(files) = restrictions.open_files_max {
        limit(Resource::Nofile, files)?;
    }
    if let Some(bytes) = restrictions.memory_bytes {
        limit(Resource::As, bytes)?;
    }
    if restrictions.capabilities == Capabilities::Dropped {
        drop_capabilities()?;
    }
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the calls take numbers, and programs that live in the init's memory; they change only the rights of this
    // process.
    unsafe {
        if let Some(rules) = rules
            && libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) != 0
        {
            return Err(last_error());
        }
        for filter in filters {
            let filter = ptr::from_ref(filter);
            if libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER as libc::c_ulong, filter) != 0 {
                return Err(last_error());
            }
        }
    }
    Ok(())
}

/// Gives up the rights of root, for this process and whatever it becomes.
fn drop_capabilities() -> Result<(), Errno> {
    // SAFETY: the calls take numbers and initialized memory, and change only the rights of this process.
    unsafe {
        // Without the right to do so there is nothing that a program could regain by an exec.
        for capability in 0..CAPABILITIES_MAX {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        // Two sets of three words each: effective, permitted and inheritable.
        let head = [CAPABILITY_VERSION, 0];
        let none = [0_u32; 6];
        match libc::syscall(libc::SYS_capset, head.as_ptr(), none.as_ptr()) {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    }
}

/// Form of Landlock's rule about a path.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// Adds rules for paths that only this namespace has. Missing ones need none.
fn add_own_paths(rules: BorrowedFd<'_>, paths: &[OwnPath]) -> io::Result<()> {
    for OwnPath { path, access, .. } in paths {
        let Ok(place) = rustix::fs::open(path.as_slice(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        else {
            continue;
        };
        let rule = PathBeneath { allowed_access: *access, parent_fd: place.as_raw_fd() };
        // SAFETY: takes numbers and a rule that it reads.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                rules.as_raw_fd(),
                PATH_BENEATH,
                ptr::from_ref(&rule),
                0,
            )
        };
        if added != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Lowers a limit; a lower limit stays.
fn limit(resource: Resource, maximum: u64) -> Result<(), Errno> {
    let now = getrlimit(resource);
    let lowered = |limit: Option<u64>| Some(limit.map_or(maximum, |limit| limit.min(maximum)));
    let new = Rlimit { current: lowered(now.current), maximum: lowered(now.maximum) };
    setrlimit(resource, new)
}

/// Removes the init's handlers before its blocked signals are unblocked; a broken pipe ends a program, as programs
/// expect. Signals that were ignored when the engine started stay ignored.
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
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
