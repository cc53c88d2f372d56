//! Printing the output of `--output -`, once it is published.

use crate::show::terminal::is_closed_pipe;
use anyhow::Context;
use api::JobReport;
use jobspec::standard_output::PrivateOutput;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

/// Copies the parts to standard output. A reader that has disconnected is no error.
pub fn print_output(output: &PrivateOutput, report: &JobReport) -> anyhow::Result<()> {
    let writing = "writing the output to standard output";
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().context(writing)?;
    let mut stdout = File::from(stdout);
    for part in &report.parts {
        let path = output.output().join(&part.name);
        let mut file = File::open(&path).with_context(|| format!("reading {}", path.display()))?;
        let copied = std::io::copy(&mut file, &mut stdout).and_then(|_| stdout.flush());
        match copied.map_err(anyhow::Error::from) {
            Err(error) if is_closed_pipe(&error) => return Ok(()),
            other => other.context(writing)?,
        }
    }
    Ok(())
}
