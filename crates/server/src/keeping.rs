//! I-files that jobs keep on the disks of nodes. When such a job is over, the server tells every node with runs of it
//! to keep them. When all nodes have answered with their directories, the rows of these are written together with the
//! row that says that the job is clean. From then on the store knows them, and nodes tell of the directories on their
//! disks whenever they or the server start: so the server finds a later process on the same disks, and has
//! directories removed that nobody knows any more.

use crate::ServerError;
use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use crate::job::Job;
use api::control::NodeOrder;
use api::kept::{KeptAnnouncement, KeptDir, KeptPlace};
use ids::{JobId, NodeId, RunId};
use mapreduce::Gone;
use metastore::{Change, StoreError};
use std::collections::BTreeSet;

/// Most directories that a node tells of at once.
const DIRS_MAX: usize = 100_000;
/// Longest path, and longest complaint, that is remembered.
const TEXT_BYTES_MAX: usize = 4096;

/// How far the nodes are that keep what a job left.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// Runs to keep; each lies on at least one node.
    runs: BTreeSet<RunId>,
    /// Nodes that have not yet said that they keep their runs.
    waiting: BTreeSet<NodeId>,
    pub places: Vec<KeptPlace>,
    /// Why nothing is kept after all.
    pub lost: Option<String>,
}

/// Meaning of a directory for a job that is being written to the store.
#[derive(Debug, PartialEq, Eq)]
enum FoundWhile {
    /// A directory that the job keeps.
    Kept,
    /// A directory of which the process that made it has yet to tell.
    NotToldYet,
    /// A directory that no job counts on.
    Stranger,
}

impl Keeping {
    /// A node tells of a directory before all have said what they keep. Where the process that made it had told of it and then died,
    /// the one after it on the same disks takes its place: else nobody would tell that one when the directory is to go.
    fn found(&mut self, found: KeptPlace, maker_lives: bool) -> FoundWhile {
        match self.places.iter_mut().find(|place| place.dir.name() == found.dir.name()) {
            Some(place) => {
                *place = KeptPlace { made_by: place.made_by, ..found };
                FoundWhile::Kept
            }
            None if maker_lives => FoundWhile::NotToldYet,
            None => FoundWhile::Stranger,
        }
    }
}

impl EventLoop {
    /// A job is over and its last attempt has ended: nodes remove or keep what they have of it, and then its
    /// directories go.
    pub fn let_go(&mut self, id: JobId) {
        let to_keep = self.jobs.get(&id).and_then(Job::runs_to_keep);
        match to_keep.filter(|_| self.service == crate::Service::Cluster) {
            Some(runs) => self.begin_keeping(id, runs),
            None => {
                self.fleet.order_all(id, NodeOrder::Forget { job: id });
                self.to_clean.push(id);
            }
        }
    }

    /// Tells nodes to keep what they have of these runs of a job, and of their replicas.
    pub fn begin_keeping(&mut self, id: JobId, runs: BTreeSet<RunId>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let replicas = &job.results.replicas;
        let held = replicas.held().filter(|(run, _)| runs.contains(run)).map(|(_, node)| node);
        let keepers: BTreeSet<NodeId> = runs.iter().map(|run| replicas.home(*run)).chain(held).collect();
        job.keeping = Some(Keeping { runs, ..Keeping::default() });
        let (there, gone): (BTreeSet<NodeId>, BTreeSet<NodeId>) =
            keepers.into_iter().partition(|keeper| self.fleet.has(*keeper));
        for node in gone {
            let why = format!("{node}, which had some of them, is gone");
            job.keeps_without(node, &node.to_string(), why, &mut self.changes);
        }
        let Some(keeping) = &mut job.keeping else { return };
        keeping.waiting = if keeping.lost.is_some() { BTreeSet::new() } else { there };
        self.fleet.order_end(id, &keeping.waiting);
        self.look_whether_kept(id);
    }

    /// A node that was to keep something is gone.
    pub fn keeper_lost(&mut self, node: NodeId, name: &str) {
        self.checks.node_lost(node, name);
        let waits = |job: &&Job| job.keeping.as_ref().is_some_and(|keeping| keeping.waiting.contains(&node));
        let jobs: Vec<JobId> = self.jobs.values().filter(waits).map(|job| job.id).collect();
        for id in jobs {
            self.with_job(id, |job, changes| {
                let why = format!("the node {name} was gone before it had kept its part");
                job.keeps_without(node, name, why, changes);
            });
            self.look_whether_kept(id);
        }
    }

    /// Goes on with a job where all its nodes have answered, or where nothing can be kept any more.
    fn look_whether_kept(&mut self, id: JobId) {
        let Some(keeping) = self.jobs.get_mut(&id).and_then(|job| job.keeping.as_mut()) else { return };
        if let Some(lost) = &keeping.lost {
            let detail = format!("the I-files are not kept: {lost}");
            keeping.waiting.clear();
            for place in std::mem::take(&mut keeping.places) {
                if let Some(node) = self.fleet.get_mut(place.node) {
                    node.order(NodeOrder::DropKept { names: vec![place.dir.name()] });
                    node.kept.remove(&id);
                }
            }
            self.changes.push(Change::Note { job: Some(id), kind: "I-files lost", detail, now_ns: now_ns() });
        }
        if keeping.waiting.is_empty() {
            self.to_clean.push(id);
        }
    }

    /// A node tells what is kept on its disks: for a job that waits for it, or all that it found.
    pub async fn announced(
        &mut self,
        node: NodeId,
        announcement: KeptAnnouncement,
        reply: Reply<()>,
    ) -> Result<(), StoreError> {
        if let Err(error) = self.fleet.heard(node, &announcement.incarnation) {
            drop(reply.send(Err(error)));
            return Ok(());
        }
        // The store is asked below: what was decided before must stand in it.
        self.write_and_reply().await?;
        let KeptAnnouncement { job, dirs, problem, held, .. } = announcement;
        self.forget_what_is_over(node, held);
        let dirs: Vec<KeptDir> = dirs.into_iter().take(DIRS_MAX).filter(is_ours).collect();
        match job {
            Some(id) if self.awaits_part(id, node) => self.part_kept(id, node, dirs, problem),
            _ => self.found(node, dirs).await?,
        }
        self.replies.push(Box::new(move || drop(reply.send(Ok::<(), ServerError>(())))));
        Ok(())
    }

    /// The order that these jobs go died with the server before this one, where they are known no more.
    fn forget_what_is_over(&mut self, node: NodeId, held: Vec<JobId>) {
        let Some(known) = self.fleet.get_mut(node) else { return };
        for job in held.into_iter().take(DIRS_MAX).filter(|job| !self.jobs.contains_key(job)) {
            tracing::info!(%node, %job, "what a node holds of a job that is over goes");
            known.order(NodeOrder::Forget { job });
        }
    }

    fn awaits_part(&self, id: JobId, node: NodeId) -> bool {
        let keeping = self.jobs.get(&id).and_then(|job| job.keeping.as_ref());
        keeping.is_some_and(|keeping| keeping.waiting.contains(&node))
    }

    fn part_kept(&mut self, id: JobId, node: NodeId, dirs: Vec<KeptDir>, problem: Option<String>) {
        let Some(known) = self.fleet.get_mut(node) else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(keeping) = &mut job.keeping else { return };
        keeping.waiting.remove(&node);
        for dir in dirs.into_iter().filter(|dir| dir.job == id) {
            known.kept.insert(id);
            let node_name = known.info.name.clone();
            keeping.places.push(KeptPlace { made_by: node, node, node_name, dir });
        }
        if let Some(problem) = problem {
            let problem = problem.replace('\0', "\u{fffd}");
            let cut = problem.floor_char_boundary(TEXT_BYTES_MAX);
            let why = format!("the node {}: {}", known.info.name, &problem[..cut]);
            job.keeps_without(node, &known.info.name, why, &mut self.changes);
        }
        self.look_whether_kept(id);
    }

    /// Stores the directories that a node found, and has those removed that nobody knows of. Directories that nodes
    /// of another cluster made on the same disk are left alone.
    async fn found(&mut self, node: NodeId, dirs: Vec<KeptDir>) -> Result<(), StoreError> {
        let Some(node_name) = self.fleet.get_mut(node).map(|known| known.info.name.clone()) else {
            return Ok(());
        };
        let mut strangers = Vec::new();
        for dir in dirs {
            let maker_lives = self.fleet.of_incarnation(&dir.incarnation).is_some();
            let keeping = self.jobs.get_mut(&dir.job).and_then(|job| job.keeping.as_mut());
            if let Some(keeping) = keeping.filter(|keeping| keeping.lost.is_none()) {
                let (job, name, node_name) = (dir.job, dir.name(), node_name.clone());
                match keeping.found(KeptPlace { made_by: node, node, node_name, dir }, maker_lives) {
                    FoundWhile::Kept => {
                        if let Some(known) = self.fleet.get_mut(node) {
                            known.kept.insert(job);
                        }
                    }
                    FoundWhile::NotToldYet => {}
                    FoundWhile::Stranger => strangers.push(name),
                }
                continue;
            }
            let places = self.store.kept_places(dir.job).await?;
            let known = places.into_iter().find(|place| place.dir.name() == dir.name());
            match known {
                Some(known) => {
                    if let Some(node) = self.fleet.get_mut(node) {
                        node.kept.insert(dir.job);
                    }
                    let (job, made_by) = (dir.job, known.made_by);
                    let place = KeptPlace { made_by, node, node_name: node_name.clone(), dir };
                    self.changes.push(Change::KeptDirs { job, places: vec![place] });
                }
                None if self.store.knows_incarnation(&dir.incarnation).await? => strangers.push(dir.name()),
                None => {}
            }
        }
        if let Some(known) = self.fleet.get_mut(node).filter(|_| !strangers.is_empty()) {
            tracing::info!(%node, count = strangers.len(), "kept I-files that nobody knows of any more go");
            known.order(NodeOrder::DropKept { names: strangers });
        }
        Ok(())
    }
}

impl Job {
    /// A node does not keep what it had: replicas take the place of that, where there are any, else nothing is kept.
    fn keeps_without(&mut self, node: NodeId, name: &str, why: String, changes: &mut Vec<Change>) {
        let (_, fallen) = self.results.fall_back(&Gone::node(node), true);
        self.fallen_back(&fallen, &format!("the node {name}, which keeps nothing of them"), changes);
        let Some(keeping) = &mut self.keeping else { return };
        keeping.waiting.remove(&node);
        if keeping.runs.iter().any(|run| self.results.replicas.home(*run) == node) {
            keeping.lost = Some(why);
        }
    }
}

/// Whether a directory is called what it is said to be, in words that a store takes.
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

    /// A node died after it had said what it keeps, and the next one on its disks came before the other nodes had.
    #[test]
    fn the_next_process_on_its_disks_takes_the_place_of_a_keeper_that_died() {
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
        assert_eq!(keeping.found(place(7, "x"), false), FoundWhile::Kept);
        let places: Vec<_> = keeping.places.iter().map(|place| (place.made_by.0, place.node.0)).collect();
        assert_eq!(places, [(1, 7), (2, 2)]);
        // One that still lives tells by itself; what nobody told of, and nobody will, is counted on by nobody.
        assert_eq!(keeping.found(place(4, "z"), true), FoundWhile::NotToldYet);
        assert_eq!(keeping.found(place(4, "z"), false), FoundWhile::Stranger);
        assert_eq!(keeping.places.len(), 2);
    }

    #[test]
    fn only_what_its_name_tells_is_believed() {
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
