//! A program to run.

pub(crate) mod advice;

use crate::limits::ProgramLimits;
use crate::sandbox::{DeclaredReads, Sandbox};
use rustix::fs::Access;
use std::path::PathBuf;
use std::sync::Arc;

/// Program to run: its words, directories, environment and sandbox.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// Program and arguments; never empty.
    pub words: Vec<String>,
    /// Current directory of the program.
    pub work_dir: PathBuf,
    /// Directory in which the user typed the command; the second place to look for the program.
    pub start_dir: PathBuf,
    /// Set on top of PATH, HOME, LANG and LC_*.
    pub env: Vec<(String, String)>,
    /// File to which standard error is copied, up to 1 MiB.
    pub stderr_log: Option<PathBuf>,
    /// Sandbox of the program; None: it may access whatever the engine may.
    pub sandbox: Option<Arc<Sandbox>>,
    /// Limits of a program without a sandbox; None: it may read whatever the engine may.
    pub declared_reads: Option<Arc<DeclaredReads>>,
    /// Limits of the attempt.
    pub limits: ProgramLimits,
    /// Names of inputs and outputs that it opens as streams.
    pub streams: Vec<PathBuf>,
}

impl ProgramSpec {
    /// Returns its directories, and the paths in its words and variables.
    pub(crate) fn named_paths(&self) -> Vec<PathBuf> {
        let texts = self.words.iter().chain(self.env.iter().map(|(_, value)| value));
        let program = self.words.first().filter(|word| word.contains('/'));
        let own = [self.work_dir.clone(), self.start_dir.clone()];
        let program = program.map(|word| self.start_dir.join(word));
        own.into_iter().chain(program).chain(texts.flat_map(std::env::split_paths)).collect()
    }

    /// Returns the executables that words and variables name by absolute paths: interpreters that scripts start.
    pub(crate) fn named_executables(&self) -> impl Iterator<Item = PathBuf> {
        let texts = self.words.iter().skip(1).chain(self.env.iter().map(|(_, value)| value));
        let paths = texts.map(PathBuf::from).filter(|path| path.is_absolute());
        paths.filter(|path| path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok())
    }
}
