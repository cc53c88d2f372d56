//! Removal of kept data: after its expiry, or on request.

use crate::clock::now_ns;
use crate::directories::remove_tree;
use crate::owner::lives;
use crate::{ServerError, take_over};
pub use api::kept::{Collected, GcOptions, GcOutcome, GcSelection};
use faults::{CrashPoint, crash_point};
use metastore::{CLUSTER_OWNER, Change, JobRow, KeptFiles, Metastore};
use std::path::{Path, PathBuf};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Removes kept intermediate data of a state directory, and returns the outcome for each job. A second call removes
/// nothing more. If a process is killed in the middle, a mark lets the next process that opens the state complete the
/// removal. Unfinished jobs, jobs of live processes, and files that a running job reads are left alone.
///
/// Must not be called from async code.
pub fn collect_garbage(state_dir: &Path, options: &GcOptions) -> Result<Vec<Collected>, ServerError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(ServerError::Thread)?;
    runtime.block_on(async {
        if options.dry_run {
            let store = Metastore::open(state_dir).await?;
            check_jobs(&store, &options.selection).await?;
            let collected = collect(&store, state_dir, "", options).await;
            store.close().await?;
            return collected;
        }
        let (store, lock) = take_over(state_dir, None).await?;
        let collected = match check_jobs(&store, &options.selection).await {
            Ok(()) => collect(&store, state_dir, &lock.uuid, options).await,
            Err(error) => Err(error),
        };
        store.apply(&[Change::OwnerEnded { uuid: lock.uuid.clone(), now_ns: now_ns() }]).await?;
        store.close().await?;
        lock.release();
        collected
    })
}

/// Removes expired kept data at the start of a server. Warns about files that cannot be removed.
pub(crate) async fn collect_expired(
    store: &Metastore,
    state_dir: &Path,
    own_uuid: &str,
) -> Result<(), ServerError> {
    let options = GcOptions { selection: GcSelection::Expired, dry_run: false };
    for each in collect(store, state_dir, own_uuid, &options).await? {
        if let GcOutcome::Failed { reason } = each.outcome {
            tracing::warn!(job = %each.job, reason, "cannot remove the expired I-files of a job");
        }
    }
    Ok(())
}

/// Returns the bytes of the files in the kept directories of a job; None if no directory exists any more.
pub fn kept_bytes(dirs: &[PathBuf]) -> Option<u64> {
    let mut total = None;
    for dir in dirs {
        let Ok(entries) = std::fs::read_dir(dir) else { continue };
        let bytes_of = |entry: std::fs::DirEntry| entry.metadata().ok().filter(|data| data.is_file());
        let bytes: u64 = entries.flatten().filter_map(bytes_of).map(|data| data.len()).sum();
        *total.get_or_insert(0) += bytes;
    }
    total
}

/// Returns an error before anything is removed if a named job cannot give anything up.
pub(crate) async fn check_jobs(store: &Metastore, selection: &GcSelection) -> Result<(), ServerError> {
    let GcSelection::Jobs(jobs) = selection else { return Ok(()) };
    for job in jobs {
        let Some(row) = store.job(*job).await? else {
            return Err(crate::NotReducible::UnknownJob { job: *job }.into());
        };
        if !row.state.over() {
            return Err(ServerError::NotCollectable { job: *job, state: row.state.word() });
        }
    }
    Ok(())
}

async fn collect(
    store: &Metastore,
    state_dir: &Path,
    own_uuid: &str,
    options: &GcOptions,
) -> Result<Vec<Collected>, ServerError> {
    let mut collected = Vec::new();
    for row in store.jobs_with_kept_files().await? {
        if !selected(&row, &options.selection) {
            continue;
        }
        let bytes = kept_bytes(&row.disk_dirs).or(row.kept_bytes).unwrap_or(0);
        let outcome = match store.reader_of(row.job).await? {
            _ if row.owner == CLUSTER_OWNER => GcOutcome::OfCluster,
            Some(reader) => GcOutcome::ReadBy(reader),
            None if row.owner != own_uuid && lives(state_dir, &row.owner) => GcOutcome::OwnerLives,
            None if options.dry_run => GcOutcome::WouldBeRemoved,
            None => remove(store, &row, bytes).await?,
        };
        collected.push(Collected { job: row.job, name: row.name, bytes, outcome, away: Vec::new() });
    }
    Ok(collected)
}

pub(crate) fn selected(row: &JobRow, selection: &GcSelection) -> bool {
    let now_ns = now_ns();
    // Any process may complete a removal that has begun.
    let expired = row.kept_files == Some(KeptFiles::Removing)
        || row.keep_until_ns.is_some_and(|until_ns| until_ns <= now_ns);
    match selection {
        GcSelection::Expired => expired,
        GcSelection::OlderThan { seconds } => {
            let age_ns = seconds.saturating_mul(NANOS_PER_SECOND);
            let ended_ns = row.ended_ns.unwrap_or(row.created_ns);
            expired || ended_ns.saturating_add(age_ns) <= now_ns
        }
        GcSelection::All => true,
        GcSelection::Jobs(jobs) => jobs.contains(&row.job),
    }
}

async fn remove(store: &Metastore, row: &JobRow, bytes: u64) -> Result<GcOutcome, ServerError> {
    crash_point(CrashPoint::GcBeforeMark);
    if !store.begin_to_remove_kept_files(row.job).await? {
        // A reader or another collector came in between.
        let reader = store.reader_of(row.job).await?;
        return Ok(reader.map_or(GcOutcome::Removed, GcOutcome::ReadBy));
    }
    crash_point(CrashPoint::GcAfterMark);
    for dir in &row.disk_dirs {
        if let Err(error) = remove_tree(dir) {
            return Ok(GcOutcome::Failed { reason: format!("{}: {error}", dir.display()) });
        }
    }
    crash_point(CrashPoint::GcAfterRemove);
    store.apply(&[Change::KeptFilesRemoved { job: row.job, bytes, now_ns: now_ns() }]).await?;
    Ok(GcOutcome::Removed)
}
