//! Finished runs of steps, by which later runs are skipped.

use crate::convert::{json, path_text};
use crate::database::{Row, Rows, Session, Value};
use crate::transaction::ApplyError;
use crate::{Metastore, StoreError};
use api::task::RecordedRun;
use ids::JobId;
use rows::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Rows of one statement.
const PAGE: u32 = 10_000;
/// Paths that are looked up alone: the server does nothing else meanwhile.
const LOOKED_UP_MAX: usize = 20_000;
/// Rows that are read beyond the wanted ones before each path is looked up alone.
const OTHERS_MAX: usize = 20_000;

impl Metastore {
    /// Returns the finished runs of a user that are remembered under these paths. One that this version cannot read is
    /// left out.
    pub async fn finished_runs(
        &self,
        user: &str,
        paths: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, RecordedRun>, StoreError> {
        let (mut runs, mut others) = (BTreeMap::new(), 0);
        let (Some(first), Some(last)) = (paths.first(), paths.last()) else { return Ok(runs) };
        self.add_one(user, first, &mut runs).await?;
        // The outputs of a workflow lie together: most often a page has them and nothing else.
        let statement = "SELECT path, run FROM finished_runs WHERE user_name = $1 AND path > $2 AND path <= $3 \
                         ORDER BY path LIMIT $4";
        let mut after = first.clone();
        while others <= OTHERS_MAX {
            let values = [user.into(), after.as_str().into(), last.as_str().into(), PAGE.into()];
            let rows = self.rows(statement, values).await?;
            for row in &rows {
                let path: String = self.get(row, "path")?;
                match paths.contains(&path) {
                    true => add(&mut runs, &path, &self.get::<String>(row, "run")?),
                    false => others += 1,
                }
                after = path;
            }
            if rows.len() < PAGE as usize {
                return Ok(runs);
            }
        }
        // Runs that are not looked up are not known: their steps run.
        let left = paths.range::<String, _>((Bound::Excluded(&after), Bound::Unbounded));
        for path in left.take(LOOKED_UP_MAX) {
            self.add_one(user, path, &mut runs).await?;
        }
        Ok(runs)
    }

    async fn add_one(
        &self,
        user: &str,
        path: &str,
        runs: &mut BTreeMap<String, RecordedRun>,
    ) -> Result<(), StoreError> {
        let statement = "SELECT run FROM finished_runs WHERE user_name = $1 AND path = $2";
        let rows = self.rows(statement, [user.into(), path.into()]).await?;
        if let Some(row) = rows.first() {
            add(runs, path, &self.get::<String>(row, "run")?);
        }
        Ok(())
    }
}

/// Key of a remembered run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunKey {
    pub user: String,
    pub path: String,
}

/// A remembered run.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRunRow {
    /// Empty on one machine.
    pub user: String,
    pub path: String,
    /// Job of the step.
    pub job: JobId,
    pub ended_ns: u64,
    pub run: RecordedRun,
}

impl Metastore {
    /// Returns remembered runs of all users, or of one, in order of user and path: a page of those after `after`, and
    /// the last key that was read; None at the end. Rows that this version cannot read are left out.
    pub async fn finished_runs_after(
        &self,
        user: Option<&str>,
        after: Option<RunKey>,
    ) -> Result<(Vec<FinishedRunRow>, Option<RunKey>), StoreError> {
        let first = || RunKey { user: user.unwrap_or_default().to_string(), path: String::new() };
        let RunKey { user: from_user, path: from_path } = after.unwrap_or_else(first);
        let values = [from_user.into(), from_path.into(), user.into(), PAGE.into()];
        let statement = "SELECT * FROM finished_runs WHERE (user_name > $1 OR (user_name = $1 AND path > $2)) \
                         AND (CAST($3 AS TEXT) IS NULL OR user_name = $3) ORDER BY user_name, path LIMIT $4";
        let rows = self.rows(statement, values).await?;
        let last = match rows.last() {
            Some(row) => Some(RunKey { user: self.get(row, "user_name")?, path: self.get(row, "path")? }),
            None => None,
        };
        Ok((self.runs_of(&rows)?, last.filter(|_| rows.len() == PAGE as usize)))
    }

    /// Returns the remembered runs of the steps of a job, in their order, at most `count_max`; without those that a later
    /// run has replaced, and those that this version cannot read.
    pub async fn finished_runs_of(
        &self,
        job: JobId,
        count_max: u32,
    ) -> Result<Vec<FinishedRunRow>, StoreError> {
        let statement = "SELECT finished_runs.* FROM finished_runs JOIN jobs ON jobs.job = finished_runs.job \
                         WHERE jobs.step_of = $1 ORDER BY finished_runs.job, finished_runs.path LIMIT $2";
        let rows = self.rows(statement, [job.0.into(), count_max.into()]).await?;
        self.runs_of(&rows)
    }

    fn runs_of(&self, rows: &[Row]) -> Result<Vec<FinishedRunRow>, StoreError> {
        let mut runs = Vec::with_capacity(rows.len());
        for row in rows {
            if let Ok(run) = serde_json::from_str(&self.get::<String>(row, "run")?) {
                let (job, ended_ns) = (JobId(self.number(row, "job")?), self.number(row, "ended_ns")?);
                let (user, path) = (self.get(row, "user_name")?, self.get(row, "path")?);
                runs.push(FinishedRunRow { user, path, job, ended_ns, run });
            }
        }
        Ok(runs)
    }
}

fn add(runs: &mut BTreeMap<String, RecordedRun>, path: &str, text: &str) {
    if let Ok(run) = serde_json::from_str(text) {
        runs.insert(path.to_string(), run);
    }
}

/// Adds the row of a finished run, which replaces an earlier one.
pub(crate) fn row(rows: &mut FinishedRows, change: &Change) -> Result<(), StoreError> {
    let Change::RunFinished { user, path, job, run, now_ns } = change else { return Ok(()) };
    let key = (user.clone(), path_text(path)?.to_string());
    let run = json(run.as_ref())?;
    match job {
        Some(job) => {
            rows.refreshed.remove(&key);
            rows.finished.insert(key, FinishedRow { job: job.0, ended_ns: *now_ns, run });
        }
        None => drop(rows.refreshed.insert(key, run)),
    }
    Ok(())
}

/// Rows of one transaction, by user and path.
#[derive(Default)]
pub(crate) struct FinishedRows {
    finished: BTreeMap<(String, String), FinishedRow>,
    /// New forms of known runs.
    refreshed: BTreeMap<(String, String), String>,
}

/// Values of a row beside its key.
struct FinishedRow {
    job: i64,
    ended_ns: u64,
    run: String,
}

pub(crate) async fn write(db: &mut Session<'_>, rows: FinishedRows) -> Result<(), ApplyError> {
    let finished: Rows = rows
        .finished
        .into_iter()
        .map(|((user, path), row)| {
            [user.into(), path.into(), row.job.into(), row.ended_ns.into(), row.run.into()]
        })
        .collect();
    let after = "ON CONFLICT (user_name, path) DO UPDATE SET job = excluded.job, ended_ns = excluded.ended_ns, \
                 run = excluded.run";
    db.insert("finished_runs", "user_name, path, job, ended_ns, run", after, finished).await?;
    let refreshed: Rows = rows
        .refreshed
        .into_iter()
        .map(|((user, path), run)| [Value::from(user), Value::from(path), Value::from(run)])
        .collect();
    let tail = "WHERE finished_runs.user_name = v.column1 AND finished_runs.path = v.column2";
    Ok(db.update("UPDATE finished_runs SET run = v.column3", tail, refreshed).await?)
}
