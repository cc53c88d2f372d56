//! Kept I-files of a job that is over as the input of another job: `sailfish rerun-reduce`.

use crate::ServerError;
use crate::clock::now_ns;
use crate::directories::check_output_against;
use crate::fleet::Fleet;
use crate::job::{Job, Loss, without_weights};
use api::kept::KeptPlace;
use api::task::{AdoptResult, AdoptTask, ChunkSummary, KeptRun, RunSummary};
use api::{Blame, JobSpec, Split, TaskFailure, TaskResult};
use ids::{AttemptKey, ChunkId, DiskIndex, JobId, NodeId, RunId, StageIndex, TaskIndex, TaskKey};
use mapreduce::{Gone, JobResults};
use metastore::{
    CLUSTER_OWNER, Change, FELL_BACK_NOTE, JobRow, JobState, KeptFiles, Metastore, ReplicaRow, ReplicaState,
    StageRow, StoreError,
};
use std::collections::{BTreeMap, BTreeSet};
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
    #[error(
        "job {job} is a stage of a flow that others read: its I-files and parts go when the flow is over, and only a last stage \
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
    if spec.feeds() {
        return Err(NotReducible::FeedsOthers { job });
    }
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
            vec![AdoptTask { source: source.job, node: NodeId(0), dirs, runs, chunks, copies: Vec::new() }]
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
/// and the disk on which they were made. They get numbers of the node that serves them from now on. What other nodes have of them as well
/// is opened beside them, and takes the place of what is away.
async fn adopts_of_nodes(
    store: &Metastore,
    source: JobId,
    fleet: &Fleet,
) -> Result<Vec<AdoptTask>, ServerError> {
    let places = store.kept_places(source).await?;
    let mut adopts = Adopts::of(source, places.iter().filter(|place| fleet.stays(place.node)));
    let mut replicas: BTreeMap<RunId, Vec<ReplicaRow>> = BTreeMap::new();
    for row in store.replicas(source).await?.into_iter().filter(|row| row.state != ReplicaState::Lost) {
        replicas.entry(row.run).or_default().push(row);
    }
    for run in surviving_runs(store, source).await? {
        let holders = holders(&run, replicas.get(&run.run).map(Vec::as_slice).unwrap_or_default());
        if !adopts.add(run, &holders) {
            let is_its = |place: &&KeptPlace| holders.iter().any(|(node, _)| *node == place.made_by);
            let away = places.iter().filter(is_its).find(|place| !fleet.stays(place.node));
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

/// The nodes that kept a run, the one first at which it was read; with the disk, where that was said.
fn holders(run: &KeptRun, replicas: &[ReplicaRow]) -> Vec<(NodeId, Option<DiskIndex>)> {
    let is_standing = |row: &&ReplicaRow| row.state == ReplicaState::Standing;
    let home = match replicas.iter().find(is_standing) {
        // Of a replica nobody said on which disk of its node it lies: it is looked for there.
        Some(standing) => (standing.node, None),
        None => (run.run.node(), Some(run.disk)),
    };
    let others = replicas.iter().map(|row| row.node).filter(|node| *node != home.0);
    std::iter::once(home).chain(others.map(|node| (node, None))).collect()
}

/// The node that has directories now, and the process that made them.
type Keeper = (NodeId, NodeId);

/// The tasks that open what was kept.
#[derive(Default)]
struct Adopts {
    tasks: BTreeMap<Keeper, AdoptTask>,
    /// The next number for a run on a node.
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
            // Disks without anything of the job have no directory, and none of its runs.
            task.dirs.resize(task.dirs.len().max(disk + 1), PathBuf::new());
            task.dirs[disk].clone_from(&place.dir.path);
        }
        adopts
    }

    /// Lets a run be opened by the first of its holders that is there, and its replicas by the others. False where none is.
    fn add(&mut self, run: KeptRun, holders: &[(NodeId, Option<DiskIndex>)]) -> bool {
        let mut there = holders.iter().filter_map(|(node, disk)| self.keeper(*node, *disk));
        let Some(home) = there.next() else { return false };
        let copies: Vec<Keeper> = there.filter(|keeper| keeper.0 != home.0).collect();
        let number = self.numbers.entry(home.0).or_default();
        let run = KeptRun { adopted: Some(RunId::on(home.0, *number)), ..run };
        *number += 1;
        self.homes.insert(run.run, home);
        // One is enough: there is no third place to read a run.
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

    /// With the chunks of the runs of each. Those of no run are told by whoever is first.
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

impl Job {
    /// A node has opened what it kept of the job that this one reduces again.
    pub fn adopted(&mut self, attempt: AttemptKey, adopt: AdoptResult, changes: &mut Vec<Change>) {
        let job = self.id;
        // The maps ran in another job; their commits are this one's to prove. All are told with the first task.
        let maps = self.results.maps.iter().filter(|_| attempt.task.task == TaskIndex(0));
        for (map_task, (number, map)) in maps {
            let task = TaskKey { task: *map_task, ..attempt.task };
            for commit in &map.commits {
                let number = self.results.attempt_in(*map_task, *number, commit.ifile);
                let attempt = AttemptKey { task, attempt: number };
                changes.push(Change::Sources { attempt, commits: vec![*commit] });
            }
        }
        if let Some(why) = &adopt.missing_because {
            let count = adopt.missing.len();
            let detail =
                format!("{count} kept runs cannot be read where they lie ({why}): their replicas are read");
            changes.push(Change::Note { job: Some(job), kind: FELL_BACK_NOTE, detail, now_ns: now_ns() });
        }
        let before: BTreeSet<RunId> = self.sealed_runs().map(|run| run.run).collect();
        changes.push(Change::Chunks { job, chunks: adopt.chunks.clone() });
        self.results.record(attempt, TaskResult::Adopt(adopt));
        let runs: Vec<RunSummary> =
            self.sealed_runs().filter(|run| !before.contains(&run.run)).map(without_weights).collect();
        let standing = runs.iter().filter_map(|run| {
            let replica = self.results.replicas.get(run.run).filter(|replica| replica.stands)?;
            let (state, chunks) = (ReplicaState::Standing, replica.chunks.clone());
            let (node, bytes) = (replica.node, run.stored_bytes);
            Some(ReplicaRow { run: run.run, node, state, chunks, bytes, single_ns: 0, sending_ns: 0 })
        });
        let replicas: Vec<ReplicaRow> = standing.collect();
        changes.push(Change::Runs { job, runs, replaced: Vec::new() });
        if !replicas.is_empty() {
            changes.push(Change::Replicas { job, replicas });
        }
    }

    fn sealed_runs(&self) -> impl Iterator<Item = &RunSummary> {
        self.results.seal.iter().flat_map(|seal| &seal.runs)
    }

    /// Handles the loss of kept data that this job reduces again; `with` names the cause. No maps can make it anew:
    /// it is read at its replicas, or the job fails.
    pub fn lose_kept(
        &mut self,
        gone: &Gone,
        with: &str,
        source: JobId,
        changes: &mut Vec<Change>,
    ) -> Option<Loss> {
        let stage = self.tasks.len().checked_sub(1)?;
        // Merges are bound to their nodes, and would wait for one that is gone.
        let is_bound = gone.node.is_some() && self.stage_names[stage] == "merge";
        let (mut gone, mut fell_back) = (gone.clone(), false);
        if self.is_sealed() && !is_bound {
            let (rest, fallen) = self.results.fall_back(&gone, true);
            self.fell_back_ns.extend(fallen.standing.iter().map(|run| (*run, now_ns())));
            self.fallen_back(&fallen, with, changes);
            (gone, fell_back) = (rest, !fallen.standing.is_empty());
        }
        let is_needed = match self.is_sealed() {
            true => self.results.needs_any(&gone, true),
            false => self.results.adopt.iter().flatten().any(|adopt| Some(adopt.node) == gone.node),
        };
        if !is_needed {
            return fell_back.then_some(Loss::FellBack);
        }
        let message = match gone.node {
            Some(_) => format!(
                "{with}, which has I-files that job {source} kept, is gone: start it again on its disks, then reduce job \
                 {source} again"
            ),
            None => format!("I-files that job {source} kept are lost with {with}: run that job again"),
        };
        self.last_failure = Some(TaskFailure::new(Blame::Environment, message));
        Some(Loss::ForGood(StageIndex(stage as u16)))
    }
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
