//! The start of a program: search, rules, environment, and the init below which it runs.

use crate::find::find_program;
use crate::programs::{Member, Programs};
use crate::sandbox::{Prepared, Sandbox};
use crate::slots::environment;
use crate::spec::ProgramSpec;
use crate::spec::advice::UNDECLARED;
use api::{Blame, LimitKind, TaskFailure};
use containment::{Launch, ProcessLimits, ProgramEnd, ProgramEnds, StartError, Started, own_directory_above};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Time for retries of starting a program that another process still has open for writing.
const BUSY_TRIES_MAX: u32 = 500;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Starts the program with these streams, below the init of this thread.
pub(crate) fn start(
    programs: &Programs,
    named: &[PathBuf],
    spec: &ProgramSpec,
    streams: [BorrowedFd<'_>; 3],
) -> Result<(Member, ProgramEnd), TaskFailure> {
    let executable = find_program(&spec.words, &spec.work_dir, &spec.start_dir, &spec.env)
        .map_err(|error| TaskFailure::new(Blame::UserData, error.to_string()))?;
    let containment = programs.slots.containment();
    let prepare = |sandbox: &Arc<Sandbox>| {
        let executables: Vec<PathBuf> =
            [executable.clone()].into_iter().chain(spec.named_executables()).collect();
        sandbox.prepare(&executables, &spec.work_dir, containment)
    };
    let prepared = match (&spec.sandbox, &spec.declared_reads) {
        (Some(sandbox), _) => Some(prepare(sandbox)?),
        (None, Some(reads)) => Some(reads.prepare(&executable, spec, containment)?),
        (None, None) => None,
    };
    let launch = launch_of(spec, &executable, prepared.as_ref())?;
    let init = programs.slots.init_for(named, spec, &executable)?;
    let [stdin, stdout, stderr] = streams;
    let ends = ProgramEnds { stdin, stdout, stderr, rules: prepared.as_ref().and_then(Prepared::rules) };
    match unless_busy(|| init.start(&launch, ends)) {
        Ok(Started { pid, end }) => Ok((Member { init, pid }, end)),
        Err(StartError::Containment(error)) => Err(environment(&error)),
        Err(StartError::Program(error)) => Err(not_started(spec, &executable, &error)),
    }
}

/// Returns the failure of a program that was found, and could not be started.
fn not_started(spec: &ProgramSpec, executable: &Path, error: &std::io::Error) -> TaskFailure {
    let program = &spec.words[0];
    let hidden = own_directory_above(executable);
    let (blame, what) = match (error.kind(), hidden) {
        (ErrorKind::NotFound, Some(own)) => {
            let what = format!(
                "it or its interpreter is not seen by a contained program, which has a {} of its own; name it with \
                 --file, or use a node with --no-contain",
                own.display()
            );
            (Blame::UserData, what)
        }
        // The file was found, so the interpreter of its first line is missing.
        (ErrorKind::NotFound, None) => {
            (Blame::UserData, "its interpreter or the work directory is missing".to_string())
        }
        (ErrorKind::ExecutableFileBusy, _) => {
            (Blame::Environment, "something has it open for writing".to_string())
        }
        (ErrorKind::PermissionDenied, _) => {
            let advice = if spec.declared_reads.is_some() { UNDECLARED } else { "" };
            (Blame::UserData, format!("it is not executable{advice}"))
        }
        _ => (Blame::Environment, "it cannot be started".to_string()),
    };
    TaskFailure::new(blame, format!("program {program:?} ({}): {what}: {error}", executable.display()))
}

/// Returns the strings of a program as the kernel takes them.
fn launch_of(
    spec: &ProgramSpec,
    executable: &Path,
    prepared: Option<&Prepared>,
) -> Result<Launch, TaskFailure> {
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    // Its own path and not the user's name for it: an interpreter searches its library beside it, and runs in another
    // directory.
    let words = spec.words.iter().skip(1).map(|word| word.as_bytes().to_vec());
    let variable = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let launch = Launch {
        executable: bytes(executable),
        arguments: [bytes(executable)].into_iter().chain(words).collect(),
        environment: environment_of(spec).into_iter().map(variable).collect(),
        work_dir: bytes(&spec.work_dir),
        restrictions: prepared.map(Prepared::restrictions),
        limits: ProcessLimits {
            open_files: spec.limits.get(LimitKind::OpenFiles),
            file_bytes: spec.limits.get(LimitKind::FileSize),
            processes: spec.limits.get(LimitKind::Processes),
            memory_bytes: spec.limits.get(LimitKind::Memory),
        },
    };
    let has_zero = |strings: &[Vec<u8>]| strings.iter().any(|string| string.contains(&0));
    if has_zero(&launch.arguments) || has_zero(&launch.environment) || launch.work_dir.contains(&0) {
        let message = format!("program {:?}: a zero byte in a word or in its environment", spec.words[0]);
        return Err(TaskFailure::new(Blame::UserData, message));
    }
    Ok(launch)
}

/// Retries the start: a file that was just written may still be open for writing. The kernel refuses to run such a
/// file.
fn unless_busy(start: impl Fn() -> Result<Started, StartError>) -> Result<Started, StartError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match start() {
            Err(StartError::Program(error))
                if error.kind() == ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES_MAX =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            other => return other,
        }
    }
}

/// Returns the environment of the program.
fn environment_of(spec: &ProgramSpec) -> BTreeMap<OsString, OsString> {
    let kept = std::env::vars_os().filter(|(name, _)| passes_through(name.as_encoded_bytes()));
    kept.chain(spec.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

fn passes_through(name: &[u8]) -> bool {
    matches!(name, b"PATH" | b"HOME" | b"LANG") || name.starts_with(b"LC_")
}
