//! The clients of this process, one per bucket, and their runtime.

// object_store needs the TLS of reqwest without requesting it: without this a crate that has no other use of reqwest
// does not build alone.
use reqwest as _;

use crate::error::ObjectError;
use crate::settings;
use crate::url::ObjectUrl;
use bytes::Bytes;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::runtime::Runtime;

/// Threads of the runtime: they move bytes between sockets and buffers.
const THREADS: usize = 2;
/// Maximum size of an object that is read whole. Such objects are small: one of our records or a report.
const SMALL_BYTES_MAX: u64 = 256 << 20;

/// All traits of a store that this crate uses.
pub(crate) trait Store: ObjectStore + MultipartStore + PaginatedListStore {}
impl<T: ObjectStore + MultipartStore + PaginatedListStore> Store for T {}

/// The clients are shared by the process: its credentials are the same, and connections are reused.
struct Clients {
    runtime: Runtime,
    by_bucket: Mutex<BTreeMap<String, Arc<dyn Store>>>,
}

fn clients() -> Result<&'static Clients, ObjectError> {
    static CLIENTS: OnceLock<Result<Clients, String>> = OnceLock::new();
    let started = CLIENTS.get_or_init(|| {
        // The library finds its cryptography here. An earlier choice stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(THREADS).thread_name("objects").enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        Ok(Clients { runtime, by_bucket: Mutex::default() })
    });
    started.as_ref().map_err(|reason| ObjectError::Threads { reason: reason.clone() })
}

/// Returns the client of a bucket.
pub(crate) fn store(url: &ObjectUrl) -> Result<Arc<dyn Store>, ObjectError> {
    let mut by_bucket = clients()?.by_bucket.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = by_bucket.get(url.bucket()) {
        return Ok(Arc::clone(store));
    }
    let made = settings::builder(url.bucket())?.build();
    let made = made.map_err(|error| ObjectError::Settings { reason: error.to_string() })?;
    let store: Arc<dyn Store> = Arc::new(made);
    by_bucket.insert(url.bucket().to_string(), Arc::clone(&store));
    Ok(store)
}

/// Running work on the runtime.
pub(crate) struct Pending<T>(Receiver<Result<T, ObjectError>>);

impl<T> Pending<T> {
    pub fn wait(self) -> Result<T, ObjectError> {
        let gone = |_| ObjectError::Threads { reason: "a task has ended without an answer".to_string() };
        self.0.recv().map_err(gone)?
    }
}

/// Starts work; it continues even if nobody waits.
pub(crate) fn begin<T: Send + 'static>(
    work: impl Future<Output = Result<T, ObjectError>> + Send + 'static,
) -> Result<Pending<T>, ObjectError> {
    let (send, receive) = sync_channel(1);
    clients()?.runtime.spawn(async move {
        // The caller may have stopped waiting.
        let _ = send.send(work.await);
    });
    Ok(Pending(receive))
}

/// Runs work while this thread waits.
pub(crate) fn wait<T: Send + 'static>(
    work: impl Future<Output = Result<T, ObjectError>> + Send + 'static,
) -> Result<T, ObjectError> {
    begin(work)?.wait()
}

/// Writes a small object.
pub(crate) async fn put(url: ObjectUrl, bytes: Vec<u8>) -> Result<(), ObjectError> {
    let put = store(&url)?.put(url.location(), PutPayload::from(bytes)).await;
    put.map(drop).map_err(|error| ObjectError::of_store("write", &url, &error))
}

/// Reads a small object; None if it does not exist.
pub(crate) async fn get(url: ObjectUrl) -> Result<Option<Bytes>, ObjectError> {
    let failed = |error: object_store::Error| ObjectError::of_store("read", &url, &error);
    let found = match store(&url)?.get(url.location()).await {
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        found => found.map_err(failed)?,
    };
    if found.meta.size > SMALL_BYTES_MAX {
        return Err(ObjectError::Damaged { url, what: "it is larger than any such record" });
    }
    Ok(Some(found.bytes().await.map_err(failed)?))
}

/// Removes an object; a missing one is no error.
pub(crate) async fn delete(url: ObjectUrl) -> Result<(), ObjectError> {
    match store(&url)?.delete(url.location()).await {
        Err(object_store::Error::NotFound { .. }) => Ok(()),
        deleted => deleted.map_err(|error| ObjectError::of_store("remove", &url, &error)),
    }
}

/// Reads a small object; None if it does not exist.
pub fn read_small(url: &ObjectUrl) -> Result<Option<Vec<u8>>, ObjectError> {
    let found = wait(get(url.clone()))?;
    Ok(found.map(|bytes| bytes.to_vec()))
}
