//! Callers that wait for an answer.

use crate::interface::ControlError;

/// A caller that waits for one answer. The shell that owns the connection implements it.
pub trait Asker<T>: Send {
    /// Returns true if the caller hung up and nobody waits for the answer.
    fn is_gone(&self) -> bool;

    fn answer(self: Box<Self>, answer: Result<T, ControlError>);
}

pub type Reply<T> = Box<dyn Asker<T>>;
