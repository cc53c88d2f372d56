//! Callers of the server, adapted for control.

use crate::ServerError;
use crate::event_loop::{EventLoop, Reply};
use control::{Asker, ControlError};

/// A caller that waits for an answer of control.
struct Caller<T>(Reply<T>);

impl<T: Send> Asker<T> for Caller<T> {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    fn answer(self: Box<Self>, answer: Result<T, ControlError>) {
        // A caller that hung up asks again, or no longer needs the answer.
        let _ = self.0.send(answer.map_err(ServerError::from));
    }
}

pub(crate) fn caller<T: Send + 'static>(reply: Reply<T>) -> control::Reply<T> {
    Box::new(Caller(reply))
}

/// A caller that waits for a value computed from control's answer.
struct CallerOf<T, F> {
    reply: Reply<T>,
    finish: F,
}

impl<T: Send, U, F: FnOnce(U) -> T + Send> Asker<U> for CallerOf<T, F> {
    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    fn answer(self: Box<Self>, answer: Result<U, ControlError>) {
        let Self { reply, finish } = *self;
        let _ = reply.send(answer.map(finish).map_err(ServerError::from));
    }
}

/// Returns a caller that gets `finish` applied to control's answer.
pub(crate) fn caller_of<T: Send + 'static, U: 'static>(
    reply: Reply<T>,
    finish: impl FnOnce(U) -> T + Send + 'static,
) -> control::Reply<U> {
    Box::new(CallerOf { reply, finish })
}

impl EventLoop {
    /// Queues an answer of the shell that leaves after the next transaction.
    pub fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, answer: Result<T, ServerError>) {
        self.outbox.after_write(move || drop(reply.send(answer)));
    }
}
