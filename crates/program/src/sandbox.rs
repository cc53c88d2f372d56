//! Sandbox of user programs: Landlock rules of the kernel, and limits of the process.

use api::{Blame, TaskFailure};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Minimum version of the rules: before version 3 Landlock allows truncation of read-only files.
const ABI_MIN: ABI = ABI::V3;
/// The newest rules, used if the kernel supports them: also no signals to processes outside.
const ABI_WANTED: ABI = ABI::V6;
/// Maximum open files of a program.
const OPEN_FILES_MAX: u64 = 4096;

/// Folders that every program may read and execute.
const SYSTEM_FOLDERS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
];
/// Settings of the machine that libraries and interpreters read; other files in `/etc` may hold secrets.
const SETTINGS: &[&str] = &[
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
];
/// Devices without content.
const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

/// Function that opens the paths of a job (`O_PATH`), or refuses them.
pub type OpenNamed = Arc<dyn Fn(&Path) -> std::io::Result<OwnedFd> + Send + Sync>;

/// Limits between a program and the rest of the machine.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    /// Paths that the program may read and execute, besides the system folders; set by the operator.
    pub readable: Vec<PathBuf>,
    /// The node's own directories with full access; the work directory is always one.
    pub writable: Vec<PathBuf>,
    /// Maximum memory that it may map; None: no limit.
    pub memory_bytes: Option<u64>,
    /// Paths in the job.
    pub named: Option<Named>,
}

/// Paths in a job, which may be exchanged for others until they are opened.
#[derive(Clone)]
pub struct Named {
    /// Paths that the job's program may read and execute.
    pub readable: Vec<PathBuf>,
    /// The work directory, if the job chose it.
    pub work_dir: Option<PathBuf>,
    pub open: OpenNamed,
}

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Named").field("readable", &self.readable).field("work_dir", &self.work_dir).finish()
    }
}

/// Error: the kernel does not support the sandbox.
#[derive(Debug, thiserror::Error)]
#[error("this kernel has no sandbox (Landlock of version 3 or later, Linux 6.2): {0}")]
pub struct NoSandbox(#[from] RulesetError);

impl Sandbox {
    /// Returns whether this kernel supports the sandbox.
    pub fn check_kernel() -> Result<(), NoSandbox> {
        ruleset()?.create()?;
        Ok(())
    }

    /// Makes the rules for a program in its work directory, to be applied between fork and exec.
    pub(crate) fn prepare(&self, executable: &Path, work_dir: &Path) -> Result<Prepared, TaskFailure> {
        let failure = |error: &dyn std::fmt::Display| {
            TaskFailure::new(Blame::Environment, format!("cannot make the sandbox of a program: {error}"))
        };
        let named = self.open_named(executable, work_dir)?;
        let rules = self.rules(executable, work_dir, named).map_err(|error| failure(&error))?;
        let rules: Option<OwnedFd> = rules.into();
        let rules = rules.ok_or_else(|| failure(&"the kernel gave no rules"))?;
        Ok(Prepared { rules, memory_bytes: self.memory_bytes })
    }

    /// Opens the paths of the job: the rules apply to the opened files, even if their names change.
    fn open_named(
        &self,
        executable: &Path,
        work_dir: &Path,
    ) -> Result<Vec<(OwnedFd, BitFlags<AccessFs>)>, TaskFailure> {
        let Some(named) = &self.named else { return Ok(Vec::new()) };
        let (all, read) = (AccessFs::from_all(ABI_WANTED), AccessFs::from_read(ABI_WANTED));
        let readable = named.readable.iter().map(PathBuf::as_path);
        let program = Some(executable).filter(|_| !is_of_node_path(executable));
        let chosen = named.work_dir.as_deref().filter(|chosen| *chosen == work_dir);
        let wanted = readable.chain(program).map(|path| (path, read));
        let mut opened = Vec::new();
        for (path, access) in wanted.chain(chosen.map(|path| (path, all))) {
            match (named.open)(path).and_then(|place| Ok((access_to(&place, access)?, place))) {
                Ok((access, place)) => opened.push((place, access)),
                // A missing file cannot be read.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // It is a link in the work directory to a readable file, or lies in a system folder.
                Err(_) if Some(path) == program => {}
                Err(error) => {
                    let message = format!("cannot open {} for a program: {error}", path.display());
                    let blame = match error.kind() {
                        ErrorKind::PermissionDenied => Blame::UserData,
                        _ => Blame::Environment,
                    };
                    return Err(TaskFailure::new(blame, message));
                }
            }
        }
        Ok(opened)
    }

    fn rules(
        &self,
        executable: &Path,
        work_dir: &Path,
        opened: Vec<(OwnedFd, BitFlags<AccessFs>)>,
    ) -> Result<RulesetCreated, RulesetError> {
        let (all, read) = (AccessFs::from_all(ABI_WANTED), AccessFs::from_read(ABI_WANTED));
        let named = self.named.as_ref();
        let is_own_program = named.is_none() || is_of_node_path(executable);
        let system = SYSTEM_FOLDERS.iter().chain(SETTINGS).map(Path::new);
        let own_program = Some(executable).filter(|_| is_own_program);
        let readable = system.chain(self.readable.iter().map(PathBuf::as_path)).chain(own_program);
        let own_dir = Some(work_dir).filter(|_| named.is_none_or(|named| named.work_dir.is_none()));
        let writable = self.writable.iter().map(PathBuf::as_path).chain(own_dir);
        ruleset()?
            .create()?
            .add_rules(path_beneath_rules(readable, read))?
            .add_rules(path_beneath_rules(writable, all))?
            .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
            .add_rules(opened.into_iter().map(|(place, access)| Ok(PathBeneath::new(place, access))))
    }
}

/// Returns whether a program lies in a directory where this process itself looks for programs, not one chosen by a job.
fn is_of_node_path(executable: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| executable.parent() == Some(&dir))
}

/// Returns the rights that a place can give, out of `access`: a file has none of a directory's.
fn access_to(place: &OwnedFd, access: BitFlags<AccessFs>) -> std::io::Result<BitFlags<AccessFs>> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode);
    Ok(match kind {
        FileType::Directory => access,
        _ => access & AccessFs::from_file(ABI_WANTED),
    })
}

fn ruleset() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI_MIN))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI_WANTED))?
        .scope(Scope::from_all(ABI_WANTED))
}

/// Open rules: applying them takes only system calls.
pub(crate) struct Prepared {
    rules: OwnedFd,
    memory_bytes: Option<u64>,
}

impl Prepared {
    /// Restricts this process, permanently, and any program that it becomes. Called by a child that shares the engine's
    /// memory: nothing is changed there, allocated or dropped.
    pub fn put_on(&self) -> Result<(), Errno> {
        limit(Resource::Core, 0)?;
        limit(Resource::Nofile, OPEN_FILES_MAX)?;
        if let Some(bytes) = self.memory_bytes {
            limit(Resource::As, bytes)?;
        }
        rustix::thread::set_no_new_privs(true)?;
        // `RulesetCreated::restrict_self` does the same and closes the rules, which the engine must close.
        // SAFETY: takes two numbers and changes only the rights of this process.
        match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.rules.as_raw_fd(), 0) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }
}

/// Lowers a limit; a lower limit stays.
fn limit(resource: Resource, maximum: u64) -> Result<(), Errno> {
    let now = getrlimit(resource);
    let lowered = |limit: Option<u64>| Some(limit.map_or(maximum, |limit| limit.min(maximum)));
    let new = Rlimit { current: lowered(now.current), maximum: lowered(now.maximum) };
    setrlimit(resource, new)
}
