//! What a job that is over kept, as the beginning of another one: `sailfish rerun-reduce`.

use crate::ServerError;
use crate::directories::check_output_against;
use crate::fleet::Fleet;
use crate::replication;
use api::kept::KeptPlace;
use api::task::{AdoptTask, ChunkSummary, KeptRun};
use api::{JobSpec, Split};
use ids::{ChunkId, JobId, NodeId, RunId};
use mapreduce::JobResults;
use metastore::{CLUSTER_OWNER, JobRow, JobState, KeptFiles, Metastore, StageRow, StoreError};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Why a job cannot be reduced again. The user's to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReducible {
    #[error("there is no job {job}: `sailfish jobs` lists those there are")]
    UnknownJob { job: JobId },
    #[error("job {job} is {state}: its I-files can be read once it is over")]
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
    #[error("the I-files of job {job} could not be kept: the last events of `sailfish show {job}` say why")]
    Lost { job: JobId },
    #[error("nodes of a cluster have the I-files of job {job}: name their server with --server")]
    OfCluster { job: JobId },
    #[error("job {job} kept its I-files on the machine on which it ran: ask there, with --state")]
    OfOneMachine { job: JobId },
    #[error(
        "the node {node} has I-files that job {job} kept and does not work now: start it again on its disks \
         (`sailfish nodes` lists those that work)"
    )]
    NodeAway { job: JobId, node: String },
    #[error("{run} of job {job} is in none of the directories that nodes keep: run the job again")]
    Incomplete { job: JobId, run: RunId },
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
    check_reducible(&row, &spec, &store.stages(job).await?)?;
    Ok(KeptSource { row, spec })
}

/// Says why what a job kept cannot be reduced again, as far as its rows tell.
pub fn check_reducible(row: &JobRow, spec: &JobSpec, stages: &[StageRow]) -> Result<(), NotReducible> {
    let (job, state) = (row.job, row.state.word());
    if spec.map_only {
        return Err(NotReducible::MapOnly { job });
    }
    let is_sealed = stages.iter().any(|stage| stage.name == "seal" && stage.state == "done");
    match (row.state, row.kept_files) {
        (JobState::Running | JobState::Committing, _) => Err(NotReducible::NotOver { job, state }),
        (_, Some(KeptFiles::Kept)) if is_sealed => Ok(()),
        (_, Some(KeptFiles::Kept)) => Err(NotReducible::MapsNotDone { job }),
        (_, Some(KeptFiles::Removing | KeptFiles::Removed)) => Err(NotReducible::Removed { job }),
        (JobState::Cancelled | JobState::Interrupted, None) => Err(NotReducible::Stopped { job, state }),
        (_, None) if !spec.keep_ifiles => Err(NotReducible::NotKept { job }),
        // It ended a moment ago and its process or its nodes still clean up.
        (_, None) if row.cleaned_ns.is_none() => {
            Err(NotReducible::NotOver { job, state: "being cleaned up" })
        }
        (_, None) if !is_sealed => Err(NotReducible::MapsNotDone { job }),
        (_, None) => Err(NotReducible::Lost { job }),
    }
}

/// The results a new job begins with: none, or what the job it reduces again left in the store. `fleet`: the nodes,
/// in a cluster.
pub(crate) async fn results(
    store: &Metastore,
    spec: &JobSpec,
    job: JobId,
    splits: Vec<Split>,
    fleet: Option<&Fleet>,
) -> Result<JobResults, ServerError> {
    let Some(source) = spec.reduce_again else { return Ok(JobResults::new(job, splits)) };
    let source = kept_source(store, source).await?.row;
    check_output_against(spec, &source.disk_dirs)?;
    let adopts = match (fleet, source.owner == CLUSTER_OWNER) {
        (None, false) => {
            let (runs, chunks) = (surviving_runs(store, source.job).await?, chunks(store, source.job).await?);
            let dirs = source.disk_dirs.clone();
            vec![AdoptTask { source: source.job, node: NodeId(0), dirs, runs, chunks }]
        }
        (Some(fleet), true) => adopts_of_nodes(store, source.job, fleet).await?,
        (None, true) => return Err(NotReducible::OfCluster { job: source.job }.into()),
        (Some(_), false) => return Err(NotReducible::OfOneMachine { job: source.job }.into()),
    };
    Ok(JobResults::reducing_again(job, adopts, store.winning_commits(source.job).await?))
}

/// The directories that nodes keep of a job; an error where one of these is away.
pub(crate) async fn present_places(
    store: &Metastore,
    source: JobId,
    fleet: &Fleet,
) -> Result<Vec<KeptPlace>, ServerError> {
    let places = store.kept_places(source).await?;
    match places.iter().find(|place| !fleet.stays(place.node)) {
        Some(away) => Err(NotReducible::NodeAway { job: source, node: away.node_name.clone() }.into()),
        None => Ok(places),
    }
}

/// A task for each node that has kept runs, and for each older node whose disks it has now: runs are known by the node
/// and the disk on which they were made. They get numbers of the node that serves them from now on.
async fn adopts_of_nodes(
    store: &Metastore,
    source: JobId,
    fleet: &Fleet,
) -> Result<Vec<AdoptTask>, ServerError> {
    let places = present_places(store, source, fleet).await?;
    let mut tasks: BTreeMap<(NodeId, NodeId), AdoptTask> = BTreeMap::new();
    for place in &places {
        let task = tasks.entry((place.node, place.made_by)).or_insert_with(|| AdoptTask {
            source,
            node: place.node,
            dirs: Vec::new(),
            runs: Vec::new(),
            chunks: Vec::new(),
        });
        let disk = usize::from(place.dir.disk.0);
        // Disks without anything of the job have no directory, and none of its runs.
        task.dirs.resize(task.dirs.len().max(disk + 1), PathBuf::new());
        task.dirs[disk].clone_from(&place.dir.path);
    }
    let (mut numbers, mut homes) = (BTreeMap::<NodeId, u64>::new(), BTreeMap::new());
    let standing = replication::standing(&store.replicas(source).await?);
    for run in surviving_runs(store, source).await? {
        // Of a replica that stands for a run nobody said on which disk of its node it lies: it is looked for there.
        let replica = standing.get(&run.run).copied();
        let kept_by = replica.unwrap_or(run.run.node());
        let is_there = |place: &&KeptPlace| {
            place.made_by == kept_by && (place.dir.disk == run.disk || replica.is_some())
        };
        let place = places.iter().find(is_there);
        let place = place.ok_or(NotReducible::Incomplete { job: source, run: run.run })?;
        let (key, number) = ((place.node, place.made_by), numbers.entry(place.node).or_default());
        homes.insert(run.run, key);
        if let Some(task) = tasks.get_mut(&key) {
            task.runs.push(KeptRun { adopted: Some(RunId::on(place.node, *number)), ..run });
        }
        *number += 1;
    }
    let chunk_homes: BTreeMap<ChunkId, (NodeId, NodeId)> = store
        .run_chunks(source)
        .await?
        .into_iter()
        .filter_map(|(run, chunk)| Some((chunk, *homes.get(&run)?)))
        .collect();
    let first = tasks.keys().next().copied();
    for chunk in chunks(store, source).await? {
        let home = chunk_homes.get(&chunk.chunk).copied().or(first);
        if let Some(task) = home.and_then(|home| tasks.get_mut(&home)) {
            task.chunks.push(chunk);
        }
    }
    Ok(tasks.into_values().filter(|task| !task.runs.is_empty() || !task.chunks.is_empty()).collect())
}

/// The runs of which the I-files of a job consist.
pub(crate) async fn surviving_runs(store: &Metastore, job: JobId) -> Result<Vec<KeptRun>, StoreError> {
    let rows = store.runs(job).await?;
    let surviving = rows.iter().filter(|row| row.replaced_by.is_none());
    Ok(surviving
        .map(|row| KeptRun {
            run: row.run,
            adopted: None,
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
