//! Mistakes in the steps that stand for several ones.

use crate::error::Nearest;
use std::path::PathBuf;

/// A mistake in parameters, sweeps, wildcards or globs, which the user of the file can fix.
#[derive(Debug, thiserror::Error)]
pub enum ExpansionError {
    #[error("{place} has {key:?}: give a name of letters, digits and `_` that does not begin with a digit")]
    BadName { place: String, key: String },
    #[error("{place}: {key} is {found}: give a text, a finite number, true or false, or a list of these")]
    BadParameter { place: String, key: String, found: &'static str },
    #[error("{place}: {key} is {found}: give a list of values, or the name of a list of [params]")]
    BadSweep { place: String, key: String, found: &'static str },
    #[error("{place}: the list of {key} is empty: give at least one value")]
    EmptyList { place: String, key: String },
    #[error("{place}: {key} names {list:?}, which is no list of [params]{nearest}")]
    NoSuchList { place: String, key: String, list: String, nearest: Nearest },
    #[error(
        "the step {step:?} has {{{name}}}, which is a list: sweep over it, as in sweep = {{ one = {name:?} }}"
    )]
    ListInText { step: String, name: String },
    #[error(
        "the step {step:?} has {{{name}}}, which is no name of it: did you mean {{{nearest}}}? (For the text itself \
         write {{{{{name}}}}}.)"
    )]
    UnknownPlaceholder { step: String, name: String, nearest: String },
    #[error(
        "the step {step:?} has {{{inside}}}, which is no placeholder here: {advice} (docs/workflows.md, Coming from \
         Snakemake). For the text itself write {{{{{inside}}}}}."
    )]
    OfSnakemake { step: String, inside: String, advice: String },
    #[error(
        "the step {step:?} has {{{name}}} in `command` or after an option such as `-c`, and a file gives it the value \
         {value:?}, which a shell does not take as it stands: give it in `words` as a word of its own, or env = {{ NAME = \
         \"{{{name}}}\" }} and \"$NAME\" in the command"
    )]
    NotForShell { step: String, name: String, value: String },
    #[error("two steps have the name {step:?}")]
    SameName { step: String },
    #[error("the step {step:?} has the pattern {pattern:?}: {reason}")]
    BadPattern { step: String, pattern: String, reason: &'static str },
    #[error("the step {step:?}: {files} matches {pattern:?}, and no step writes such a file")]
    NoMatch { step: String, pattern: String, files: &'static str },
    #[error(
        "the step {step:?} grows without end: {pattern:?} matches {path}, which follows from its own outputs: choose \
         names for these that do not match", path = path.display()
    )]
    EndlessGrowth { step: String, pattern: String, path: PathBuf },
    #[error("cannot list {path}: {source}", path = path.display())]
    Unlistable { path: PathBuf, source: std::io::Error },
    #[error("cannot list the stored files {path}: {source:#}")]
    UnlistableStored { path: String, source: anyhow::Error },
    #[error("{path} matches {pattern:?}, and its name is not UTF-8: rename it", path = path.display())]
    NotUtf8 { pattern: String, path: PathBuf },
    #[error("the step {step:?} makes more than {max} {things} of the workflow: {advice}")]
    TooMany { step: String, max: usize, things: &'static str, advice: &'static str },
}
