//! Reads of a program without a sandbox: in users' directories it reads only the files that it declares.
//!
//! Landlock allows and never denies. So the rules allow everything outside of users' directories, path by path, and in
//! them the declared files. Only reads are limited: a program writes wherever its user may.

use super::Prepared;
use super::kept_results::KeptResults;
use super::own_directories::OwnDirectories;
use super::places_outside::{Place, places_outside};
use crate::installation::with_interpreters;
use crate::spec::ProgramSpec;
use api::{Blame, TaskFailure};
use containment::{Capabilities, Containment, OwnPath, Restrictions, VisibleBelow};
use landlock::{
    AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError,
};
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Directories that each job has of its own where it has namespaces.
const OF_JOB: [&str; 4] = ["/proc", "/tmp", "/dev/shm", "/run"];
/// Variables with the prefix of the active environment of Python or conda.
const ENVIRONMENTS: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];

/// Limit of a program's reads: in homes and in the directory of its workflow it reads the declared files alone, and the
/// installations on its search path.
#[derive(Clone, Debug)]
pub struct DeclaredReads {
    own: Arc<OwnDirectories>,
    readable: Vec<PathBuf>,
}

impl DeclaredReads {
    /// Makes the limit of a program of a workflow in this directory, which may read these paths and its work directory.
    /// None: the kernel lacks Landlock of version 2 (Linux 5.19), so every read is allowed.
    pub fn new(directory: &Path, readable: Vec<PathBuf>) -> Option<Self> {
        static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
        let is_supported = IS_SUPPORTED.get_or_init(|| ruleset().is_ok());
        static OWN: KeptResults<PathBuf, OwnDirectories> = KeptResults::new();
        let own = || OWN.get(directory.to_path_buf(), |_| true, |directory| OwnDirectories::with(directory));
        is_supported.then(|| Self { own: own(), readable })
    }

    /// Makes the rules for a program.
    pub(crate) fn prepare(
        &self,
        executable: &Path,
        spec: &ProgramSpec,
        containment: Containment,
    ) -> Result<Prepared, TaskFailure> {
        let failure = |error: &dyn std::fmt::Display| {
            TaskFailure::new(Blame::Environment, format!("cannot limit the reads of a program: {error}"))
        };
        let rules: Option<OwnedFd> = self.rules(executable, spec).map_err(|error| failure(&error))?.into();
        let own_paths = match containment {
            Containment::Namespaces => self.paths_of_job(),
            Containment::Subreaper => Vec::new(),
        };
        let restrictions = Restrictions {
            memory_bytes: None,
            open_files_max: None,
            core_bytes_max: None,
            capabilities: Capabilities::Kept,
            syscall_filters: Vec::new(),
            own_paths,
        };
        Ok(Prepared { rules: Some(rules.ok_or_else(|| failure(&"the kernel gave no rules"))?), restrictions })
    }

    fn rules(&self, executable: &Path, spec: &ProgramSpec) -> Result<RulesetCreated, RulesetError> {
        let outside = places_outside(&self.own);
        let declared = self.declared(executable, spec);
        let declared: Vec<Place> =
            declared.iter().filter_map(|path| Place::open(path, OFlags::empty())).collect();
        let root = Place::open(Path::new("/"), OFlags::empty());
        let rules = outside.iter().chain(&declared).map(|place| {
            let access = if place.is_directory { read() } else { AccessFs::ReadFile.into() };
            PathBeneath::new(&place.place, access)
        });
        // A rename into another directory is refused unless it is allowed, also by rules that limit reads alone.
        let root = root.iter().map(|root| PathBeneath::new(&root.place, AccessFs::Refer));
        ruleset()?.add_rules(rules.chain(root).map(Ok::<_, RulesetError>))
    }

    /// Returns the readable paths in users' directories.
    fn declared(&self, executable: &Path, spec: &ProgramSpec) -> Vec<PathBuf> {
        let mut declared = Searched::of(spec).installations(&self.own).found.clone();
        declared.extend(with_interpreters(executable).iter().flat_map(|file| self.own.executable(file)));
        declared.extend(self.readable.iter().cloned());
        declared.push(spec.work_dir.clone());
        // Programs run it to reach their server.
        declared.extend(std::env::current_exe());
        declared
    }

    /// Returns the rules for directories that a job has of its own, unless they hold users' directories.
    fn paths_of_job(&self) -> Vec<OwnPath> {
        let free = OF_JOB.iter().filter(|path| !self.own.touch(Path::new(path)));
        let (access, visible) = ((read() | AccessFs::Refer).bits(), VisibleBelow::Covered);
        free.map(|path| OwnPath { path: path.as_bytes().to_vec(), access, visible }).collect()
    }
}

/// The places in which a program looks for others, as its environment names them.
#[derive(PartialEq)]
struct Searched {
    search_path: OsString,
    environments: Vec<OsString>,
}

impl Searched {
    fn of(spec: &ProgramSpec) -> Self {
        let search_path = variables("PATH", spec).next().unwrap_or_default();
        let environments = ENVIRONMENTS.iter().flat_map(|name| variables(name, spec)).collect();
        Self { search_path, environments }
    }

    /// Returns the installations there, as far as users' directories hold them.
    fn installations(self, own: &Arc<OwnDirectories>) -> Arc<Installations> {
        static FOUND: KeptResults<(Arc<OwnDirectories>, Searched), Installations> = KeptResults::new();
        let holds = |kept: &Installations| kept.missing.iter().all(|place| !place.exists());
        FOUND.get((Arc::clone(own), self), holds, |(own, searched)| {
            let places = std::env::split_paths(&searched.search_path);
            let places = places.chain(searched.environments.iter().map(PathBuf::from));
            let missing = places.filter(|place| !place.exists()).collect();
            let mut found = own.installations_in(&searched.search_path);
            let prefixes = searched.environments.iter().map(Path::new);
            found.extend(prefixes.flat_map(|prefix| own.environment_at(prefix)));
            Installations { found, missing }
        })
    }
}

/// The installations on a search path.
struct Installations {
    found: Vec<PathBuf>,
    /// Places that did not exist: an earlier program may have made one.
    missing: Vec<PathBuf>,
}

/// Returns the values of a variable: of the program, then of this process.
fn variables(name: &str, spec: &ProgramSpec) -> impl Iterator<Item = OsString> {
    let of_program = spec.env.iter().rev().find(|(given, _)| given == name).map(|(_, value)| value.into());
    of_program.into_iter().chain(std::env::var_os(name))
}

fn read() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

fn ruleset() -> Result<RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(read() | AccessFs::Refer)?.create()
}
