//! A list of changes as one transaction. Effects on the tables of jobs are gathered first, so that a thousand jobs cost
//! as many statements as one.

use crate::batch::Batch;
use crate::database::{Connection, Session};
use crate::tables::finished_runs::FinishedRows;
use crate::tables::usage::UsedRows;
use crate::tables::{finished_runs, fleet, intermediate_files, kept, people, reopen, shuffle_data, usage};
use crate::transaction::{self, ApplyError, Ending};
use crate::writer::Writer;
use crate::{Metastore, StoreError};
use api::history::EventKind;
use ids::JobId;
use rows::Change;

/// Maximum number of tries of a transaction that PostgreSQL rolled back because of another one.
const SERIALIZATION_TRIES_MAX: u32 = 5;

impl Metastore {
    /// Reserves the number of a new job. A number that is never used does no harm.
    pub async fn reserve_job_id(&self) -> Result<JobId, StoreError> {
        Ok(self.reserve_job_ids(1).await?.start)
    }

    /// Reserves `count` numbers for new jobs, in one transaction.
    pub async fn reserve_job_ids(&self, count: u32) -> Result<std::ops::Range<JobId>, StoreError> {
        let last = self.next_of_sequence("job", count).await?;
        Ok(JobId(last - i64::from(count) + 1)..JobId(last + 1))
    }

    /// Advances a sequence. Returns the last of the `count` reserved numbers.
    pub(crate) async fn next_of_sequence(&self, name: &'static str, count: u32) -> Result<i64, StoreError> {
        let statement = "UPDATE sequences SET value = value + $2 WHERE name = $1 RETURNING value";
        let rows = self.write_one(statement, vec![name.into(), count.into()]).await?;
        match rows.first() {
            Some(row) => self.get(row, "value"),
            None => Err(self.damaged("sequences.name", name)),
        }
    }

    /// Writes all changes or none. They are durable when this returns.
    ///
    /// A server that leads a PostgreSQL store survives a lost connection: it reconnects, checks whether the transaction
    /// was committed, and repeats it if not. A process that does not lead gets the error.
    pub async fn apply(&self, changes: &[Change]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut writer = self.writer.lock().await;
        let number = writer.lead.as_ref().map(|lead| lead.applied + 1);
        let mut tries = 0;
        loop {
            let error = match self.apply_once(&mut writer, changes, number).await {
                Ok(()) => break,
                Err(error) => error,
            };
            tries += 1;
            match error {
                StoreError::Serialization { .. } if tries < SERIALIZATION_TRIES_MAX => {}
                StoreError::ConnectionLost { .. } if number.is_some() => {
                    if Some(self.take_lead_again(&mut writer).await?) == number {
                        break;
                    }
                }
                other => return Err(other),
            }
        }
        if let (Some(lead), Some(number)) = (&mut writer.lead, number) {
            lead.applied = number;
        }
        Ok(())
    }

    async fn apply_once(
        &self,
        writer: &mut Writer,
        changes: &[Change],
        number: Option<i64>,
    ) -> Result<(), StoreError> {
        let lead = writer.lead.as_ref().map(|lead| lead.number).zip(number);
        let connection = self.connected(writer).await?;
        let done = write(connection, changes, lead).await.map_err(|error| match error {
            ApplyError::Driver(error) => self.driver_error(error),
            ApplyError::Store(error) => error,
        });
        if matches!(done, Err(StoreError::ConnectionLost { .. })) {
            writer.connection = None;
        }
        done
    }
}

async fn write(
    connection: &mut Connection,
    changes: &[Change],
    lead: Option<(i64, i64)>,
) -> Result<(), ApplyError> {
    let work = async |db: &mut Session<'_>| {
        if let Some((lead, number)) = lead {
            let values = [lead.into(), number.into()];
            db.execute("UPDATE leaderships SET applied = $2 WHERE lead = $1", values).await?;
        }
        write_all(db, changes).await?;
        Ok(Ending::Commit(()))
    };
    transaction::run(connection, work).await
}

async fn write_all(db: &mut Session<'_>, changes: &[Change]) -> Result<(), ApplyError> {
    let (mut batch, mut runs) = (Batch::default(), FinishedRows::default());
    let mut used = UsedRows::default();
    for change in changes {
        match change {
            Change::OwnerStarted { uuid, pid, now_ns } => {
                let values = [uuid.as_str().into(), (*pid).into(), (*now_ns).into()];
                db.execute("INSERT INTO owners (uuid, pid, started_ns) VALUES ($1, $2, $3)", values).await?;
                batch.note(EventKind::OwnerStarted, *now_ns, uuid);
            }
            Change::OwnerEnded { uuid, now_ns } => {
                let statement = "UPDATE owners SET ended_ns = $2 WHERE uuid = $1 AND ended_ns IS NULL";
                db.execute(statement, [uuid.as_str().into(), (*now_ns).into()]).await?;
                batch.note(EventKind::OwnerEnded, *now_ns, uuid);
            }
            Change::NodeRegistered { .. }
            | Change::NodeStateChanged { .. }
            | Change::NodesSeen { .. }
            | Change::Disks { .. }
            | Change::Samples { .. }
            | Change::SamplesForgotten { .. } => fleet::apply_one(db, change).await?,
            Change::UserAdded { .. }
            | Change::UserChanged { .. }
            | Change::TokenIssued { .. }
            | Change::TokenRevoked { .. }
            | Change::DataKeyMade { .. } => people::apply_one(db, change).await?,
            Change::Intermediate { .. }
            | Change::IntermediateReplica { .. }
            | Change::IntermediateReplicaGone { .. }
            | Change::IntermediateRemoved { .. } => intermediate_files::apply_one(db, change).await?,
            Change::StageReopened { job, stage, tasks, retained, now_ns } => {
                // It deletes rows by their content, so all earlier changes must be written first.
                std::mem::take(&mut batch).write(db).await?;
                reopen::stage_reopened(db, *job, *stage, tasks, *retained).await?;
                batch.stage_reopened(*job, *stage, tasks.len(), *now_ns);
            }
            Change::PartsRenamed { job, stage, names } => {
                std::mem::take(&mut batch).write(db).await?;
                shuffle_data::rename_parts(db, *job, *stage, names).await?;
            }
            Change::KeptDirs { job, places } => kept::keep_dirs(db, *job, places).await?,
            Change::KeptFilesRemoved { job, .. } => {
                kept::forget_dirs(db, *job).await?;
                batch.take(change)?;
            }
            Change::RunFinished { .. } => finished_runs::row(&mut runs, change)?,
            Change::Used { .. } => used.take(change),
            Change::UsageForgotten { before_day } => usage::forget(db, *before_day).await?,
            of_jobs => batch.take(of_jobs)?,
        }
    }
    batch.write(db).await?;
    usage::write(db, used).await?;
    finished_runs::write(db, runs).await
}
