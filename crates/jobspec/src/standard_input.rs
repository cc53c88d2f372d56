//! `--input -`: standard input as a file that attempts can read repeatedly.

use anyhow::{Context, bail, ensure};
use api::InputFile;
use faults::{IoCall, io_call};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// The argument for standard input among the inputs.
pub const ARGUMENT: &str = "-";

/// Standard input as a pinned input. The file must stay open while the job runs.
#[derive(Debug)]
pub struct StandardInput {
    pub input: InputFile,
    pub file: File,
}

/// Returns an error if standard input is given twice, or is a terminal.
pub fn check(arguments: &[String]) -> anyhow::Result<()> {
    let count = arguments.iter().filter(|argument| *argument == ARGUMENT).count();
    ensure!(count <= 1, "--input - is given {count} times, but standard input can be read only once");
    ensure!(
        count == 0 || !std::io::stdin().is_terminal(),
        "--input -: standard input is a terminal; send data to it, as in `sailfish run --input - < FILE`"
    );
    Ok(())
}

/// Pins standard input. A regular file at its start is used directly; everything else is copied into a file in `dir`
/// that never gets a name, so that nothing is left of it however the process ends. With `bytes_max`, a larger input is
/// an error.
pub fn take(dir: &Path, bytes_max: Option<u64>) -> anyhow::Result<StandardInput> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().context("reading standard input")?;
    let source = File::from(stdin);
    let is_file = source.metadata().is_ok_and(|metadata| metadata.is_file());
    let at_start = is_file && rustix::fs::tell(&source).is_ok_and(|offset| offset == 0);
    // The file may have been opened with more permissions; it is copied in this case.
    if at_start && let Ok(input) = mapper::input::pin_open_file(source.as_fd()) {
        check_size(input.size_bytes, bytes_max)?;
        return Ok(StandardInput { input, file: source });
    }
    let where_to = || format!("copying standard input to {}", dir.display());
    io_call(IoCall::Create, dir).and_then(|()| std::fs::create_dir_all(dir)).with_context(where_to)?;
    let mut file = tempfile::tempfile_in(dir).with_context(where_to)?;
    // One byte beyond the limit shows that there are too many.
    let mut source = source.take(bytes_max.map_or(u64::MAX, |bytes| bytes.saturating_add(1)));
    let copied = io_call(IoCall::Write, dir).and_then(|()| std::io::copy(&mut source, &mut file));
    let copied = copied.with_context(where_to)?;
    check_size(copied, bytes_max)?;
    let input = mapper::input::pin_open_file(file.as_fd()).context("reading standard input")?;
    Ok(StandardInput { input, file })
}

fn check_size(bytes: u64, bytes_max: Option<u64>) -> anyhow::Result<()> {
    match bytes_max {
        Some(bytes_max) if bytes > bytes_max => bail!(
            "--input -: standard input has more than {bytes_max} bytes, the limit for the nodes of a \
             cluster; put it into a file on a path that all nodes share"
        ),
        _ => Ok(()),
    }
}
