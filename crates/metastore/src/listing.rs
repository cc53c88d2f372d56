//! Lists of jobs for users.

use crate::database::Value;
use crate::{Metastore, StoreError};
use api::history::{JobList, JobState, JobsQuestion, MORE_JOBS_MAX};

/// Default number of listed jobs.
const LISTED: u32 = 20;

/// Conditions with `$1` to `$3`: state, user and name; empty for no condition. `$4` is the job whose steps are listed; 0
/// lists jobs that are no steps.
macro_rules! matching {
    () => {
        "FROM jobs WHERE ($1 = '' OR state = $1) AND ($2 = '' OR user_name = $2) \
         AND ($3 = '' OR lower(name) LIKE lower($3) ESCAPE '!') \
         AND (($4 = 0 AND step_of IS NULL) OR step_of = $4)"
    };
}

impl Metastore {
    /// Returns the latest jobs that match a question, newest first, and the number of other matches.
    pub async fn list_jobs(&self, question: &JobsQuestion) -> Result<JobList, StoreError> {
        let limit = question.limit.unwrap_or(LISTED);
        let conditions: [Value; 4] = [
            question.state.map_or("", JobState::word).into(),
            question.user.as_deref().unwrap_or_default().into(),
            question.name.as_deref().map(containing).unwrap_or_default().into(),
            question.steps_of.map_or(0, |job| job.0).into(),
        ];
        let statement = concat!("SELECT * ", matching!(), " ORDER BY job DESC LIMIT $5");
        let values: Vec<Value> = conditions.iter().cloned().chain([limit.into()]).collect();
        let rows = self.rows(statement, values).await?;
        let jobs = rows.iter().map(|row| self.job_row(row)).collect::<Result<Vec<_>, _>>()?;
        if (jobs.len() as u64) < u64::from(limit) {
            return Ok(JobList { jobs, more: 0 });
        }
        let statement =
            concat!("SELECT count(*) AS found FROM (SELECT 1 ", matching!(), " LIMIT $5) AS asked");
        let most = MORE_JOBS_MAX + u64::from(limit);
        let rows =
            self.rows(statement, conditions.into_iter().chain([most.into()]).collect::<Vec<_>>()).await?;
        let found: u64 = rows.first().map_or(Ok(0), |row| self.number(row, "found"))?;
        Ok(JobList { more: found.saturating_sub(jobs.len() as u64), jobs })
    }
}

/// Returns a LIKE pattern for texts that contain this one.
fn containing(text: &str) -> String {
    let mut pattern = String::from("%");
    for character in text.chars() {
        if matches!(character, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}
