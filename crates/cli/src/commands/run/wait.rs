//! `sailfish wait` and `sailfish cancel`: jobs of a cluster that another process submitted.

use crate::commands::run::submit::said_code;
use crate::engine::remote::wait_or_leave;
use crate::exit::Failure;
use crate::options::connect::CredentialArgs;
use crate::show::terminal::tell;
use clap::Args;
use ids::JobId;

/// A job of a cluster.
#[derive(Debug, Args)]
pub struct ClusterJobArgs {
    /// Number of the job
    pub job: i64,
    /// Server of the job, as in http://127.0.0.1:7070
    #[arg(long, value_name = "URL")]
    pub server: String,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

/// Runs `sailfish cancel`.
pub fn cancel(args: &ClusterJobArgs) -> Result<(), Failure> {
    let connection = args.credentials.connect(&args.server)?;
    let cancelled = connection.run(async |client| client.cancel(JobId(args.job), "cancelled").await);
    cancelled.map_err(Failure::from_client)
}

/// Runs `sailfish wait`.
pub fn wait(args: &ClusterJobArgs) -> Result<(), Failure> {
    let connection = args.credentials.connect(&args.server)?;
    // A server that was never reachable is reported within a minute; a lost one may come back.
    connection.run(async |client| client.jobs(1).await).map_err(Failure::from_client)?;
    let job = JobId(args.job);
    let outcome = wait_or_leave(&connection, job)?;
    match said_code(&connection, job, &outcome) {
        Some(code) => Err(Failure::said(code)),
        None => {
            tell(&format!("sailfish: job {job} succeeded"));
            Ok(())
        }
    }
}
