//! I-files that jobs keep on the disks of nodes. When such a job is over, the server orders every node that has runs of
//! it to keep them. When all nodes have answered with their directories, the rows of these are written together with
//! the row that marks the job as clean. From then on the store knows the directories. Nodes announce the directories on
//! their disks whenever they or the server start: so the server finds a later process on the same disks, and removes
//! directories that no job knows any more.

use crate::interface::{Outbox, Service};
use crate::job::{FoundWhile, Job, Keeping};
use crate::membership::Fleet;
use crate::work::Work;
use api::control::NodeOrder;
use api::history::EventKind;
use api::kept::{KeptAnnouncement, KeptDir, KeptPlace};
use ids::{JobId, NodeId, RunId};
use mapreduce::{LostData, SealState};
use rows::Change;
use std::collections::BTreeSet;

/// Maximum number of directories that a node announces at once.
const DIRS_MAX: usize = 100_000;
/// Longest path, and longest error text, that is stored, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// Ends a job whose last attempt has ended: nodes remove or keep its data, and afterwards its directories are removed.
pub(crate) fn let_go(work: &mut Work, outbox: &mut Outbox, id: JobId) {
    let to_keep = work.jobs.get(&id).and_then(Job::runs_to_keep);
    match to_keep.filter(|_| work.service == Service::Cluster) {
        Some(runs) => begin_keeping(work, outbox, id, runs),
        None => {
            work.fleet.order_all(id, NodeOrder::Forget { job: id });
            outbox.clean(id);
        }
    }
}

/// Orders nodes to keep these runs of a job, and their replicas.
pub(crate) fn begin_keeping(work: &mut Work, outbox: &mut Outbox, id: JobId, runs: BTreeSet<RunId>) {
    let Some(job) = work.jobs.get_mut(&id) else { return };
    let replicas = &job.results().replicas;
    let held = replicas.held().filter(|(run, _)| runs.contains(run)).map(|(_, node)| node);
    let keepers: BTreeSet<NodeId> = runs.iter().map(|run| replicas.home(*run)).chain(held).collect();
    job.begin_keeping(Keeping { runs, ..Keeping::default() });
    let (there, gone): (BTreeSet<NodeId>, BTreeSet<NodeId>) =
        keepers.into_iter().partition(|keeper| work.fleet.has(*keeper));
    for node in gone {
        let why = format!("{node}, which had some of them, is gone");
        job.keeps_without(node, &node.to_string(), why, outbox);
    }
    let Some(keeping) = job.keeping_mut() else { return };
    keeping.waiting = if keeping.lost.is_some() { BTreeSet::new() } else { there };
    work.fleet.order_end(id, &keeping.waiting);
    look_whether_kept(work, outbox, id);
}

/// Handles the loss of a node that was ordered to keep data.
pub(crate) fn keeper_lost(work: &mut Work, outbox: &mut Outbox, node: NodeId, name: &str) {
    let waits = |job: &&Job| job.keeping().is_some_and(|keeping| keeping.waiting.contains(&node));
    let jobs: Vec<JobId> = work.jobs.values().filter(waits).map(|job| job.id()).collect();
    for id in jobs {
        let why = format!("the node {name} was lost before it had kept its runs");
        work.jobs.expect_mut(id).keeps_without(node, name, why, outbox);
        look_whether_kept(work, outbox, id);
    }
}

/// Continues with a job if all its nodes have answered, or if nothing can be kept any more.
pub(crate) fn look_whether_kept(work: &mut Work, outbox: &mut Outbox, id: JobId) {
    let Some(keeping) = work.jobs.get_mut(&id).and_then(|job| job.keeping_mut()) else { return };
    if let Some(lost) = &keeping.lost {
        let detail = format!("the I-files are not kept: {lost}");
        keeping.waiting.clear();
        for place in std::mem::take(&mut keeping.places) {
            if let Some(node) = work.fleet.get_mut(place.node) {
                node.order(NodeOrder::DropKept { names: vec![place.dir.name()] });
                node.keeps_nothing_of(id);
            }
        }
        outbox.note(id, EventKind::KeptDataLost, detail);
    }
    if keeping.waiting.is_empty() {
        outbox.clean(id);
    }
}

/// Directories that a node found and no running job knows: the store must be asked about them.
pub struct FoundDirs {
    node: NodeId,
    dirs: Vec<KeptDir>,
}

impl FoundDirs {
    pub fn dirs(&self) -> &[KeptDir] {
        &self.dirs
    }
}

/// The store's answer about a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirInStore {
    /// A job keeps it; made by this process.
    Kept { made_by: NodeId },
    /// A process of this cluster made it, and no job knows it any more.
    Stranger,
    /// Another cluster made it.
    OfOthers,
}

/// Handles a node's announcement of kept directories, for one job or for all its disks. Returns the directories about
/// which the caller must ask the store.
pub(crate) fn announced(
    work: &mut Work,
    outbox: &mut Outbox,
    node: NodeId,
    announcement: KeptAnnouncement,
) -> FoundDirs {
    let KeptAnnouncement { job, dirs, problem, held, .. } = announcement;
    forget_what_is_over(work, outbox, node, held);
    let mut dirs: Vec<KeptDir> = dirs.into_iter().take(DIRS_MAX).filter(is_ours).collect();
    if let Some(id) = job.filter(|id| awaits_part(work, *id, node)) {
        part_kept(work, outbox, id, node, std::mem::take(&mut dirs), problem);
    }
    FoundDirs { node, dirs: known_by_no_job(work, outbox, node, dirs) }
}

/// Orders a node to forget jobs that are unknown: the order of the previous server to forget them may be lost.
pub(crate) fn forget_what_is_over(work: &mut Work, outbox: &mut Outbox, node: NodeId, held: Vec<JobId>) {
    let Some(known) = work.fleet.get_mut(node) else { return };
    for job in held.into_iter().take(DIRS_MAX).filter(|job| !work.jobs.contains_key(job)) {
        outbox.info(format!("{node} removes its data of job {job}, which is over"));
        known.order(NodeOrder::Forget { job });
    }
}

pub(crate) fn awaits_part(work: &Work, id: JobId, node: NodeId) -> bool {
    let keeping = work.jobs.get(&id).and_then(|job| job.keeping());
    keeping.is_some_and(|keeping| keeping.waiting.contains(&node))
}

pub(crate) fn part_kept(
    work: &mut Work,
    outbox: &mut Outbox,
    id: JobId,
    node: NodeId,
    dirs: Vec<KeptDir>,
    problem: Option<String>,
) {
    let Some(known) = work.fleet.get_mut(node) else { return };
    let Some(job) = work.jobs.get_mut(&id) else { return };
    let Some(keeping) = job.keeping_mut() else { return };
    keeping.waiting.remove(&node);
    for dir in dirs.into_iter().filter(|dir| dir.job == id) {
        known.keeps_data_of(id);
        let node_name = known.info().name.clone();
        keeping.places.push(KeptPlace { made_by: node, node, node_name, dir });
    }
    if let Some(problem) = problem {
        let problem = problem.replace('\0', "\u{fffd}");
        let cut = problem.floor_char_boundary(TEXT_BYTES_MAX);
        let why = format!("the node {}: {}", known.info().name, &problem[..cut]);
        job.keeps_without(node, &known.info().name, why, outbox);
    }
    look_whether_kept(work, outbox, id);
}

/// Takes the directories that belong to jobs which are being stored. Returns the others.
fn known_by_no_job(work: &mut Work, outbox: &mut Outbox, node: NodeId, dirs: Vec<KeptDir>) -> Vec<KeptDir> {
    let Some(node_name) = work.fleet.get(node).map(|known| known.info().name.clone()) else {
        return Vec::new();
    };
    let (mut others, mut strangers) = (Vec::new(), Vec::new());
    for dir in dirs {
        let maker = work.fleet.of_incarnation(&dir.incarnation);
        let keeping = work.jobs.get_mut(&dir.job).and_then(|job| job.keeping_mut());
        let Some(keeping) = keeping.filter(|keeping| keeping.lost.is_none()) else {
            others.push(dir);
            continue;
        };
        let (job, name, node_name) = (dir.job, dir.name(), node_name.clone());
        match keeping.found(KeptPlace { made_by: node, node, node_name, dir }, maker) {
            FoundWhile::Kept => {
                if let Some(known) = work.fleet.get_mut(node) {
                    known.keeps_data_of(job);
                }
            }
            FoundWhile::NotToldYet => {}
            FoundWhile::Stranger => strangers.push(name),
        }
    }
    drop_strangers(&mut work.fleet, outbox, node, strangers);
    others
}

/// Stores the directories that a node found, and orders it to remove those that no job knows. Directories that nodes of
/// another cluster made on the same disk are left alone. `in_store`: the store's answer for each directory.
pub(crate) fn found(fleet: &mut Fleet, outbox: &mut Outbox, found: FoundDirs, in_store: Vec<DirInStore>) {
    let FoundDirs { node, dirs } = found;
    let Some(known) = fleet.get_mut(node) else { return };
    let mut strangers = Vec::new();
    for (dir, in_store) in dirs.into_iter().zip(in_store) {
        match in_store {
            DirInStore::Kept { made_by } => {
                known.keeps_data_of(dir.job);
                let (job, node_name) = (dir.job, known.info().name.clone());
                let places = vec![KeptPlace { made_by, node, node_name, dir }];
                outbox.write(Change::KeptDirs { job, places });
            }
            DirInStore::Stranger => strangers.push(dir.name()),
            DirInStore::OfOthers => {}
        }
    }
    drop_strangers(fleet, outbox, node, strangers);
}

fn drop_strangers(fleet: &mut Fleet, outbox: &mut Outbox, node: NodeId, names: Vec<String>) {
    if let Some(known) = fleet.get_mut(node).filter(|_| !names.is_empty()) {
        outbox.info(format!("{node} removes {} kept directories that no job knows", names.len()));
        known.order(NodeOrder::DropKept { names });
    }
}

/// Orders nodes to remove their kept data of a job. Returns the names of the nodes that are not in the cluster: they
/// announce the data when they come back, and are ordered to remove it then.
pub(crate) fn drop_kept(fleet: &mut Fleet, job: JobId, places: Vec<KeptPlace>) -> BTreeSet<String> {
    let mut away = BTreeSet::new();
    for place in places {
        match fleet.get_mut(place.node) {
            Some(node) => {
                node.order(NodeOrder::DropKept { names: vec![place.dir.name()] });
                node.keeps_nothing_of(job);
            }
            None => drop(away.insert(place.node_name)),
        }
    }
    away
}

impl Job {
    /// Records that a node does not keep its data. Replicas replace it if there are any; otherwise nothing is kept.
    pub(crate) fn keeps_without(&mut self, node: NodeId, name: &str, why: String, outbox: &mut Outbox) {
        let (_, fallen) = self.results_mut().fall_back(&LostData::node(node), SealState::Sealed);
        self.fallen_back(&fallen, &format!("the node {name}, which keeps none of them"), outbox);
        let Some(keeping) = self.keeping() else { return };
        let is_lost = keeping.runs.iter().any(|run| self.results().replicas.home(*run) == node);
        let Some(keeping) = self.keeping_mut() else { return };
        keeping.waiting.remove(&node);
        if is_lost {
            keeping.lost = Some(why);
        }
    }
}

/// Returns whether the name of a directory matches its description, and fits the store.
fn is_ours(dir: &KeptDir) -> bool {
    let name = dir.path.file_name().and_then(|name| name.to_str());
    let length = dir.path.as_os_str().len();
    let is_text = !dir.path.to_string_lossy().contains('\0') && length <= TEXT_BYTES_MAX;
    let is_bounded = dir.bytes <= i64::MAX as u64 / DIRS_MAX as u64 && dir.job.0 >= 0;
    let parsed = name.and_then(KeptDir::parse_name);
    let told = (dir.incarnation.clone(), dir.job, dir.disk);
    is_text && is_bounded && dir.path.is_absolute() && parsed == Some(told)
}

#[cfg(test)]
mod tests {
    use super::{FoundWhile, Keeping, is_ours};
    use api::kept::{KeptDir, KeptPlace};
    use ids::{DiskIndex, JobId, NodeId};

    /// A node died after it had confirmed its kept data, and the next process on its disks came before the other nodes
    /// had confirmed.
    #[test]
    fn next_process_replaces_a_dead_keeper() {
        let place = |node: u32, incarnation: &str| {
            let dir = KeptDir {
                job: JobId(3),
                incarnation: incarnation.to_string(),
                disk: DiskIndex(0),
                path: format!("/d/sailfish-kept-{incarnation}-job3-disk0").into(),
                bytes: 5,
            };
            KeptPlace { made_by: NodeId(node), node: NodeId(node), node_name: format!("node-{node}"), dir }
        };
        let mut keeping = Keeping { places: vec![place(1, "x"), place(2, "y")], ..Keeping::default() };
        assert_eq!(keeping.found(place(7, "x"), None), FoundWhile::Kept);
        let places: Vec<_> = keeping.places.iter().map(|place| (place.made_by.0, place.node.0)).collect();
        assert_eq!(places, [(1, 7), (2, 2)]);
        // A live maker will report by itself; a directory that nobody reported and nobody will report is not needed.
        assert_eq!(keeping.found(place(4, "z"), Some(NodeId(4))), FoundWhile::NotToldYet);
        assert_eq!(keeping.found(place(4, "z"), None), FoundWhile::Stranger);
        assert_eq!(keeping.places.len(), 2);
    }

    #[test]
    fn only_directories_with_matching_names_are_believed() {
        let check = |path: &str, job, bytes, expected| {
            let incarnation = "x".to_string();
            let dir = KeptDir { job: JobId(job), incarnation, disk: DiskIndex(0), path: path.into(), bytes };
            assert_eq!(is_ours(&dir), expected, "{dir:?}");
        };
        check("/d/sailfish-kept-x-job3-disk0", 3, 5, true);
        check("/d/sailfish-kept-x-job3-disk0", 4, 5, false);
        check("/d/sailfish-kept-x-job3-disk0", 3, u64::MAX, false);
        check("/d/sailfish-kept-y-job3-disk0", 3, 5, false);
        check("d/sailfish-kept-x-job3-disk0", 3, 5, false);
        check("/d/../etc", 3, 5, false);
        check("/d\0/sailfish-kept-x-job3-disk0", 3, 5, false);
    }
}
