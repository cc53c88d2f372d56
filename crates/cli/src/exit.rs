//! Exit codes, and the failure of a command.

use api::control::ErrorCode;
use client::ClientError;
use metastore::StoreError;
use server::ServerError;

/// The job ran and failed because of the machine or the engine; or a check found differences.
pub const FAILED: u8 = 1;
/// The request was refused before anything ran: an option, an input, a path, the state.
pub const REFUSED: u8 = 2;
/// The command stopped waiting for a job of a cluster, which continues.
pub const GOES_ON: u8 = 75;
/// Stopped by Ctrl-C or a request to terminate.
pub const INTERRUPTED: u8 = 130;
/// Offset for the number of the signal that ended a user's program, as in shells.
pub const SIGNAL_BASE: i32 = 128;

/// A failure that ends a command with an exit code other than 0.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    /// Printed as one sentence; None if everything has been printed.
    pub error: Option<anyhow::Error>,
}

impl Failure {
    /// Makes the failure of a refused request: nothing has run.
    pub fn refused(error: impl Into<anyhow::Error>) -> Self {
        Self { code: REFUSED, error: Some(error.into()) }
    }

    /// Returns the reason as an error.
    pub fn into_error(self) -> anyhow::Error {
        self.error.unwrap_or_else(|| anyhow::anyhow!("it ended with code {}", self.code))
    }

    /// Makes a failure with a code; everything has been printed.
    pub fn said(code: u8) -> Self {
        Self { code, error: None }
    }

    /// Converts an error of the server at or before submit: refused if the user can change it.
    pub fn from_server(error: ServerError) -> Self {
        let code = match &error {
            ServerError::OutputExists { .. }
            | ServerError::OutputNotADirectory { .. }
            | ServerError::OutputHoldsWhatTheJobNeeds { .. }
            | ServerError::OutputNotOurs(_)
            | ServerError::LongName { .. }
            | ServerError::LongArgument { .. }
            | ServerError::ManyArguments { .. }
            | ServerError::BadResources(_)
            | ServerError::OutputUnreadable { .. }
            | ServerError::OutputUnusable { .. }
            | ServerError::DirectoryUnwritable { .. }
            | ServerError::Object(_)
            | ServerError::Flow(_)
            | ServerError::Kind(_)
            | ServerError::MoreThanSteps
            | ServerError::NotReducible(_)
            | ServerError::NotCollectable { .. }
            | ServerError::OwnerLock { .. }
            | ServerError::StateInUse { .. } => REFUSED,
            ServerError::Store(
                StoreError::StateDirUnwritable { .. }
                | StoreError::Corrupt { .. }
                | StoreError::BadUrl { .. }
                | StoreError::FromNewerVersion { .. }
                | StoreError::PathNotText { .. },
            ) => REFUSED,
            _ => FAILED,
        };
        Self { code, error: Some(error.into()) }
    }
}

impl Failure {
    /// Converts an error of a remote server, or of the connection to it.
    pub fn from_client(error: ClientError) -> Self {
        let code = match error.code() {
            Some(ErrorCode::Refused | ErrorCode::BadRequest | ErrorCode::NotFound) => REFUSED,
            Some(ErrorCode::VersionMismatch | ErrorCode::TooLarge) => REFUSED,
            Some(ErrorCode::Unauthenticated | ErrorCode::Forbidden) => REFUSED,
            Some(ErrorCode::UnknownNode | ErrorCode::TooMany | ErrorCode::Failed) => FAILED,
            None => match error {
                ClientError::BadUrl { .. }
                | ClientError::BadProxy { .. }
                | ClientError::TooManyAddresses { .. }
                | ClientError::TokenInClear { .. }
                | ClientError::TokenForTls { .. }
                | ClientError::NobodyBelieved { .. }
                | ClientError::Untrusted { .. }
                | ClientError::Trust(_)
                | ClientError::Unreachable { .. } => REFUSED,
                _ => FAILED,
            },
        };
        Self { code, error: Some(error.into()) }
    }
}

impl From<StoreError> for Failure {
    /// Converts an error of the store during a read.
    fn from(error: StoreError) -> Self {
        Self { code: FAILED, error: Some(error.into()) }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { code: FAILED, error: Some(error) }
    }
}

/// Formats an error with its causes as one sentence. Some messages contain their cause already; it is not repeated.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let message = cause.to_string();
        if text.is_empty() {
            text = message;
        } else if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::sentence;
    use anyhow::{Context, anyhow};

    #[test]
    fn causes_are_said_once() {
        let error = Err::<(), _>(anyhow!("no such file")).context("cannot read a: no such file");
        assert_eq!(sentence(&error.unwrap_err()), "cannot read a: no such file");
        let error = Err::<(), _>(anyhow!("no such file")).context("--input a").unwrap_err();
        assert_eq!(sentence(&error), "--input a: no such file");
    }
}
