//! The directories of a job: their paths, obstacles, creation and removal. If the output is a prefix of objects, so is
//! the staging prefix; `objects` handles its content.

pub(crate) mod sweep;

use crate::{ServerError, Service};
use api::{JobSpec, ReportedJob, is_object_url};
use control::{DiskDirs, JobDirs};
use faults::{CrashPoint, IoCall, crash_point, io_call};
use ids::JobId;
use objects::{ObjectUrl, staging};
use output::output_dir::{ForeignEntry, foreign_entry};
use roots::{HeldDir, JobPaths};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Part of the name of every directory that we create, so that nothing else is ever removed.
const MARK: &str = "sailfish-";
/// Staging directory of a job whose parts are for later stages or become stored files. A job of one task has none at all.
pub(crate) const NOT_STAGED: &str = "/.sailfish-not-staged";
/// Maximum number of tries: a task that stops late may add a file while its directory is being removed.
const REMOVE_TRIES_MAX: u32 = 200;

/// The directories of a job. `staging` is [`NOT_STAGED`] if its parts stay on the disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directories {
    pub staging: PathBuf,
    pub disk_dirs: Vec<PathBuf>,
}

impl From<JobDirs> for Directories {
    fn from(JobDirs { staging, disk_dirs }: JobDirs) -> Self {
        Self { staging, disk_dirs }
    }
}

/// Returns an error if the output exists, or if replacing it would remove an input of the job.
pub(crate) fn check_output(spec: &JobSpec, state_dir: &Path) -> Result<(), ServerError> {
    let output = &spec.output;
    // The name of a stored output was checked where its put began.
    if spec.feeds() || spec.stored_output.is_some() {
        return Ok(());
    }
    if is_object_url(output) {
        return check_object_output(spec);
    }
    if output.file_name().is_none() || output.parent().is_none() {
        return Err(ServerError::OutputUnusable { path: output.clone() });
    }
    let Ok(metadata) = std::fs::symlink_metadata(output) else { return Ok(()) };
    if !spec.overwrite {
        return Err(ServerError::OutputExists { path: output.clone() });
    }
    if !metadata.is_dir() {
        return Err(ServerError::OutputNotADirectory { path: output.clone() });
    }
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let output_resolved = resolved(output);
    let inputs = spec.inputs.iter().map(|input| input.path.as_path());
    let others = spec.files.iter().chain(&spec.disks).map(PathBuf::as_path);
    for path in inputs.chain(others).chain([state_dir]) {
        if resolved(path).starts_with(&output_resolved) {
            let inside = path.to_path_buf();
            return Err(ServerError::OutputHoldsWhatTheJobNeeds { output: output.clone(), inside });
        }
    }
    let unreadable = |source| ServerError::OutputUnreadable { path: output.clone(), source };
    match foreign_entry(output).map_err(unreadable)? {
        Some(entry) => Err(ForeignEntry { path: output.clone(), entry }.into()),
        None => Ok(()),
    }
}

/// Returns the job that made the existing output at this path, according to the report there; None without a report.
pub(crate) fn job_of_output(output: &Path) -> Result<Option<JobId>, ServerError> {
    if is_object_url(output) {
        let report = staging::report_of(&ObjectUrl::from_path(output)?)?;
        let made = report.and_then(|report| serde_json::from_slice::<ReportedJob>(&report).ok());
        return Ok(made.map(|made| made.job));
    }
    let unreadable = |source| ServerError::OutputUnreadable { path: output.to_path_buf(), source };
    output::output_dir::job_of_output(output).map_err(unreadable)
}

/// Does the same for a prefix of objects, and checks that this process may write there. Asks the object store.
fn check_object_output(spec: &JobSpec) -> Result<(), ServerError> {
    let output = ObjectUrl::from_path(&spec.output)?;
    for input in spec.inputs.iter().filter(|input| input.object.is_some()) {
        if ObjectUrl::from_path(&input.path)?.is_within(&output) {
            let (output, inside) = (spec.output.clone(), input.path.clone());
            return Err(ServerError::OutputHoldsWhatTheJobNeeds { output, inside });
        }
    }
    if !spec.overwrite && staging::is_taken(&output)? {
        return Err(ServerError::OutputExists { path: spec.output.clone() });
    }
    staging::check_replaceable(&output)?;
    Ok(staging::check_writable(&output)?)
}

/// Returns an error if replacing the output would remove directories that the job reads.
pub(crate) fn check_output_against(spec: &JobSpec, dirs: &[PathBuf]) -> Result<(), ServerError> {
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let output = resolved(&spec.output);
    match dirs.iter().find(|dir| resolved(dir).starts_with(&output)) {
        None => Ok(()),
        Some(inside) => Err(ServerError::OutputHoldsWhatTheJobNeeds {
            output: spec.output.clone(),
            inside: inside.clone(),
        }),
    }
}

impl Directories {
    /// Chooses the names of a job's directories; creates nothing.
    pub fn choose(
        spec: &JobSpec,
        job: JobId,
        owner_uuid: &str,
        service: Service,
    ) -> Result<Self, ServerError> {
        let dir_name = format!("{MARK}{owner_uuid}-job{job}");
        let disk_dirs = match service {
            Service::Embedded => spec.disks.iter().map(|disk| disk.join(&dir_name)).collect(),
            // Each node creates and removes its own.
            Service::Cluster => Vec::new(),
        };
        let output = &spec.output;
        if spec.feeds() || spec.stored_output.is_some() {
            return Ok(Self { staging: PathBuf::from(NOT_STAGED), disk_dirs });
        }
        if is_object_url(output) {
            let staging =
                staging::staging_of(&ObjectUrl::from_path(output)?, &format!("{owner_uuid}-job{job}"))?;
            return Ok(Self { staging: PathBuf::from(staging.to_string()), disk_dirs });
        }
        let (Some(parent), Some(name)) = (output.parent(), output.file_name()) else {
            return Err(ServerError::OutputUnusable { path: output.clone() });
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{MARK}{job}"));
        let mut staging = parent.join(&hidden);
        // A job with that number of another state directory may be there; the owner in the name distinguishes them.
        if staging.symlink_metadata().is_ok() {
            hidden.push(format!("-{owner_uuid}"));
            staging = parent.join(&hidden);
        }
        Ok(Self { staging, disk_dirs })
    }

    /// Creates the directories and their parents. A prefix of objects needs no creation. The staging directory is
    /// created below a root of `paths`.
    pub fn create(&self, paths: &JobPaths) -> Result<(), ServerError> {
        let is_dir = |staging: &&PathBuf| !is_object_url(staging) && *staging != Path::new(NOT_STAGED);
        let staging = Some(&self.staging).filter(is_dir);
        for path in staging.into_iter().chain(&self.disk_dirs) {
            let wrong = |source| ServerError::DirectoryUnwritable { path: path.clone(), source };
            // The directories on disks are ours.
            let paths = if *path == self.staging { paths } else { &JobPaths::default() };
            let parent = path.parent().unwrap_or(path);
            let (there, missing) = roots::deepest_existing(parent).map_err(wrong)?;
            if !paths.are_bounded() {
                std::fs::create_dir_all(parent).map_err(wrong)?;
            }
            let (_held, place) = held_place(paths, path, JobPaths::create_dir_all).map_err(wrong)?;
            sync_above(&there, &missing).map_err(wrong)?;
            match io_call(IoCall::Create, path).and_then(|()| std::fs::create_dir(&place)) {
                Ok(()) => {}
                // A --disk that is given twice is one directory.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && *path != self.staging => {}
                Err(error) => return Err(wrong(error)),
            }
        }
        crash_point(CrashPoint::StagingCreated);
        Ok(())
    }

    /// Removes the directories, except intermediate data that is kept; the staging directory below a root of `paths`.
    /// Tries all, and returns the first error.
    pub fn remove(&self, paths: &JobPaths, disk_dirs: DiskDirs) -> std::io::Result<()> {
        crash_point(CrashPoint::CleanupBeforeRemove);
        let on_disks: &[PathBuf] = if disk_dirs == DiskDirs::Keep { &[] } else { &self.disk_dirs };
        let mut first_error = None;
        let has_staging = |staging: &&PathBuf| !matches!(staging.to_str(), Some("" | NOT_STAGED));
        let staging = Some(&self.staging).filter(has_staging);
        for path in staging.into_iter().chain(on_disks) {
            let removed = match *path == self.staging && !is_object_url(path) {
                true => match held_place(paths, path, JobPaths::open_dir) {
                    Ok((_held, place)) => remove_tree(&place),
                    // Removed with its parent.
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(error),
                },
                false => remove_tree(path),
            };
            if let Err(error) = removed {
                let named = std::io::Error::new(error.kind(), format!("{}: {error}", path.display()));
                first_error.get_or_insert(named);
            }
        }
        crash_point(CrashPoint::CleanupAfterRemove);
        first_error.map_or(Ok(()), Err)
    }
}

/// Returns a path that stays valid whatever happens to the directories above it, and the open directory that it needs.
/// Without roots, returns the path itself and no directory.
fn held_place(
    paths: &JobPaths,
    path: &Path,
    open: impl Fn(&JobPaths, &Path) -> std::io::Result<HeldDir>,
) -> std::io::Result<(Option<HeldDir>, PathBuf)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if paths.are_bounded() => {
            let held = open(paths, parent)?;
            let place = held.path().join(name);
            Ok((Some(held), place))
        }
        _ => Ok((None, path.to_path_buf())),
    }
}

/// Makes new directories durable by syncing the entries above them.
fn sync_above(there: &Path, made: &[&OsStr]) -> std::io::Result<()> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32;
    let mut dir = there.to_path_buf();
    for name in made {
        File::options().read(true).custom_flags(flags).open(&dir)?.sync_all()?;
        dir.push(name);
    }
    Ok(())
}

pub(crate) fn remove_tree(path: &Path) -> std::io::Result<()> {
    if is_object_url(path) {
        return Ok(staging::discard(&ObjectUrl::from_path(path)?)?);
    }
    let ours = path.file_name().is_some_and(|name| name.to_string_lossy().contains(MARK));
    if !ours {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "not a directory that sailfish makes"));
    }
    let mut tries = 0;
    loop {
        tries += 1;
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && !path.exists() => return Ok(()),
            Err(error) if retry_helps(&error) && tries < REMOVE_TRIES_MAX => std::thread::yield_now(),
            other => return other,
        }
    }
}

fn retry_helps(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound)
}
