//! A server behind a link: converts its messages for the slots of this node.

use crate::attempt::{Assignment, Finished, JobRun, never_began};
use crate::control::{Control, RunsOnDisk, boundaries_failure};
use crate::disks::kept_checks::KeptChecks;
use crate::disks::kept_dirs::Durability;
use crate::disks::shipped_files::{JobFiles, Keepers, PlacedFiles};
use crate::disks::{Disks, UserFiles};
use crate::failure::named_failure;
use crate::intermediate::file_keeper;
use crate::intermediate::intermediate_files::IntermediateFiles;
use crate::link::data_access::{DataAccess, ShownTokens};
use crate::link::drill::Drill;
use crate::link::growing_stream::StreamOfNode;
use crate::link::messages::ServerMessage;
use crate::link::node_link::{NodeLink, data_incarnation};
use crate::link::seen::SeenDirectories;
use crate::link::unanswered;
use crate::shuffle::remote::{OtherNodes, RecordData};
use crate::slots::job_keeper::JobKeeper;
use crate::stored::files::{StoredFiles, StoredSettings};
use crate::stored::job_input::PartsOfCluster;
use crate::stored::job_output::{JobOutput, OutputInCluster};
use crate::stored::keeper;
use crate::stored::local_files::{LocalFiles, LocalLimits};
use crate::stored::range_cache::{CacheLimits, RangeCache};
use crate::tasks::attempt_files::LocalSource;
use crate::tasks::growing_outputs::{GrowingOutputs, GrowingStream};
use crate::tasks::map::stored_input::{StoredInput, StoredReads};
use api::control::{AttemptEnd, JobBrief, NodeAddress, NodeOrder};
use api::data_access::{JobToken, SecretText};
use api::kept::KeptAnnouncement;
use api::machine::{NodeReport, ReplicatedPart, ReplicatedRun, ShortenedAttempt};
use api::stored::cluster::StoredPut;
use api::task::{GrowingInput, RunPlace, RunTask};
use api::{Blame, Boundaries, JobSpec, KeyBytes, Task, TaskFailure, TaskResult, is_object_url};
use dataport::{DataClient, Peer, Places, StoredFileService};
use ids::{AttemptKey, JobId, NodeId, RunId};
use mapper::StoredFileSource;
use roots::{HeldDir, JobPaths, OutsideRoots, Roots};
use shipped::Depot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of remembered forgotten jobs: a slot may still hold an order of such a job.
const FORGOTTEN_MAX: usize = 4096;

/// The node's side of a cluster.
pub struct Remote {
    link: Arc<NodeLink>,
    disks: Disks,
    data: DataClient,
    access: Arc<DataAccess>,
    /// Shipped files of jobs, on each disk.
    caches: Vec<Arc<Depot>>,
    /// Opens the paths that jobs name. They must be below a root of the server, and below a root of this node, if
    /// either has roots.
    paths: JobPaths,
    jobs: Mutex<Jobs>,
    /// Specification of every job of one task, as far as a node needs it.
    single_spec: Arc<JobSpec>,
    /// True after the server's order to leave.
    left: AtomicBool,
    checks: KeptChecks,
    drill: Drill,
    seen: SeenDirectories,
    /// Intermediate files of users.
    files: Arc<IntermediateFiles>,
    /// Replicas of stored files.
    stored: Arc<StoredFiles>,
    /// Copies of stored files for programs.
    local_files: Arc<LocalFiles>,
    /// Ranges of stored files that maps read twice from other nodes.
    range_cache: Option<Arc<RangeCache>>,
}

#[derive(Default)]
struct Jobs {
    known: BTreeMap<JobId, Known>,
    /// Attempts in slots, or on their way there, each with its stop flag.
    attempts: BTreeMap<AttemptKey, Arc<AtomicBool>>,
    /// The files that they use.
    files: BTreeMap<AttemptKey, Arc<PlacedFiles>>,
    forgotten: BTreeSet<JobId>,
    /// True if the server does not know this node any more: data that arrives now is too late.
    ended: bool,
}

/// A job with data or attempts here.
#[derive(Clone)]
struct Known {
    run: Arc<JobRun>,
    files: Arc<JobFiles>,
}

impl Remote {
    /// Creates a node that has joined, with its directories for intermediate data, its client for other data ports, a
    /// cache for job files on each disk, its own roots for paths of jobs, its participation in drills, and its settings
    /// for stored files. The roots of the server apply too, but as this machine resolves them: its paths may lead to
    /// other directories.
    pub fn new(
        link: NodeLink,
        disks: Disks,
        data: DataClient,
        caches: Vec<Arc<Depot>>,
        own_roots: Option<Roots>,
        drill: Drill,
        stored: StoredSettings,
    ) -> Self {
        let roots = link.roots().map(Roots::of_server);
        let paths = JobPaths::below(roots.into_iter().chain(own_roots).collect());
        let single_spec = Arc::new(JobSpec::of_one_task(String::new(), RunTask::default()));
        let (left, link) = (AtomicBool::new(false), Arc::new(link));
        let access = DataAccess::new(Arc::clone(&link));
        let data = data.telling(unanswered::tell_by(&link));
        let limits = LocalLimits {
            reserve_percent: stored.reserve_percent,
            unused_bytes_max: stored.unused_copy_bytes_max,
            verify_after: stored.verify_after,
        };
        let local_dirs = disks.local_dirs();
        let range_cache = range_cache(&disks, &stored);
        let stored = StoredFiles::new(disks.places(), stored, data.clone(), Arc::<NodeLink>::clone(&link));
        let passed_on = Arc::clone(&stored.passed_on);
        let local_files = Arc::new(LocalFiles::new(local_dirs, limits).passed_on(passed_on));
        let data = data.with_job_tokens(Arc::new(ShownTokens(Arc::clone(&access))));
        let (jobs, checks) = (Mutex::default(), KeptChecks::default());
        let tells = Arc::clone(&link);
        let tell = move |notes| tells.tell_intermediates(notes).map_err(|error| error.to_string());
        let files = Arc::new(IntermediateFiles::new(disks.user_dirs(), tell));
        let stored = Arc::new(stored);
        Self {
            link,
            disks,
            data,
            access,
            caches,
            paths,
            jobs,
            single_spec,
            left,
            checks,
            drill,
            seen: SeenDirectories::default(),
            files,
            stored,
            local_files,
            range_cache,
        }
    }

    /// Lets the server list files below the directories that this node sees and not every other.
    pub fn seeing(self, paths: Option<JobPaths>) -> Self {
        Self { seen: SeenDirectories::of(paths), ..self }
    }

    /// Returns the rights that the data port of this node accepts.
    pub fn access(&self) -> Arc<DataAccess> {
        Arc::clone(&self.access)
    }

    /// Starts the threads for intermediate and stored files of users, and for key changes; they end with the node.
    pub fn keep_files(self: &Arc<Self>) -> std::io::Result<()> {
        let thread = |name: &str| std::thread::Builder::new().name(name.to_string());
        let access = Arc::clone(&self.access);
        thread("data-keys").spawn(move || access.follow())?;
        let files = Arc::clone(&self.files);
        thread("file-writers").spawn(move || file_keeper::look_after_writers(&files))?;
        let remote = Arc::downgrade(self);
        thread("file-replicas").spawn(move || file_keeper::replicate_files(&remote))?;
        keeper::start(&self.stored, &self.local_files)
    }

    /// Waits until the server knows the disks for stored files, but not for long.
    pub fn wait_for_stored_files(&self) {
        self.stored.wait_until_known();
    }

    /// Returns the intermediate files of users on this node.
    pub(crate) fn files(&self) -> Arc<IntermediateFiles> {
        Arc::clone(&self.files)
    }

    /// Returns the link, for a graceful shutdown.
    pub fn link(&self) -> &NodeLink {
        &self.link
    }

    /// Returns whether the node has left because it was drained: it does not come back in this case.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Returns the disks for intermediate data.
    pub(crate) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// Tells the server that this process is about to end by request, and will return: its stored files are not
    /// replicated elsewhere at once.
    pub fn tell_leaving(&self) {
        self.stored.tell_leaving();
    }

    /// Ends the node, because the process ends or rejoins under another number: its data on disks is removed, and no
    /// more is accepted, although requests of other nodes may still be running. Intermediate files of users stay for the
    /// next process, unless the node was drained: then other nodes have them.
    pub fn end(&self) {
        self.take_no_more();
        self.disks.release(if self.has_left() { UserFiles::Go } else { UserFiles::Stay });
    }

    /// Stops all attempts; no job begins here from now on.
    fn take_no_more(&self) {
        self.files.end();
        self.stored.end();
        let mut jobs = self.jobs();
        jobs.ended = true;
        let known: Vec<JobId> = jobs.known.keys().copied().collect();
        drop(jobs);
        known.into_iter().for_each(|job| self.stop(job));
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the data that attempts of a job share; requested and created for the first attempt, or for a sender of
    /// data with a token.
    fn known_job(&self, job: JobId, shown: Option<&str>) -> Result<Known, TaskFailure> {
        // Held during the request, so that it is sent once.
        let mut jobs = self.jobs();
        if let Some(known) = jobs.known.get(&job) {
            return Ok(known.clone());
        }
        if jobs.ended || jobs.forgotten.contains(&job) {
            return Err(TaskFailure::new(Blame::Cancelled, "the job is over"));
        }
        let shown = shown.map(|text| SecretText(text.to_string()));
        let brief = self.link.brief(job, shown).map_err(|error| {
            TaskFailure::new(Blame::Environment, format!("cannot ask for the facts of job {job}: {error}"))
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
            user: brief.user,
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

    /// Prepares a task: the shared data of its job, its files, and its stop flag.
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

    /// Records the end of an attempt. If its files were lost meanwhile, a failure is not its own, and its result cannot
    /// be trusted.
    fn has_ended(&self, finished: &mut Finished) {
        let mut jobs = self.jobs();
        jobs.attempts.remove(&finished.attempt);
        let placed = jobs.files.remove(&finished.attempt);
        drop(jobs);
        let may_be_excused = match &finished.outcome {
            Err(failure) => failure.blame != Blame::Cancelled,
            // The program of a job of one task has had its effect.
            Ok(result) => !matches!(result, TaskResult::Run(_)),
        };
        if let Some(placed) = placed.filter(|placed| may_be_excused && !placed.are_whole(&self.disks)) {
            let said = finished.outcome.as_mut().err().and_then(|failure| failure.said.take());
            finished.outcome = Err(TaskFailure { said, ..placed.lost() });
        }
        self.forget_single(finished.attempt.task.job);
    }

    /// Stops an attempt, which may not have reached its slot yet.
    fn stop_attempt(&self, attempt: AttemptKey) {
        let mut jobs = self.jobs();
        if !jobs.forgotten.contains(&attempt.task.job) {
            jobs.attempts.entry(attempt).or_default().store(true, Ordering::Relaxed);
        }
    }

    /// Prepares a job of one task, which is entirely in its order. It is registered while it runs, so that it can be
    /// stopped.
    fn single_run(&self, attempt: AttemptKey, mut task: Box<RunTask>) -> Result<Assignment, TaskFailure> {
        let id = attempt.task.job;
        let paths = self.paths.for_user(&task.user);
        self.check_roots(&paths, |roots| roots.check_task(&task))?;
        // Most ship no files, and there are very many of them.
        let jobs = self.jobs();
        if jobs.ended {
            return Err(TaskFailure::new(Blame::Cancelled, "this node was removed from the cluster"));
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
        let user = task.user.clone();
        let run = Arc::new(JobRun { disk_dirs, user, cancelled: of_run, paths, ..JobRun::new(spec) });
        self.jobs().known.insert(id, Known { run: Arc::clone(&run), files: Arc::clone(&files) });
        let placed = files.bring(&self.link, &self.keepers(), &run.cancelled);
        let placed = placed.inspect_err(|_| self.forget_single(id))?;
        placed.put_into_task(&mut task);
        let job = placed.run(&run);
        self.jobs().files.insert(attempt, placed);
        Ok(Assignment { attempt, task: Task::Run(task), job, cancelled })
    }

    /// Returns an error for paths outside of the roots on this machine. A retry would be refused too.
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

    /// Opens the staging directory of a job, if there are roots and it has one: parts are written into this directory,
    /// even if another directory gets its name.
    fn hold_staging(&self, paths: &JobPaths, brief: &JobBrief) -> Result<Option<Arc<HeldDir>>, TaskFailure> {
        if brief.spec.feeds() || brief.spec.stored_output.is_some() || !paths.are_bounded() {
            return Ok(None);
        }
        if is_object_url(&brief.staging) {
            self.check_roots(paths, |roots| roots.check_staging(&brief.staging))?;
            return Ok(None);
        }
        let held = paths.open_dir(&brief.staging);
        held.map(|held| Some(Arc::new(held))).map_err(|error| named_failure("open", &brief.staging, error))
    }

    /// Forgets a job of one task, whose end the server does not report.
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

    /// Stops the running attempts of a job; later ones do not begin.
    fn is_over(&self, job: JobId) {
        self.stop(job);
        let mut jobs = self.jobs();
        jobs.forgotten.insert(job);
        if jobs.forgotten.len() > FORGOTTEN_MAX {
            jobs.forgotten.pop_first();
        }
    }

    /// Keeps the runs of a job and reports their directories to the server.
    fn keep(&self, job: JobId, durability: Durability) {
        let (dirs, problem) = match self.disks.keep(job, durability) {
            Ok(dirs) => (dirs, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        self.announce(KeptAnnouncement { job: Some(job), dirs, problem, ..KeptAnnouncement::default() });
    }

    /// Announces kept directories on the disks of this node, and the jobs of which it holds other data.
    pub fn tell_kept(&self) {
        let dirs = self.disks.kept().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot search for kept I-files");
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
        // A server that restarts, or readmits the node, asks for this.
        match self.link.announce(announcement) {
            Err(error) if error.may_pass() => {
                tracing::debug!(%error, "kept I-files will be announced later")
            }
            Err(error) => tracing::warn!(%error, "cannot announce kept I-files to the server"),
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
    /// Executes the orders of the server other than attempts, until there are none left.
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
                self.stored.drain();
                jobs.drain();
            }
            NodeOrder::Leave => {
                self.left.store(true, Ordering::Relaxed);
                // If the server is unavailable, it learns this from the silence; the slots are stopped in any case.
                let _ = self.link.leave();
                jobs.end_stopped_programs();
                jobs.forget_all();
            }
            NodeOrder::TellKept => self.tell_kept(),
            NodeOrder::DropKept { names } => self.disks.drop_kept(&names),
            NodeOrder::CheckKept { check, task } => self.checks.begin(&self.link, check, *task),
            NodeOrder::ListSeen { listing, path } => self.seen.list(&self.link, listing, path),
            NodeOrder::Drill { strike, fault } => self.drill.strike(self, strike, fault),
            NodeOrder::BeginIntermediate { file, silence_seconds } => {
                self.files.begin(file, Duration::from_secs(silence_seconds.into()));
            }
            NodeOrder::DropIntermediates { files } => self.files.drop_files(&files),
            NodeOrder::AdoptIntermediates { files } => self.files.adopt(&files),
            NodeOrder::CopiedIntermediates { files, on } => self.files.were_copied(&files, on),
            // The poller passes attempts to slots, and keys to the thread that asks for new tokens.
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
                    // If a disk is the cause, the server learns it before it retries the task.
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
                // The failure is reported with the next pull, and the task is retried on another node.
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
        // If this is dropped, the result of the attempt repeats it.
        let shortened = vec![ShortenedAttempt { attempt, upper_key }];
        self.link.report(NodeReport { shortened, ..NodeReport::default() });
    }

    fn forgotten(&self, job: JobId, runs: RunsOnDisk) {
        let mut jobs = self.jobs();
        let known = jobs.known.remove(&job);
        // The attempt was told to stop, and had ended by itself.
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

/// Returns the cache of ranges of stored files, if the node has one.
fn range_cache(disks: &Disks, settings: &StoredSettings) -> Option<Arc<RangeCache>> {
    let StoredSettings { cache_bytes_max: bytes_max, reserve_percent, .. } = *settings;
    let limits = CacheLimits { bytes_max, reserve_percent };
    (bytes_max > 0).then(|| Arc::new(RangeCache::new(disks.local_dirs(), limits)))
}

/// Asks the server for locations of runs of a job.
struct AskServer {
    job: JobId,
    link: Arc<NodeLink>,
}

impl Places for AskServer {
    fn elsewhere(&self, runs: &[RunId], than: NodeId) -> BTreeMap<RunId, Peer> {
        let answer = match self.link.places(self.job, runs.to_vec()) {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(job = %self.job, %error, "cannot ask for the replicas of runs");
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

/// Returns the nodes with data ports, by number.
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
    /// Returns the other nodes, according to the last answer of the server.
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

    fn user_files(&self) -> Option<Arc<IntermediateFiles>> {
        Some(self.files())
    }

    fn stored_input(&self, job: JobId, reads: &Arc<StoredReads>) -> Option<Arc<dyn StoredFileSource>> {
        let (files, reads) = (Arc::clone(&self.stored), Arc::clone(reads));
        let cache = self.range_cache.clone();
        Some(StoredInput::source(Arc::new(PartsOfCluster { job, files, reads, cache })))
    }

    fn local_source(&self, job: JobId, reads: &Arc<StoredReads>) -> Option<LocalSource> {
        let files = Arc::clone(&self.stored);
        let parts = |cache| {
            let parts = PartsOfCluster { job, files: Arc::clone(&files), reads: Arc::clone(reads), cache };
            Arc::new(Arc::new(parts))
        };
        // A copy itself serves later attempts.
        let (opener, ranges) = (parts(None), parts(self.range_cache.clone()));
        Some(LocalSource { files: Arc::clone(&self.local_files), opener, ranges })
    }

    fn stored_output(&self, job: JobId, of: StoredPut) -> Option<Arc<dyn JobOutput>> {
        let (link, files) = (Arc::clone(&self.link), Arc::clone(&self.stored));
        Some(Arc::new(OutputInCluster { job, of, link, files }))
    }

    fn growing_outputs(&self) -> Option<Arc<GrowingOutputs>> {
        Some(self.link.growing_outputs())
    }

    fn growing_stream(&self, input: GrowingInput) -> Option<Box<dyn GrowingStream>> {
        let (link, data) = (Arc::clone(&self.link), self.data.clone());
        Some(Box::new(StreamOfNode { link, data, input, token: None }))
    }

    fn stored_files(&self) -> Option<Arc<dyn StoredFileService>> {
        let files: Arc<dyn StoredFileService> = Arc::<StoredFiles>::clone(&self.stored);
        Some(files)
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
        usage: finished.usage,
    }
}
