//! The cluster of a drill: the participating nodes, the jobs of other users, and the server's reports.

use super::faults::Fault;
use crate::engine::shipping;
use crate::exit::Failure;
use crate::options::connect::Site;
use crate::show::escape;
use crate::show::quantity::counted;
use crate::show::terminal::tell;
use anyhow::ensure;
use api::control::{JobOutcome, JobProgress, JobSubmission};
use api::drill::{DRILL_JOB_PREFIX, DrillFault, DrillOutcome};
use api::history::{JobDetails, JobRow, KeptFiles};
use api::kept::{GcOptions, GcSelection};
use api::placement::JobPlacements;
use client::{Blocking, ClientError};
use ids::{JobId, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval between two checks while waiting.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_FOR_NODE_EVERY: Duration = Duration::from_millis(500);
/// Number of the latest jobs that are searched for unfinished ones.
const JOBS_LOOKED_AT: u32 = 1000;
/// Longest time for the removal of the data of a job, except data of a dead node.
const CLEAN_MAX: Duration = Duration::from_secs(15);

/// The treatment of jobs of other users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherJobs {
    /// No fault may affect them.
    Spare,
    /// Nodes may be killed and paused although they run such jobs.
    Hit,
}

/// The cluster.
pub struct TargetCluster {
    pub site: Site,
    connection: Arc<Blocking>,
    pub stop: Arc<Stop>,
    other_jobs: OtherJobs,
    /// Names of the participating nodes.
    taking_part: Vec<String>,
    /// Names of the other nodes, each with the reason.
    left_out: Vec<(String, String)>,
    pub slots: u32,
}

/// Running jobs, for a caller that stops the drill.
pub struct Stop {
    connection: Arc<Blocking>,
    stopped: AtomicBool,
    jobs: Mutex<BTreeSet<JobId>>,
}

impl Stop {
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.cancel_jobs();
    }

    /// Cancels the unfinished jobs.
    pub fn cancel_jobs(&self) {
        let jobs: Vec<JobId> = self.jobs().iter().copied().collect();
        for job in jobs {
            let cancelled =
                self.connection.run(async |client| client.cancel(job, "stopped with its drill").await);
            if let Err(error) = cancelled {
                tell(&format!("sailfish: job {job} could not be stopped: {error}"));
            }
        }
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeSet<JobId>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TargetCluster {
    /// Connects, and asks every node whether it takes part.
    pub fn open(site: Site, other_jobs: OtherJobs) -> Result<TargetCluster, Failure> {
        let connection = Arc::new(site.connect()?);
        let status = connection.run(async |client| client.cluster().await).map_err(Failure::from_client)?;
        let (mut taking_part, mut left_out) = (Vec::new(), Vec::new());
        for node in status.working() {
            let name = node.info.name.clone();
            let answer = connection.run(async |client| client.drill(&name, &DrillFault::Look).await);
            match answer.map_err(Failure::from_client)? {
                DrillOutcome::Struck { .. } => taking_part.push(name),
                DrillOutcome::NoVictim { why } | DrillOutcome::Refused { why } => left_out.push((name, why)),
            }
        }
        if taking_part.is_empty() {
            let why = match left_out.first() {
                None => "no node works for it".to_string(),
                Some((name, why)) => format!("{}: {why}", escape::cell(name)),
            };
            return Err(Failure::refused(anyhow::anyhow!(
                "no node of the cluster at {} takes part in drills: start nodes with `sailfish node --drills` ({why})",
                site.url
            )));
        }
        let stop = Stop {
            connection: Arc::clone(&connection),
            stopped: AtomicBool::default(),
            jobs: Mutex::default(),
        };
        let slots = status.slots().clamp(1, crate::engine::machine::SLOTS_MAX);
        Ok(TargetCluster { site, connection, stop: Arc::new(stop), other_jobs, taking_part, left_out, slots })
    }

    /// Describes the participating nodes, and counts the others.
    pub fn summary(&self) -> String {
        let names: Vec<String> = self.taking_part.iter().map(|name| escape::cell(name)).collect();
        let others = match self.left_out.len() as u64 {
            0 => String::new(),
            others => format!("; {} without --drills", counted(others, "node")),
        };
        format!("{}{others}", names.join(", "))
    }

    /// Returns an error for faults that affect jobs of other users, if there are any and `--yes` is not given.
    pub fn check_others(&self, faults: &[Fault]) -> anyhow::Result<()> {
        let fault = faults.iter().find(|fault| fault.hits_others());
        let Some(fault) = fault.filter(|_| self.other_jobs == OtherJobs::Spare) else {
            return Ok(());
        };
        let jobs = self.connection.run(async |client| client.jobs(JOBS_LOOKED_AT).await);
        let jobs = jobs.map_err(Failure::from_client).map_err(Failure::into_error)?.jobs;
        let is_other = |row: &&JobRow| !row.state.over() && !row.name.starts_with(DRILL_JOB_PREFIX);
        let others = jobs.iter().filter(is_other).count();
        ensure!(
            others == 0,
            "{} of others on the cluster would be hit by {} too: wait until it is idle, give other --faults, or say --yes",
            match others {
                1 => "1 job".to_string(),
                others => format!("{others} jobs"),
            },
            fault.name(),
        );
        Ok(())
    }

    /// Submits a job; it is cancelled with the drill.
    pub fn submit(&self, mut plan: jobspec::Plan) -> Result<JobId, Failure> {
        shipping::ship_job(&self.connection, &mut plan.spec)?;
        let user = std::env::var("USER").unwrap_or_default();
        let submission = JobSubmission { spec: plan.spec, splits: plan.splits, user, priority: 0 };
        let submitted = self.connection.run(async |client| client.submit(&submission).await);
        let job = submitted.map_err(Failure::from_client)?.job;
        self.stop.jobs().insert(job);
        if self.stop.is_stopped() {
            self.stop.cancel_jobs();
        }
        Ok(job)
    }

    pub fn progress(&self, job: JobId) -> Result<JobProgress, Failure> {
        self.connection.run(async |client| client.progress(job).await).map_err(Failure::from_client)
    }

    /// Waits for the end of a job.
    pub fn wait(&self, job: JobId) -> Result<JobOutcome, Failure> {
        let outcome =
            self.connection.run(async |client| client.wait(job).await).map_err(Failure::from_client)?;
        self.stop.jobs().remove(&job);
        Ok(outcome)
    }

    /// Returns everything about a job except events.
    pub fn details(&self, job: JobId) -> Result<JobDetails, Failure> {
        self.connection.run(async |client| client.job(job, 0).await).map_err(Failure::from_client)
    }

    pub fn placements(&self, job: JobId) -> Result<JobPlacements, Failure> {
        self.connection.run(async |client| client.placements(job).await).map_err(Failure::from_client)
    }

    /// Returns the participating nodes that work, by number.
    pub fn nodes(&self) -> Result<BTreeMap<NodeId, String>, Failure> {
        let status =
            self.connection.run(async |client| client.cluster().await).map_err(Failure::from_client)?;
        let working = status.working().map(|node| (node.node, node.info.name.clone()));
        Ok(working.filter(|(_, name)| self.taking_part.contains(name)).collect())
    }

    pub fn strike(&self, node: &str, fault: &DrillFault) -> Result<DrillOutcome, ClientError> {
        self.connection.run(async |client| client.drill(node, fault).await)
    }

    /// Returns whether the server still has a node.
    pub fn has(&self, node: NodeId) -> Result<bool, Failure> {
        let status =
            self.connection.run(async |client| client.cluster().await).map_err(Failure::from_client)?;
        Ok(status.nodes.iter().any(|known| known.node == node))
    }

    /// Waits, at most `limit`, until the server removes a node. Returns the time it took.
    pub fn given_up(&self, node: NodeId, limit: Duration) -> Result<Option<Duration>, Failure> {
        let started = Instant::now();
        while !self.stop.is_stopped() && started.elapsed() < limit {
            if !self.has(node)? {
                return Ok(Some(started.elapsed()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(None)
    }

    /// Waits, at most `limit`, until a node of this name answers.
    pub fn comes_back(&self, name: &str, limit: Duration) -> bool {
        let started = Instant::now();
        while !self.stop.is_stopped() {
            if self.strike(name, &DrillFault::Look).is_ok() {
                return true;
            }
            if started.elapsed() > limit {
                return false;
            }
            std::thread::sleep(LOOK_FOR_NODE_EVERY);
        }
        false
    }

    /// Waits until the directories of finished jobs are removed, and removes their kept data.
    pub fn clean(&self, jobs: &[JobId]) -> Result<(), Failure> {
        let started = Instant::now();
        let mut kept = Vec::new();
        for job in jobs {
            let mut row = self.details(*job)?.job;
            while row.cleaned_ns.is_none() && started.elapsed() < CLEAN_MAX {
                std::thread::sleep(LOOK_EVERY);
                row = self.details(*job)?.job;
            }
            if row.kept_files == Some(KeptFiles::Kept) {
                kept.push(*job);
            }
        }
        if kept.is_empty() {
            return Ok(());
        }
        let options = GcOptions { selection: GcSelection::Jobs(kept), dry_run: false };
        let collected = self.connection.run(async |client| client.collect(&options).await);
        collected.map(drop).map_err(Failure::from_client)
    }
}
