//! Cleanup after dead owners: their unfinished jobs are marked, their directories removed.

use crate::ServerError;
use crate::clock::now_ns;
use crate::directories::Directories;
use crate::owner::{dead_owners, has_lock_file};
use api::{JobReport, JobSpec, is_object_url};
use control::{DiskDirs, keep_from};
use ids::JobId;
use metastore::{Change, JobRow, JobState, Keep, Metastore};
use objects::staging::{self, Publication};
use objects::{ObjectError, ObjectUrl};
use roots::JobPaths;
use std::collections::BTreeSet;
use std::path::Path;

/// Sweeps once. Warns about anything that cannot be removed (no permission, for example); the next sweep tries again.
pub(crate) async fn sweep(store: &Metastore, state_dir: &Path, own_uuid: &str) -> Result<(), ServerError> {
    let dead = dead_owners(state_dir, own_uuid)?;
    let dead_uuids: BTreeSet<&str> = dead.iter().filter_map(|owner| owner.uuid.as_deref()).collect();
    let mut unfinished: BTreeSet<String> = BTreeSet::new();
    for row in store.jobs_to_clean(own_uuid).await? {
        let locked_by_us = dead_uuids.contains(row.owner.as_str());
        if !locked_by_us && has_lock_file(state_dir, &row.owner) {
            continue;
        }
        if !clean_job(store, row.job).await? {
            unfinished.insert(row.owner);
        }
    }
    for owner in dead {
        match &owner.uuid {
            Some(uuid) if unfinished.contains(uuid) => {}
            Some(uuid) => {
                let ended = Change::OwnerEnded { uuid: uuid.clone(), now_ns: now_ns() };
                store.apply(&[ended]).await?;
                owner.bury();
            }
            None => owner.bury(),
        }
    }
    Ok(())
}

/// Cleans a job of a dead owner. Returns false if something could not be removed.
async fn clean_job(store: &Metastore, job: JobId) -> Result<bool, ServerError> {
    // Read again: its owner may have ended properly since the list was made.
    let Some(row) = store.job(job).await?.filter(|row| row.cleaned_ns.is_none()) else { return Ok(true) };
    let spec = store.job_spec(job).await?;
    let published = match (row.state == JobState::Committing, &spec) {
        (false, _) => false,
        (true, Some(spec)) if is_object_url(&spec.output) => match complete_objects(store, &row, spec).await?
        {
            Ok(published) => published,
            Err(error) => {
                tracing::warn!(%job, %error, "cannot complete the output of a dead process");
                return Ok(false);
            }
        },
        (true, _) => output_is_published(store, &row).await?,
    };
    let ran_to_its_end = matches!(row.state, JobState::Succeeded | JobState::Failed);
    let kept = match spec {
        Some(spec) if spec.keep_ifiles && (ran_to_its_end || published) => keep_from(&spec, now_ns()),
        _ => Keep::Nothing,
    };
    let directories = Directories { staging: row.staging.clone(), disk_dirs: row.disk_dirs.clone() };
    let disk_dirs = if kept == Keep::Nothing { DiskDirs::Remove } else { DiskDirs::Keep };
    let removed = directories.remove(&JobPaths::default(), disk_dirs);
    let mut changes = Vec::new();
    if !row.state.over() {
        let (state, exit_code, error) = match published {
            true => (JobState::Succeeded, Some(0), None),
            false => (JobState::Interrupted, None, Some("its process died".to_string())),
        };
        changes.push(Change::JobEnded { job, state, exit_code, error, now_ns: now_ns() });
    }
    match &removed {
        Ok(()) => changes.push(Change::JobCleaned { job, kept, now_ns: now_ns() }),
        Err(error) => {
            tracing::warn!(%job, %error, "cannot remove the remains of a dead process");
        }
    }
    store.apply(&changes).await?;
    Ok(removed.is_ok())
}

/// Completes an output of objects if its publication was decided. Returns false if it was not.
async fn complete_objects(
    store: &Metastore,
    row: &JobRow,
    spec: &JobSpec,
) -> Result<Result<bool, ObjectError>, ServerError> {
    let Some(report) = store.job_report(row.job).await? else { return Ok(Ok(false)) };
    let Ok(bytes) = serde_json::to_vec_pretty(&report) else { return Ok(Ok(false)) };
    let complete = || {
        let staging = ObjectUrl::from_path(&row.staging)?;
        if !staging::is_decided(&staging)? {
            return Ok(false);
        }
        let (parts, overwrite) = (report.parts, spec.overwrite);
        let publication = Publication { staging, parts, report: bytes, overwrite };
        staging::publish(publication, &|| false).map(|_| true)
    };
    Ok(complete())
}

/// Returns whether the output directory is the one that this job was about to publish: in this case it died after the
/// rename.
async fn output_is_published(store: &Metastore, row: &JobRow) -> Result<bool, ServerError> {
    let Ok(text) = std::fs::read(row.output.join("_report.json")) else { return Ok(false) };
    let Ok(found) = serde_json::from_slice::<JobReport>(&text) else { return Ok(false) };
    let Some(stored) = store.job_report(row.job).await? else { return Ok(false) };
    // Numbers of jobs repeat in other state directories; parts and proofs do not.
    Ok(found.job == row.job && found.parts == stored.parts && found.proof == stored.proof)
}
