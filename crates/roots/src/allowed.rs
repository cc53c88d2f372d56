//! The roots below which jobs may name paths and objects, as given by the operator.
//!
//! The engine opens the paths of a job with the rights of its own process, which may read more than the user who
//! submitted the job. Checked are inputs, the output and its staging directory, files, links, a program named by a
//! path, and the directory of a one-task job. Paths are resolved first, so that no link leads out; files shipped with
//! the job, and stored files, are in another place and need no check. The access of a running program is not checked here: a sandbox
//! bounds that.

use crate::opening::{deepest_existing, is_plain, open_beneath};
use api::task::{RunTask, is_stored_path};
use api::{
    FileLink, Function, JobSpec, PinnedFile, ShippedFile, is_object_url, is_stored_output, name_beside,
};
use objects::{ObjectError, ObjectUrl};
use rustix::fs::{Mode, OFlags, open};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A list of directories and prefixes of objects, each for all users or for one. An empty list allows nothing.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    roots: Vec<Given>,
    /// Resolved directories that no job may name, whatever the roots say.
    closed: Vec<PathBuf>,
}

/// A root as given by an operator, `DIR` or `USER=DIR`.
#[derive(Clone, Debug)]
struct Given {
    text: String,
    /// User whose jobs the root is for; None: all users'.
    user: Option<String>,
    /// None: the root allows nothing on this machine.
    root: Option<Root>,
}

impl Given {
    /// A user name has no slash, so that `/lake/dt=2026` is a path.
    fn split(text: &str) -> (Option<&str>, &str) {
        match text.split_once('=') {
            Some((user, place)) if !user.is_empty() && !user.contains('/') => (Some(user), place),
            _ => (None, text),
        }
    }

    fn new(text: &str, root: Option<Root>) -> Given {
        Given { text: text.to_string(), user: Self::split(text).0.map(str::to_string), root }
    }
}

#[derive(Clone, Debug)]
enum Root {
    /// The path without links, held open, so that nothing can replace it.
    Directory {
        path: PathBuf,
        held: Arc<OwnedFd>,
    },
    Objects(ObjectUrl),
}

/// An invalid root.
#[derive(Debug, thiserror::Error)]
pub enum BadRoot {
    #[error("{root} is not an absolute path: give an absolute path or s3://BUCKET/PREFIX")]
    Relative { root: String },
    #[error("{root} cannot be used: {source}")]
    Unusable { root: String, source: std::io::Error },
    #[error("{root} is not a directory")]
    NotADirectory { root: String },
    #[error(transparent)]
    Objects(#[from] ObjectError),
}

/// Error: a job names a forbidden path.
#[derive(Debug, thiserror::Error)]
pub enum OutsideRoots {
    #[error("the {what} {path}{leads} lies outside of the roots for jobs here ({roots}): choose a path \
             below them, or ask the operator to add a root with --allow-root", path = path.display())]
    Outside { what: &'static str, path: PathBuf, leads: String, roots: String },
    #[error("the {what} {path} is a path, but no root for jobs is given here: ask the operator to add a \
             root with --allow-root", path = path.display())]
    NoRoots { what: &'static str, path: PathBuf },
    #[error("the {what} {path} lies in {closed}, which belongs to the server: choose another path",
        path = path.display(), closed = closed.display())]
    Closed { what: &'static str, path: PathBuf, closed: PathBuf },
    #[error("the {what} {path} is not an absolute path, so it cannot be checked against the roots for \
             jobs: give the absolute path", path = path.display())]
    Relative { what: &'static str, path: PathBuf },
    #[error("cannot resolve the {what} {path} to check it against the roots for jobs: {source}",
        path = path.display())]
    Unresolvable { what: &'static str, path: PathBuf, source: std::io::Error },
}

impl Root {
    fn hold(path: PathBuf) -> std::io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = Arc::new(open(&path, flags, Mode::empty())?);
        Ok(Root::Directory { path, held })
    }
}

impl Roots {
    /// Parses the operator's roots; each directory must exist.
    pub fn of_operator(texts: &[String]) -> Result<Self, BadRoot> {
        let mut roots = Vec::new();
        for text in texts {
            let root = Given::split(text).1;
            if is_object_url(Path::new(root)) {
                roots.push(Given::new(text, Some(Root::Objects(ObjectUrl::parse(root)?))));
                continue;
            }
            if !Path::new(root).is_absolute() {
                return Err(BadRoot::Relative { root: text.clone() });
            }
            let unusable = |source| BadRoot::Unusable { root: text.clone(), source };
            let resolved = Path::new(root).canonicalize().map_err(unusable)?;
            if !resolved.is_dir() {
                return Err(BadRoot::NotADirectory { root: text.clone() });
            }
            roots.push(Given::new(text, Some(Root::hold(resolved).map_err(unusable)?)));
        }
        Ok(Self { roots, closed: Vec::new() })
    }

    /// Parses the roots from a server. A directory that is missing on this machine allows nothing here.
    pub fn of_server(texts: &[String]) -> Self {
        let root = |text: &str| match is_object_url(Path::new(text)) {
            true => ObjectUrl::parse(text).ok().map(Root::Objects),
            false => Path::new(text).canonicalize().and_then(Root::hold).ok(),
        };
        let roots = texts.iter().map(|text| Given::new(text, root(Given::split(text).1))).collect();
        Self { roots, closed: Vec::new() }
    }

    /// Returns the roots for jobs of this user: those for all users, and the user's own.
    pub fn for_user(&self, user: &str) -> Self {
        let is_theirs = |given: &&Given| given.user.as_deref().is_none_or(|of| of == user);
        Self { roots: self.roots.iter().filter(is_theirs).cloned().collect(), closed: self.closed.clone() }
    }

    /// Forbids these directories to jobs, even below a root.
    pub fn without(mut self, directories: &[PathBuf]) -> Self {
        // They may be created later.
        self.closed.extend(directories.iter().map(|path| resolve(path).unwrap_or_else(|_| path.clone())));
        self
    }

    /// Returns the roots as given.
    pub fn texts(&self) -> Vec<String> {
        self.roots.iter().map(|given| given.text.clone()).collect()
    }

    /// Refuses a job that names a path outside.
    pub fn check_job(&self, spec: &JobSpec) -> Result<(), OutsideRoots> {
        if let Some(task) = spec.kind.program() {
            return self.check_task(task);
        }
        // The output of earlier stages, and stored files, are no paths. A node opens files that only it sees below the
        // directories of its `--sees`.
        let named = spec.inputs.iter().filter(|input| input.is_path() || input.object.is_some());
        for input in named.filter(|input| !travels(&spec.shipped, &input.path)) {
            match input.object {
                Some(_) => self.check_object("input", &input.path)?,
                None => self.check_path("input", &input.path)?,
            }
        }
        if !spec.feeds() {
            self.check_output(&spec.output)?;
        }
        let links: &[FileLink] =
            spec.streaming.as_ref().map_or(&[][..], |streaming| streaming.links.as_slice());
        let linked = links.iter().map(|link| &link.path);
        let brought = Brought { files: &spec.files, shipped: &spec.shipped, pinned: &spec.pinned };
        for file in spec.files.iter().chain(linked).filter(|file| !brought.has(file)) {
            self.check_path("file", file)?;
        }
        for file in spec.recording.iter().flat_map(|recording| &recording.files) {
            self.check_path("file", file)?;
        }
        // Programs read system folders anyway.
        let reads = spec.recording.iter().flat_map(|recording| &recording.reads);
        reads.filter(|path| !is_below_system(path)).try_for_each(|path| self.check_path("file", path))?;
        // A job that only reduces has the mapper and the combiner for its readers.
        let only_reduces = spec.kind.source().is_some();
        let mappers = [&spec.mapper, &spec.combiner].into_iter().filter(|_| !only_reduces);
        for function in mappers.chain([&spec.reducer]).flatten() {
            if let Function::Command { words } = function
                && !links.iter().any(|link| words.first().is_some_and(|word| plain_name(word) == link.name))
            {
                self.check_program(words, brought, None)?;
            }
        }
        Ok(())
    }

    /// Checks one-task jobs, which seldom differ.
    pub fn check_tasks(&self, tasks: &[RunTask]) -> Result<(), OutsideRoots> {
        let mut before: Option<&RunTask> = None;
        for task in tasks {
            let is_like = |other: &RunTask| {
                (&other.directory, &other.files, &other.shipped, &other.pinned)
                    == (&task.directory, &task.files, &task.shipped, &task.pinned)
                    && (&other.inputs, &other.outputs) == (&task.inputs, &task.outputs)
                    && (&other.pipeline, &other.removes) == (&task.pipeline, &task.removes)
                    && (&other.looks, &other.caching) == (&task.looks, &task.caching)
                    && other.words.first() == task.words.first()
            };
            if !before.is_some_and(is_like) {
                self.check_task(task)?;
            }
            before = Some(task);
        }
        Ok(())
    }

    /// Checks one of them.
    pub fn check_task(&self, task: &RunTask) -> Result<(), OutsideRoots> {
        task.programs().try_for_each(|program| self.check_program_of(task, program))
    }

    /// Checks a program of the pipeline of a job, whose shipped files all its programs have.
    fn check_program_of(&self, job: &RunTask, task: &RunTask) -> Result<(), OutsideRoots> {
        task.removes.iter().try_for_each(|path| self.check_output(path))?;
        let looked_at = task.looks.iter().flat_map(|look| look.run.paths());
        let mut plain = looked_at.filter(|path| !is_stored_path(path));
        plain.try_for_each(|path| self.check_path("file", path))?;
        // Programs read system folders anyway.
        let of_users = |path: &&PathBuf| !is_below_system(path);
        let caching = task.caching.iter();
        let declared =
            caching.flat_map(|caching| caching.reads.iter().filter(of_users).chain(&caching.environment));
        declared.into_iter().try_for_each(|path| self.check_path("file", path))?;
        if task.words.is_empty() {
            return Ok(());
        }
        if !task.has_own_directory() {
            self.check_path("directory", &task.directory)?;
        }
        // Stored files lie on disks of nodes; rights protect them, and not roots.
        let mut inputs = task.inputs.iter().filter(|input| !input.is_stored());
        inputs.try_for_each(|input| self.check_path("input", &input.path))?;
        task.outputs.iter().try_for_each(|output| self.check_output(&output.path))?;
        let brought = Brought { files: &task.files, shipped: &job.shipped, pinned: &job.pinned };
        for file in task.files.iter().filter(|file| !brought.has(file)) {
            self.check_path("file", file)?;
        }
        match task.place().input {
            // It was checked as an input.
            Some(_) => Ok(()),
            None => self.check_program(&task.words, brought, Some(&task.directory)),
        }
    }

    /// Refuses an output outside of the roots. Its parent directory must be inside too: an output is written under
    /// another name in that directory, and renamed.
    pub fn check_output(&self, output: &Path) -> Result<(), OutsideRoots> {
        // Stored files lie on disks of nodes; rights protect them, and not roots.
        if is_stored_output(output) {
            return Ok(());
        }
        if is_object_url(output) {
            return self.check_object("output", output);
        }
        let what = "output";
        let (Some(parent), Some(name)) = (output.parent(), output.file_name()) else {
            return Err(self.outside(what, output, None));
        };
        let resolved = self.resolved(what, output, parent)?;
        self.judge(what, output, &resolved)?;
        // The server's own directories may be forbidden one by one.
        self.judge(what, output, &resolved.join(name))
    }

    /// Checks the program. A bare name is resolved on the node, like the name of a shipped file.
    fn check_program(
        &self,
        words: &[String],
        brought: Brought<'_>,
        directory: Option<&Path>,
    ) -> Result<(), OutsideRoots> {
        let Some(word) = words.first().filter(|word| word.contains('/')) else { return Ok(()) };
        let is_file = |file: &PathBuf| name_beside(file).is_some_and(|name| name == plain_name(word));
        if brought.has(Path::new(word)) || brought.files.iter().any(is_file) {
            return Ok(());
        }
        let path = directory.map_or_else(|| PathBuf::from(word), |directory| directory.join(word));
        self.check_path("program", &path)
    }

    fn check_object(&self, what: &'static str, path: &Path) -> Result<(), OutsideRoots> {
        let inside = ObjectUrl::from_path(path).is_ok_and(|url| {
            let roots = self.roots.iter().filter_map(|given| given.root.as_ref());
            roots.into_iter().any(|root| matches!(root, Root::Objects(prefix) if url.is_within(prefix)))
        });
        if inside { Ok(()) } else { Err(self.outside(what, path, None)) }
    }

    /// Refuses an existing staging directory outside.
    pub fn check_staging(&self, staging: &Path) -> Result<(), OutsideRoots> {
        match is_object_url(staging) {
            true => self.check_object("output", staging),
            false => self.check_path("output", staging),
        }
    }

    /// Refuses a path that lies outside, or leads there.
    fn check_path(&self, what: &'static str, path: &Path) -> Result<(), OutsideRoots> {
        let resolved = self.resolved(what, path, path)?;
        self.judge(what, path, &resolved)
    }

    fn resolved(&self, what: &'static str, path: &Path, place: &Path) -> Result<PathBuf, OutsideRoots> {
        if !path.is_absolute() {
            return Err(OutsideRoots::Relative { what, path: path.to_path_buf() });
        }
        // Most paths have no link, which one system call shows.
        if is_plain(place)
            && let Some((root, below)) = self.directory_of(place)
            && open_beneath(&root, below, OFlags::PATH).is_ok()
        {
            return Ok(place.to_path_buf());
        }
        resolve(place).map_err(|source| OutsideRoots::Unresolvable { what, path: path.to_path_buf(), source })
    }

    /// Refuses a path without links that lies outside; `path` is the one in the job.
    pub(crate) fn judge(&self, what: &'static str, path: &Path, resolved: &Path) -> Result<(), OutsideRoots> {
        if let Some(closed) = self.closed.iter().find(|closed| resolved.starts_with(closed)) {
            let (path, closed) = (path.to_path_buf(), closed.clone());
            return Err(OutsideRoots::Closed { what, path, closed });
        }
        match self.directory_of(resolved) {
            Some(_) => Ok(()),
            None => Err(self.outside(what, path, Some(resolved))),
        }
    }

    /// Returns the root of a path without links, and the rest of the path below it.
    pub(crate) fn directory_of<'a>(&self, resolved: &'a Path) -> Option<(Arc<OwnedFd>, &'a Path)> {
        let roots = self.roots.iter().filter_map(|given| given.root.as_ref());
        roots.into_iter().find_map(|root| match root {
            Root::Directory { path, held } => Some((Arc::clone(held), resolved.strip_prefix(path).ok()?)),
            Root::Objects(_) => None,
        })
    }

    fn outside(&self, what: &'static str, path: &Path, resolved: Option<&Path>) -> OutsideRoots {
        let path = path.to_path_buf();
        if self.roots.is_empty() {
            return OutsideRoots::NoRoots { what, path };
        }
        let leads = resolved.filter(|resolved| !path.starts_with(resolved));
        let leads =
            leads.map(|resolved| format!(", which leads to {},", resolved.display())).unwrap_or_default();
        OutsideRoots::Outside { what, path, leads, roots: self.texts().join(", ") }
    }
}

/// Folders of programs, which every program may read, also in a sandbox.
const SYSTEM_FOLDERS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"];

/// Returns whether a path lies below a folder of programs as it is written. Links are not followed.
pub fn is_below_system(path: &Path) -> bool {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    !climbs && SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// The files of a job, and those of them that a node brings to another place.
#[derive(Clone, Copy)]
struct Brought<'a> {
    files: &'a [PathBuf],
    shipped: &'a [ShippedFile],
    pinned: &'a [PinnedFile],
}

impl Brought<'_> {
    /// Returns whether a node brings the file instead of opening that path.
    fn has(&self, path: &Path) -> bool {
        travels(self.shipped, path) || self.pinned.iter().any(|file| file.path == path)
    }
}

/// Returns whether a node fetches the file from the server instead of opening that path.
fn travels(shipped: &[ShippedFile], path: &Path) -> bool {
    shipped.iter().any(|file| file.path == path)
}

fn plain_name(word: &str) -> &str {
    word.strip_prefix("./").unwrap_or(word)
}

/// Returns the path without links; for a missing file, that of its future directory.
fn resolve(path: &Path) -> std::io::Result<PathBuf> {
    let (found, missing) = deepest_existing(path)?;
    Ok(missing.iter().fold(found, |whole, name| whole.join(name)))
}

#[cfg(test)]
mod tests;
