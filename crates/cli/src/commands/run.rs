//! `sailfish run`, and the other commands that run jobs.

pub mod downstream;
pub mod flow;
pub mod rerun;
pub mod steps;
pub mod streaming;
pub mod submit;
pub mod wait;

use crate::engine::printed_output::print_output;
use crate::engine::progress::Display;
use crate::engine::resources::CommandLineFrontEnd;
use crate::engine::{self, Ended, machine, stored_outputs};
use crate::exit::{FAILED, Failure, INTERRUPTED, REFUSED, SIGNAL_BASE};
use crate::options::connect::Site;
use crate::options::run::RunArgs;
use crate::show::summary::{self, FailedAttempt};
use crate::show::terminal::{print, tell};
use api::{Blame, JobReport, TaskFailure};
use ids::AttemptKey;
use jobspec::job_file::{self, Asked};
use jobspec::{JobOptions, Plan, standard_output};
use program::Containment;
use server::JobOutcome;

/// Checks, submits and waits. Exits with the code of the job.
pub fn run(args: RunArgs) -> Result<(), Failure> {
    let site = args.state.site();
    let containment = if args.contain { Containment::Namespaces } else { Containment::Subreaper };
    match job_file::collect(args.command_line()).map_err(Failure::refused)? {
        Asked::Job(options) => {
            let plan = planned(*options, site.as_ref()).map_err(Failure::refused)?;
            conclude(plan, site.as_ref(), containment)
        }
        Asked::Flow(stages) => flow::run(stages, site, containment),
    }
}

/// Plans a job.
pub fn planned(options: JobOptions, site: Option<&Site>) -> anyhow::Result<Plan> {
    machine::raise_open_file_limit();
    jobspec::plan(options, &CommandLineFrontEnd { site })
}

/// Submits a job, waits for its end and prints its result.
pub fn conclude(mut plan: Plan, site: Option<&Site>, containment: Containment) -> Result<(), Failure> {
    standard_output::sweep(&plan.spec.disks);
    stored_outputs::sweep(&plan.state_dir);
    let state_dir = plan.state_dir.clone();
    // Standard input stays open until the job is over: its attempts read it through this process.
    let held = std::mem::take(&mut plan.held);
    let json = plan.json;
    let start_dir = plan.start_dir.clone();
    let display = Display::choose([&plan]);
    let ended = engine::execute(plan, site, display, containment)?;
    let report = report_of(&ended)?;
    if json {
        let text = serde_json::to_string_pretty(report).map_err(anyhow::Error::from)?;
        print(&format!("{text}\n"))?;
    }
    if let Some(private_output) = held.standard_output {
        ended.interrupt.end_at_once(private_output.dir());
        print_output(&private_output, report)?;
    }
    if let Some((private_output, name)) = held.stored_output {
        ended.interrupt.end_at_once(private_output.dir());
        stored_outputs::store(&state_dir, &name, &private_output, report)?;
    }
    tell(summary::succeeded(&ended, report, &start_dir).trim_end());
    Ok(())
}

/// Returns the report of a successful job. For any other, prints the reason and returns the exit code of the job.
pub fn report_of(ended: &Ended) -> Result<&JobReport, Failure> {
    match &ended.outcome {
        JobOutcome::Succeeded(report) => Ok(report),
        JobOutcome::Done => Err(anyhow::anyhow!("the server answered for another job").into()),
        JobOutcome::Failed { failure, attempt, exit_code } => {
            // Without a current directory, relative paths mean nothing.
            let start_dir = std::env::current_dir().unwrap_or_default();
            let at = failed_attempt(ended, *attempt);
            tell(summary::failed(ended, failure, at, &start_dir).trim_end());
            Err(Failure::said(code_of(failure, *exit_code)))
        }
        JobOutcome::Cancelled { reason } => {
            let job = ended.submitted.job;
            tell(&format!("sailfish: job {job} was {reason}; it left no output and no intermediate data"));
            Err(Failure::said(INTERRUPTED))
        }
    }
}

/// Returns the stage in which the job failed, and the attempt.
fn failed_attempt(ended: &Ended, attempt: Option<AttemptKey>) -> Option<FailedAttempt> {
    let attempt = attempt?;
    let stages = mapreduce::stages(&ended.spec);
    let stage = stages.get(usize::from(attempt.task.stage.0))?;
    Some(FailedAttempt { stage: *stage, attempt })
}

/// Returns the exit code of a failed job: that of the user's program, otherwise one that says who must act.
fn code_of(failure: &TaskFailure, exit_code: i32) -> u8 {
    match failure.blame {
        Blame::UserProgram => {
            let signal = failure.signal.map(|signal| SIGNAL_BASE + signal);
            let code = failure.exit_code.filter(|code| *code != 0).or(signal).unwrap_or(exit_code);
            u8::try_from(code).ok().filter(|code| *code != 0).unwrap_or(FAILED)
        }
        Blame::UserData => REFUSED,
        Blame::Environment | Blame::Engine => FAILED,
        Blame::Cancelled => INTERRUPTED,
    }
}

#[cfg(test)]
mod tests {
    use super::code_of;
    use api::{Blame, TaskFailure};

    #[test]
    fn codes_say_whose_move_it_is() {
        let check = |blame, exit_code, signal, expected| {
            let failure = TaskFailure { exit_code, signal, ..TaskFailure::new(blame, "message") };
            assert_eq!(code_of(&failure, 74), expected, "{failure:?}");
        };
        check(Blame::UserProgram, Some(3), None, 3);
        check(Blame::UserProgram, Some(255), None, 255);
        check(Blame::UserProgram, None, Some(9), 137);
        check(Blame::UserProgram, None, None, 74);
        check(Blame::UserData, None, None, 2);
        check(Blame::Environment, None, None, 1);
        check(Blame::Engine, None, None, 1);
    }
}
