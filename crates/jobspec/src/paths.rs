//! The paths of a run: required ones, forbidden ones, and their relations.

use crate::front_end::FrontEnd;
use anyhow::{Context, bail, ensure};
use api::{InputFile, STORED_PREFIX, is_object_url, name_beside};
use objects::ObjectUrl;
use rustix::fs::Access;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Checks the file of environment variables of `--env-file`, and returns its absolute path.
pub fn env_file(path: &Path, start_dir: &Path) -> anyhow::Result<PathBuf> {
    let absolute = start_dir.join(path);
    ensure!(absolute.to_str().is_some(), "--env-file {}: the path is not UTF-8", path.display());
    program::read_env_file(&absolute).context("--env-file")?;
    Ok(absolute)
}

/// The fate of a directory that is already at the path of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingOutput {
    /// The job is refused.
    Refuse,
    /// The new output replaces it.
    Replace,
}

/// Returns the output directory as an absolute path without links, below an existing writable directory; missing
/// directories between the two are created with it. For the URL of a prefix, the runner of the job checks it.
pub fn output(path: &Path, start_dir: &Path, existing: ExistingOutput) -> anyhow::Result<PathBuf> {
    let shown = path.display();
    if is_object_url(path) {
        let url = ObjectUrl::from_path(path).context("--output")?;
        return Ok(PathBuf::from(url.to_string()));
    }
    let absolute = start_dir.join(path);
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        bail!("--output {shown} names no directory of its own: give the path of a new one");
    };
    let (there, missing) = roots::deepest_existing(parent)
        .with_context(|| format!("--output {shown}: {} cannot be used", parent.display()))?;
    ensure!(there.is_dir(), "--output {shown}: {} is not a directory", there.display());
    rustix::fs::access(&there, Access::WRITE_OK | Access::EXEC_OK)
        .with_context(|| format!("--output {shown}: cannot write in {}", there.display()))?;
    let output = missing.into_iter().chain([name]).fold(there, |path, name| path.join(name));
    ensure!(output.to_str().is_some(), "--output {shown}: the path is not UTF-8");
    if let Ok(metadata) = output.symlink_metadata() {
        ensure!(!metadata.is_symlink(), "--output {shown} is a symbolic link: name the directory itself");
        ensure!(metadata.is_dir(), "--output {shown} exists and is not a directory: choose another name");
        let is_replaced = existing == ExistingOutput::Replace;
        ensure!(is_replaced, "--output {shown} exists already: choose another or add --overwrite");
    }
    Ok(output)
}

/// Returns an error if output and inputs are nested, or if the output may not be replaced. The next run would read an
/// output inside its own input as data; this run would remove an input, or files of others, inside the output.
pub fn check_output_against_inputs(
    output: &Path,
    arguments: &[String],
    inputs: &[InputFile],
    front_end: &dyn FrontEnd,
) -> anyhow::Result<()> {
    if is_object_url(output) {
        return check_prefix_against_inputs(&ObjectUrl::from_path(output)?, arguments, inputs);
    }
    for argument in arguments {
        let Ok(directory) = Path::new(argument).canonicalize() else { continue };
        if directory.is_dir() && output.starts_with(&directory) {
            let output = output.display();
            bail!("--output {output} lies inside --input {argument}: a later run would read it as data");
        }
    }
    if !output.exists() {
        return Ok(());
    }
    for input in inputs {
        let path = input.path.canonicalize().unwrap_or_else(|_| input.path.clone());
        if path.starts_with(output) {
            bail!(
                "--input {} lies inside --output {}, which --overwrite would replace: choose another output",
                input.path.display(),
                output.display()
            );
        }
    }
    // The runner of the job checks again; this check comes before anything is created.
    front_end.check_replaced(output)
}

fn check_prefix_against_inputs(
    output: &ObjectUrl,
    arguments: &[String],
    inputs: &[InputFile],
) -> anyhow::Result<()> {
    for argument in arguments.iter().filter(|argument| is_object_url(Path::new(argument))) {
        if ObjectUrl::parse(argument).is_ok_and(|input| output.is_within(&input)) {
            bail!("--output {output} lies inside --input {argument}: a later run would read it as data");
        }
    }
    for input in inputs.iter().filter(|input| input.object.is_some()) {
        if ObjectUrl::from_path(&input.path)?.is_within(output) {
            let input = input.path.display();
            bail!("--input {input} lies inside --output {output}: choose another output");
        }
    }
    Ok(())
}

/// Returns an error for a `--disk` directory whose parent is missing too: the disk may not be mounted.
pub fn check_disk(path: &Path, argument: &str) -> anyhow::Result<()> {
    let above = path.parent().unwrap_or(path);
    ensure!(
        path.exists() || above.is_dir(),
        "--disk {argument}: {} does not exist either: mount the disk, or create the directory first",
        above.display()
    );
    Ok(())
}

/// Returns the `--disk` directories: absolute, writable, each once. A missing one is created.
pub fn disks(arguments: &[String], start_dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut disks = Vec::new();
    for argument in arguments {
        let path = start_dir.join(argument);
        check_disk(&path, argument)?;
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("--disk {argument} cannot be created"));
            }
            _ => {}
        }
        let disk = path.canonicalize().with_context(|| format!("--disk {argument} cannot be used"))?;
        ensure!(disk.is_dir(), "--disk {argument} is not a directory");
        rustix::fs::access(&disk, Access::WRITE_OK | Access::EXEC_OK)
            .with_context(|| format!("--disk {argument}: cannot write there"))?;
        ensure!(disk.to_str().is_some(), "--disk {argument}: the path is not UTF-8");
        ensure!(!disks.contains(&disk), "--disk {argument} is given twice");
        disks.push(disk);
    }
    let disks_max = usize::from(u16::MAX);
    ensure!(disks.len() <= disks_max, "--disk is given {} times; at most {disks_max}", disks.len());
    Ok(disks)
}

/// Returns the `--file` files: absolute and readable, or names of stored files; their own names are distinct.
pub fn files(arguments: &[String], start_dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut names = BTreeSet::new();
    let mut files = Vec::new();
    for argument in arguments {
        let path = match argument.starts_with(STORED_PREFIX) {
            true => PathBuf::from(argument),
            false => readable_file(argument, start_dir)?,
        };
        // The name is the user's, which may be that of a link.
        let Some(name) = name_beside(&path) else { bail!("--file {argument} has no name of its own") };
        ensure!(names.insert(name.to_os_string()), "--file {argument}: another file has that name already");
        ensure!(path.to_str().is_some(), "--file {argument}: the path is not UTF-8");
        files.push(path);
    }
    Ok(files)
}

fn readable_file(argument: &str, start_dir: &Path) -> anyhow::Result<PathBuf> {
    let path = start_dir.join(argument);
    let file = path.canonicalize().with_context(|| format!("--file {argument}"))?;
    rustix::fs::access(&file, Access::READ_OK).with_context(|| format!("--file {argument}: cannot read"))?;
    std::path::absolute(&path).with_context(|| format!("--file {argument}"))
}

/// Returns the last component of a path, as text.
pub fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
