//! Reads from the store without a server: `sailfish jobs`, `show`, `report`, `state`.

mod gone;
mod lineage;
mod placements;

pub use gone::gone_nodes;
pub use lineage::{lineage, runs_of_steps};
pub use placements::job_placements;

use crate::ServerError;
use metastore::{Metastore, QueryError, QueryLimits, StoreError, Table, query_read_only};
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

/// The store of a state directory, for a blocking thread.
pub struct History {
    runtime: Runtime,
    store: Metastore,
    state_dir: PathBuf,
}

impl History {
    /// Opens the store, and creates it if it is missing. Takes no owner lock and cleans nothing.
    pub fn open(state_dir: &Path) -> Result<Self, ServerError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(ServerError::Thread)?;
        let store = runtime.block_on(Metastore::open(state_dir))?;
        Ok(Self { runtime, store, state_dir: state_dir.to_path_buf() })
    }

    /// Runs any typed read of the store: `history.read(async |store| store.jobs(20).await)`.
    pub fn read<T>(
        &self,
        read: impl AsyncFnOnce(&Metastore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.runtime.block_on(read(&self.store))
    }

    /// Runs one read-only SQL statement.
    pub fn query(&self, statement: &str, limits: QueryLimits) -> Result<Table, QueryError> {
        self.runtime.block_on(query_read_only(&self.state_dir, statement, limits))
    }
}
