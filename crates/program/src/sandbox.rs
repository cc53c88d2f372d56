//! Sandbox of user programs: Landlock rules of the kernel, a filter of system calls, and limits of the process.

mod declared_reads;
#[cfg(test)]
mod escapes;
mod kept_results;
mod own_directories;
mod places_outside;
mod syscalls;

use crate::installation::{executables_of, installations_in_path, installations_of};
use api::{Blame, TaskFailure};
use containment::{Capabilities, Containment, OwnPath, Restrictions, VisibleBelow};
pub use declared_reads::DeclaredReads;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use rustix::fs::FileType;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use syscalls::Network;

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
    readable: Vec<PathBuf>,
    /// The node's own directories with full access; the work directory is always one.
    writable: Vec<PathBuf>,
    /// Maximum memory that it may map; None: no limit.
    memory_bytes: Option<u64>,
    /// The most that the operator allows.
    allowed_network: Network,
    network: Network,
    /// Paths in the job.
    named: Option<Named>,
    layers: Layers,
}

/// The parts of the sandbox; tests turn them off.
#[derive(Clone, Copy, Debug)]
struct Layers {
    /// Landlock's rules.
    files: bool,
    /// The filter of system calls.
    calls: bool,
    /// Loss of the rights of root.
    rights: bool,
}

impl Default for Layers {
    fn default() -> Self {
        Self { files: true, calls: true, rights: true }
    }
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
    /// Makes the sandbox of a node, whose operator lets programs read these paths, map so much memory, and reach the
    /// network or not.
    pub fn new(readable: Vec<PathBuf>, memory_bytes: Option<u64>, allowed_network: Network) -> Self {
        Self { readable, memory_bytes, allowed_network, ..Self::default() }
    }

    /// Returns the sandbox for programs of a job, with full access to these directories of the node. Error: the job asks
    /// for a network that the operator does not allow; other nodes may.
    pub fn for_job(
        &self,
        named: Named,
        writable: Vec<PathBuf>,
        network: Network,
    ) -> Result<Self, TaskFailure> {
        if network == Network::Allowed && self.allowed_network == Network::None {
            let message =
                "the job asks for --network, which this node does not allow: start it with --allow-network";
            return Err(TaskFailure::new(Blame::Environment, message));
        }
        Ok(Self { named: Some(named), writable, network, ..self.clone() })
    }

    /// Returns whether this kernel supports the sandbox.
    pub fn check_kernel() -> Result<(), NoSandbox> {
        ruleset()?.create()?;
        Ok(())
    }

    /// Makes the rules for a program in its work directory. The first executable is the program, the others are
    /// interpreters that it may start.
    pub(crate) fn prepare(
        &self,
        executables: &[PathBuf],
        work_dir: &Path,
        containment: Containment,
    ) -> Result<Prepared, TaskFailure> {
        let failure = |error: &dyn std::fmt::Display| {
            TaskFailure::new(Blame::Environment, format!("cannot make the sandbox of a program: {error}"))
        };
        let named = self.open_named(executables, work_dir)?;
        let rules = self.rules(executables, work_dir, named).map_err(|error| failure(&error))?;
        let rules: Option<OwnedFd> = rules.into();
        let rules = rules.ok_or_else(|| failure(&"the kernel gave no rules"))?;
        let Layers { files, calls, rights } = self.layers;
        let filters = calls.then(|| syscalls::filters(self.network, containment)).transpose()?;
        let restrictions = Restrictions {
            memory_bytes: self.memory_bytes,
            open_files_max: Some(OPEN_FILES_MAX),
            core_bytes_max: Some(0),
            capabilities: if rights { Capabilities::Dropped } else { Capabilities::Kept },
            syscall_filters: filters.unwrap_or_default(),
            own_paths: match containment {
                Containment::Namespaces => own_paths(),
                Containment::Subreaper => Vec::new(),
            },
        };
        Ok(Prepared { rules: Some(rules).filter(|_| files), restrictions })
    }

    /// Opens the paths of the job: the rules apply to the opened files, even if their names change.
    fn open_named(
        &self,
        executables: &[PathBuf],
        work_dir: &Path,
    ) -> Result<Vec<(OwnedFd, BitFlags<AccessFs>)>, TaskFailure> {
        let Some(named) = &self.named else { return Ok(Vec::new()) };
        let (all, read) = (AccessFs::from_all(ABI_WANTED), AccessFs::from_read(ABI_WANTED));
        let readable = named.readable.iter().map(PathBuf::as_path);
        let program = executables.first().map(PathBuf::as_path).filter(|program| !is_of_node_path(program));
        let chosen = named.work_dir.as_deref().filter(|chosen| *chosen == work_dir);
        let wanted = readable.chain(program).map(|path| (path, read));
        let mut opened = self.open_installations(named, executables);
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

    /// Opens the installations of a program and its interpreters, as far as the job may name files there.
    fn open_installations(
        &self,
        named: &Named,
        executables: &[PathBuf],
    ) -> Vec<(OwnedFd, BitFlags<AccessFs>)> {
        let read = AccessFs::from_read(ABI_WANTED);
        let all = executables.iter().flat_map(|executable| executables_of(executable));
        let of_job = all.filter(|file| !is_of_node_path(file));
        let parts = of_job.flat_map(|file| installations_of(&file));
        let open = |part: PathBuf| {
            let place = (named.open)(&part).ok()?;
            Some((access_to(&place, read).ok()?, place))
        };
        parts.filter_map(open).map(|(access, place)| (place, access)).collect()
    }

    fn rules(
        &self,
        executables: &[PathBuf],
        work_dir: &Path,
        opened: Vec<(OwnedFd, BitFlags<AccessFs>)>,
    ) -> Result<RulesetCreated, RulesetError> {
        let (all, read) = (AccessFs::from_all(ABI_WANTED), AccessFs::from_read(ABI_WANTED));
        let named = self.named.as_ref();
        let is_own_program = |program: &&Path| named.is_none() || is_of_node_path(program);
        let system = SYSTEM_FOLDERS.iter().chain(SETTINGS).map(Path::new);
        let own_program = executables.first().map(PathBuf::as_path).filter(is_own_program);
        // A job names files of its own programs only through its roots.
        let of_program: Vec<PathBuf> = match named {
            None => {
                let all = executables.iter().flat_map(|executable| executables_of(executable));
                all.flat_map(|file| installations_of(&file)).collect()
            }
            Some(_) => Vec::new(),
        };
        let installed = installations_in_path().iter().chain(&of_program).map(PathBuf::as_path);
        // Programs run it to reach their server.
        let this_executable = std::env::current_exe().ok();
        let installed = installed.chain(this_executable.as_deref());
        let readable =
            system.chain(self.readable.iter().map(PathBuf::as_path)).chain(own_program).chain(installed);
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

/// Returns the rules for paths that each job has of its own, which are other files than those of the same names here.
fn own_paths() -> Vec<OwnPath> {
    let visible = VisibleBelow::Protected;
    let own = |path: &str, access: BitFlags<AccessFs>| OwnPath {
        path: path.into(),
        access: access.bits(),
        visible,
    };
    let (read, all) = (AccessFs::from_read(ABI_MIN), AccessFs::from_all(ABI_MIN));
    vec![own("/proc", read), own("/tmp", all), own("/dev/shm", all), own("/run", all)]
}

/// Open rules, and limits that a program applies to itself.
pub(crate) struct Prepared {
    rules: Option<OwnedFd>,
    restrictions: Restrictions,
}

impl Prepared {
    pub fn rules(&self) -> Option<BorrowedFd<'_>> {
        self.rules.as_ref().map(AsFd::as_fd)
    }

    pub fn restrictions(&self) -> Restrictions {
        self.restrictions.clone()
    }
}
