//! `sailfish streaming`: a command line of Hadoop Streaming, planned and run like any other job.

use crate::commands::run;
use crate::exit::{Failure, sentence};
use crate::options::connect::{
    CA_VARIABLE, CredentialArgs, Site, TOKEN_FILE_VARIABLE, server_of_environment,
};
use crate::show::terminal::{print, tell};
use ::streaming::{OwnOptions, Request};
use anyhow::{Context, anyhow, ensure};
use clap::Args;
use jobspec::JobOptions;
use jobspec::streaming::options;
use program::Containment;
use std::path::PathBuf;

/// Words of a Hadoop command line. Its options have one dash, so the crate `streaming` parses them.
#[derive(Debug, Args)]
pub struct StreamingArgs {
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Options that Hadoop writes with one dash.
const OPTIONS: &[&str] = &["input", "output", "mapper", "combiner", "reducer", "file"];

/// Parses the words, reports those without effect, and runs the job.
pub fn run(args: StreamingArgs) -> Result<(), Failure> {
    let request = ::streaming::parse(&args.words).map_err(Failure::refused)?;
    let Request::Job(job) = request else { return Ok(print(::streaming::HELP)?) };
    for note in &job.notes {
        tell(&format!("sailfish: note: {note}"));
    }
    let start_dir = std::env::current_dir().context("finding the current directory")?;
    let site = site(&job.own).map_err(Failure::refused)?;
    let options = options(*job, start_dir).map_err(Failure::refused)?;
    let options = JobOptions { in_cluster: site.is_some(), ..options };
    let plan = run::planned(options, site.as_ref()).map_err(|error| Failure::refused(as_typed(&error)))?;
    run::conclude(plan, site.as_ref(), Containment::Subreaper)
}

/// Replaces the names of options in an error by those of Hadoop Streaming.
fn as_typed(error: &anyhow::Error) -> anyhow::Error {
    let mut text = sentence(error);
    for name in OPTIONS {
        for end in [' ', ':'] {
            text = text.replace(&format!("--{name}{end}"), &format!("-{name}{end}"));
        }
    }
    anyhow!(text)
}

/// Returns the server that runs the job, if one is named. The variables of other commands may name the token and the
/// authority.
fn site(own: &OwnOptions) -> anyhow::Result<Option<Site>> {
    let of_environment = || server_of_environment().filter(|_| own.state.is_none());
    let Some(url) = own.server.clone().or_else(of_environment) else {
        let given = own.token_file.as_ref().map(|_| "--token-file").or(own.ca.as_ref().map(|_| "--ca"));
        ensure!(given.is_none(), "{} needs a server: name it with --server", given.unwrap_or_default());
        return Ok(None);
    };
    ensure!(
        own.state.is_none(),
        "--state is for this machine and --server for a cluster: leave one of them out"
    );
    let file = |given: &Option<String>, variable: &str| {
        given.as_ref().map(PathBuf::from).or_else(|| std::env::var_os(variable).map(PathBuf::from))
    };
    let credentials = CredentialArgs {
        token_file: file(&own.token_file, TOKEN_FILE_VARIABLE),
        ca: file(&own.ca, CA_VARIABLE),
        proxy: own.proxy.clone(),
    };
    Ok(Some(Site { url, credentials }))
}
