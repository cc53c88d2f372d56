//! The connections: one that writes, one that reads, and who leads a store that several servers can reach.
//!
//! With SQLite a lock file tells who serves a state directory. With PostgreSQL the leader holds an advisory lock of
//! the session through which it writes: where the session ends, the lock is free and nothing more can be written
//! through it, so that an old leader and a new one never write at the same time.

use crate::database::{Connection, Row, Value};
use crate::open::Place;
use crate::{Metastore, StoreError};
use std::time::Duration;

/// The lock of the leader, within the database it leads: the letters `sailfish`.
const LEAD_LOCK: i64 = i64::from_be_bytes(*b"sailfish");
/// How often a standby asks, and how soon again at first: a leader that was killed is gone for the database in a moment. It
/// asks and goes, for a session that waits for a lock holds a snapshot, and with it every dead row of the database.
const STANDBY_ASKS_EVERY: Duration = Duration::from_millis(500);
const STANDBY_ASKS_FIRST: Duration = Duration::from_millis(10);
/// How long a leader tries to get its session back before it gives up.
const RECONNECT_MAX: Duration = Duration::from_secs(60);
const RECONNECT_EVERY: Duration = Duration::from_millis(100);

/// The connection that writes.
#[derive(Default)]
pub(crate) struct Writer {
    /// None after a loss.
    pub connection: Option<Connection>,
    /// Set while this process leads.
    pub lead: Option<Lead>,
}

pub(crate) struct Lead {
    /// Its row.
    pub number: i64,
    /// The number of the last transaction that came through.
    pub applied: i64,
}

impl Metastore {
    pub(crate) async fn connected<'a>(
        &self,
        writer: &'a mut Writer,
    ) -> Result<&'a mut Connection, StoreError> {
        if writer.connection.is_none() {
            // A session that lost its connection has lost the lock with it.
            if writer.lead.is_some() {
                self.take_lead_again(writer).await?;
            } else {
                writer.connection = Some(self.place.connect_writer().await?);
            }
        }
        Ok(writer.connection.as_mut().expect("it was opened just now"))
    }

    /// Runs one statement that writes, as a transaction of its own; never repeated.
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

    /// Reads rows. A lost connection is opened once more.
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

    /// Reads rows beside what [`Self::rows`] reads at the same time, where PostgreSQL can work for both: through the connection
    /// that writes.
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

    /// Takes the lead where nobody has it; `owner` is remembered as who took it. With SQLite the answer is always
    /// yes: there the lock file of the state directory decides.
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
                // A session that may hold the lock without knowing must not stay.
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

    /// Waits until this process leads. What keeps it from asking (PostgreSQL restarts) is waited out too; only an
    /// error that will not go away by itself ends the wait.
    pub async fn lead(&self, owner: &str) -> Result<(), StoreError> {
        let mut pause = STANDBY_ASKS_FIRST;
        loop {
            match self.try_lead(owner).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.retryable() => {
                    tracing::info!(%error, "cannot ask for the lead, asking again");
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(STANDBY_ASKS_EVERY);
        }
    }

    /// Looks whether this process still leads, for a server that has had nothing to write for a while. Opens a lost
    /// session again; [`StoreError::LeadLost`] where another server leads by now.
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

    /// Gives the lead up, so that a standby has it at once.
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

    /// Opens the session of the leader again and takes the lock with it; the answer is the number of the last
    /// transaction that came through.
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
                // PostgreSQL has not noticed yet that our old session is gone.
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

    /// A new session of the leader, or none while the lock is held by a session that leads under our number.
    async fn reopen(&self, number: i64) -> Result<Option<(Connection, i64)>, StoreError> {
        let mut connection = self.place.connect_writer().await?;
        let locked = self.try_lock(&mut connection).await?;
        let statement = "SELECT lead, applied FROM leaderships ORDER BY lead DESC LIMIT 1";
        let rows = connection.session().fetch(statement, []).await;
        let rows = rows.map_err(|error| self.driver_error(error))?;
        let row = rows.first().ok_or_else(|| self.lead_lost())?;
        // Somebody led in between: what this process remembers is no longer what the store says.
        if self.get::<i64>(row, "lead")? != number {
            return Err(self.lead_lost());
        }
        let applied = self.get(row, "applied")?;
        Ok(locked.then_some((connection, applied)))
    }
}
