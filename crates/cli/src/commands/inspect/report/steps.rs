//! The report of a job with steps: the files that its steps wrote, also those that are gone.

use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{bytes, counted};
use crate::show::tables::{left, right, table};
use api::history::JobDetails;
use api::history::lineage::{Lineage, LineageFile, LineageRun};
use api::task::is_stored_path;
use ids::JobId;
use metastore::Metastore;
use std::path::Path;

/// Digits of a checksum in the table.
const DIGITS_SHOWN: usize = 16;

/// Returns the remembered runs of the steps of a job.
pub(super) fn runs(from: &StateArgs, job: JobId) -> Result<Lineage, Failure> {
    if let Some(connection) = from.connection()? {
        return connection.run(async |client| client.runs_of_steps(job).await).map_err(Failure::from_client);
    }
    store::look(from.state.as_deref(), async |store: Metastore| Ok(server::runs_of_steps(&store, job).await?))
}

/// Returns a line for each file that a step wrote.
pub(super) fn render(details: &JobDetails, runs: &Lineage, rows_max: usize) -> String {
    let job = &details.job;
    let mut text = format!("Job {}: {}\n", job.job, escape::cell(&job.name));
    let steps = counted(runs.runs.len() as u64, "step");
    text.push_str(&format!(
        "{steps} ran in this job and in no later one; `sailfish jobs --steps-of {}` lists all that ran in it\n",
        job.job
    ));
    let columns = [left("step"), right("job"), left("wrote"), right("bytes"), left("SHA-256")];
    let files = runs.runs.iter().flat_map(|run| run.outputs.iter().map(move |file| (run, file)));
    let rows: Vec<Vec<String>> = files.map(|(run, file)| row(run, file)).collect();
    let more = rows.len().saturating_sub(rows_max);
    if !rows.is_empty() {
        text.push_str(&format!("\n{}", table(&columns, rows.into_iter().take(rows_max).collect())));
    }
    if more > 0 || runs.is_cut {
        let count = if runs.is_cut { "more files".to_string() } else { counted(more as u64, "more file") };
        text.push_str(&format!("and {count}: --limit N shows more, --json all\n"));
    }
    text
}

fn row(run: &LineageRun, file: &LineageFile) -> Vec<String> {
    let here = std::env::current_dir().ok().and_then(|dir| dir.canonicalize().ok());
    let near = |path: &Path| here.as_ref().and_then(|dir| path.strip_prefix(dir).ok().map(Path::to_path_buf));
    let shown = near(&file.path).unwrap_or_else(|| file.path.clone());
    let (size, content) = match &file.sha256 {
        Some(sha256) => (bytes(file.bytes), sha256.to_string().chars().take(DIGITS_SHOWN).collect()),
        None if is_stored_path(&file.path) => (bytes(file.bytes), "a stored file".to_string()),
        None => (String::new(), "streamed, never a file".to_string()),
    };
    let name = escape::cell(&shown.display().to_string());
    vec![escape::cell(&run.step), run.job.to_string(), name, size, content]
}
