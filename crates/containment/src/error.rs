//! Failures of containment.

/// Reason why programs cannot be started or watched. Never the fault of a program; retryable with a new init.
#[derive(Debug, thiserror::Error)]
pub enum ContainmentError {
    #[error("the spawner of programs has ended")]
    SpawnerEnded,
    #[error("the init of the slot has ended, and its programs with it")]
    InitEnded,
    #[error("the init of the slot does not answer")]
    Silent,
    /// The kernel, or a container around the engine, does not allow a step.
    #[error("{0}")]
    Refused(String),
    #[error("cannot {step}: {error}")]
    Io { step: &'static str, error: std::io::Error },
}
