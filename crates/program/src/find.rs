//! Search for the executable of a program word.

use rustix::fs::Access;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Reason why a program cannot be run. The user's fault, not retryable.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("the command line has no program")]
    Empty,
    #[error("program {program:?} not found in the given files, under {}, or in PATH", start_dir.display())]
    NotFound { program: String, start_dir: PathBuf },
    #[error("program {program:?} is not executable: {}", path.display())]
    NotExecutable { program: String, path: PathBuf },
}

/// Checks at submit, before anything runs, that the program of a command line exists.
///
/// `files` are the files given with `--file`; they will be in the work directory under their own names. `env` is the
/// job's `--env`, whose PATH is used.
pub fn check_program(
    words: &[String],
    files: &[PathBuf],
    start_dir: &Path,
    env: &[(String, String)],
) -> Result<(), ProgramError> {
    let program = words.first().filter(|word| !word.is_empty()).ok_or(ProgramError::Empty)?;
    let plain_name = program.strip_prefix("./").unwrap_or(program);
    let shipped = files.iter().find(|file| file.file_name().is_some_and(|name| name == plain_name));
    let places = shipped.cloned().into_iter().chain(places_outside(program, start_dir, env));
    choose(program, start_dir, places).map(|_| ())
}

/// Returns the executable of a program word: relative to the work directory, otherwise to the start directory; a bare
/// name is searched in the work directory, then in PATH, then in the start directory.
pub(crate) fn find_program(
    words: &[String],
    work_dir: &Path,
    start_dir: &Path,
    env: &[(String, String)],
) -> Result<PathBuf, ProgramError> {
    let program = words.first().filter(|word| !word.is_empty()).ok_or(ProgramError::Empty)?;
    let places = std::iter::once(work_dir.join(program)).chain(places_outside(program, start_dir, env));
    choose(program, start_dir, places)
}

/// Returns the executable of a program word that is no file of the work directory.
pub fn find_executable(
    word: &str,
    start_dir: &Path,
    env: &[(String, String)],
) -> Result<PathBuf, ProgramError> {
    choose(word, start_dir, places_outside(word, start_dir, env).into_iter())
}

fn places_outside(program: &str, start_dir: &Path, env: &[(String, String)]) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if !program.contains('/') {
        let path_variable = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.into());
        let path_variable: OsString = path_variable.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        // For a shell an empty entry means the current directory; a job has none.
        let directories = std::env::split_paths(&path_variable).filter(|each| !each.as_os_str().is_empty());
        places.extend(directories.map(|directory| directory.join(program)));
    }
    places.push(start_dir.join(program));
    places
}

/// Returns the first place with an executable file; if there is only a file without the right to execute it, the error
/// says so.
fn choose(
    program: &str,
    start_dir: &Path,
    places: impl Iterator<Item = PathBuf>,
) -> Result<PathBuf, ProgramError> {
    let mut not_executable = None;
    for place in places.filter(|place| place.is_file()) {
        let path = std::path::absolute(&place).unwrap_or(place);
        if rustix::fs::access(&path, Access::EXEC_OK).is_ok() {
            return Ok(path);
        }
        not_executable.get_or_insert(path);
    }
    let program = program.to_string();
    match not_executable {
        Some(path) => Err(ProgramError::NotExecutable { program, path }),
        None => Err(ProgramError::NotFound { program, start_dir: start_dir.to_path_buf() }),
    }
}
