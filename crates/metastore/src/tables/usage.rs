//! Accounts: what attempts used, by day, user and job.

use crate::database::{Row, Rows, Session, Value};
use crate::transaction::ApplyError;
use crate::{Metastore, StoreError};
use api::history::usage::{USAGE_ROWS_MAX, UsageBy, UsageDay, UsageList, UsageQuestion, UsageRow};
use ids::JobId;
use rows::{Change, UsageSums, day_of};
use std::collections::BTreeMap;

/// Sums of one transaction.
#[derive(Default)]
pub(crate) struct UsedRows(BTreeMap<(u64, String, JobId), UsageSums>);

impl UsedRows {
    /// Adds a change to the sums of its day, user and job.
    pub fn take(&mut self, change: &Change) {
        let Change::Used { job, user, sums, now_ns } = change else { return };
        self.0.entry((day_of(*now_ns), user.clone(), *job)).or_default().add(sums);
    }
}

/// Adds a column of the new row to that of the row in the table. At the limit of the database it stays there.
macro_rules! added {
    ($column:literal) => {
        concat!(
            $column,
            " = CASE WHEN usage.",
            $column,
            " > 9223372036854775807 - excluded.",
            $column,
            " THEN 9223372036854775807 ELSE usage.",
            $column,
            " + excluded.",
            $column,
            " END"
        )
    };
}

/// The rest of the statement for a row that is there.
const ADDED: &str = concat!(
    "ON CONFLICT (day, user_name, job) DO UPDATE SET ",
    added!("attempts"),
    ", ",
    added!("cpu_us"),
    ", ",
    added!("memory_mib_ms"),
    ", ",
    added!("read_bytes"),
    ", ",
    added!("shuffled_bytes"),
    ", ",
    added!("stored_bytes"),
    ", ",
    added!("moved_bytes"),
    ", ",
    added!("kept_bytes"),
);

/// Columns of a row.
const COLUMNS: &str = "day, user_name, job, attempts, cpu_us, memory_mib_ms, read_bytes, shuffled_bytes, \
                       stored_bytes, moved_bytes, kept_bytes";

pub(crate) async fn write(db: &mut Session<'_>, used: UsedRows) -> Result<(), ApplyError> {
    let rows: Rows = used.0.into_iter().map(|((day, user, job), sums)| row(day, user, job, &sums)).collect();
    Ok(db.insert("usage", COLUMNS, ADDED, rows).await?)
}

fn row(day: u64, user: String, job: JobId, sums: &UsageSums) -> [Value; 11] {
    let UsageSums { attempts, used, memory_mib_ms, kept_bytes } = *sums;
    [
        day.into(),
        user.into(),
        job.0.into(),
        attempts.into(),
        used.cpu_us.into(),
        memory_mib_ms.into(),
        used.read_bytes.into(),
        used.shuffled_bytes.into(),
        used.stored_bytes.into(),
        used.moved_bytes.into(),
        kept_bytes.into(),
    ]
}

pub(crate) async fn forget(db: &mut Session<'_>, before_day: u64) -> Result<(), ApplyError> {
    db.execute("DELETE FROM usage WHERE day < $1", [before_day.into()]).await?;
    Ok(())
}

/// Sums over rows of `usage u`, with their jobs as far as the store has them: a step counts for its job. `$1` to `$4` are
/// the first and the last day, the user, and the job, empty or 0 for no condition. As floating-point numbers sums have no
/// overflow, and are exact up to 2^53.
macro_rules! summed {
    ($by:literal, $order:literal) => {
        concat!(
            "SELECT ",
            $by,
            ", CAST(count(DISTINCT coalesce(j.step_of, u.job)) AS BIGINT) AS jobs, \
             sum(CAST(u.attempts AS DOUBLE PRECISION)) AS attempts, \
             sum(CAST(u.cpu_us AS DOUBLE PRECISION)) AS cpu_us, \
             sum(CAST(u.memory_mib_ms AS DOUBLE PRECISION)) AS memory_mib_ms, \
             sum(CAST(u.read_bytes AS DOUBLE PRECISION)) AS read_bytes, \
             sum(CAST(u.shuffled_bytes AS DOUBLE PRECISION)) AS shuffled_bytes, \
             sum(CAST(u.stored_bytes AS DOUBLE PRECISION)) AS stored_bytes, \
             sum(CAST(u.moved_bytes AS DOUBLE PRECISION)) AS moved_bytes, \
             sum(CAST(u.kept_bytes AS DOUBLE PRECISION)) AS kept_bytes \
             FROM usage u LEFT JOIN jobs j ON j.job = u.job \
             WHERE u.day >= $1 AND u.day <= $2 AND ($3 = '' OR u.user_name = $3) \
             AND ($4 = CAST(0 AS BIGINT) OR u.job = $4 OR j.step_of = $4) GROUP BY ",
            $order,
            " LIMIT $5"
        )
    };
}

const BY_USER: &str = summed!("u.user_name", "u.user_name ORDER BY cpu_us DESC, u.user_name");
const BY_JOB: &str = concat!(
    "SELECT s.*, p.name AS name FROM (",
    summed!(
        "coalesce(j.step_of, u.job) AS of_job, u.user_name AS user_name",
        "coalesce(j.step_of, u.job), u.user_name ORDER BY of_job DESC"
    ),
    ") AS s LEFT JOIN jobs p ON p.job = s.of_job ORDER BY s.of_job DESC, s.user_name"
);
const BY_DAY: &str = summed!("u.day", "u.day ORDER BY u.day DESC");

impl Metastore {
    /// Returns the sums that a question asks for: users with most processor time first, the latest jobs first, the
    /// latest days first; at most [`USAGE_ROWS_MAX`].
    pub async fn usage(&self, question: &UsageQuestion) -> Result<UsageList, StoreError> {
        let statement = match question.by {
            UsageBy::User => BY_USER,
            UsageBy::Job => BY_JOB,
            UsageBy::Day => BY_DAY,
        };
        let values: [Value; 5] = [
            question.since.map_or(0, |day| day.0).into(),
            question.until.map_or(u32::MAX, |day| day.0).into(),
            question.user.as_deref().unwrap_or_default().into(),
            question.job.map_or(0, |job| job.0).into(),
            (USAGE_ROWS_MAX + 1).into(),
        ];
        let rows = self.rows(statement, values).await?;
        let mut list = UsageList { is_cut: rows.len() > USAGE_ROWS_MAX as usize, ..UsageList::default() };
        for row in rows.iter().take(USAGE_ROWS_MAX as usize) {
            list.rows.push(self.usage_row(row, question.by)?);
        }
        Ok(list)
    }

    fn usage_row(&self, row: &Row, by: UsageBy) -> Result<UsageRow, StoreError> {
        let sum = |column| Ok::<u64, StoreError>(self.get::<f64>(row, column)? as u64);
        let mut read = UsageRow {
            jobs: self.number(row, "jobs")?,
            attempts: sum("attempts")?,
            cpu_ms: sum("cpu_us")?.div_ceil(1000),
            memory_mib_seconds: sum("memory_mib_ms")? / 1000,
            read_bytes: sum("read_bytes")?,
            shuffled_bytes: sum("shuffled_bytes")?,
            stored_bytes: sum("stored_bytes")?,
            moved_bytes: sum("moved_bytes")?,
            kept_bytes: sum("kept_bytes")?,
            ..UsageRow::default()
        };
        match by {
            UsageBy::Day => read.day = Some(UsageDay(self.number(row, "day")?)),
            UsageBy::User => read.user = Some(self.get(row, "user_name")?),
            UsageBy::Job => {
                read.user = Some(self.get(row, "user_name")?);
                read.job = Some(JobId(self.number(row, "of_job")?));
                read.name = self.get(row, "name")?;
            }
        }
        read.user = read.user.filter(|user| !user.is_empty());
        Ok(read)
    }
}
