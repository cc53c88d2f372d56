//! Lists of jobs for users.

use crate::database::Value;
use crate::{Metastore, StoreError};
use api::history::{JobList, JobState, JobsQuestion, MORE_JOBS_MAX};

/// Default number of listed jobs.
const LISTED: u32 = 20;

/// Conditions with `$1` to `$3`: state, user and name; empty for no condition.
macro_rules! matching {
    ($which:literal) => {
        concat!(
            "FROM jobs WHERE ($1 = '' OR state = $1) AND ($2 = '' OR user_name = $2) \
             AND ($3 = '' OR lower(name) LIKE lower($3) ESCAPE '!') AND ",
            $which
        )
    };
}

/// Statements for rows and for their number: of jobs that are no steps, and of the steps of job `$5`, which an index has.
const STATEMENTS: [[&str; 2]; 2] = [
    [
        concat!("SELECT * ", matching!("step_of IS NULL"), " ORDER BY job DESC LIMIT $4"),
        concat!(
            "SELECT count(*) AS found FROM (SELECT 1 ",
            matching!("step_of IS NULL"),
            " LIMIT $4) AS asked"
        ),
    ],
    [
        concat!("SELECT * ", matching!("step_of = $5"), " ORDER BY job DESC LIMIT $4"),
        concat!("SELECT count(*) AS found FROM (SELECT 1 ", matching!("step_of = $5"), " LIMIT $4) AS asked"),
    ],
];

impl Metastore {
    /// Returns the latest jobs that match a question, newest first, and the number of other matches.
    pub async fn list_jobs(&self, question: &JobsQuestion) -> Result<JobList, StoreError> {
        let limit = question.limit.unwrap_or(LISTED);
        let [rows, count] = STATEMENTS[usize::from(question.steps_of.is_some())];
        let values = |limit: u64| -> Vec<Value> {
            let conditions = [
                question.state.map_or("", JobState::word).into(),
                question.user.as_deref().unwrap_or_default().into(),
                question.name.as_deref().map(containing).unwrap_or_default().into(),
                limit.into(),
            ];
            conditions.into_iter().chain(question.steps_of.map(|job| job.0.into())).collect()
        };
        let rows = self.rows(rows, values(limit.into())).await?;
        let jobs = rows.iter().map(|row| self.job_row(row)).collect::<Result<Vec<_>, _>>()?;
        if (jobs.len() as u64) < u64::from(limit) {
            return Ok(JobList { jobs, more: 0 });
        }
        let rows = self.rows(count, values(MORE_JOBS_MAX + u64::from(limit))).await?;
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
