//! The lease of a reader: the files of its version stay while it lives.

use crate::connection::Connection;
use api::stored::cluster::{FoundStored, StoredLease};
use filestore::FilesError;
use ids::FileVersion;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Renewals within the time after which a lease ends.
const RENEWALS_PER_LEASE: u64 = 3;
const RENEWED_AFTER_MIN: Duration = Duration::from_millis(500);
/// How long the end of a lease may take: it ends by itself too.
const END_MAX: Duration = Duration::from_secs(2);

/// A lease that is renewed until it is dropped.
pub(crate) struct Lease {
    connection: Arc<Connection>,
    pub version: FileVersion,
    /// None if the server gave none.
    pub number: Option<u64>,
    /// Dropped to end the thread that renews it.
    renewing: Option<SyncSender<()>>,
}

impl Lease {
    /// Holds the lease of an answer.
    pub fn of(connection: &Arc<Connection>, found: &FoundStored) -> Result<Self, FilesError> {
        let version = found.version;
        let mut held =
            Self { connection: Arc::clone(connection), version, number: found.lease, renewing: None };
        if let Some(lease) = found.lease {
            let every = Duration::from_millis(u64::from(found.lease_seconds) * 1000 / RENEWALS_PER_LEASE);
            let every = every.max(RENEWED_AFTER_MIN);
            let (sender, ended) = sync_channel(1);
            let connection = Arc::clone(connection);
            let renew = move || {
                while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                    // A reader whose lease was lost notices it at the next part that is gone.
                    let renewed = StoredLease { lease, version, ends: false };
                    let _ = connection.ask(async |client| client.lease_stored(&renewed).await);
                }
            };
            let thread = std::thread::Builder::new().name("lease".to_string()).spawn(renew);
            thread.map_err(FilesError::Thread)?;
            held.renewing = Some(sender);
        }
        Ok(held)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing = None;
        let Some(lease) = self.number else { return };
        let ended = StoredLease { lease, version: self.version, ends: true };
        self.connection.server.run(async |client| {
            let _ = tokio::time::timeout(END_MAX, client.lease_stored(&ended)).await;
        });
    }
}
