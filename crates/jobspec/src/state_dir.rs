//! The directory for the state of this user's jobs.

use anyhow::Context;
use etcetera::BaseStrategy;
use std::path::{Path, PathBuf};

/// Returns the state directory: the given one, absolute, otherwise `sailfish` in the XDG state directory.
pub fn state_dir(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(path) => std::path::absolute(path).with_context(|| format!("--state {}", path.display())),
        None => user_dir().context("finding the home directory; set HOME or name a directory with --state"),
    }
}

/// Returns `sailfish` in the XDG state directory.
fn user_dir() -> Result<PathBuf, etcetera::HomeDirError> {
    let directories = etcetera::choose_base_strategy()?;
    // The XDG strategy always has a state directory; other strategies fall back to their data directory.
    Ok(directories.state_dir().unwrap_or_else(|| directories.data_dir()).join("sailfish"))
}

/// Returns the directory in which servers of this user keep their own tokens; None if the user has no home.
pub fn servers_dir() -> Option<PathBuf> {
    Some(user_dir().ok()?.join("servers"))
}
