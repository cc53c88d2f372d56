//! What a job that is over kept, as the beginning of another one: `sailfish rerun-reduce`.

use crate::ServerError;
use crate::directories::check_output_against;
use api::task::{AdoptTask, ChunkSummary, KeptRun};
use api::{JobSpec, Split};
use ids::JobId;
use mapreduce::JobResults;
use metastore::{JobRow, JobState, KeptFiles, Metastore, StoreError};

/// Why a job cannot be reduced again. The user's to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReducible {
    #[error("there is no job {job}: `sailfish jobs` lists those there are")]
    UnknownJob { job: JobId },
    #[error("job {job} is {state}: it can be reduced again once it is over")]
    NotOver { job: JobId, state: &'static str },
    #[error("job {job} was {state}: nothing is kept of a job that did not come to its end")]
    Stopped { job: JobId, state: &'static str },
    #[error("job {job} ran with --map-only: it had no shuffle and has no I-files to reduce")]
    MapOnly { job: JobId },
    #[error("job {job} kept no I-files: run it again with --keep-ifiles or --keep-for")]
    NotKept { job: JobId },
    #[error(
        "the I-files of job {job} have been removed: run it again with --keep-ifiles or a longer --keep-for"
    )]
    Removed { job: JobId },
    #[error("job {job} failed before all its maps were done: its I-files are not complete")]
    MapsNotDone { job: JobId },
}

/// A job whose I-files can be reduced again.
#[derive(Clone, Debug)]
pub struct KeptSource {
    pub row: JobRow,
    pub spec: JobSpec,
}

/// The job whose kept I-files stand behind a job: itself, or the one it reduced again. Says why where they cannot
/// be used; whether the files are whole is found when they are opened.
pub async fn kept_source(store: &Metastore, job: JobId) -> Result<KeptSource, ServerError> {
    let mut row = store.job(job).await?.ok_or(NotReducible::UnknownJob { job })?;
    // One step: a job that reduces again always names the job that has the files.
    if let Some(source) = row.reduce_again {
        row = store.job(source).await?.ok_or(NotReducible::UnknownJob { job: source })?;
    }
    let job = row.job;
    let spec = store.job_spec(job).await?.ok_or(NotReducible::UnknownJob { job })?;
    if spec.map_only {
        return Err(NotReducible::MapOnly { job }.into());
    }
    let state = row.state.word();
    match (row.state, row.kept_files) {
        (JobState::Running | JobState::Committing, _) => {
            return Err(NotReducible::NotOver { job, state }.into());
        }
        (_, Some(KeptFiles::Kept)) => {}
        (_, Some(KeptFiles::Removing | KeptFiles::Removed)) => {
            return Err(NotReducible::Removed { job }.into());
        }
        (JobState::Cancelled | JobState::Interrupted, None) => {
            return Err(NotReducible::Stopped { job, state }.into());
        }
        // It ended a moment ago and its process still cleans up.
        (_, None) if spec.keep_ifiles && row.cleaned_ns.is_none() => {
            return Err(NotReducible::NotOver { job, state: "being cleaned up" }.into());
        }
        (_, None) => return Err(NotReducible::NotKept { job }.into()),
    }
    let sealed = store.stages(job).await?.iter().any(|stage| stage.name == "seal" && stage.state == "done");
    if !sealed {
        return Err(NotReducible::MapsNotDone { job }.into());
    }
    Ok(KeptSource { row, spec })
}

/// The results a new job begins with: none, or what the job it reduces again left in the store.
pub(crate) async fn results(
    store: &Metastore,
    spec: &JobSpec,
    job: JobId,
    splits: Vec<Split>,
) -> Result<JobResults, ServerError> {
    let Some(source) = spec.reduce_again else { return Ok(JobResults::new(job, splits)) };
    let source = kept_source(store, source).await?.row;
    check_output_against(spec, &source.disk_dirs)?;
    let adopt = AdoptTask {
        source: source.job,
        dirs: source.disk_dirs.clone(),
        runs: runs(store, source.job).await?,
        chunks: chunks(store, source.job).await?,
    };
    Ok(JobResults::reducing_again(job, adopt, store.winning_commits(source.job).await?))
}

async fn runs(store: &Metastore, job: JobId) -> Result<Vec<KeptRun>, StoreError> {
    let rows = store.runs(job).await?;
    let surviving = rows.iter().filter(|row| row.replaced_by.is_none());
    Ok(surviving
        .map(|row| KeptRun {
            run: row.run,
            ifile: row.ifile,
            disk: row.disk,
            records: row.records,
            record_bytes: row.record_bytes,
            stored_bytes: row.stored_bytes,
        })
        .collect())
}

async fn chunks(store: &Metastore, job: JobId) -> Result<Vec<ChunkSummary>, StoreError> {
    let rows = store.chunks(job).await?;
    Ok(rows
        .iter()
        .map(|row| ChunkSummary {
            chunk: row.chunk,
            ifile: row.ifile,
            generation: row.generation,
            disk: row.disk,
            capacity_bytes: row.capacity_bytes,
            appended_bytes: row.appended_bytes,
            oversize: row.oversize,
            sources: Vec::new(),
        })
        .collect())
}
