//! Mistakes in workflow files.

use crate::expand::ExpansionError;
use std::path::PathBuf;

/// A mistake in a workflow file, which its user can fix.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowFileError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{path} has more than {bytes_max} bytes: is it a workflow file?", path = path.display())]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("{path} is no TOML: {message}", path = path.display())]
    NoToml { path: PathBuf, message: String },
    #[error("{place}: there is no key `{key}`{nearest}")]
    UnknownKey { place: String, key: String, nearest: Nearest },
    #[error("the step {step:?} has both `command` and `words`, or neither: give one of them")]
    NoCommand { step: String },
    #[error(
        "the step {step:?} names {path:?}: give a path below the directory of the workflow file, without `..`, or an \
         absolute path"
    )]
    BadPath { step: String, path: PathBuf },
    #[error("the step {step:?} waits for {after:?}, which is no step{nearest}")]
    UnknownStep { step: String, after: String, nearest: Nearest },
    #[error("there is no step {step:?}{nearest}")]
    NoStep { step: String, nearest: Nearest },
    #[error("the step {step:?} has {key} = {value:?}: {reason}")]
    BadValue { step: String, key: &'static str, value: String, reason: String },
    #[error("the step {step:?} reads {path}, which does not exist, and no step writes it{nearest}", path = path.display())]
    MissingInput { step: String, path: PathBuf, nearest: Nearest },
    #[error("the step {step:?} reads {path}, which is no plain file: name the files in it", path = path.display())]
    NoFile { step: String, path: PathBuf },
    #[error("the workflow cannot run: {reason}")]
    CannotRun { reason: String },
    #[error(transparent)]
    Expansion(ExpansionError),
}

/// A name that is like a wrong one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nearest(Option<String>);

/// Likeness from which on a name is shown.
const LIKE: f64 = 0.7;

impl Nearest {
    /// Finds the name that is most like a wrong one.
    pub(crate) fn of<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let likeness = |name: &'a str| (strsim::jaro_winkler(wrong, name), name);
        let nearest = names.into_iter().map(likeness).max_by(|one, other| one.0.total_cmp(&other.0));
        Self(nearest.filter(|(likeness, _)| *likeness >= LIKE).map(|(_, name)| name.to_string()))
    }
}

impl std::fmt::Display for Nearest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(name) => write!(f, ": did you mean `{name}`?"),
            None => Ok(()),
        }
    }
}
