//! `sailfish gc`: removes intermediate files that jobs kept.

use crate::engine::store;
use crate::exit::{FAILED, Failure};
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{bytes, counted};
use crate::show::terminal::{print, tell};
use anyhow::Context;
use clap::Args;
use ids::JobId;
use jobspec::{duration, state_dir};
use server::{Collected, GcOptions, GcOutcome, GcSelection, collect_garbage};

#[derive(Debug, Args)]
pub struct GcArgs {
    /// Jobs whose kept I-files are removed, even before they expire [default: jobs with expired I-files]
    #[arg(value_name = "JOB")]
    pub jobs: Vec<i64>,
    #[command(flatten)]
    pub state: StateArgs,
    /// Also remove the I-files of jobs that ended this long ago, as in 30m, 12h or 7d
    #[arg(long, value_name = "DURATION", conflicts_with = "jobs")]
    pub older_than: Option<String>,
    /// Remove the I-files of every finished job
    #[arg(long, conflicts_with_all = ["jobs", "older_than"])]
    pub all: bool,
    /// Print the I-files that would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Removes the selected files, and prints the outcome.
pub fn run(args: &GcArgs) -> Result<(), Failure> {
    let selection = match (&args.older_than, args.all, args.jobs.is_empty()) {
        (Some(text), ..) => {
            let age = duration::parse(text).with_context(|| format!("--older-than {text:?}"));
            GcSelection::OlderThan { seconds: age.map_err(Failure::refused)?.as_secs() }
        }
        (None, true, _) => GcSelection::All,
        (None, false, false) => GcSelection::Jobs(args.jobs.iter().copied().map(JobId).collect()),
        (None, false, true) => GcSelection::Expired,
    };
    let options = GcOptions { selection, dry_run: args.dry_run };
    let collected = match args.state.connection()? {
        Some(connection) => {
            let answer = connection.run(async |client| client.collect(&options).await);
            answer.map_err(Failure::from_client)?.collected
        }
        None => of_this_machine(args, &options)?,
    };
    print(&render(&collected, args.dry_run))?;
    let mut failed = false;
    for each in &collected {
        if let GcOutcome::Failed { reason } = &each.outcome {
            failed = true;
            tell(&format!("sailfish: cannot remove the I-files of job {}: {reason}", each.job));
        }
    }
    if failed { Err(Failure::said(FAILED)) } else { Ok(()) }
}

fn of_this_machine(args: &GcArgs, options: &GcOptions) -> Result<Vec<Collected>, Failure> {
    let state_dir = state_dir::state_dir(args.state.state.as_deref()).map_err(Failure::refused)?;
    if !store::exists(&state_dir) {
        return Err(Failure::refused(store::nothing_there(&state_dir)));
    }
    collect_garbage(&state_dir, options).map_err(Failure::from_server)
}

fn render(collected: &[Collected], dry_run: bool) -> String {
    let mut text = String::new();
    let (mut jobs, mut total) = (0, 0);
    for each in collected {
        let what = match &each.outcome {
            GcOutcome::Removed => "removed",
            GcOutcome::WouldBeRemoved => "would be removed",
            GcOutcome::ReadBy(reader) => &format!("kept: job {reader} reads it"),
            GcOutcome::OwnerLives => "kept: the process of the job still runs",
            GcOutcome::OfCluster => "kept: it is on nodes of a cluster; name their server with --server",
            GcOutcome::Failed { .. } => "not removed",
        };
        if matches!(each.outcome, GcOutcome::Removed | GcOutcome::WouldBeRemoved) {
            jobs += 1;
            total += each.bytes;
        }
        let away = match each.away.is_empty() {
            true => String::new(),
            false => format!("; on {} once it is back", escape::cell(&each.away.join(", "))),
        };
        text.push_str(&format!(
            "job {} ({}): {} {what}{away}\n",
            each.job,
            escape::cell(&each.name),
            bytes(each.bytes)
        ));
    }
    let verb = if dry_run { "would be removed" } else { "removed" };
    text.push_str(&match jobs {
        0 => format!("nothing {verb}\n"),
        _ => format!("{verb}: {} ({total} bytes) of {}\n", bytes(total), counted(jobs, "job")),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::render;
    use ids::JobId;
    use server::{Collected, GcOutcome};

    #[test]
    fn sums_count_the_removed_files() {
        let one = |job, outcome| Collected {
            job: JobId(job),
            name: "n".into(),
            bytes: 2048,
            outcome,
            away: vec!["node-7".to_string()],
        };
        assert_eq!(render(&[], false), "nothing removed\n");
        let text = render(&[one(1, GcOutcome::Removed), one(2, GcOutcome::ReadBy(JobId(7)))], false);
        assert!(text.contains("job 1 (n): 2.00 KiB removed; on node-7 once"), "{text}");
        assert!(text.contains("job 2 (n): 2.00 KiB kept: job 7 reads it"), "{text}");
        assert!(text.ends_with("removed: 2.00 KiB (2048 bytes) of 1 job\n"), "{text}");
    }
}
