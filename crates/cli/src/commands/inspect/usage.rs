//! `sailfish usage`: what users, jobs and days used.

use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{bytes, count, seconds};
use crate::show::tables::{left, right, table};
use crate::show::terminal::{print, tell};
use anyhow::Context;
use api::history::usage::{UsageBy, UsageDay, UsageList, UsageQuestion, UsageRow};
use clap::{Args, ValueEnum};
use ids::JobId;
use jobspec::state_dir;

/// Seconds of an hour, and bytes of a MiB.
const HOUR_SECONDS: u64 = 3600;
const MIB: u64 = 1 << 20;

#[derive(Debug, Args)]
pub struct UsageArgs {
    #[command(flatten)]
    pub state: StateArgs,
    /// One line for each of these
    #[arg(long, value_enum, default_value_t = By::User)]
    pub by: By,
    /// First day, in UTC, as YYYY-MM-DD
    #[arg(long, value_name = "DAY")]
    pub since: Option<UsageDay>,
    /// Last day
    #[arg(long, value_name = "DAY")]
    pub until: Option<UsageDay>,
    /// Only this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only this job, with its steps
    #[arg(long, value_name = "JOB")]
    pub job: Option<i64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    User,
    Job,
    Day,
}

/// Prints a line for each user, job or day.
pub fn run(args: &UsageArgs) -> Result<(), Failure> {
    if let (Some(since), Some(until)) = (args.since, args.until)
        && since > until
    {
        let wrong = anyhow::anyhow!("--since {since} is after --until {until}: exchange the days");
        return Err(Failure::refused(wrong));
    }
    let by = match args.by {
        By::User => UsageBy::User,
        By::Job => UsageBy::Job,
        By::Day => UsageBy::Day,
    };
    let (since, until, user) = (args.since, args.until, args.user.clone());
    let question = UsageQuestion { by, since, until, user, job: args.job.map(JobId) };
    let list = ask(args, &question)?;
    if args.json {
        let text = serde_json::to_string_pretty(&list.rows).context("writing JSON")?;
        print(&format!("{text}\n"))?;
    } else if list.rows.is_empty() {
        return Ok(print("no ended attempt matches\n")?);
    } else {
        print(&render(&list.rows, by))?;
    }
    if list.is_cut {
        // Scripts read the table to its end.
        tell("sailfish: there is more, which is not shown (--since, --until, --user and --job show less)");
    }
    Ok(())
}

fn ask(args: &UsageArgs, question: &UsageQuestion) -> Result<UsageList, Failure> {
    if let Some(connection) = args.state.connection()? {
        return connection.run(async |client| client.usage(question).await).map_err(Failure::from_client);
    }
    let given = args.state.state.as_deref();
    let state_dir = state_dir::state_dir(given).map_err(Failure::refused)?;
    match store::exists(&state_dir) {
        true => store::look(given, async |store| Ok(store.usage(question).await?)),
        false => Ok(UsageList::default()),
    }
}

fn render(rows: &[UsageRow], by: UsageBy) -> String {
    let has_users = rows.iter().any(|row| row.user.is_some());
    let mut columns = match by {
        UsageBy::User => vec![left("user"), right("jobs")],
        UsageBy::Job if has_users => vec![right("job"), left("name"), left("user")],
        UsageBy::Job => vec![right("job"), left("name")],
        UsageBy::Day => vec![left("day"), right("jobs")],
    };
    let figures = ["attempts", "CPU", "memory x time", "read", "shuffled", "stored", "moved"];
    columns.extend(figures.map(right));
    // Few jobs keep I-files.
    let any_kept = rows.iter().any(|row| row.kept_bytes > 0);
    columns.extend(any_kept.then(|| right("kept")));
    let cells = |row: &UsageRow| {
        let user = row.user.as_deref().map(escape::cell);
        let job = row.job.map(|job| job.to_string()).unwrap_or_default();
        let name = row.name.as_deref().map(escape::cell).unwrap_or_default();
        let mut cells = match by {
            UsageBy::User => vec![user.unwrap_or("-".to_string()), count(row.jobs)],
            UsageBy::Job if has_users => vec![job, name, user.unwrap_or_default()],
            UsageBy::Job => vec![job, name],
            UsageBy::Day => vec![row.day.map(|day| day.to_string()).unwrap_or_default(), count(row.jobs)],
        };
        cells.extend([
            count(row.attempts),
            seconds(row.cpu_ms as f64 / 1000.0),
            memory_time(row.memory_mib_seconds),
            bytes(row.read_bytes),
            bytes(row.shuffled_bytes),
            bytes(row.stored_bytes),
            bytes(row.moved_bytes),
        ]);
        cells.extend(any_kept.then(|| bytes(row.kept_bytes)));
        cells
    };
    table(&columns, rows.iter().map(cells).collect())
}

/// Returns claimed memory times wall time, in bytes times seconds or hours.
fn memory_time(mib_seconds: u64) -> String {
    match mib_seconds.saturating_mul(MIB) {
        0 => "0".to_string(),
        product if mib_seconds < HOUR_SECONDS => format!("{} s", bytes(product)),
        _ => format!("{} h", bytes((mib_seconds / HOUR_SECONDS).saturating_mul(MIB))),
    }
}

#[cfg(test)]
mod tests {
    use super::{memory_time, render};
    use api::history::usage::{UsageBy, UsageDay, UsageRow};
    use ids::JobId;

    #[test]
    fn tables_have_units_and_needed_columns() {
        let row = UsageRow {
            user: Some("ann".to_string()),
            job: Some(JobId(7)),
            day: Some(UsageDay(20_513)),
            jobs: 3,
            attempts: 1_200,
            cpu_ms: 61_500,
            read_bytes: 5 << 30,
            ..UsageRow::default()
        };
        let by_user = render(std::slice::from_ref(&row), UsageBy::User);
        assert!(
            by_user.contains("ann") && by_user.contains("5.00 GiB") && !by_user.contains("kept"),
            "{by_user}"
        );
        let by_job = render(&[UsageRow { user: None, kept_bytes: 1, ..row.clone() }], UsageBy::Job);
        assert!(!by_job.contains("user") && by_job.contains("kept"), "{by_job}");
        assert!(render(&[row], UsageBy::Day).contains("2026-03-01"));
    }

    #[test]
    fn memory_counts_in_hours_when_large() {
        assert_eq!(memory_time(0), "0");
        assert_eq!(memory_time(64), "64.0 MiB s");
        assert_eq!(memory_time(1024 * 3600), "1.00 GiB h");
    }
}
