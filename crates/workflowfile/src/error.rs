//! Mistakes in workflow files.

use crate::expand::ExpansionError;
use std::path::{Path, PathBuf};

/// A mistake in a workflow file, which its user can fix.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowFileError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{path} has more than {bytes_max} bytes: is it a workflow file?", path = path.display())]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("{path} is no TOML: {message}", path = path.display())]
    NoToml { path: PathBuf, message: String },
    #[error("{path} is no workflow file: {message}", path = path.display())]
    NoWorkflow { path: PathBuf, message: String },
    #[error("{path}, line {line}, column {column}: {place} is {found}: {advice}", path = path.display())]
    WrongType {
        path: PathBuf,
        line: usize,
        column: usize,
        /// The key, and its step.
        place: String,
        found: &'static str,
        advice: String,
    },
    #[error("{place}: there is no key `{key}`{nearest}")]
    UnknownKey { place: String, key: String, nearest: Nearest },
    #[error("the step {step:?} has both `command` and `words`, or neither: give one of them, or [step.job]")]
    NoCommand { step: String },
    #[error("{place}: the key `{key}` has no meaning there: {instead}")]
    JobKey { place: String, key: String, instead: &'static str },
    #[error("the step {step:?} has [step.job] and `{key}`: leave one of them out")]
    JobBeside { step: String, key: &'static str },
    #[error(
        "the step {step:?} has [step.job] without an output: name its directory, as in output = \"counts\""
    )]
    NoJobOutput { step: String },
    #[error(
        "the step {step:?} has [step.job] without inputs: name them in `inputs` of the step, above [step.job]"
    )]
    NoJobInputs { step: String },
    #[error(
        "the step {step:?} is a job and writes {path}: it writes plain files; put a step with `cat` after it, which writes the \
         stored one", path = path.display()
    )]
    JobWritesStored { step: String, path: PathBuf },
    #[error("the job of the step {step:?} cannot run: {reason}")]
    BadJob { step: String, reason: String },
    #[error(
        "the step {step:?} reads {path}, which is no part of the output of {writer:?}: that step replaces the directory; \
         name a part", path = path.display()
    )]
    NoPart { step: String, path: PathBuf, writer: String },
    #[error(
        "the step {step:?} names {path:?}: give a path below the directory of the workflow file, without `..`, or an \
         absolute path"
    )]
    BadPath { step: String, path: PathBuf },
    #[error(
        "the step {step:?} writes {path}: give a stored file a name without a version, and without empty parts, `.` and `..`, \
         as in files:DIR/NAME",
        path = path.display()
    )]
    StoredOutput { step: String, path: PathBuf },
    #[error("the step {step:?} waits for {after:?}, which is no step{likely}")]
    UnknownStep { step: String, after: String, likely: LikelySteps },
    #[error("there is no step {step:?}{likely}")]
    NoStep { step: String, likely: LikelySteps },
    #[error("the step {step:?} has {key} = {value:?}: {reason}")]
    BadValue { step: String, key: &'static str, value: String, reason: String },
    #[error("the step {step:?} reads {path}, which does not exist, and no step writes it{nearest}", path = path.display())]
    MissingInput { step: String, path: PathBuf, nearest: Nearest },
    #[error("the step {step:?} reads {path}, which is no plain file: name the files in it", path = path.display())]
    NoFile { step: String, path: PathBuf },
    #[error("{place} is a table without `path`: write {{ path = \"files:NAME\", view = true }}")]
    NoInputPath { place: String },
    #[error(
        "the step {step:?} reads {path} with `view = true`, and it is no stored file: leave `view` out, or put the file with \
         `sailfish files put` and name it files:NAME", path = path.display()
    )]
    ViewOfPlain { step: String, path: PathBuf },
    #[error(
        "the step {step:?} reads {path} with `view = true`, and the step {writer:?} writes it: leave `view` out; a view \
         shows a file that no step writes", path = path.display()
    )]
    ViewOfOutput { step: String, path: PathBuf, writer: String },
    #[error("the step {step:?} has the stream {name:?}, which is none of its inputs and outputs{nearest}")]
    NoSuchStream { step: String, name: String, nearest: Nearest },
    #[error(
        "the step {step:?} reads the stream {path}, a stored file that no step writes: leave it out of `streams`; its program \
         reads a plain file", path = path.display()
    )]
    StreamOfStored { step: String, path: PathBuf },
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
/// Maximum number of letters in which a file differs from a missing one that it is shown for.
const FILE_LETTERS_MAX: usize = 2;
/// Maximum number of steps that are listed.
const STEPS_SHOWN_MAX: usize = 5;

impl Nearest {
    /// Finds the name that is most like a wrong one.
    pub(crate) fn of<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let likeness = |name: &'a str| (strsim::jaro_winkler(wrong, name), name);
        let nearest = names.into_iter().map(likeness).max_by(|one, other| one.0.total_cmp(&other.0));
        Self(nearest.filter(|(likeness, _)| *likeness >= LIKE).map(|(_, name)| name.to_string()))
    }

    /// Finds the file whose path differs from a missing one in at most two letters, and in less than half of the letters
    /// of its name.
    pub(crate) fn of_files<'a>(missing: &Path, files: impl IntoIterator<Item = &'a Path>) -> Self {
        let Some((whole, name)) = missing.to_str().zip(missing.file_name().and_then(|name| name.to_str()))
        else {
            return Self(None);
        };
        let letters_max = FILE_LETTERS_MAX.min(name.chars().count().saturating_sub(1) / 2);
        let distance = |file: &'a Path| {
            let path =
                file.to_str().filter(|path| path.len().abs_diff(whole.len()) <= 4 * FILE_LETTERS_MAX)?;
            let distance = match file.parent() == missing.parent() {
                true => strsim::osa_distance(name, file.file_name()?.to_str()?),
                false => strsim::osa_distance(whole, path),
            };
            (distance <= letters_max).then_some((distance, path))
        };
        let nearest = files.into_iter().filter_map(distance).min();
        Self(nearest.map(|(_, path)| path.to_string()))
    }

    /// Returns this name, or some steps if there is none.
    pub(crate) fn or(self, steps: FewSteps) -> LikelySteps {
        LikelySteps { nearest: self, steps }
    }
}

/// The first steps of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FewSteps {
    names: Vec<String>,
    /// Number of the others.
    more: usize,
}

impl FewSteps {
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names = names.into_iter();
        let shown = names.by_ref().take(STEPS_SHOWN_MAX).map(str::to_string).collect();
        Self { names: shown, more: names.count() }
    }
}

/// Steps that a wrong name may mean: the nearest one, or a few of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LikelySteps {
    nearest: Nearest,
    steps: FewSteps,
}

impl std::fmt::Display for LikelySteps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nearest.0.is_some() || self.steps.names.is_empty() {
            return self.nearest.fmt(f);
        }
        if let [only] = self.steps.names.as_slice() {
            return write!(f, ": the only step is {only:?}");
        }
        let names: Vec<String> = self.steps.names.iter().map(|name| format!("{name:?}")).collect();
        write!(f, ": the steps are {}", names.join(", "))?;
        if self.steps.more > 0 { write!(f, " and {} more", self.steps.more) } else { Ok(()) }
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
