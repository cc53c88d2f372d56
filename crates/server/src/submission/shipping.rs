//! Shipped files of jobs: the contents that a job needs, their names in the directory of a program, and the holds that
//! keep them as long as the job may need them.

use crate::{ServerError, Service};
use api::control::JobBatch;
use api::shipping::{SHIPPED_FILE_BYTES_MAX, SHIPPED_FILES_MAX};
use api::task::RunTask;
use api::{ContentHash, JobSpec, PinnedFile, ShippedFile};
use shipped::{Depot, Hold, Limits};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Default directory within the state directory.
const DIRECTORY: &str = "shipped";

/// Directory of the shipped files of clients, and their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShippedOptions {
    /// None is the default in the state directory.
    pub dir: Option<PathBuf>,
    pub limits: Limits,
}

impl Default for ShippedOptions {
    fn default() -> Self {
        let limits = Limits {
            file_bytes_max: SHIPPED_FILE_BYTES_MAX,
            owner_bytes_max: 4 << 30,
            total_bytes_max: 16 << 30,
            counted_bytes_min: 64 << 10,
            // Long enough to ship many files and to submit the job that needs them.
            spare: Duration::from_secs(15 * 60),
        };
        Self { dir: None, limits }
    }
}

/// Opens the depot of a server with remote nodes.
pub(crate) fn open(
    service: Service,
    options: &ShippedOptions,
    state_dir: &Path,
) -> Result<Option<Arc<Depot>>, ServerError> {
    if service == Service::Embedded {
        return Ok(None);
    }
    let dir = options.dir.clone().unwrap_or_else(|| state_dir.join(DIRECTORY));
    Ok(Some(Depot::open(&dir, options.limits)?))
}

/// Returns all shipped files of a job.
fn all(spec: &JobSpec) -> impl Iterator<Item = &ShippedFile> {
    spec.shipped.iter().chain(spec.kind.program().into_iter().flat_map(|task| &task.shipped))
}

/// Returns the hashes of the files that a job needs from the depot.
pub(crate) fn contents(spec: &JobSpec) -> Vec<ContentHash> {
    all(spec).map(|file| file.sha256).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns whether a text is the name of a file in a directory, and not a path.
fn is_name(name: &Path) -> bool {
    let mut parts = name.components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name.as_os_str())
}

fn check_list(shipped: &[ShippedFile]) -> Result<(), ServerError> {
    let count = shipped.len();
    if count > SHIPPED_FILES_MAX {
        return Err(ServerError::TooManyFiles { count });
    }
    shipped.iter().try_for_each(|file| check_path(&file.path))
}

/// Checks the environment files. Remote nodes read them and pass them to programs: each must be a shipped file of the
/// user, and no file of the node.
pub(crate) fn check_env_files(spec: &JobSpec) -> Result<(), ServerError> {
    check_env_file(spec.env_file.as_deref(), &spec.shipped)?;
    spec.kind.program().into_iter().try_for_each(check_for_nodes)
}

/// Checks that nodes take the programs of a task.
fn check_for_nodes(task: &RunTask) -> Result<(), ServerError> {
    if task.programs().any(|program| program.in_place) {
        return Err(ServerError::InPlace);
    }
    task.programs().try_for_each(|program| check_env_file(program.env_file.as_deref(), &task.shipped))
}

/// Checks the names of the files of a task, and in a cluster its environment file.
pub(crate) fn check_task(task: &RunTask, service: Service) -> Result<(), ServerError> {
    check_task_files(task)?;
    match service {
        Service::Cluster => check_for_nodes(task),
        Service::Embedded => Ok(()),
    }
}

fn check_env_file(path: Option<&Path>, shipped: &[ShippedFile]) -> Result<(), ServerError> {
    match path.filter(|path| !shipped.iter().any(|file| file.path == **path)) {
        Some(path) => Err(ServerError::EnvFileNotShipped { path: path.to_path_buf() }),
        None => Ok(()),
    }
}

/// Checks the files for programs: paths, and names of pinned files. A node makes copies of the latter under their own names.
fn check_files(files: &[PathBuf], pinned: &[PinnedFile]) -> Result<(), ServerError> {
    let mut paths = files.iter().filter(|file| !pinned.iter().any(|pinned| pinned.path == **file));
    paths.try_for_each(|file| check_path(file))
}

/// Checks a path: its last component becomes the name of the file in another directory.
fn check_path(path: &Path) -> Result<(), ServerError> {
    match path.is_absolute() && path.file_name().is_some() {
        true => Ok(()),
        false => Err(ServerError::BadFileName { name: path.to_path_buf() }),
    }
}

/// Returns an error for names that would lead out of the directory of a program.
pub(crate) fn check(spec: &JobSpec) -> Result<(), ServerError> {
    check_list(&spec.shipped)?;
    check_files(&spec.files, &spec.pinned)?;
    let mut links = spec.streaming.iter().flat_map(|streaming| &streaming.links);
    if let Some(link) = links.find(|link| !is_name(Path::new(&link.name))) {
        return Err(ServerError::BadFileName { name: PathBuf::from(&link.name) });
    }
    if let Some(task) = spec.kind.program() {
        check_task_files(task)?;
    }
    Ok(())
}

fn check_task_files(task: &RunTask) -> Result<(), ServerError> {
    check_list(&task.shipped)?;
    task.programs().try_for_each(|program| check_files(&program.files, &task.pinned))?;
    let is_written =
        |path: &Path| task.programs().flat_map(|program| &program.outputs).any(|output| output.path == path);
    let is_pinned = |path: &Path| task.pinned.iter().any(|file| file.path == path) || is_written(path);
    let mut stored = task.programs().flat_map(|program| &program.inputs).filter(|input| input.is_stored());
    if let Some(input) = stored.find(|input| !is_pinned(&input.path)) {
        return Err(ServerError::InputNotPinned { path: input.path.clone() });
    }
    Ok(task.check_files()?)
}

/// Takes a hold on the files that a job needs. Fails if its user has not shipped one of them.
pub(crate) fn hold(
    depot: Option<&Arc<Depot>>,
    owner: &str,
    contents: &[ContentHash],
) -> Result<Option<Arc<Hold>>, ServerError> {
    let Some(depot) = depot.filter(|_| !contents.is_empty()) else { return Ok(None) };
    let held = depot.hold(owner, contents);
    held.map(|hold| Some(Arc::new(hold))).map_err(|missing| ServerError::NotShipped { content: missing[0] })
}

/// Does the same for jobs of one task each, all at once.
pub(crate) fn hold_for_batch(
    depot: Option<&Arc<Depot>>,
    owner: &str,
    batch: &JobBatch,
) -> Result<Option<Arc<Hold>>, ServerError> {
    let mut needed = BTreeSet::new();
    for task in &batch.tasks {
        check_task(task, if depot.is_some() { Service::Cluster } else { Service::Embedded })?;
        needed.extend(task.shipped.iter().map(|file| file.sha256));
    }
    hold(depot, owner, &needed.into_iter().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{check, is_name};
    use api::shipping::SHIPPED_FILES_MAX;
    use api::task::RunTask;
    use api::{ContentHash, FileLink, JobSpec, PinnedFile, ShippedFile, Streaming};
    use std::path::Path;

    fn shipped(path: &str) -> ShippedFile {
        ShippedFile { path: path.into(), sha256: ContentHash([0; 32]), bytes: 1, executable: false }
    }

    #[test]
    fn names_lie_where_they_should() {
        for (name, expected) in [
            ("a", true),
            ("..", false),
            (".", false),
            ("../x", false),
            ("a/b", false),
            ("/a", false),
            ("a/", false),
            ("", false),
        ] {
            assert_eq!(is_name(Path::new(name)), expected, "{name:?}");
        }
        for (path, expected) in
            [("/a/b", true), ("/a/..", false), ("../x", false), ("x", false), ("/", false)]
        {
            let spec = JobSpec { shipped: vec![shipped(path)], ..JobSpec::named("job") };
            assert_eq!(check(&spec).is_ok(), expected, "{path:?}");
            let spec = JobSpec { files: vec![path.into()], ..JobSpec::named("job") };
            assert_eq!(check(&spec).is_ok(), expected, "{path:?}");
            let task = RunTask { files: vec![path.into()], ..RunTask::default() };
            assert_eq!(check(&JobSpec::of_one_task("job".into(), task)).is_ok(), expected, "{path:?}");
        }
        let stored = PinnedFile { path: "files:a@1".into(), ..PinnedFile::default() };
        for (pinned, expected) in [(vec![stored], true), (Vec::new(), false)] {
            let spec = JobSpec { files: vec!["files:a@1".into()], pinned, ..JobSpec::named("job") };
            assert_eq!(check(&spec).is_ok(), expected, "{:?}", spec.pinned);
        }
        let link = |name: &str| FileLink { name: name.into(), path: "/a".into() };
        for (name, expected) in [("a", true), ("../x", false)] {
            let streaming = Some(Streaming { links: vec![link(name)], ..Streaming::default() });
            assert_eq!(check(&JobSpec { streaming, ..JobSpec::named("job") }).is_ok(), expected, "{name:?}");
        }
    }

    #[test]
    fn lists_are_bounded() {
        let spec = |count| JobSpec { shipped: vec![shipped("/a"); count], ..JobSpec::named("job") };
        assert!(check(&spec(SHIPPED_FILES_MAX)).is_ok() && check(&spec(SHIPPED_FILES_MAX + 1)).is_err());
    }
}
