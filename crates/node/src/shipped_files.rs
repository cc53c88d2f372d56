//! The files that a job brought along from its client's machine: fetched once, kept in the node's cache, and copied
//! into the directory of each job that needs them, where the job's specification then says they are.

use api::task::RunTask;
use api::{Blame, Function, JobSpec, ShippedFile, TaskFailure};
use client::{ClientError, NodeLink};
use faults::{IoCall, io_call};
use shipped::{Depot, ShippedError};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// In the first directory of a job. Files lie beside each other as far as their names let them: programs look there
/// for what they import.
const DIRECTORY: &str = "shipped";
/// The cache of a node is nobody's.
const OWNER: &str = "";
/// Another job may push a file out of the cache before it was copied.
const TRIES_MAX: u32 = 3;

/// A file, and the place of its copy.
struct Placed {
    file: ShippedFile,
    place: PathBuf,
    /// Set for inputs: readers refuse one that has another time than at submit.
    modified: Option<SystemTime>,
}

/// The files of one job on this node.
pub(crate) struct JobFiles {
    files: Vec<Placed>,
    are_here: Mutex<bool>,
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Kept(#[from] ShippedError),
}

impl JobFiles {
    /// Chooses their places; nothing is fetched yet.
    pub fn new(shipped: &[ShippedFile], disk_dirs: &[PathBuf]) -> Self {
        let dir = disk_dirs.first().map_or(Path::new(""), PathBuf::as_path);
        let mut taken: BTreeSet<OsString> = BTreeSet::new();
        let place = |(index, file): (usize, &ShippedFile)| {
            let name = file.path.file_name().unwrap_or(OsStr::new("file")).to_os_string();
            let place = match taken.insert(name.clone()) {
                true => dir.join(DIRECTORY).join(&name),
                false => dir.join(format!("{DIRECTORY}-{index}")).join(&name),
            };
            Placed { file: file.clone(), place, modified: None }
        };
        let files = shipped.iter().enumerate().map(place).collect();
        Self { files, are_here: Mutex::new(false) }
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

    /// Names the copies where a specification names the originals.
    pub fn put_into_spec(&mut self, spec: &mut JobSpec) {
        for input in &mut spec.inputs {
            if let Some(placed) = self.files.iter_mut().find(|each| each.file.path == input.path) {
                // In seconds, which every file system remembers.
                let seconds = u64::try_from(input.mtime_ns).unwrap_or(0) / NANOS_PER_SECOND;
                input.mtime_ns = (seconds * NANOS_PER_SECOND) as i64;
                input.path.clone_from(&placed.place);
                placed.modified = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            }
        }
        spec.files.iter_mut().for_each(|file| self.replace(file));
        let links = spec.streaming.iter_mut().flat_map(|streaming| &mut streaming.links);
        links.for_each(|link| self.replace(&mut link.path));
        for function in [&mut spec.mapper, &mut spec.combiner, &mut spec.reducer].into_iter().flatten() {
            if let Function::Command { words } = function {
                self.replace_program(words);
            }
        }
    }

    /// The same for a job of one task.
    pub fn put_into_task(&self, task: &mut RunTask) {
        task.files.iter_mut().for_each(|file| self.replace(file));
        self.replace_program(&mut task.words);
    }

    /// Returns when all are here; whoever comes first fetches, the others wait.
    pub fn bring(
        &self,
        link: &NodeLink,
        cache: &Arc<Depot>,
        cancelled: &AtomicBool,
    ) -> Result<(), TaskFailure> {
        let mut are_here = self.are_here.lock().unwrap_or_else(PoisonError::into_inner);
        if *are_here {
            return Ok(());
        }
        for placed in &self.files {
            if cancelled.load(Ordering::Relaxed) {
                return Err(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"));
            }
            bring_one(placed, link, cache).map_err(|error| {
                let shown = placed.file.path.display();
                TaskFailure::new(
                    Blame::Environment,
                    format!("cannot get the file {shown} of the job: {error}"),
                )
            })?;
        }
        *are_here = true;
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
    let mut tries = 0;
    loop {
        // An attempt before may have failed half-way.
        match std::fs::remove_file(place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        if cache.copy_out(OWNER, file.sha256, place, file.executable)? {
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
    use super::JobFiles;
    use api::{ContentHash, Function, JobSpec, ShippedFile};
    use std::path::PathBuf;

    fn shipped(path: &str) -> ShippedFile {
        ShippedFile { path: path.into(), sha256: ContentHash([0; 32]), bytes: 1, executable: false }
    }

    #[test]
    fn copies_take_the_place_of_originals() {
        let list = [shipped("/a/map.py"), shipped("/a/words"), shipped("/b/map.py")];
        let mut files = JobFiles::new(&list, &[PathBuf::from("/disk/job")]);
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
        // Arguments are the user's.
        assert_eq!(spec.mapper, command("/disk/job/shipped-2/map.py"));
        assert_eq!(spec.reducer, command("python3"));
        let expected = ["/disk/job/shipped/map.py", "/disk/job/shipped/words", "/shared/dir"];
        assert_eq!(spec.files, expected.map(PathBuf::from));
    }
}
