//! The files that a job brought along from its client's machine: fetched once, kept in the node's cache, and copied
//! into the directory of each job that needs them, where the job's specification then says they are.

use api::task::RunTask;
use api::{Blame, Function, JobSpec, ShippedFile, TaskFailure};
use client::{ClientError, NodeLink};
use shipped::{Depot, ShippedError};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// In the first directory of a job. Files lie beside each other as far as their names let them: programs look there
/// for what they import.
const DIRECTORY: &str = "shipped";
/// The cache of a node is nobody's.
const OWNER: &str = "";
/// Another job may push a file out of the cache before it was copied.
const TRIES_MAX: u32 = 3;

/// The files of one job on this node.
pub(crate) struct JobFiles {
    /// Each with the place of its copy.
    files: Vec<(ShippedFile, PathBuf)>,
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
            (file.clone(), place)
        };
        let files = shipped.iter().enumerate().map(place).collect();
        Self { files, are_here: Mutex::new(false) }
    }

    fn local(&self, path: &Path) -> Option<&PathBuf> {
        self.files.iter().find(|(file, _)| file.path == path).map(|(_, place)| place)
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
    pub fn put_into_spec(&self, spec: &mut JobSpec) {
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
        for (file, place) in &self.files {
            if cancelled.load(Ordering::Relaxed) {
                return Err(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"));
            }
            bring_one(file, place, link, cache).map_err(|error| {
                let shown = file.path.display();
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

fn bring_one(
    file: &ShippedFile,
    place: &Path,
    link: &NodeLink,
    cache: &Arc<Depot>,
) -> Result<(), FetchError> {
    let failed = |source| FetchError::Kept(ShippedError::Io { path: place.to_path_buf(), source });
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut tries = 0;
    loop {
        // An attempt before may have failed half-way.
        match std::fs::remove_file(place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        if cache.copy_out(OWNER, file.sha256, place, file.executable)? {
            return Ok(());
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
        let files = JobFiles::new(&list, &[PathBuf::from("/disk/job")]);
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
