//! The connections: one that writes, one that reads; and the lead of a store that several servers can reach.
//!
//! With SQLite, a lock file decides which process serves a state directory. With PostgreSQL, the leader holds an
//! advisory lock of the session through which it writes: when the session ends, the lock is free and nothing more can
//! be written through the session. So an old leader and a new one never write at the same time.

use crate::database::{Connection, Row, Value};
use crate::open::Place;
use crate::{Metastore, StoreError};
use std::time::Duration;

/// The lock of the leader, within its database: the letters `sailfish`.
const LEAD_LOCK: i64 = i64::from_be_bytes(*b"sailfish");
/// Interval between two requests of a standby for the lead, and the first interval: a killed leader disappears for the
/// database within a moment. A standby must not wait for the lock, because a waiting session holds a snapshot, and with
/// it every dead row of the database.
const STANDBY_ASKS_EVERY: Duration = Duration::from_millis(500);
const STANDBY_ASKS_FIRST: Duration = Duration::from_millis(10);
/// Timeout of a leader for restoring its session.
const RECONNECT_MAX: Duration = Duration::from_secs(60);
const RECONNECT_EVERY: Duration = Duration::from_millis(100);

/// The connection that writes.
#[derive(Default)]
pub(crate) struct Writer {
    /// None after a lost connection.
    pub connection: Option<Connection>,
    /// Set while this process leads.
    pub lead: Option<Lead>,
}

pub(crate) struct Lead {
    /// The row of this leader.
    pub number: i64,
    /// Number of the last committed transaction.
    pub applied: i64,
}

impl Metastore {
    pub(crate) async fn connected<'a>(
        &self,
        writer: &'a mut Writer,
    ) -> Result<&'a mut Connection, StoreError> {
        if writer.connection.is_none() {
            // A lost session has lost the lock too.
            if writer.lead.is_some() {
                self.take_lead_again(writer).await?;
            } else {
                writer.connection = Some(self.place.connect_writer().await?);
            }
        }
        Ok(writer.connection.as_mut().expect("it was opened just now"))
    }

    /// Runs a single writing statement as a separate transaction; never repeated.
    pub(crate) async fn write_one(
        &self,
        statement: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        let mut writer = self.writer.lock().await;
        let done = self.connected(&mut writer).await?.session().fetch(statement, values).await;
        let done = done.map_err(|error| self.driver_error(error));
        if matches!(done, Err(StoreError::ConnectionLost { .. })) {
            writer.connection = None;
        }
        done
    }

    /// Reads rows. Reopens a lost connection once.
    pub(crate) async fn rows(
        &self,
        statement: &'static str,
        values: impl IntoIterator<Item = Value> + Clone,
    ) -> Result<Vec<Row>, StoreError> {
        let mut reader = self.reader.lock().await;
        let mut again = reader.is_some();
        loop {
            let connection = match reader.take() {
                Some(connection) => connection,
                None => self.place.connect_reader().await?,
            };
            let (connection, done) = connection.read(statement, values.clone().into_iter().collect()).await;
            match done.map_err(|error| self.driver_error(error)) {
                Err(StoreError::ConnectionLost { .. }) if again => again = false,
                Err(error @ StoreError::ConnectionLost { .. }) => return Err(error),
                done => {
                    *reader = connection;
                    return done;
                }
            }
        }
    }

    /// Reads rows in parallel with [`Self::rows`] if the database is PostgreSQL: through the connection that writes.
    pub(crate) async fn rows_beside(
        &self,
        statement: &'static str,
        values: impl IntoIterator<Item = Value> + Clone,
    ) -> Result<Vec<Row>, StoreError> {
        if matches!(self.place, Place::Postgres { .. })
            && let Ok(mut writer) = self.writer.try_lock()
            && let Some(connection) = &mut writer.connection
        {
            let done = connection.session().fetch(statement, values.clone()).await;
            match done.map_err(|error| self.driver_error(error)) {
                Err(StoreError::ConnectionLost { .. }) => writer.connection = None,
                done => return done,
            }
        }
        self.rows(statement, values).await
    }

    /// Takes the lead if it is free; `owner` is stored as the leader. Always true with SQLite, where the lock file of
    /// the state directory decides.
    pub async fn try_lead(&self, owner: &str) -> Result<bool, StoreError> {
        if matches!(self.place, Place::Sqlite { .. }) {
            return Ok(true);
        }
        let mut writer = self.writer.lock().await;
        if writer.lead.is_some() {
            return Ok(true);
        }
        let connection = self.connected(&mut writer).await?;
        match self.take_lead(connection, owner).await {
            Ok(lead) => {
                writer.lead = lead;
                Ok(writer.lead.is_some())
            }
            Err(error) => {
                // A session that may hold the lock unknowingly must be closed.
                writer.connection = None;
                Err(error)
            }
        }
    }

    async fn take_lead(&self, connection: &mut Connection, owner: &str) -> Result<Option<Lead>, StoreError> {
        if !self.try_lock(connection).await? {
            return Ok(None);
        }
        let statement = "INSERT INTO leaderships (owner, started_ns, applied) VALUES \
             ($1, (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint, 0) RETURNING lead";
        let rows = connection.session().fetch(statement, [owner.into()]).await;
        let rows = rows.map_err(|error| self.driver_error(error))?;
        let row = rows.first().ok_or_else(|| self.damaged("leaderships.lead", "no number"))?;
        Ok(Some(Lead { number: self.get(row, "lead")?, applied: 0 }))
    }

    async fn try_lock(&self, connection: &mut Connection) -> Result<bool, StoreError> {
        let statement = "SELECT pg_try_advisory_lock($1)::int::bigint AS locked";
        let rows = connection.session().fetch(statement, [LEAD_LOCK.into()]).await;
        let rows = rows.map_err(|error| self.driver_error(error))?;
        Ok(rows.first().map(|row| self.get::<i64>(row, "locked")).transpose()? == Some(1))
    }

    /// Waits until this process leads. Temporary failures (a restart of PostgreSQL) are retried; only a permanent error
    /// ends the wait.
    pub async fn lead(&self, owner: &str) -> Result<(), StoreError> {
        let mut pause = STANDBY_ASKS_FIRST;
        loop {
            match self.try_lead(owner).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.retryable() => {
                    tracing::info!(%error, "cannot ask for the lead, retrying");
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(STANDBY_ASKS_EVERY);
        }
    }

    /// Checks that this process still leads, for a server that has written nothing for a while. Reopens a lost session;
    /// fails with [`StoreError::LeadLost`] if another server leads.
    pub async fn keep_lead(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().await;
        if writer.lead.is_none() {
            return match self.place {
                Place::Sqlite { .. } => Ok(()),
                Place::Postgres { .. } => Err(self.lead_lost()),
            };
        }
        let answers = match writer.connection.as_mut() {
            Some(connection) => connection.ping().await.is_ok(),
            None => false,
        };
        if !answers {
            writer.connection = None;
            self.take_lead_again(&mut writer).await?;
        }
        Ok(())
    }

    /// Gives up the lead, so that a standby gets it at once.
    pub async fn resign(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().await;
        if writer.lead.take().is_none() {
            return Ok(());
        }
        match writer.connection.take() {
            Some(connection) => connection.close().await.map_err(|error| self.driver_error(error)),
            None => Ok(()),
        }
    }

    fn lead_lost(&self) -> StoreError {
        StoreError::LeadLost { path: self.path.clone() }
    }

    /// Reopens the session of the leader and takes its lock. Returns the number of the last committed transaction.
    pub(crate) async fn take_lead_again(&self, writer: &mut Writer) -> Result<i64, StoreError> {
        let number = writer.lead.as_ref().map(|lead| lead.number).ok_or_else(|| self.lead_lost())?;
        writer.connection = None;
        let mut left = RECONNECT_MAX;
        loop {
            let error = match self.reopen(number).await {
                Ok(Some((connection, applied))) => {
                    writer.connection = Some(connection);
                    return Ok(applied);
                }
                // PostgreSQL has not noticed yet that our old session has ended.
                Ok(None) => StoreError::ConnectionLost {
                    path: self.path.clone(),
                    reason: "the old session still holds the lock of the leader".to_string(),
                },
                Err(error) => error,
            };
            if matches!(error, StoreError::LeadLost { .. }) {
                writer.lead = None;
            }
            if !error.retryable() || left.is_zero() {
                return Err(error);
            }
            left = left.saturating_sub(RECONNECT_EVERY);
            tokio::time::sleep(RECONNECT_EVERY).await;
        }
    }

    /// Returns a new session of the leader, or None while the lock is held by a session that leads under our number.
    async fn reopen(&self, number: i64) -> Result<Option<(Connection, i64)>, StoreError> {
        let mut connection = self.place.connect_writer().await?;
        let locked = self.try_lock(&mut connection).await?;
        let statement = "SELECT lead, applied FROM leaderships ORDER BY lead DESC LIMIT 1";
        let rows = connection.session().fetch(statement, []).await;
        let rows = rows.map_err(|error| self.driver_error(error))?;
        let row = rows.first().ok_or_else(|| self.lead_lost())?;
        // Another server led in between: the memory of this process no longer matches the store.
        if self.get::<i64>(row, "lead")? != number {
            return Err(self.lead_lost());
        }
        let applied = self.get(row, "applied")?;
        Ok(locked.then_some((connection, applied)))
    }
}
