//! Finished runs of programs: their record, and the question whether one still stands for a program.

use crate::contents::{Content, Contents};
use api::task::{
    FileContent, FileStamp, FinishedRun, ProgramPlace, RunDifference, RunLook, RunLooked, RunTask,
    is_stored_path,
};
use api::{ContentHash, StoredContent};
use program::find_executable;
use roots::JobPaths;
use rustix::fs::{Access, Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Longest first line of a script, as in the kernel.
const FIRST_LINE_BYTES_MAX: usize = 256;
/// Maximum number of scripts that interpret each other.
const INTERPRETERS_MAX: usize = 4;

/// The executables of a job's programs and the files beside them, as they are on this node.
#[derive(Clone, Debug)]
pub(crate) struct JobPrograms {
    pub executables: Vec<FileContent>,
    /// Numbers of executables of each program.
    pub counts: Vec<u32>,
    pub environment: Vec<FileContent>,
}

impl JobPrograms {
    /// Compares contents. A stamp may have become certain meanwhile.
    pub fn has_contents_of(&self, other: &Self) -> bool {
        let identity = |file: &FileContent| (file.path.clone(), file.sha256);
        let same = |one: &[FileContent], other: &[FileContent]| {
            one.iter().map(identity).eq(other.iter().map(identity))
        };
        same(&self.executables, &other.executables) && same(&self.environment, &other.environment)
    }
}

/// Access to the files of a job, for hashing.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub contents: &'a Contents,
    pub paths: &'a JobPaths,
    pub cancelled: &'a AtomicBool,
}

impl Reading<'_> {
    /// Returns a file with its present content, and its stamp.
    pub fn stamped(&self, path: &Path) -> std::io::Result<(FileContent, FileStamp)> {
        let file = self.paths.open_file(path)?;
        let content = self.contents.of(&file, self.cancelled)?;
        Ok((read_file(path, &file, &content), content.stamp))
    }

    /// Returns a file with its present content.
    pub fn file(&self, path: &Path) -> std::io::Result<FileContent> {
        self.stamped(path).map(|(file, _)| file)
    }

    /// Compares a file with its recorded content. Returns the file as it is recorded now, if it is the same.
    fn same(
        &self,
        recorded: &FileContent,
        open: impl Fn(&Path) -> std::io::Result<File>,
    ) -> std::io::Result<Found> {
        let file = open(&recorded.path)?;
        let stamp = crate::contents::stamp(&file)?;
        if recorded.stamp == Some(stamp) {
            return Ok(Found::Same(None));
        }
        if recorded.bytes != stamp.bytes {
            return Ok(Found::Other);
        }
        let content = self.contents.of(&file, self.cancelled)?;
        match recorded.sha256 == Some(content.sha256) {
            true => Ok(Found::Same(content.certain_stamp())),
            false => Ok(Found::Other),
        }
    }
}

/// Returns the identity of the bytes of a stored file that a run wrote.
fn stored_identity(recorded: &FileContent) -> Option<ContentHash> {
    recorded.stored.as_ref().map(StoredContent::identity)
}

enum Found {
    /// The content is the recorded one; a stamp that is not recorded, if it is certain.
    Same(Option<FileStamp>),
    Other,
}

pub(super) fn run_file(path: &Path, content: &Content) -> FileContent {
    FileContent {
        path: path.to_path_buf(),
        real_path: None,
        sha256: Some(content.sha256),
        bytes: content.stamp.bytes,
        stamp: content.certain_stamp(),
        made_by: None,
        stored: None,
        compression: None,
    }
}

/// Returns the record of a file that a run read, with its path without links: by this name others may know it.
fn read_file(path: &Path, file: &File, content: &Content) -> FileContent {
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
    let is_there = file.metadata().is_ok_and(|facts| facts.nlink() > 0);
    let real_path = real.filter(|real| is_there && real != path);
    FileContent { real_path, ..run_file(path, content) }
}

/// Returns the record of a run without its inputs and outputs; None if its executables cannot be read.
pub(super) fn begin(task: &RunTask, reading: Reading<'_>) -> Option<FinishedRun> {
    let environment = task.caching.iter().flat_map(|caching| &caching.environment);
    Some(FinishedRun {
        executables: executables(&task.place(), reading)?,
        environment: environment.map(|path| reading.file(path).ok()).collect::<Option<_>>()?,
        ..FinishedRun::default()
    })
}

/// Gives inputs of a run that are stored files their names, in place of the paths of copies.
pub(super) fn name_stored(program: &RunTask, run: &mut FinishedRun) {
    for (input, read) in program.inputs.iter().zip(&mut run.inputs).filter(|(input, _)| input.is_stored()) {
        read.path.clone_from(&input.path);
        (read.real_path, read.stamp) = (None, None);
    }
    let stored_program = program.place().input.filter(|input| is_stored_path(input));
    if let Some((path, executable)) = stored_program.zip(run.executables.first_mut()) {
        // A copy has another place on each node.
        (executable.path, executable.real_path, executable.stamp) = (path, None, None);
    }
}

/// Returns the executable of a program, and the interpreters of scripts. Anyone may execute them, so they may lie outside
/// of the roots.
pub(super) fn executables(program: &ProgramPlace, reading: Reading<'_>) -> Option<Vec<FileContent>> {
    let mut next = match &program.input {
        Some(input) => Some(input.clone()),
        None => Some(found(&program.word, program)?),
    };
    let mut files = Vec::new();
    while let Some(path) = next.take().filter(|_| files.len() < INTERPRETERS_MAX) {
        let open = || match program.input.as_ref() == Some(&path) {
            true => reading.paths.open_file(&path).ok(),
            false => open_executable(&path),
        };
        next = interpreter(&mut open()?, program);
        let file = open()?;
        let content = reading.contents.of(&file, reading.cancelled).ok()?;
        files.push(read_file(&path, &file, &content));
    }
    Some(files)
}

/// Opens a plain file that may be executed. The words of a user name it: it may be anything.
fn open_executable(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::access(path, Access::EXEC_OK).ok()?;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().is_ok_and(|facts| facts.is_file()).then_some(file)
}

fn found(word: &str, program: &ProgramPlace) -> Option<PathBuf> {
    let path = program.search_path.iter().map(|path| ("PATH".to_string(), path.clone()));
    find_executable(word, &program.directory, &path.collect::<Vec<_>>()).ok()
}

/// Returns the program of the first line of a script; for `env`, the program that it starts.
fn interpreter(file: &mut File, program: &ProgramPlace) -> Option<PathBuf> {
    let mut line = Vec::new();
    file.take(FIRST_LINE_BYTES_MAX as u64).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let interpreter = words.next()?;
    let is_env = Path::new(interpreter).file_name().is_some_and(|name| name == "env");
    let started = words.find(|word| !word.starts_with('-') && !word.contains('='));
    match started.filter(|_| is_env) {
        Some(started) => found(started, program),
        None => Some(PathBuf::from(interpreter)),
    }
}

/// Compares finished runs with the present state of all files.
///
/// Errors: the job was stopped.
///
/// `stored` has the present contents of their outputs that are stored files, by name.
pub(super) fn look(
    looks: &[RunLook],
    reading: Reading<'_>,
    stored: &BTreeMap<PathBuf, ContentHash>,
) -> std::io::Result<Vec<RunLooked>> {
    looks.iter().map(|look| Looking::new(look, reading, stored).look()).collect()
}

/// The comparison of one run.
struct Looking<'a> {
    look: &'a RunLook,
    reading: Reading<'a>,
    stored: &'a BTreeMap<PathBuf, ContentHash>,
    differences: Vec<RunDifference>,
    run: FinishedRun,
    is_refreshed: bool,
}

impl<'a> Looking<'a> {
    fn new(look: &'a RunLook, reading: Reading<'a>, stored: &'a BTreeMap<PathBuf, ContentHash>) -> Self {
        let run = look.run.clone();
        Self { look, reading, stored, differences: Vec::new(), run, is_refreshed: false }
    }

    fn look(mut self) -> std::io::Result<RunLooked> {
        self.executables();
        if self.differences.is_empty() {
            self.read_files()?;
            self.outputs()?;
        }
        let refreshed = (self.is_refreshed && self.differences.is_empty()).then(|| Box::new(self.run));
        Ok(RunLooked { differences: self.differences, refreshed })
    }

    fn executables(&mut self) {
        let Some(places) = &self.look.of_job else {
            let changed = self.changed_executable(&self.look.program, &self.run.executables);
            self.differences.extend(changed);
            return;
        };
        let of_job = self.run.executables_of_job().filter(|recorded| recorded.len() == places.len());
        let changed = match of_job {
            Some(recorded) => places
                .iter()
                .zip(recorded)
                .find_map(|(place, recorded)| self.changed_executable(place, recorded)),
            None => Some(RunDifference::Words),
        };
        self.differences.extend(changed);
    }

    fn changed_executable(&self, program: &ProgramPlace, recorded: &[FileContent]) -> Option<RunDifference> {
        let is_stored = program.input.as_ref().is_some_and(|input| is_stored_path(input));
        let found = match is_stored || program.is_shipped {
            true => self.with_interpreters(recorded).unwrap_or_default(),
            false => executables(program, self.reading).unwrap_or_default(),
        };
        let identity = |file: &FileContent| (file.path.clone(), file.sha256);
        let same = found.iter().map(identity).eq(recorded.iter().map(identity));
        let path = found.first().map_or_else(|| PathBuf::from(&program.word), |file| file.path.clone());
        (!same).then_some(RunDifference::Executable { path })
    }

    /// Returns the executables of a program that is a stored or a shipped file, with its present interpreters. Its bytes are
    /// compared elsewhere.
    fn with_interpreters(&self, recorded: &[FileContent]) -> Option<Vec<FileContent>> {
        let mut recorded = recorded.iter();
        let mut found: Vec<FileContent> = recorded.next().cloned().into_iter().collect();
        if let Some(interpreter) = recorded.next() {
            let word = interpreter.path.to_str()?.to_string();
            found.extend(executables(&ProgramPlace { word, ..ProgramPlace::default() }, self.reading)?);
        }
        Some(found)
    }

    fn read_files(&mut self) -> std::io::Result<()> {
        for index in 0..self.run.environment.len() {
            let found = self.compare(&self.run.environment[index])?;
            let of = |run: &mut FinishedRun, stamp| run.environment[index].stamp = Some(stamp);
            self.read(found, of, self.run.environment[index].path.clone());
        }
        for index in 0..self.run.inputs.len() {
            if self.look.known_inputs.contains(&(index as u32)) {
                continue;
            }
            let found = self.compare(&self.run.inputs[index])?;
            let of = |run: &mut FinishedRun, stamp| run.inputs[index].stamp = Some(stamp);
            self.read(found, of, self.run.inputs[index].path.clone());
        }
        Ok(())
    }

    fn outputs(&mut self) -> std::io::Result<()> {
        for index in 0..self.run.outputs.len() {
            let output = index as u32;
            if self.run.outputs[index].sha256.is_none() {
                self.differences.push(RunDifference::Gone { output });
                continue;
            }
            let recorded = &self.run.outputs[index];
            let found = match is_stored_path(&recorded.path) {
                true => {
                    self.stored.get(&recorded.path).map(|now| match stored_identity(recorded) == Some(*now) {
                        true => Found::Same(None),
                        false => Found::Other,
                    })
                }
                false => self.compare(recorded)?,
            };
            match found {
                Some(Found::Same(stamp)) => {
                    self.refresh(stamp, |run, stamp| run.outputs[index].stamp = Some(stamp));
                }
                Some(Found::Other) => self.differences.push(RunDifference::Written { output }),
                None => self.differences.push(RunDifference::Gone { output }),
            }
        }
        Ok(())
    }

    /// Compares a file; None if it is not there.
    fn compare(&self, recorded: &FileContent) -> std::io::Result<Option<Found>> {
        match self.reading.same(recorded, |path| self.reading.paths.open_file(path)) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(_) => Ok(Some(Found::Other)),
        }
    }

    fn read(&mut self, found: Option<Found>, set: impl Fn(&mut FinishedRun, FileStamp), path: PathBuf) {
        match found {
            Some(Found::Same(stamp)) => self.refresh(stamp, set),
            Some(Found::Other) | None => self.differences.push(RunDifference::Read { path }),
        }
    }

    fn refresh(&mut self, stamp: Option<FileStamp>, set: impl Fn(&mut FinishedRun, FileStamp)) {
        if let Some(stamp) = stamp {
            set(&mut self.run, stamp);
            self.is_refreshed = true;
        }
    }
}
