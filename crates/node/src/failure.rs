//! Conversion of errors of the road to failures of an attempt.

use api::{Blame, TaskFailure};
use iappender::AppendError;
use roots::shown;
use std::io::ErrorKind;
use std::path::Path;

/// Makes a task failure from the error of an appender.
pub(crate) fn append_failure(error: &AppendError) -> TaskFailure {
    let blame = match error {
        AppendError::Cancelled => Blame::Cancelled,
        AppendError::TooLarge { .. } => Blame::UserData,
        AppendError::Refused { .. } => Blame::Engine,
        AppendError::AnswerLost
        | AppendError::Gone(_)
        | AppendError::Spill { .. }
        | AppendError::GaveUp { .. } => Blame::Environment,
    };
    TaskFailure::new(blame, dataport::with_causes(error))
}

/// Returns the failure of a file operation of the engine.
pub(crate) fn file_failure(action: &str, path: &Path, error: impl Into<std::io::Error>) -> TaskFailure {
    let error: std::io::Error = error.into();
    TaskFailure::new(Blame::Environment, format!("cannot {action} {}: {error}", shown(path).display()))
}

/// Returns the failure for a path that a job names: outside of the roots, a retry would be refused too.
pub(crate) fn named_failure(action: &str, path: &Path, error: std::io::Error) -> TaskFailure {
    let blame = match error.kind() {
        ErrorKind::PermissionDenied => Blame::UserData,
        _ => Blame::Environment,
    };
    TaskFailure::new(blame, format!("cannot {action} {}: {error}", path.display()))
}
