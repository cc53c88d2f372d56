//! Shipping of the programs and files of a job to a cluster: they are hashed, and those that the server lacks are sent.

use crate::exit::Failure;
use anyhow::{Context, ensure};
use api::shipping::{SHIPPED_FILE_BYTES_MAX, SHIPPED_FILES_MAX};
use api::task::RunTask;
use api::{ContentHash, Function, JobSpec, ShippedFile};
use client::Blocking;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Directories whose programs, or targets of links, are assumed to exist on every machine.
const SYSTEM_FOLDERS: &[&str] = &["/usr", "/bin", "/sbin"];

/// Ships the files of a job, and names them in its specification.
pub fn ship_job(connection: &Blocking, spec: &mut JobSpec) -> Result<(), Failure> {
    name_shipped(spec)?;
    match spec.shipped.is_empty() {
        true => Ok(()),
        false => send(connection, &spec.shipped),
    }
}

/// Names the files of a job that travel with it, in their current state.
pub fn name_shipped(spec: &mut JobSpec) -> Result<(), Failure> {
    let mut paths: BTreeSet<PathBuf> = spec.files.iter().chain(&spec.env_file).cloned().collect();
    paths.extend(spec.streaming.iter().flat_map(|streaming| &streaming.links).map(|link| link.path.clone()));
    // The nodes have these.
    paths.retain(|path| !spec.pinned.iter().any(|file| file.path == *path));
    let inputs = spec.inputs.iter().map(|input| input.path.clone());
    paths.extend(inputs.filter(|path| mapper::input::is_standard_input(path)));
    for function in [&spec.mapper, &spec.combiner, &spec.reducer].into_iter().flatten() {
        if let Function::Command { words } = function {
            paths.extend(program(words));
        }
    }
    spec.shipped = looked_at(paths)?;
    Ok(())
}

/// Ships the files of jobs of one task each, which have equal files.
pub fn ship_tasks(connection: &Blocking, tasks: &mut [RunTask]) -> Result<(), Failure> {
    let Some(first) = tasks.first() else { return Ok(()) };
    let files = first.files.iter().chain(&first.env_file).cloned();
    let mut paths: BTreeSet<PathBuf> = files.chain(program(&first.words)).collect();
    paths.retain(|path| !first.pinned.iter().any(|file| file.path == *path));
    let shipped = ship(connection, paths)?;
    tasks.iter_mut().for_each(|task| task.shipped.clone_from(&shipped));
    Ok(())
}

/// Returns the program of a command line if it is a file of this machine and not of the system. A bare name is resolved
/// on the nodes.
fn program(words: &[String]) -> Option<PathBuf> {
    let path = PathBuf::from(words.first()?);
    let resolved = path.canonicalize().ok()?;
    let is_of_the_system =
        [&path, &resolved].iter().any(|path| SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder)));
    (path.is_absolute() && !is_of_the_system).then_some(path)
}

fn ship(connection: &Blocking, paths: BTreeSet<PathBuf>) -> Result<Vec<ShippedFile>, Failure> {
    let shipped = looked_at(paths)?;
    if !shipped.is_empty() {
        send(connection, &shipped)?;
    }
    Ok(shipped)
}

/// Describes files in their current state.
fn looked_at(paths: BTreeSet<PathBuf>) -> Result<Vec<ShippedFile>, Failure> {
    let mut shipped = Vec::new();
    for path in paths {
        shipped.extend(look_at(&path).map_err(Failure::refused)?);
    }
    let count = shipped.len();
    if count > SHIPPED_FILES_MAX {
        let message = format!("{count} files are too many to ship: the limit is {SHIPPED_FILES_MAX}");
        return Err(Failure::refused(anyhow::anyhow!(message)));
    }
    Ok(shipped)
}

/// Describes a file in its current state. Directories are not shipped: nodes find them on a shared path.
fn look_at(path: &Path) -> anyhow::Result<Option<ShippedFile>> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).with_context(|| format!("reading {shown}"))?;
    if metadata.is_dir() {
        return Ok(None);
    }
    ensure!(metadata.is_file(), "{shown} is not a regular file and cannot be shipped to the nodes");
    let (bytes, bytes_max) = (metadata.len(), SHIPPED_FILE_BYTES_MAX);
    ensure!(
        bytes <= bytes_max,
        "{shown} has {bytes} bytes, more than the {bytes_max} that are shipped to the nodes; read it from \
         a path that all nodes share"
    );
    let (sha256, bytes) = shipped::hash_file(path).with_context(|| format!("reading {shown}"))?;
    let executable = metadata.permissions().mode() & 0o111 != 0;
    Ok(Some(ShippedFile { path: path.to_path_buf(), sha256, bytes, executable }))
}

fn send(connection: &Blocking, shipped: &[ShippedFile]) -> Result<(), Failure> {
    let by_content: BTreeMap<ContentHash, &ShippedFile> =
        shipped.iter().map(|file| (file.sha256, file)).collect();
    let all: Vec<ContentHash> = by_content.keys().copied().collect();
    connection
        .run(async |client| {
            let missing = client.missing_files(all.clone()).await?;
            for file in missing.iter().filter_map(|content| by_content.get(content)) {
                client.send_file(file.sha256, &file.path, file.bytes).await?;
            }
            if !missing.is_empty() {
                // Waits until the server accepts requests of this user again after many files: a job is submitted only
                // once.
                client.missing_files(all).await?;
            }
            Ok(())
        })
        .map_err(Failure::from_client)
}

#[cfg(test)]
mod tests {
    use super::{look_at, program};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    #[test]
    fn programs_of_the_user_travel() {
        let dir = tempfile::tempdir().unwrap();
        let check = |program_word: &str, expected: bool| {
            assert_eq!(program(&[program_word.to_string()]).is_some(), expected, "{program_word}");
        };
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
        std::fs::write(path("map.py"), "x").unwrap();
        symlink("/bin/sh", path("sh")).unwrap();
        check(&path("map.py"), true);
        check(&path("sh"), false);
        check(&path("none"), false);
        check("/bin/sh", false);
        check("sh", false);
        assert!(program(&[]).is_none());
    }

    #[test]
    fn a_file_is_shipped_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map.py");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let file = look_at(&path).unwrap().unwrap();
        assert_eq!((file.bytes, file.executable, file.sha256), (1, true, shipped::hash_of(b"x")));
        assert_eq!(look_at(dir.path()).unwrap(), None);
        assert!(look_at(Path::new("/dev/null")).is_err());
    }
}
