//! Callers of the server as control sees them.

use crate::ServerError;
use crate::event_loop::EventLoop;
use crate::event_loop::Reply;
use control::{Asker, ControlError};

/// A caller that waits for the answer as control gives it.
struct Caller<T>(Reply<T>);

impl<T: Send> Asker<T> for Caller<T> {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    fn answer(self: Box<Self>, answer: Result<T, ControlError>) {
        // A caller that hung up asks again, or does not care any more.
        let _ = self.0.send(answer.map_err(ServerError::from));
    }
}

pub(crate) fn caller<T: Send + 'static>(reply: Reply<T>) -> control::Reply<T> {
    Box::new(Caller(reply))
}

/// A caller that waits for what becomes of the answer of control.
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

/// A caller whose answer is `finish` of the answer of control.
pub(crate) fn caller_of<T: Send + 'static, U: 'static>(
    reply: Reply<T>,
    finish: impl FnOnce(U) -> T + Send + 'static,
) -> control::Reply<U> {
    Box::new(CallerOf { reply, finish })
}

impl EventLoop {
    /// An answer of the shell that leaves after the next transaction.
    pub fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, answer: Result<T, ServerError>) {
        self.outbox.after_write(move || drop(reply.send(answer)));
    }
}
