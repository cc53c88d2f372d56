//! Opening of the state for reading.

use crate::exit::Failure;
use crate::options::connect::StateArgs;
use anyhow::Context;
use api::history::JobDetails;
use ids::JobId;
use jobspec::state_dir::state_dir;
use metastore::{JobRow, Metastore};
use std::future::Future;
use std::path::Path;

/// Returns whether a job has ever run there. Reading must not create a state.
pub fn exists(state_dir: &Path) -> bool {
    state_dir.join("sailfish.db").exists()
}

/// Runs `work` on the store of a state directory that has one.
pub fn look<T, F>(given: Option<&Path>, work: impl FnOnce(Metastore) -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let state_dir = state_dir(given).map_err(Failure::refused)?;
    if !exists(&state_dir) {
        return Err(Failure::refused(nothing_there(&state_dir)));
    }
    run(async { work(Metastore::open(&state_dir).await.map_err(Failure::refused)?).await })?
}

/// Returns the error for a state directory without a database.
pub fn nothing_there(state_dir: &Path) -> anyhow::Error {
    anyhow::anyhow!("no job has run in {}: name another state directory with --state", state_dir.display())
}

/// Returns the row of a job. Fails if there is none.
pub async fn job_row(store: &Metastore, job: JobId) -> Result<JobRow, Failure> {
    store.job(job).await?.ok_or_else(|| {
        Failure::refused(anyhow::anyhow!("there is no job {job}: `sailfish jobs` lists the jobs"))
    })
}

/// Runs a future to its end on this thread.
pub fn run<T>(future: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("starting to read the state")?.block_on(future))
}

/// Returns an error for a job with steps: its attempts are those of its steps.
pub fn expect_no_steps(details: &JobDetails) -> Result<(), Failure> {
    if details.spec.kind.steps().is_none() {
        return Ok(());
    }
    let job = details.job.job;
    let list = format!("`sailfish jobs --steps-of {job}`");
    Err(Failure::refused(anyhow::anyhow!("each step of job {job} is a job of its own: {list} lists them")))
}

/// Returns everything about a job except its report, from this machine or from a server.
pub fn details(from: &StateArgs, job: JobId, events_max: u32) -> Result<JobDetails, Failure> {
    if let Some(connection) = from.connection()? {
        return connection
            .run(async |client| client.job(job, events_max).await)
            .map_err(Failure::from_client);
    }
    let read = async |store: Metastore| {
        job_row(&store, job).await?;
        let details = store.job_details(job, events_max).await?;
        Ok(details.context("the job has no specification")?)
    };
    look(from.state.as_deref(), read)
}
