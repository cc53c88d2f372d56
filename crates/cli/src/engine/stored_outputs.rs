//! `--output files:NAME`: the published output of a job becomes a stored file.

use anyhow::{Context, ensure};
use api::JobReport;
use api::stored::MakingJob;
use concretefile::Content;
use filestore::{FileStore, FilesError, OutputForm, OutputPart};
use filetree::{TreeName, TreePath};
use jobspec::StoredShape;
use jobspec::standard_output::{self, PrivateOutput};
use std::path::{Path, PathBuf};

/// Removes private outputs of killed processes.
pub fn sweep(state_dir: &Path) {
    standard_output::sweep(&[FileStore::outputs_dir(state_dir)]);
}

/// Parses the name of an output.
pub fn path_of(text: &str) -> anyhow::Result<TreePath> {
    let name = TreeName::parse(text);
    let name = name.map_err(|source| FilesError::Name { text: text.to_string(), source })?;
    ensure!(name.version.is_none(), "a version cannot be written: leave out `@` and what follows");
    Ok(name.path)
}

fn open(state_dir: &Path) -> Result<FileStore, FilesError> {
    FileStore::open(state_dir, &std::env::var("USER").unwrap_or_default())
}

fn form_of(shape: StoredShape) -> OutputForm {
    match shape {
        StoredShape::File => OutputForm::File,
        StoredShape::Directory => OutputForm::Directory,
    }
}

/// Checks the name of an output before its job runs. Returns the directory for private outputs.
pub fn check(state_dir: &Path, text: &str, shape: StoredShape) -> anyhow::Result<PathBuf> {
    open(state_dir)?.check_output(&path_of(text)?, form_of(shape))?;
    Ok(FileStore::outputs_dir(state_dir))
}

/// Stores the parts of a published output, whose checksums are those of the report.
pub fn store(state_dir: &Path, text: &str, output: &PrivateOutput, report: &JobReport) -> anyhow::Result<()> {
    let part = |part: &api::task::Part| OutputPart {
        name: part.name.clone(),
        path: output.output().join(&part.name),
        content: Content { bytes: part.bytes, crc32c: part.crc32c },
    };
    let parts: Vec<OutputPart> = report.parts.iter().map(part).collect();
    let form = form_of(StoredShape::of(&report.formats));
    let storing = || format!("the job succeeded, but its output was not stored as {text}");
    let job = MakingJob { job: report.job, name: report.name.clone() };
    open(state_dir)?.store_output(&path_of(text)?, &parts, form, &job).with_context(storing)?;
    Ok(())
}
