//! The declared files of a program: its inputs stand in its directory before it starts, and its outputs are taken from
//! there when all programs of its pipeline have succeeded.

use crate::contents::{Contents, stamp};
use crate::failure::{file_failure, named_failure};
use crate::stored::step_files::NewVersion;
use crate::tasks::beside_outputs::wrote_instead;
use crate::tasks::finished_runs::{Reading, run_file};
use api::task::{FileContent, FileStamp, RunTask, TaskFile};
use api::{Blame, Compression, StoredContent, TaskFailure};
use faults::{IoCall, io_call};
use ids::AttemptKey;
use mapper::input::{MAGIC_BYTES, compression_of};
use output::output_dir;
use roots::{HeldDir, JobPaths};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, linkat, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rights of an output that are kept: none to run as another user.
const RIGHTS: u32 = 0o777;

/// Returns the stamp of a file without the time of its inode, which new names and rights change too.
fn content_stamp(stamp: FileStamp) -> FileStamp {
    FileStamp { changed_ns: 0, ..stamp }
}

/// Stores new versions of stored files.
pub(super) type StoreVersions<'a> = dyn Fn(Vec<NewVersion>) -> Result<Vec<StoredContent>, TaskFailure> + 'a;

/// The attempt whose outputs are taken.
pub(super) struct Taking<'a> {
    pub attempt: AttemptKey,
    pub cancelled: &'a AtomicBool,
    /// Set if the contents of plain outputs are wanted.
    pub contents: Option<&'a Contents>,
    pub store: &'a StoreVersions<'a>,
    pub taken: TakenOutputs,
}

/// Outputs with their contents, by the positions of program and output.
pub(super) type OutputContents = BTreeMap<(usize, usize), FileContent>;

/// The outputs of programs that get their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenOutputs {
    /// Those that are not temporary.
    Lasting,
    All,
}

/// The inputs of a program, as they were before it ran.
pub(super) struct DeclaredFiles<'a> {
    task: &'a RunTask,
    paths: &'a JobPaths,
    dir: PathBuf,
    inputs: Vec<(usize, FileStamp)>,
    /// Inputs from other programs of the pipeline: the places of their files, and their state when they were linked.
    linked: Vec<(PathBuf, FileStamp)>,
}

impl<'a> DeclaredFiles<'a> {
    /// Links the inputs into the directory of the program, except those at `passed` positions, which other programs of
    /// its pipeline write.
    ///
    /// Errors: an input that is missing, is no plain file, or lies outside of the roots.
    pub fn bring(
        task: &'a RunTask,
        paths: &'a JobPaths,
        dir: &Path,
        passed: &BTreeSet<usize>,
    ) -> Result<Self, TaskFailure> {
        let mut inputs = Vec::with_capacity(task.inputs.len());
        for (index, input) in task.inputs.iter().enumerate().filter(|(index, _)| !passed.contains(index)) {
            let found = stamp_of(paths, input)?;
            if task.in_place {
                inputs.push((index, found));
                continue;
            }
            let place = make_room(dir, &input.name)?;
            let linked = io_call(IoCall::Create, &place).and_then(|()| symlink(&input.path, &place));
            linked.map_err(|error| file_failure("link", &place, error))?;
            inputs.push((index, found));
        }
        if task.in_place {
            for above in task.outputs.iter().filter_map(|output| output.path.parent()) {
                let made = io_call(IoCall::Create, above).and_then(|()| paths.create_dir_all(above));
                made.map_err(|error| named_failure("create", above, error))?;
            }
        } else {
            let passed = passed.iter().filter_map(|index| task.inputs.get(*index));
            for file in passed.chain(&task.outputs) {
                make_room(dir, &file.name)?;
            }
        }
        Ok(Self { task, paths, dir: dir.to_path_buf(), inputs, linked: Vec::new() })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the bytes of the inputs as they were found.
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|(_, found)| found.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the outputs in the directory of the program, except temporary ones.
    pub fn output_bytes(&self) -> u64 {
        let outputs = self.task.outputs.iter().filter(|output| !output.temporary);
        let bytes =
            |output: &TaskFile| self.place_of(output).symlink_metadata().map_or(0, |facts| facts.len());
        outputs.map(bytes).fold(0, u64::saturating_add)
    }

    /// Returns the path at which the program writes an output.
    fn place_of(&self, output: &TaskFile) -> PathBuf {
        if self.task.in_place { output.path.clone() } else { self.dir.join(&output.name) }
    }

    /// Opens an input that becomes the standard input of the program.
    pub fn open_input(&self, input: &TaskFile) -> Result<File, TaskFailure> {
        self.paths.open_file(&input.path).map_err(|error| input_failure(input, error))
    }

    /// Creates the file of the standard output of the program. Returns it and its path.
    pub fn create_output(&self, output: &TaskFile) -> Result<(File, PathBuf), TaskFailure> {
        let place = self.place_of(output);
        let mut options = File::options();
        options.read(true).write(true);
        match self.task.in_place {
            true => options.create(true).truncate(true),
            false => options.create_new(true),
        };
        let made = io_call(IoCall::Create, &place).and_then(|()| options.open(&place));
        Ok((made.map_err(|error| file_failure("create", &place, error))?, place))
    }

    /// Creates a file for a copy of an output that the program writes as a stream, under a hidden name beside it. Returns it and
    /// its path.
    pub fn create_beside(&self, index: usize, output: &TaskFile) -> Result<(File, PathBuf), TaskFailure> {
        let place = self.place_of(output).with_file_name(format!(".sailfish-file-{index}"));
        let made = io_call(IoCall::Create, &place)
            .and_then(|()| File::options().read(true).write(true).create_new(true).open(&place));
        Ok((made.map_err(|error| file_failure("create", &place, error))?, place))
    }

    /// Links an output of a program that has succeeded, for another program of its pipeline. Returns the file.
    pub fn link_passed(
        &mut self,
        input: &TaskFile,
        writer: &DeclaredFiles<'_>,
        output: &TaskFile,
    ) -> Result<File, TaskFailure> {
        let file = written(&writer.dir, writer.task, output)?;
        let source = writer.dir.join(&output.name);
        let found = stamp(&file).map_err(|error| file_failure("read", &source, error))?;
        let place = self.dir.join(&input.name);
        let linked = io_call(IoCall::Create, &place).and_then(|()| symlink(&source, &place));
        linked.map_err(|error| file_failure("link", &place, error))?;
        self.linked.push((source, found));
        Ok(file)
    }

    /// Publishes the outputs of all programs of a pipeline: all of them are complete beside their final paths before the
    /// first gets its name, and stored ones get theirs before the others. `streamed` has the programs and outputs that
    /// exist nowhere as files. Returns the contents of stored ones, and of all others if they are wanted.
    ///
    /// Errors: an input that changed while its program ran; an output that is missing or is no plain file; the job was
    /// stopped meanwhile.
    pub fn take_all(
        programs: &[Self],
        streamed: &BTreeSet<(usize, usize)>,
        taking: &Taking<'_>,
    ) -> Result<OutputContents, TaskFailure> {
        let Taking { attempt, cancelled, contents, taken, .. } = *taking;
        let is_taken = |output: &TaskFile| taken == TakenOutputs::All || !output.temporary;
        programs.iter().try_for_each(Self::check_inputs)?;
        let outputs = || {
            let each = programs.iter().enumerate().flat_map(|(position, program)| {
                let outputs = program.task.outputs.iter().enumerate();
                outputs.map(move |(index, output)| ((position, index), program, output))
            });
            each.filter(|(place, ..)| !streamed.contains(place))
        };
        for (_, program, output) in outputs().filter(|(_, program, _)| program.task.in_place) {
            program.check_in_place(output)?;
        }
        let outputs = || outputs().filter(|(_, program, _)| !program.task.in_place);
        let (mut hashed, mut versions, mut places) = (OutputContents::new(), Vec::new(), Vec::new());
        for (place, program, output) in outputs() {
            let file = written(&program.dir, program.task, output)?;
            if let Some(contents) = contents {
                let content = contents.of(&file, cancelled);
                let content = content.map_err(|error| file_failure("read", &output.path, error))?;
                hashed.insert(place, run_file(&output.path, &content));
            }
            if output.is_stored() && is_taken(output) {
                let compression =
                    rewound(&file).map_err(|error| file_failure("read", &output.path, error))?;
                hashed.entry(place).and_modify(|file| file.compression = compression);
                versions.push(NewVersion { path: output.path.clone(), file });
                places.push(place);
            }
        }
        let (mut directories, mut staged) = (BTreeMap::new(), Vec::new());
        let plain = |output: &TaskFile| is_taken(output) && !output.is_stored();
        for (index, (_, program, output)) in outputs().filter(|(.., output)| plain(output)).enumerate() {
            staged.push(program.stage(output, &mut directories, hidden_name(output, attempt, index))?);
        }
        if cancelled.load(Ordering::Relaxed) {
            return Err(TaskFailure::new(
                Blame::Cancelled,
                "the job was stopped before its outputs were published",
            ));
        }
        if !versions.is_empty() {
            for (place, content) in places.into_iter().zip((taking.store)(versions)?) {
                hashed.entry(place).and_modify(|file| (file.stamp, file.stored) = (None, Some(content)));
            }
        }
        staged.into_iter().try_for_each(Staged::publish)?;
        Ok(hashed)
    }

    /// Returns the inputs that no other program of the pipeline wrote, by position, with their contents; None if one
    /// changed since its program began.
    pub fn read_inputs(&self, reading: Reading<'_>) -> Option<BTreeMap<usize, FileContent>> {
        let read = |(index, before): &(usize, FileStamp)| {
            let input = &self.task.inputs[*index];
            if let Some(stored) = input.content {
                // A copy of a stored file, whose bytes were verified.
                let (sha256, bytes) = (Some(stored), before.bytes);
                let content =
                    FileContent { sha256, bytes, ..FileContent::without_content(input.path.clone()) };
                return Some((*index, content));
            }
            let (file, stamp) = reading.stamped(&input.path).ok()?;
            (stamp == *before).then_some((*index, file))
        };
        self.inputs.iter().map(read).collect()
    }

    /// Checks that a program has written an output at its path.
    fn check_in_place(&self, output: &TaskFile) -> Result<(), TaskFailure> {
        let facts = self.paths.open_file(&output.path).and_then(|file| file.metadata());
        let problem = match facts {
            Ok(facts) if facts.is_file() => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is missing",
            _ => "is no plain file",
        };
        let message = format!("the program succeeded, but its output {} {problem}", output.name.display());
        Err(TaskFailure::new(Blame::UserProgram, message))
    }

    /// Brings an output beside its final path, under a hidden name.
    fn stage(
        &self,
        output: &'a TaskFile,
        directories: &mut BTreeMap<&'a Path, Arc<HeldDir>>,
        hidden: String,
    ) -> Result<Staged<'a>, TaskFailure> {
        let parent = output.path.parent().unwrap_or(Path::new("/"));
        let above = match directories.get(parent) {
            Some(above) => Arc::clone(above),
            None => {
                let above = io_call(IoCall::Create, parent).and_then(|()| self.paths.create_dir_all(parent));
                let above = above.map_err(|error| named_failure("write", &output.path, error))?;
                Arc::clone(directories.entry(parent).or_insert(Arc::new(above)))
            }
        };
        Staged::begin(output, above, hidden, &written(&self.dir, self.task, output)?)
    }

    fn check_inputs(&self) -> Result<(), TaskFailure> {
        // A view shows one version.
        for (index, before) in self.inputs.iter().filter(|(index, _)| !self.task.inputs[*index].view) {
            let input = &self.task.inputs[*index];
            if content_stamp(stamp_of(self.paths, input)?) != content_stamp(*before) {
                let message = format!(
                    "the input {} changed while the program ran: a program may only write its outputs",
                    input.path.display()
                );
                return Err(TaskFailure::new(Blame::UserData, message));
            }
        }
        self.check_linked()
    }

    /// Checks that inputs from other programs of the pipeline are as they were linked.
    pub fn check_linked(&self) -> Result<(), TaskFailure> {
        for (source, before) in &self.linked {
            let found = File::open(source).and_then(|file| stamp(&file));
            if found.ok().map(content_stamp) != Some(content_stamp(*before)) {
                let name = source.file_name().unwrap_or_default().display();
                let message = format!(
                    "the input {name} changed while the program ran: a program may only write its outputs"
                );
                return Err(TaskFailure::new(Blame::UserProgram, message));
            }
        }
        Ok(())
    }
}

fn stamp_of(paths: &JobPaths, input: &TaskFile) -> Result<FileStamp, TaskFailure> {
    let file = paths.open_file(&input.path).map_err(|error| input_failure(input, error))?;
    let metadata = file.metadata().map_err(|error| input_failure(input, error))?;
    match metadata.is_file() {
        true => stamp(&file).map_err(|error| input_failure(input, error)),
        false => {
            let message = format!("the input {} is no plain file", input.path.display());
            Err(TaskFailure::new(Blame::UserData, message))
        }
    }
}

/// Makes the directories above a name in the directory of a program.
fn make_room(dir: &Path, name: &Path) -> Result<PathBuf, TaskFailure> {
    let place = dir.join(name);
    if let Some(above) = place.parent().filter(|above| *above != dir) {
        let made = io_call(IoCall::Create, above).and_then(|()| std::fs::create_dir_all(above));
        made.map_err(|error| file_failure("create", above, error))?;
    }
    Ok(place)
}

/// Opens an output in the directory of its program. The program may have put anything there: nothing is followed.
fn written(dir: &Path, task: &RunTask, output: &TaskFile) -> Result<File, TaskFailure> {
    let bad = |what: &str| {
        let message = format!("the program succeeded, but its output {} {what}", output.name.display());
        TaskFailure::new(Blame::UserProgram, message)
    };
    let open = || -> Result<OwnedFd, Errno> {
        let dir = openat(CWD, dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat2(dir, &output.name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
    };
    let file = match open() {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => {
            return Err(bad(&format!("is missing{}", wrote_instead(dir, task))));
        }
        Err(Errno::LOOP | Errno::XDEV | Errno::NXIO) => return Err(bad("is no plain file")),
        Err(error) => return Err(file_failure("read", &dir.join(&output.name), error)),
    };
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(bad("is no plain file")),
        Err(error) => Err(file_failure("read", &dir.join(&output.name), error)),
    }
}

/// An output that lies under a hidden name beside its path. Removed unless it is published.
struct Staged<'a> {
    output: &'a TaskFile,
    above: Arc<HeldDir>,
    name: Option<String>,
}

impl<'a> Staged<'a> {
    /// Brings an output into the directory of its path: by a link on the same file system, else by a copy. Syncs it.
    fn begin(
        output: &'a TaskFile,
        above: Arc<HeldDir>,
        name: String,
        file: &File,
    ) -> Result<Self, TaskFailure> {
        let failed = |error: std::io::Error| file_failure("write", &output.path, error);
        let staged = Self { output, above, name: Some(name.clone()) };
        // An attempt of this number may have died here under an earlier server.
        staged.remove();
        io_call(IoCall::Write, &output.path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        if mode & !RIGHTS & 0o7777 != 0 {
            file.set_permissions(Permissions::from_mode(mode & RIGHTS)).map_err(failed)?;
        }
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        match linkat(CWD, source.as_str(), &*staged.above, name.as_str(), AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => {}
            Err(Errno::XDEV | Errno::PERM | Errno::NOENT | Errno::OPNOTSUPP) => {
                copy(file, mode & RIGHTS, &staged.above, &name).map_err(failed)?;
            }
            Err(error) => return Err(failed(error.into())),
        }
        io_call(IoCall::Sync, &output.path).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(staged)
    }

    fn remove(&self) {
        if let Some(name) = &self.name {
            // If this fails, a hidden file is left.
            let _ = unlinkat(&*self.above, name.as_str(), AtFlags::empty());
        }
    }

    fn publish(mut self) -> Result<(), TaskFailure> {
        let failed = |error: std::io::Error| file_failure("write", &self.output.path, error);
        let (from, to) =
            (self.name.as_deref().unwrap_or_default(), self.output.path.file_name().unwrap_or_default());
        let renamed = io_call(IoCall::Rename, &self.output.path)
            .and_then(|()| Ok(renameat(&*self.above, from, &*self.above, to)?));
        renamed.map_err(failed)?;
        let dir =
            openat(&*self.above, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let synced = dir.map_err(std::io::Error::from).and_then(|dir| File::from(dir).sync_all());
        synced.map_err(failed)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Returns the name of an output before it is published. Long names are cut: a name has at most 255 bytes.
fn hidden_name(output: &TaskFile, attempt: AttemptKey, index: usize) -> String {
    const KEPT_BYTES_MAX: usize = 160;
    let name = output.path.file_name().unwrap_or_default().to_string_lossy();
    let kept = &name[..name.floor_char_boundary(KEPT_BYTES_MAX)];
    format!(".{kept}.sailfish-{}-{}-{index}", attempt.task.job, attempt.attempt.0)
}

fn copy(file: &File, mode: u32, above: &HeldDir, name: &str) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut copy = File::from(openat(above, name, flags, Mode::from_raw_mode(0o600))?);
    let mut file = file;
    std::io::copy(&mut file, &mut copy)?;
    copy.set_permissions(Permissions::from_mode(mode))?;
    copy.sync_all()
}

/// Goes back to the begin of an output, which hashing has read. Returns its compression.
fn rewound(mut file: &File) -> std::io::Result<Option<Compression>> {
    file.rewind()?;
    let mut first_bytes = Vec::new();
    file.take(MAGIC_BYTES).read_to_end(&mut first_bytes)?;
    file.rewind()?;
    Ok(compression_of(&first_bytes))
}

fn input_failure(input: &TaskFile, error: std::io::Error) -> TaskFailure {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            let message = format!("the input {} does not exist", input.path.display());
            TaskFailure::new(Blame::UserData, message)
        }
        _ => named_failure("read", &input.path, error),
    }
}

/// Removes files and outputs of jobs that earlier steps of the job wrote. One that is gone already is no error.
pub(super) fn remove_files(paths: &JobPaths, files: &[&Path]) -> Result<(), TaskFailure> {
    for path in files {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let removed =
            paths.open_dir(parent).and_then(|above| match unlinkat(&above, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => output_dir::remove(&above.path().join(name)),
                removed => Ok(removed?),
            });
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(named_failure("remove", path, error));
            }
            _ => {}
        }
    }
    Ok(())
}
