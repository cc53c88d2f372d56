//! A transaction around reads and writes that depend on each other.

use crate::database::{Connection, Session, sqlite};
use crate::{Metastore, StoreError};
use sqlx::Connection as _;

/// An error inside a transaction, without the name of the database.
pub(crate) enum ApplyError {
    Driver(sqlx::Error),
    Store(StoreError),
}

impl From<sqlx::Error> for ApplyError {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<StoreError> for ApplyError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The end of a transaction.
pub(crate) enum Ending<T> {
    Commit(T),
    Rollback(T),
}

impl<T> Ending<T> {
    fn into_value(self) -> T {
        match self {
            Self::Commit(value) | Self::Rollback(value) => value,
        }
    }
}

impl Metastore {
    /// Runs `work` as one transaction, which is not repeated: after [`StoreError::ConnectionLost`] it may have been
    /// committed.
    pub(crate) async fn in_transaction<T>(
        &self,
        work: impl AsyncFnOnce(&mut Session<'_>) -> Result<Ending<T>, ApplyError>,
    ) -> Result<T, StoreError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let done = run(connection, work).await.map_err(|error| match error {
            ApplyError::Driver(error) => self.driver_error(error),
            ApplyError::Store(error) => error,
        });
        if matches!(done, Err(StoreError::ConnectionLost { .. })) {
            writer.connection = None;
        }
        done
    }
}

/// Runs `work` as one transaction of a connection.
pub(crate) async fn run<T>(
    connection: &mut Connection,
    work: impl AsyncFnOnce(&mut Session<'_>) -> Result<Ending<T>, ApplyError>,
) -> Result<T, ApplyError> {
    match connection {
        Connection::Sqlite(connection) => {
            // Takes the write lock at once: a transaction that starts as a reader cannot wait for it later.
            sqlite::control(connection, "BEGIN IMMEDIATE")?;
            let done = match work(&mut Session::Sqlite(connection)).await {
                Ok(Ending::Commit(value)) => sqlite::control(connection, "COMMIT").map(|()| value),
                Ok(Ending::Rollback(value)) => {
                    sqlite::control(connection, "ROLLBACK")?;
                    return Ok(value);
                }
                Err(error) => {
                    // This fails if SQLite has already rolled back.
                    let _ = sqlite::control(connection, "ROLLBACK");
                    return Err(error);
                }
            };
            done.map_err(|error| {
                let _ = sqlite::control(connection, "ROLLBACK");
                ApplyError::Driver(error)
            })
        }
        Connection::Postgres(connection) => {
            let mut transaction = connection.begin().await?;
            let done = work(&mut Session::Postgres(&mut transaction)).await?;
            match &done {
                Ending::Commit(_) => transaction.commit().await?,
                Ending::Rollback(_) => transaction.rollback().await?,
            }
            Ok(done.into_value())
        }
    }
}
