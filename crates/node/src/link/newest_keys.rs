//! The last keys of data ports from the server: the polling task sets them, and another thread waits for them.

use api::data_access::DataKeys;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Shared by the polling task and the waiting thread.
#[derive(Default)]
pub(crate) struct NewestKeys {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Keys that nobody has taken yet.
    news: Option<Box<DataKeys>>,
    is_over: bool,
}

impl NewestKeys {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces keys that nobody has taken.
    pub fn tell(&self, keys: Box<DataKeys>) {
        self.inner().news = Some(keys);
        self.changed.notify_all();
    }

    /// Announces that there will be no more keys.
    pub fn end(&self) {
        self.inner().is_over = true;
        self.changed.notify_all();
    }

    pub fn is_over(&self) -> bool {
        self.inner().is_over
    }

    /// Waits for the next keys. Returns None if there will be none.
    pub fn next(&self) -> Option<Box<DataKeys>> {
        let waits = |inner: &mut Inner| inner.news.is_none() && !inner.is_over;
        let inner = self.changed.wait_while(self.inner(), waits);
        inner.unwrap_or_else(PoisonError::into_inner).news.take()
    }
}

/// Announces the end when it is dropped, however the polling task ends.
pub(crate) struct KeysFromServer(pub std::sync::Arc<NewestKeys>);

impl Drop for KeysFromServer {
    fn drop(&mut self) {
        self.0.end();
    }
}
