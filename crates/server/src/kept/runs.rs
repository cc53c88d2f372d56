//! Kept I-files of a finished job as the input of another job: `sailfish rerun-reduce`.

use crate::ServerError;
use crate::directories::check_output_against;
use api::history::StageState;
use api::kept::KeptPlace;
use api::task::{AdoptTask, ChunkSummary, KeptRun};
use api::{JobSpec, Split};
use control::{Control, JobStart};
use ids::{ChunkId, DiskIndex, JobId, NodeId, RunId, StageKind};
use mapreduce::JobResults;
use metastore::{
    CLUSTER_OWNER, JobRow, JobState, KeptFiles, Metastore, ReplicaRow, ReplicaState, StageRow, StoreError,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The reason why a job cannot be reduced again. The user must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReducible {
    #[error("there is no job {job}: `sailfish jobs` lists all jobs")]
    UnknownJob { job: JobId },
    #[error("job {job} is {state}: its I-files can be read after its end")]
    NotOver { job: JobId, state: &'static str },
    #[error("job {job} was {state}: a job that was stopped keeps nothing")]
    Stopped { job: JobId, state: &'static str },
    #[error("job {job} ran with --map-only: it had no shuffle and has no I-files to reduce")]
    MapOnly { job: JobId },
    #[error(
        "job {job} is a stage of a flow that others read: its I-files and parts are removed with the flow, and only a last stage \
         keeps any"
    )]
    FeedsOthers { job: JobId },
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
        "the node {node}, which has kept I-files of job {job}, is not in the cluster: start it again on its disks \
         (`sailfish nodes` lists the working nodes)"
    )]
    NodeAway { job: JobId, node: String },
    #[error("{run} of job {job} is in none of the kept directories of nodes: run the job again")]
    Incomplete { job: JobId, run: RunId },
}

/// A job whose I-files can be reduced again.
#[derive(Clone, Debug)]
pub struct KeptSource {
    pub row: JobRow,
    pub spec: JobSpec,
}

/// Returns the job that has the kept I-files of a job: itself, or the one that it reduced again. Fails with a reason if
/// they cannot be used; damage is found when the files are opened.
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

/// Returns the reason why kept I-files cannot be reduced again, as far as the job's rows tell.
pub fn check_reducible(row: &JobRow, spec: &JobSpec, stages: &[StageRow]) -> Result<(), NotReducible> {
    let (job, state) = (row.job, row.state.word());
    if spec.feeds() {
        return Err(NotReducible::FeedsOthers { job });
    }
    if !spec.kind.has_shuffle() {
        return Err(NotReducible::MapOnly { job });
    }
    let is_sealed =
        stages.iter().any(|stage| stage.kind == StageKind::Seal && stage.state == StageState::Done);
    match (row.state, row.kept_files) {
        (JobState::Running | JobState::Committing, _) => Err(NotReducible::NotOver { job, state }),
        (_, Some(KeptFiles::Kept)) if is_sealed => Ok(()),
        (_, Some(KeptFiles::Kept)) => Err(NotReducible::MapsNotDone { job }),
        (_, Some(KeptFiles::Removing | KeptFiles::Removed)) => Err(NotReducible::Removed { job }),
        (JobState::Cancelled | JobState::Interrupted, None) => Err(NotReducible::Stopped { job, state }),
        (_, None) if !spec.keep_ifiles => Err(NotReducible::NotKept { job }),
        // It ended recently, and its process or its nodes still clean up.
        (_, None) if row.cleaned_ns.is_none() => {
            Err(NotReducible::NotOver { job, state: "being cleaned up" })
        }
        (_, None) if !is_sealed => Err(NotReducible::MapsNotDone { job }),
        (_, None) => Err(NotReducible::Lost { job }),
    }
}

/// Returns the data with which a new job begins: its splits, or the stored results of the job that it reduces again.
/// `control`: for the nodes, in a cluster.
pub(crate) async fn start(
    store: &Metastore,
    spec: &JobSpec,
    job: JobId,
    splits: Vec<Split>,
    control: Option<&Control>,
) -> Result<JobStart, ServerError> {
    let Some(source) = spec.kind.source() else { return Ok(JobStart::Splits(splits)) };
    let source = kept_source(store, source).await?.row;
    check_output_against(spec, &source.disk_dirs)?;
    let adopts = match (control, source.owner == CLUSTER_OWNER) {
        (None, false) => {
            let (runs, chunks) = (surviving_runs(store, source.job).await?, chunks(store, source.job).await?);
            let dirs = source.disk_dirs.clone();
            vec![AdoptTask { source: source.job, node: NodeId(0), dirs, runs, chunks, copies: Vec::new() }]
        }
        (Some(control), true) => adopts_of_nodes(store, source.job, control).await?,
        (None, true) => return Err(NotReducible::OfCluster { job: source.job }.into()),
        (Some(_), false) => return Err(NotReducible::OfOneMachine { job: source.job }.into()),
    };
    let commits = store.winning_commits(source.job).await?;
    Ok(JobStart::Kept(Box::new(JobResults::reducing_again(job, adopts, commits))))
}

/// Returns the kept directories of a job on nodes. Fails if one of these nodes is not in the cluster.
pub(crate) async fn present_places(
    store: &Metastore,
    source: JobId,
    control: &Control,
) -> Result<Vec<KeptPlace>, ServerError> {
    let places = store.kept_places(source).await?;
    match places.iter().find(|place| !control.stays(place.node)) {
        Some(away) => Err(NotReducible::NodeAway { job: source, node: away.node_name.clone() }.into()),
        None => Ok(places),
    }
}

/// Returns a task for each node that has kept runs, and for each older node whose disks it has now: a run is identified
/// by the node and disk on which it was made. The runs get numbers of the node that serves them from now on. Replicas
/// on other nodes are opened too, and replace runs whose node is missing.
async fn adopts_of_nodes(
    store: &Metastore,
    source: JobId,
    control: &Control,
) -> Result<Vec<AdoptTask>, ServerError> {
    let places = store.kept_places(source).await?;
    let mut adopts = Adopts::of(source, places.iter().filter(|place| control.stays(place.node)));
    let mut replicas: BTreeMap<RunId, Vec<ReplicaRow>> = BTreeMap::new();
    for row in store.replicas(source).await?.into_iter().filter(|row| row.state != ReplicaState::Lost) {
        replicas.entry(row.run).or_default().push(row);
    }
    for run in surviving_runs(store, source).await? {
        let holders = holders(&run, replicas.get(&run.run).map(Vec::as_slice).unwrap_or_default());
        if !adopts.add(run, &holders) {
            let is_its = |place: &&KeptPlace| holders.iter().any(|(node, _)| *node == place.made_by);
            let away = places.iter().filter(is_its).find(|place| !control.stays(place.node));
            return Err(match away {
                Some(away) => NotReducible::NodeAway { job: source, node: away.node_name.clone() },
                None => NotReducible::Incomplete { job: source, run: run.run },
            }
            .into());
        }
    }
    let (run_chunks, chunks) = (store.run_chunks(source).await?, chunks(store, source).await?);
    Ok(adopts.with_chunks(run_chunks, chunks))
}

/// Returns the nodes that kept a run, beginning with the one from which it was read; with the disk, if it is known.
fn holders(run: &KeptRun, replicas: &[ReplicaRow]) -> Vec<(NodeId, Option<DiskIndex>)> {
    let is_promoted = |row: &&ReplicaRow| row.state == ReplicaState::Promoted;
    let home = match replicas.iter().find(is_promoted) {
        // The disk of a replica is not recorded: its node searches for it.
        Some(standing) => (standing.node, None),
        None => (run.run.node(), Some(run.disk)),
    };
    let others = replicas.iter().map(|row| row.node).filter(|node| *node != home.0);
    std::iter::once(home).chain(others.map(|node| (node, None))).collect()
}

/// The node that has directories now, and the process that made them.
type Keeper = (NodeId, NodeId);

/// The tasks that open kept runs.
#[derive(Default)]
struct Adopts {
    tasks: BTreeMap<Keeper, AdoptTask>,
    /// Next number for a run on each node.
    numbers: BTreeMap<NodeId, u64>,
    homes: BTreeMap<RunId, Keeper>,
}

impl Adopts {
    fn of<'a>(source: JobId, places: impl Iterator<Item = &'a KeptPlace>) -> Self {
        let mut adopts = Self::default();
        for place in places {
            let task = adopts.tasks.entry((place.node, place.made_by)).or_insert_with(|| AdoptTask {
                source,
                node: place.node,
                dirs: Vec::new(),
                runs: Vec::new(),
                chunks: Vec::new(),
                copies: Vec::new(),
            });
            let disk = usize::from(place.dir.disk.0);
            // Disks without data of the job have no directory and no runs.
            task.dirs.resize(task.dirs.len().max(disk + 1), PathBuf::new());
            task.dirs[disk].clone_from(&place.dir.path);
        }
        adopts
    }

    /// Assigns a run to the first present holder, and a replica to another one. Returns false if no holder is present.
    fn add(&mut self, run: KeptRun, holders: &[(NodeId, Option<DiskIndex>)]) -> bool {
        let mut there = holders.iter().filter_map(|(node, disk)| self.keeper(*node, *disk));
        let Some(home) = there.next() else { return false };
        let copies: Vec<Keeper> = there.filter(|keeper| keeper.0 != home.0).collect();
        let number = self.numbers.entry(home.0).or_default();
        let run = KeptRun { adopted: Some(RunId::on(home.0, *number)), ..run };
        *number += 1;
        self.homes.insert(run.run, home);
        // One replica is enough: a run is read from at most two nodes.
        let copy = copies.first().and_then(|copy| self.tasks.get_mut(copy));
        let has_copy = copy.is_some();
        copy.into_iter().for_each(|task| task.copies.push(run));
        if let Some(task) = self.tasks.get_mut(&home) {
            task.runs.push(KeptRun { has_copy, ..run });
        }
        true
    }

    fn keeper(&self, made_by: NodeId, disk: Option<DiskIndex>) -> Option<Keeper> {
        let has_disk = |task: &AdoptTask| {
            disk.is_none_or(|disk| {
                task.dirs.get(usize::from(disk.0)).is_some_and(|dir| !dir.as_os_str().is_empty())
            })
        };
        let of_node = self.tasks.iter().find(|((_, by), task)| *by == made_by && has_disk(task));
        of_node.map(|(keeper, _)| *keeper)
    }

    /// Adds the chunks of its runs to each task. Chunks without a run go to the first task.
    fn with_chunks(mut self, run_chunks: Vec<(RunId, ChunkId)>, chunks: Vec<ChunkSummary>) -> Vec<AdoptTask> {
        let home = |(run, chunk): (RunId, ChunkId)| Some((chunk, *self.homes.get(&run)?));
        let homes: BTreeMap<ChunkId, Keeper> = run_chunks.into_iter().filter_map(home).collect();
        let first = self.tasks.keys().next().copied();
        for chunk in chunks {
            let home = homes.get(&chunk.chunk).copied().or(first);
            if let Some(task) = home.and_then(|home| self.tasks.get_mut(&home)) {
                task.chunks.push(chunk);
            }
        }
        let has_any =
            |task: &AdoptTask| !task.runs.is_empty() || !task.chunks.is_empty() || !task.copies.is_empty();
        self.tasks.into_values().filter(has_any).collect()
    }
}

/// Returns the runs that form the I-files of a job.
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
            has_copy: false,
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
