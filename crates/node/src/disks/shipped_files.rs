//! The shipped files of a job: fetched once, kept in the node's cache, and copied into the directory of each job that
//! needs them; the job's specification is changed to these paths. If their disk fails, they are copied to another one:
//! attempts that used them do not count.

use crate::attempt::JobRun;
use crate::disks::Disks;
use crate::failure::file_failure;
use crate::link::node_link::NodeLink;
use api::task::RunTask;
use api::{Blame, Function, InputFile, JobSpec, ShippedFile, TaskFailure};
use client::ClientError;
use faults::{IoCall, io_call};
use shipped::{CopyMode, Depot, ShippedError};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Directory within the first directory of a job. Files are beside each other if their names permit it: programs search
/// there for their imports.
const DIRECTORY: &str = "shipped";
/// The cache of a node has no owner.
const OWNER: &str = "";
/// Maximum number of tries: another job may evict a file from the cache before it is copied.
const TRIES_MAX: u32 = 3;

/// A file, and the path of its copy.
struct Placed {
    file: ShippedFile,
    place: PathBuf,
    /// Set for inputs: readers refuse a file whose time differs from that at submit.
    modified: Option<SystemTime>,
}

/// The shipped files of a job on this node, once an attempt needs them.
pub(crate) struct JobFiles {
    shipped: Vec<ShippedFile>,
    inputs: Vec<InputFile>,
    /// The environment file, which contains secrets.
    env_file: Option<PathBuf>,
    /// The directories of the job, in the order of the disks.
    disk_dirs: Vec<PathBuf>,
    placed: Mutex<Option<Arc<PlacedFiles>>>,
}

/// The shipped files of a job on one disk.
pub(crate) struct PlacedFiles {
    disk: usize,
    files: Vec<Placed>,
    /// The job as shared by the attempts that use these files.
    run: OnceLock<Arc<JobRun>>,
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Kept(#[from] ShippedError),
}

/// Caches for files on this node.
pub(crate) struct Keepers<'a> {
    pub disks: &'a Disks,
    /// A cache for each disk.
    pub caches: &'a [Arc<Depot>],
}

impl PlacedFiles {
    fn new(shipped: &[ShippedFile], inputs: &[InputFile], disk: usize, dir: &Path) -> Self {
        let mut taken: BTreeSet<OsString> = BTreeSet::new();
        let place = |(index, file): (usize, &ShippedFile)| {
            let name = file.path.file_name().unwrap_or(OsStr::new("file")).to_os_string();
            let place = match taken.insert(name.clone()) {
                true => dir.join(DIRECTORY).join(&name),
                false => dir.join(format!("{DIRECTORY}-{index}")).join(&name),
            };
            let input = inputs.iter().find(|input| input.path == file.path);
            let modified = input.map(|input| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds_of(input)));
            Placed { file: file.clone(), place, modified }
        };
        Self { disk, files: shipped.iter().enumerate().map(place).collect(), run: OnceLock::new() }
    }

    /// Returns the job as its attempts share it: its specification names the copies instead of the originals.
    pub fn run(&self, run: &Arc<JobRun>) -> Arc<JobRun> {
        if self.files.is_empty() {
            return Arc::clone(run);
        }
        let with_copies = || {
            let mut spec = run.spec.as_ref().clone();
            self.put_into_spec(&mut spec);
            let paths = run.paths.with_own(self.files.iter().map(|placed| placed.place.clone()));
            Arc::new(JobRun { spec: Arc::new(spec), paths, ..run.as_ref().clone() })
        };
        Arc::clone(self.run.get_or_init(with_copies))
    }

    /// Restricts a file to the user of this node.
    fn keep_private(&self, path: Option<&Path>) -> Result<(), TaskFailure> {
        let Some(place) = path.and_then(|path| self.local(path)) else { return Ok(()) };
        let kept = std::fs::set_permissions(place, Permissions::from_mode(0o600));
        kept.map_err(|error| file_failure("limit who may read", place, error))
    }

    /// Returns whether all copies have their lengths, and their disk works.
    pub fn are_whole(&self, disks: &Disks) -> bool {
        let is_whole = |placed: &Placed| {
            std::fs::metadata(&placed.place).is_ok_and(|found| found.len() == placed.file.bytes)
        };
        self.files.is_empty() || (!disks.has_failed(self.disk) && self.files.iter().all(is_whole))
    }

    /// Returns the failure of an attempt that used these files and lost them.
    pub fn lost(&self) -> TaskFailure {
        let place = self.files.first().map_or(Path::new(""), |placed| placed.place.as_path());
        let message = format!(
            "the files that came with the job are lost, with the disk on which they were: {}",
            place.display()
        );
        TaskFailure::new(Blame::Environment, message)
    }

    fn local(&self, path: &Path) -> Option<&PathBuf> {
        self.files.iter().find(|each| each.file.path == path).map(|each| &each.place)
    }

    fn replace(&self, path: &mut PathBuf) {
        if let Some(place) = self.local(path) {
            path.clone_from(place);
        }
    }

    fn replace_program(&self, words: &mut [String]) {
        let Some(program) = words.first_mut() else { return };
        if let Some(place) = self.local(Path::new(program.as_str())).and_then(|place| place.to_str()) {
            *program = place.to_string();
        }
    }

    fn put_into_spec(&self, spec: &mut JobSpec) {
        for input in &mut spec.inputs {
            if let Some(place) = self.local(&input.path) {
                input.mtime_ns = (seconds_of(input) * NANOS_PER_SECOND) as i64;
                input.path.clone_from(place);
            }
        }
        spec.files.iter_mut().chain(&mut spec.env_file).for_each(|file| self.replace(file));
        let links = spec.streaming.iter_mut().flat_map(|streaming| &mut streaming.links);
        links.for_each(|link| self.replace(&mut link.path));
        for function in [&mut spec.mapper, &mut spec.combiner, &mut spec.reducer].into_iter().flatten() {
            if let Function::Command { words } = function {
                self.replace_program(words);
            }
        }
    }

    /// Does the same for a job of one task.
    pub fn put_into_task(&self, task: &mut RunTask) {
        task.files.iter_mut().chain(&mut task.env_file).for_each(|file| self.replace(file));
        self.replace_program(&mut task.words);
        task.pipeline.iter_mut().for_each(|program| self.put_into_task(program));
    }
}

/// Returns the modification time of an input in seconds, which every file system stores.
fn seconds_of(input: &InputFile) -> u64 {
    u64::try_from(input.mtime_ns).unwrap_or(0) / NANOS_PER_SECOND
}

impl JobFiles {
    /// Creates the files of a job; nothing is fetched yet.
    pub fn new(
        shipped: &[ShippedFile],
        inputs: &[InputFile],
        env_file: Option<&Path>,
        disk_dirs: &[PathBuf],
    ) -> Self {
        let is_shipped = |input: &&InputFile| shipped.iter().any(|file| file.path == input.path);
        let inputs = inputs.iter().filter(is_shipped).cloned().collect();
        let env_file = env_file.map(Path::to_path_buf);
        let disk_dirs = disk_dirs.to_vec();
        Self { shipped: shipped.to_vec(), inputs, env_file, disk_dirs, placed: Mutex::default() }
    }

    /// Returns when all files are here. The first caller fetches them, the others wait. Files that were lost with their
    /// disk are fetched again, to another one.
    pub fn bring(
        &self,
        link: &NodeLink,
        keepers: &Keepers<'_>,
        cancelled: &AtomicBool,
    ) -> Result<Arc<PlacedFiles>, TaskFailure> {
        let mut known = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(placed) = known.as_ref().filter(|placed| placed.are_whole(keepers.disks)) {
            return Ok(Arc::clone(placed));
        }
        let mut first_failure = None;
        for disk in keepers.disks.in_order() {
            // A job of one task without shipped files has no directories either.
            let dir = self.disk_dirs.get(disk).map_or(Path::new(""), PathBuf::as_path);
            let placed = PlacedFiles::new(&self.shipped, &self.inputs, disk, dir);
            match placed.bring(link, keepers, cancelled) {
                Ok(()) => {
                    placed.keep_private(self.env_file.as_deref())?;
                    return Ok(Arc::clone(known.insert(Arc::new(placed))));
                }
                Err(NotBrought { failure, is_of_a_disk }) => {
                    let first = first_failure.get_or_insert(*failure);
                    if !is_of_a_disk {
                        return Err(first.clone());
                    }
                }
            }
        }
        Err(first_failure
            .unwrap_or_else(|| TaskFailure::new(Blame::Engine, "a node has no disk for the files of jobs")))
    }
}

/// The reason why files of a job could not be placed.
struct NotBrought {
    failure: Box<TaskFailure>,
    /// True if another disk may work.
    is_of_a_disk: bool,
}

impl PlacedFiles {
    fn bring(
        &self,
        link: &NodeLink,
        keepers: &Keepers<'_>,
        cancelled: &AtomicBool,
    ) -> Result<(), NotBrought> {
        for placed in &self.files {
            if cancelled.load(Ordering::Relaxed) {
                let failure = Box::new(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"));
                return Err(NotBrought { failure, is_of_a_disk: false });
            }
            let mut brought = Ok(());
            for cache in keepers.disks.in_order() {
                let Some(cache) = keepers.caches.get(cache) else { continue };
                brought = bring_one(placed, link, cache);
                if !matches!(brought, Err(FetchError::Kept(_))) {
                    break;
                }
            }
            brought.map_err(|error| {
                let shown = placed.file.path.display();
                let message = format!("cannot get the file {shown} of the job: {error}");
                let is_of_a_disk = matches!(error, FetchError::Kept(_));
                NotBrought { failure: Box::new(TaskFailure::new(Blame::Environment, message)), is_of_a_disk }
            })?;
        }
        Ok(())
    }
}

fn bring_one(placed: &Placed, link: &NodeLink, cache: &Arc<Depot>) -> Result<(), FetchError> {
    let Placed { file, place, modified } = placed;
    let failed = |source| FetchError::Kept(ShippedError::Io { path: place.clone(), source });
    if let Some(parent) = place.parent() {
        let made = io_call(IoCall::Create, parent).and_then(|()| std::fs::create_dir_all(parent));
        made.map_err(failed)?;
    }
    let mode = if file.executable { CopyMode::Executable } else { CopyMode::ReadOnly };
    let mut tries = 0;
    loop {
        // An earlier attempt may have failed half-way.
        match std::fs::remove_file(place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        if cache.copy_out(OWNER, file.sha256, place, mode)? {
            let Some(modified) = *modified else { return Ok(()) };
            return File::open(place).and_then(|copy| copy.set_modified(modified)).map_err(failed);
        }
        tries += 1;
        match fetch(file, link, cache) {
            Err(FetchError::Kept(ShippedError::WrongHash { .. } | ShippedError::WrongLength { .. }))
                if tries < TRIES_MAX => {}
            Err(error) => return Err(error),
            Ok(()) if tries < TRIES_MAX => {}
            Ok(()) => {
                let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
                return Err(failed(full));
            }
        }
    }
}

fn fetch(file: &ShippedFile, link: &NodeLink, cache: &Arc<Depot>) -> Result<(), FetchError> {
    let mut incoming = cache.receive(OWNER, file.sha256, file.bytes)?;
    link.fetch(file.sha256, file.bytes, |piece| incoming.write(piece).map_err(FetchError::from))?;
    Ok(incoming.finish()?)
}

#[cfg(test)]
mod tests {
    use super::PlacedFiles;
    use api::{ContentHash, Function, JobSpec, ShippedFile};
    use std::path::PathBuf;

    fn shipped(path: &str) -> ShippedFile {
        ShippedFile { path: path.into(), sha256: ContentHash([0; 32]), bytes: 1, executable: false }
    }

    #[test]
    fn copies_take_the_place_of_originals() {
        let list = [shipped("/a/map.py"), shipped("/a/words"), shipped("/b/map.py")];
        let files = PlacedFiles::new(&list, &[], 0, &PathBuf::from("/disk/job"));
        let command = |program: &str| {
            Some(Function::Command { words: vec![program.to_string(), "/a/words".to_string()] })
        };
        let mut spec = JobSpec {
            mapper: command("/b/map.py"),
            reducer: command("python3"),
            files: vec!["/a/map.py".into(), "/a/words".into(), "/shared/dir".into()],
            ..JobSpec::named("job")
        };
        files.put_into_spec(&mut spec);
        // Arguments belong to the user.
        assert_eq!(spec.mapper, command("/disk/job/shipped-2/map.py"));
        assert_eq!(spec.reducer, command("python3"));
        let expected = ["/disk/job/shipped/map.py", "/disk/job/shipped/words", "/shared/dir"];
        assert_eq!(spec.files, expected.map(PathBuf::from));
    }
}
