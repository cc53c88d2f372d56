//! The keys of data ports, as the server told of them last: the task that polls puts them here, and whoever acts on them waits.

use api::data_access::DataKeys;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Shared by the task that polls and the thread that acts.
#[derive(Default)]
pub(crate) struct ToldKeys {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Those that nobody has taken yet.
    news: Option<Box<DataKeys>>,
    is_over: bool,
}

impl ToldKeys {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces keys that nobody has taken.
    pub fn tell(&self, keys: Box<DataKeys>) {
        self.inner().news = Some(keys);
        self.changed.notify_all();
    }

    /// Nothing will be told any more.
    pub fn end(&self) {
        self.inner().is_over = true;
        self.changed.notify_all();
    }

    pub fn is_over(&self) -> bool {
        self.inner().is_over
    }

    /// Waits for the next keys. None: there will be none.
    pub fn next(&self) -> Option<Box<DataKeys>> {
        let waits = |inner: &mut Inner| inner.news.is_none() && !inner.is_over;
        let inner = self.changed.wait_while(self.inner(), waits);
        inner.unwrap_or_else(PoisonError::into_inner).news.take()
    }
}

/// Ends when it is dropped, however the task that polls ends.
pub(crate) struct Telling(pub std::sync::Arc<ToldKeys>);

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.end();
    }
}
