//! A server behind a link: what it says by messages becomes what the slots of this node expect.

use crate::attempt::{Assignment, Finished, JobRun, never_began};
use crate::control::{Control, RunsOnDisk, boundaries_failure};
use crate::disks::Disks;
use crate::disks::kept_checks::KeptChecks;
use crate::disks::kept_dirs::Durability;
use crate::disks::shipped_files::{JobFiles, Keepers, PlacedFiles};
use crate::failure::named_failure;
use crate::intermediate::file_keeper;
use crate::intermediate::user_files::UserFiles;
use crate::link::data_access::{DataAccess, ShownTokens};
use crate::link::drill::Drill;
use crate::link::messages::ServerMessage;
use crate::link::node_link::NodeLink;
use crate::link::unanswered;
use crate::shuffle::remote::{OtherNodes, RecordData};
use crate::slots::job_keeper::JobKeeper;
use api::control::{AttemptEnd, JobBrief, NodeAddress, NodeOrder};
use api::data_access::{JobToken, SecretText};
use api::kept::KeptAnnouncement;
use api::machine::{NodeReport, ReplicatedPart, ReplicatedRun, ShortenedAttempt};
use api::task::{RunPlace, RunTask};
use api::{Blame, Boundaries, JobSpec, KeyBytes, Task, TaskFailure, TaskResult, is_object_url};
use dataport::{DataClient, Peer, Places};
use ids::{AttemptKey, JobId, NodeId, RunId};
use roots::{HeldDir, JobPaths, OutsideRoots, Roots};
use shipped::Depot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Jobs that were forgotten and are remembered as such: an order of theirs may still lie with a slot.
const FORGOTTEN_MAX: usize = 4096;

/// The node's side of a cluster.
pub struct Remote {
    link: Arc<NodeLink>,
    disks: Disks,
    data: DataClient,
    access: Arc<DataAccess>,
    /// Files that jobs brought along, on each disk.
    caches: Vec<Arc<Depot>>,
    /// Opens the paths that jobs name. These must lie below a root of the server, and below one of this node's own, where either has
    /// roots.
    paths: JobPaths,
    jobs: Mutex<Jobs>,
    /// Specification of every job of one task, as far as a node needs it.
    single_spec: Arc<JobSpec>,
    /// The server said that nobody needs this node.
    left: AtomicBool,
    checks: KeptChecks,
    drill: Drill,
    /// Intermediate files of users.
    files: Arc<UserFiles>,
}

#[derive(Default)]
struct Jobs {
    known: BTreeMap<JobId, Known>,
    /// Attempts in the slots, or on their way there, with the flag that stops each.
    attempts: BTreeMap<AttemptKey, Arc<AtomicBool>>,
    /// The files that they use.
    files: BTreeMap<AttemptKey, Arc<PlacedFiles>>,
    forgotten: BTreeSet<JobId>,
    /// The server knows this node no more: what comes now, data for a job perhaps, comes too late.
    ended: bool,
}

/// A job of which something lies here.
#[derive(Clone)]
struct Known {
    run: Arc<JobRun>,
    files: Arc<JobFiles>,
}

impl Remote {
    /// A node that has joined, with the directories for its intermediate data, with what it speaks to the data
    /// ports of others by, with a cache for files of jobs on each disk, and with its own roots for what jobs may name. Those of the
    /// server hold as well, but as this machine sees them: its paths may lead elsewhere. And whether it takes part in drills.
    pub fn new(
        link: NodeLink,
        disks: Disks,
        data: DataClient,
        caches: Vec<Arc<Depot>>,
        own_roots: Option<Roots>,
        drill: Drill,
    ) -> Self {
        let roots = link.roots().map(Roots::of_server);
        let paths = JobPaths::below(roots.into_iter().chain(own_roots).collect());
        let single_spec = Arc::new(JobSpec::of_one_task(String::new(), RunTask::default()));
        let (left, link) = (AtomicBool::new(false), Arc::new(link));
        let access = DataAccess::new(Arc::clone(&link));
        let data = data.telling(unanswered::tell_by(&link));
        let data = data.with_job_tokens(Arc::new(ShownTokens(Arc::clone(&access))));
        let (jobs, checks) = (Mutex::default(), KeptChecks::default());
        let tells = Arc::clone(&link);
        let tell = move |notes| tells.tell_intermediates(notes).map_err(|error| error.to_string());
        let files = Arc::new(UserFiles::new(disks.user_dirs(), tell));
        Self { link, disks, data, access, caches, paths, jobs, single_spec, left, checks, drill, files }
    }

    /// The rights that the data port of this node accepts.
    pub fn access(&self) -> Arc<DataAccess> {
        Arc::clone(&self.access)
    }

    /// Starts the threads that look after intermediate files of users, and after what data ports let in; they end with it.
    pub fn keep_files(self: &Arc<Self>) -> std::io::Result<()> {
        let thread = |name: &str| std::thread::Builder::new().name(name.to_string());
        let access = Arc::clone(&self.access);
        thread("data-keys").spawn(move || access.follow())?;
        let files = Arc::clone(&self.files);
        thread("file-writers").spawn(move || file_keeper::look_after_writers(&files))?;
        let remote = Arc::downgrade(self);
        thread("file-replicas").spawn(move || file_keeper::replicate_files(&remote))?;
        Ok(())
    }

    /// The intermediate files of users on this node.
    pub(crate) fn files(&self) -> Arc<UserFiles> {
        Arc::clone(&self.files)
    }

    /// The link, to say good-bye by.
    pub fn link(&self) -> &NodeLink {
        &self.link
    }

    /// Whether the node has left because it was drained: then it does not come back.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Returns the disks for intermediate data.
    pub(crate) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// The process ends, or comes back under another number: what lies on the disks goes, and nothing comes after it, though requests of
    /// other nodes may be at work still.
    pub fn end(&self) {
        self.take_no_more();
        self.disks.release();
    }

    /// Stops what runs; no job begins here from now on.
    fn take_no_more(&self) {
        self.files.end();
        let mut jobs = self.jobs();
        jobs.ended = true;
        let known: Vec<JobId> = jobs.known.keys().copied().collect();
        drop(jobs);
        known.into_iter().for_each(|job| self.stop(job));
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data that attempts of a job share; asked for and made when the first attempt comes, or a caller with data who shows a token.
    fn known_job(&self, job: JobId, shown: Option<&str>) -> Result<Known, TaskFailure> {
        // Held over the question, so that it is asked once.
        let mut jobs = self.jobs();
        if let Some(known) = jobs.known.get(&job) {
            return Ok(known.clone());
        }
        if jobs.ended || jobs.forgotten.contains(&job) {
            return Err(TaskFailure::new(Blame::Cancelled, "the job is over"));
        }
        let shown = shown.map(|text| SecretText(text.to_string()));
        let brief = self.link.brief(job, shown).map_err(|error| {
            TaskFailure::new(Blame::Environment, format!("cannot learn what job {job} is: {error}"))
        })?;
        let paths = self.paths.for_user(&brief.user);
        self.check_roots(&paths, |roots| roots.check_job(&brief.spec))?;
        let held_staging = self.hold_staging(&paths, &brief)?;
        let staging = held_staging.as_ref().map(|held| held.path());
        let disk_dirs = self.disks.create(job)?;
        let files = JobFiles::new(
            &brief.spec.shipped,
            &brief.spec.inputs,
            brief.spec.env_file.as_deref(),
            &disk_dirs,
        );
        let run = Arc::new(JobRun {
            spec: Arc::new(brief.spec),
            staging: staging.unwrap_or(brief.staging),
            disk_dirs,
            cancelled: Arc::default(),
            replicates: Arc::new(AtomicBool::new(brief.replicates)),
            paths,
            held_staging,
        });
        let known = Known { run, files: Arc::new(files) };
        self.access.add(brief.tokens.into_iter().chain([JobToken { job, token: brief.token }]));
        jobs.known.insert(job, known.clone());
        Ok(known)
    }

    /// A task with what attempts of its job share, their files where they should be, and a flag for this one.
    fn ready(&self, attempt: AttemptKey, task: Task) -> Result<Assignment, TaskFailure> {
        let known = self.known_job(attempt.task.job, None)?;
        let mut jobs = self.jobs();
        let cancelled = jobs.attempts.entry(attempt).or_default().clone();
        if known.run.cancelled.load(Ordering::Relaxed) {
            cancelled.store(true, Ordering::Relaxed);
        }
        drop(jobs);
        let placed = known.files.bring(&self.link, &self.keepers(), &cancelled)?;
        let job = placed.run(&known.run);
        self.jobs().files.insert(attempt, placed);
        Ok(Assignment { attempt, task, job, cancelled })
    }

    fn keepers(&self) -> Keepers<'_> {
        Keepers { disks: &self.disks, caches: &self.caches }
    }

    /// An attempt has ended. Whose files were lost meanwhile has not failed by itself, and what it made of them cannot be trusted.
    fn has_ended(&self, finished: &mut Finished) {
        let mut jobs = self.jobs();
        jobs.attempts.remove(&finished.attempt);
        let placed = jobs.files.remove(&finished.attempt);
        drop(jobs);
        let may_be_excused = match &finished.outcome {
            Err(failure) => failure.blame != Blame::Cancelled,
            // The program of a job of one task has done what it did.
            Ok(result) => !matches!(result, TaskResult::Run(_)),
        };
        if let Some(placed) = placed.filter(|placed| may_be_excused && !placed.are_whole(&self.disks)) {
            let said = finished.outcome.as_mut().err().and_then(|failure| failure.said.take());
            finished.outcome = Err(TaskFailure { said, ..placed.lost() });
        }
        self.forget_single(finished.attempt.task.job);
    }

    /// One attempt stops, which may not have come to its slot yet.
    fn stop_attempt(&self, attempt: AttemptKey) {
        let mut jobs = self.jobs();
        if !jobs.forgotten.contains(&attempt.task.job) {
            jobs.attempts.entry(attempt).or_default().store(true, Ordering::Relaxed);
        }
    }

    /// A job of one task is all in its order. It is known while it runs, so that it can be told to stop.
    fn single_run(&self, attempt: AttemptKey, mut task: RunTask) -> Result<Assignment, TaskFailure> {
        let id = attempt.task.job;
        let paths = self.paths.for_user(&task.user);
        self.check_roots(&paths, |roots| roots.check_task(&task))?;
        // Most ship nothing, and there are very many of them.
        let jobs = self.jobs();
        if jobs.ended {
            return Err(TaskFailure::new(Blame::Cancelled, "this node was given up"));
        }
        let disk_dirs = match task.shipped.is_empty() {
            true => Vec::new(),
            false => self.disks.create(id)?,
        };
        drop(jobs);
        let files = Arc::new(JobFiles::new(&task.shipped, &[], task.env_file.as_deref(), &disk_dirs));
        let spec = Arc::clone(&self.single_spec);
        let cancelled = self.jobs().attempts.entry(attempt).or_default().clone();
        let of_run = Arc::clone(&cancelled);
        let run = Arc::new(JobRun { disk_dirs, cancelled: of_run, paths, ..JobRun::new(spec) });
        self.jobs().known.insert(id, Known { run: Arc::clone(&run), files: Arc::clone(&files) });
        let placed = files.bring(&self.link, &self.keepers(), &run.cancelled);
        let placed = placed.inspect_err(|_| self.forget_single(id))?;
        placed.put_into_task(&mut task);
        let job = placed.run(&run);
        self.jobs().files.insert(attempt, placed);
        Ok(Assignment { attempt, task: Task::Run(task), job, cancelled })
    }

    /// Refuses what lies outside of the roots on this machine. Another attempt would be refused as well.
    fn check_roots(
        &self,
        paths: &JobPaths,
        check: impl Fn(&Roots) -> Result<(), OutsideRoots>,
    ) -> Result<(), TaskFailure> {
        let refused = |error: OutsideRoots| {
            TaskFailure::new(Blame::UserData, format!("on {}: {error}", self.link.node()))
        };
        paths.check(check).map_err(refused)
    }

    /// The staging directory of a job, where there are roots and it has one: parts are written into this directory, whatever gets its
    /// name.
    fn hold_staging(&self, paths: &JobPaths, brief: &JobBrief) -> Result<Option<Arc<HeldDir>>, TaskFailure> {
        if brief.spec.feeds() || !paths.are_bounded() {
            return Ok(None);
        }
        if is_object_url(&brief.staging) {
            self.check_roots(paths, |roots| roots.check_staging(&brief.staging))?;
            return Ok(None);
        }
        let held = paths.open_dir(&brief.staging);
        held.map(|held| Some(Arc::new(held))).map_err(|error| named_failure("open", &brief.staging, error))
    }

    /// The server says nothing of the end of such a job.
    fn forget_single(&self, job: JobId) {
        let mut jobs = self.jobs();
        if jobs.known.get(&job).is_none_or(|known| known.run.spec.kind.program().is_none()) {
            return;
        }
        let known = jobs.known.remove(&job);
        drop(jobs);
        if known.is_some_and(|known| !known.run.disk_dirs.is_empty()) {
            self.disks.remove(job);
        }
    }

    /// Attempts of a job that are still under way stop, and later ones do not begin.
    fn is_over(&self, job: JobId) {
        self.stop(job);
        let mut jobs = self.jobs();
        jobs.forgotten.insert(job);
        if jobs.forgotten.len() > FORGOTTEN_MAX {
            jobs.forgotten.pop_first();
        }
    }

    /// Keeps the runs of a job and tells the server where.
    fn keep(&self, job: JobId, durability: Durability) {
        let (dirs, problem) = match self.disks.keep(job, durability) {
            Ok(dirs) => (dirs, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        self.announce(KeptAnnouncement { job: Some(job), dirs, problem, ..KeptAnnouncement::default() });
    }

    /// Tells the server what jobs that are over keep on the disks of this node, and of which jobs it holds anything else.
    pub fn tell_kept(&self) {
        let dirs = self.disks.kept().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot look for kept I-files");
            Vec::new()
        });
        let jobs = self.jobs();
        let held = jobs.known.iter().filter(|(_, known)| known.run.spec.kind.program().is_none());
        let held = held.map(|(job, _)| *job).collect();
        drop(jobs);
        self.announce(KeptAnnouncement { dirs, held, ..KeptAnnouncement::default() });
        self.files.tell_all();
    }

    fn announce(&self, announcement: KeptAnnouncement) {
        // A server that begins again, or takes the node in again, asks for it.
        match self.link.announce(announcement) {
            Err(error) if error.may_pass() => {
                tracing::debug!(%error, "which I-files are kept here is told later")
            }
            Err(error) => tracing::warn!(%error, "cannot tell the server which I-files are kept here"),
            Ok(()) => {}
        }
    }

    /// Returns the flags that stop the attempts of a job here.
    pub(crate) fn stop_flags(&self, job: JobId) -> Vec<Arc<AtomicBool>> {
        let jobs = self.jobs();
        let of_job = jobs.attempts.iter().filter(|(attempt, _)| attempt.task.job == job);
        of_job.map(|(_, cancelled)| Arc::clone(cancelled)).collect()
    }

    fn stop(&self, job: JobId) {
        let jobs = self.jobs();
        if let Some(known) = jobs.known.get(&job) {
            known.run.cancelled.store(true, Ordering::Relaxed);
        }
        let of_job = jobs.attempts.iter().filter(|(attempt, _)| attempt.task.job == job);
        of_job.for_each(|(_, cancelled)| cancelled.store(true, Ordering::Relaxed));
    }
}

impl Remote {
    /// Acts on what the server orders besides attempts, until there is nothing more.
    pub(crate) fn follow_orders(&self, jobs: &JobKeeper) {
        while let Some(message) = self.link.next_message() {
            match message {
                ServerMessage::Order(order) => self.obey(order, jobs),
                ServerMessage::Expelled => {
                    self.take_no_more();
                    jobs.end_stopped_programs();
                    jobs.forget_all();
                }
            }
        }
    }

    fn obey(&self, order: NodeOrder, jobs: &JobKeeper) {
        match order {
            NodeOrder::Stop { job } => {
                self.stop(job);
                jobs.end_stopped_programs();
            }
            NodeOrder::StopAttempt { attempt } => {
                self.stop_attempt(attempt);
                jobs.end_stopped_programs();
            }
            NodeOrder::EndBefore { attempt, keys } => jobs.end_before(attempt, keys),
            NodeOrder::Forget { job } => self.end_job(job, RunsOnDisk::Go, jobs),
            NodeOrder::Keep { job } => self.end_job(job, RunsOnDisk::Stay, jobs),
            NodeOrder::Replicate { job } => {
                if let Some(known) = self.jobs().known.get(&job) {
                    known.run.replicates.store(true, Ordering::Relaxed);
                }
                jobs.replicate(job);
            }
            NodeOrder::ReplicateAgain { job, runs } => jobs.replicate_again(job, runs),
            NodeOrder::Drain => {
                self.files.drain();
                jobs.drain();
            }
            NodeOrder::Leave => {
                self.left.store(true, Ordering::Relaxed);
                // A server that is gone learns it from the silence; the slots are sent home in any case.
                let _ = self.link.leave();
                jobs.end_stopped_programs();
                jobs.forget_all();
            }
            NodeOrder::TellKept => self.tell_kept(),
            NodeOrder::DropKept { names } => self.disks.drop_kept(&names),
            NodeOrder::CheckKept { check, task } => self.checks.begin(&self.link, check, *task),
            NodeOrder::Drill { strike, fault } => self.drill.strike(self, strike, fault),
            NodeOrder::BeginIntermediate { file, silence_seconds } => {
                self.files.begin(file, Duration::from_secs(silence_seconds.into()));
            }
            NodeOrder::DropIntermediates { files } => self.files.drop_files(&files),
            NodeOrder::AdoptIntermediates { files } => self.files.adopt(&files),
            // The poller gives attempts to slots, and keys to the thread that asks for new tokens.
            NodeOrder::Start { .. } | NodeOrder::DataKeys { .. } => {}
        }
    }

    fn end_job(&self, job: JobId, runs: RunsOnDisk, jobs: &JobKeeper) {
        self.is_over(job);
        jobs.end_stopped_programs();
        jobs.forget(job, runs);
    }
}

impl Control for Remote {
    fn node(&self) -> NodeId {
        self.link.node()
    }

    fn pull(&self, slot: u32, mut finished: Option<Finished>) -> Option<Assignment> {
        loop {
            if let Some(finished) = &mut finished {
                self.has_ended(finished);
                if finished.outcome.as_ref().is_err_and(|failure| failure.blame == Blame::Environment) {
                    // If a disk is why, the server knows before it decides where the task goes next.
                    self.link.report(NodeReport { disks: self.disks.look(), ..NodeReport::default() });
                }
            }
            let order = self.link.pull(slot, finished.take().map(attempt_end))?;
            let attempt = order.attempt;
            let assignment = match order.task {
                Task::Run(task) => self.single_run(attempt, task),
                task => self.ready(attempt, task),
            };
            match assignment {
                Ok(assignment) => return Some(assignment),
                // The reject: it goes up with the next pull, and the task elsewhere.
                Err(failure) => finished = Some(never_began(attempt, failure)),
            }
        }
    }

    fn propose_boundaries(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, TaskFailure> {
        self.link.propose(job, keys).map_err(|error| boundaries_failure(&error))
    }

    fn job_run(&self, job: JobId, shown: Option<&str>) -> Option<Arc<JobRun>> {
        self.known_job(job, shown).ok().map(|known| known.run)
    }

    fn shortened(&self, attempt: AttemptKey, upper_key: KeyBytes) {
        // Where it is dropped the result of the attempt says so.
        let shortened = vec![ShortenedAttempt { attempt, upper_key }];
        self.link.report(NodeReport { shortened, ..NodeReport::default() });
    }

    fn forgotten(&self, job: JobId, runs: RunsOnDisk) {
        let mut jobs = self.jobs();
        let known = jobs.known.remove(&job);
        // One that was told to stop, and had ended by itself.
        jobs.attempts.retain(|attempt, _| attempt.task.job != job);
        jobs.files.retain(|attempt, _| attempt.task.job != job);
        drop(jobs);
        self.access.forget(job);
        if runs == RunsOnDisk::Stay {
            let durability = match known.is_none_or(|known| known.run.spec.sync) {
                true => Durability::PowerCut,
                false => Durability::Process,
            };
            self.keep(job, durability);
        }
        self.disks.remove(job);
    }
}

/// A process that joins gets a number that no other had, so the number says which process is meant.
pub fn data_incarnation(node: NodeId) -> u64 {
    u64::from(node.0)
}

/// Asks the server where runs of a job lie.
struct AskServer {
    job: JobId,
    link: Arc<NodeLink>,
}

impl Places for AskServer {
    fn elsewhere(&self, runs: &[RunId], than: NodeId) -> BTreeMap<RunId, Peer> {
        let answer = match self.link.places(self.job, runs.to_vec()) {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(job = %self.job, %error, "cannot learn where runs lie as well");
                return BTreeMap::new();
            }
        };
        let peers = peers(&self.link.peers());
        let other = |place: RunPlace| {
            let nodes = [Some(place.node), place.replica].into_iter().flatten();
            let peer = nodes.filter(|node| *node != than).find_map(|node| peers.get(&node));
            Some((place.run, peer?.clone()))
        };
        answer.places.into_iter().filter_map(other).collect()
    }
}

/// The nodes that have data, by number.
fn peers(nodes: &[NodeAddress]) -> BTreeMap<NodeId, Peer> {
    let with_data = nodes.iter().filter(|peer| !peer.data_url.is_empty());
    let peer = |peer: &NodeAddress| Peer {
        node: peer.node,
        url: peer.data_url.clone(),
        incarnation: data_incarnation(peer.node),
    };
    with_data.map(|address| (address.node, peer(address))).collect()
}

impl Remote {
    /// The other nodes, as the server told last.
    pub(crate) fn others(&self, places: Option<Arc<dyn Places>>) -> OtherNodes {
        let here = self.link.node();
        let nodes = self.link.peers();
        let hosts = dataport::chunk_hosts(here, &nodes);
        let replica_hosts = dataport::replica_hosts(here, &nodes);
        let peers = peers(&nodes).into_values().filter(|peer| peer.node != here).collect();
        OtherNodes { here, client: self.data.clone(), peers, hosts, replica_hosts, places }
    }
}

impl RecordData for Remote {
    fn other_nodes(&self, job: JobId) -> Option<OtherNodes> {
        let link = Arc::clone(&self.link);
        Some(self.others(Some(Arc::new(AskServer { job, link }))))
    }

    fn user_files(&self) -> Option<Arc<UserFiles>> {
        Some(self.files())
    }

    fn replicated(&self, run: ReplicatedRun) {
        self.link.replicated(run);
    }

    fn replicated_part(&self, part: ReplicatedPart) {
        self.link.replicated_part(part);
    }
}

fn attempt_end(finished: Finished) -> AttemptEnd {
    AttemptEnd {
        attempt: finished.attempt,
        outcome: finished.outcome.into(),
        started_ns: finished.started_ns,
        ended_ns: finished.ended_ns,
    }
}
