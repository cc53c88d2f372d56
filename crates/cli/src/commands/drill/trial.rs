//! Some jobs and one fault: the jobs are submitted, the fault is injected into one of them at its moment, and after
//! their ends the outputs are compared with the expected ones.

use super::Drill;
use super::faults::Fault;
use super::jobs::Kind;
use super::judge::Judged;
use super::target_cluster::LOOK_EVERY;
use crate::exit::Failure;
use crate::show::quantity::{counted, seconds};
use api::Replication;
use api::control::{ErrorCode, JobOutcome, StageProgress};
use api::drill::{ARMED_SECONDS_MAX, DRILL_JOB_PREFIX, DrillFault, DrillOutcome};
use api::history::AttemptState;
use ids::{JobId, NodeId, StageKind};
use std::time::{Duration, Instant};

/// Progress of the stage at which a fault is injected, in percent of its tasks.
const PERCENTS: [u32; 3] = [0, 25, 50];
/// Longest time in which the server removes a silent node.
const GIVEN_UP_MAX: Duration = Duration::from_secs(15);
/// Longest time in which a restarted node comes back.
const RETURN_MAX: Duration = Duration::from_secs(25);
/// Longest time in which a paused node comes back after the pause.
const WAKE_MAX: Duration = Duration::from_secs(30);
/// Maximum number of tries of a fault that finds no victim.
const LOOKS_MAX: u32 = 30;
/// Maximum number of the server's sentences about a job that are printed.
const SENTENCES_MAX: usize = 4;

/// The moment of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    stage: StageKind,
    percent: u32,
}

/// Progress of the victim job, compared with the moment of the fault.
enum Now {
    Early,
    Here,
    Late(&'static str),
}

impl Moment {
    fn words(self) -> String {
        match self.percent {
            0 => format!("{} begins", self.stage),
            percent => format!("{} at {percent} %", self.stage),
        }
    }

    fn compare(self, stages: &[StageProgress], over: bool) -> Now {
        let stage = stages.iter().find(|stage| stage.kind == self.stage);
        match stage {
            _ if over => Now::Late("the job ended"),
            Some(stage) if stage.expanded && stage.tasks == stage.done => Now::Late("its stage ended"),
            Some(stage)
                if stage.expanded
                    && stage.running > 0
                    && u64::from(stage.done) * 100 >= u64::from(stage.tasks) * u64::from(self.percent) =>
            {
                Now::Here
            }
            _ => Now::Early,
        }
    }
}

/// A fault that was injected.
struct Strike {
    node: NodeId,
    name: String,
    what: String,
}

/// The reason why a fault was not injected.
struct Miss {
    why: String,
    /// True if nothing could be damaged: a later try may succeed.
    no_victim: bool,
    /// True if the fault is refused, now and later.
    is_refused: bool,
}

impl Miss {
    fn of(why: &str) -> Miss {
        Miss { why: why.to_string(), no_victim: false, is_refused: false }
    }
}

/// A submitted job.
struct Handed {
    job: JobId,
    kind: Kind,
    name: String,
}

/// End of a job of a trial.
pub struct Verdict {
    pub job: JobId,
    pub name: String,
    /// Judgement of its output, or the reason why there is no output.
    pub judged: Result<Judged, String>,
}

impl Verdict {
    pub fn is_right(&self) -> bool {
        self.judged.as_ref().is_ok_and(Judged::is_right)
    }
}

/// Result of a trial: a row of the table.
pub struct Row {
    pub round: u32,
    pub fault: String,
    pub node: Option<String>,
    pub moment: String,
    /// True if sorted data of its jobs was replicated.
    pub replicates: bool,
    /// Description of the fault, or the reason why it was not injected.
    pub fired: Result<String, String>,
    /// True if another moment may work.
    pub may_fire_again: bool,
    /// Short list of Sailfish's reactions.
    pub did: Vec<String>,
    /// Sailfish's reactions, in its own sentences.
    pub said: Vec<String>,
    /// Time until the server removed the node.
    pub gone_after: Option<Duration>,
    /// True if the node works again; None if it was never away.
    pub came_back: Option<bool>,
    pub verdicts: Vec<Verdict>,
    pub took: Duration,
}

impl Row {
    pub fn is_well(&self) -> bool {
        self.verdicts.iter().all(Verdict::is_right)
    }

    /// Returns the line that is printed while the drill runs.
    pub fn sentence(&self) -> String {
        let verdict = if self.is_well() { "nothing lost" } else { "NOT AS EXPECTED" };
        let what = match &self.fired {
            Ok(what) => format!("{} ({what})", self.node.as_deref().unwrap_or_default()),
            Err(why) => format!("not injected: {why}"),
        };
        let took = seconds(self.took.as_secs_f64());
        format!("round {}: {}, {}: {what}; {verdict}, {took}", self.round, self.fault, self.moment)
    }
}

/// A trial: a fault, with the choices that were made for it.
pub struct Trial<'a> {
    drill: &'a Drill,
    round: u32,
    fault: Fault,
    moment: Moment,
    /// Index of the victim job.
    struck: u32,
    replication: Replication,
    choice: u64,
    turn: u32,
}

impl<'a> Trial<'a> {
    /// Makes the trial that the seed chooses. Each turn begins with another node.
    pub fn choose(
        drill: &'a Drill,
        round: u32,
        fault: &Fault,
        turn: u32,
        random: &mut fastrand::Rng,
    ) -> Trial<'a> {
        let fault = fault.chosen(random);
        let kinds = Kind::ALL.len() as u32;
        let in_reduce = fault.needs_runs() || random.bool();
        let moment = match fault {
            // It must be armed before any attempt reaches it.
            Fault::CrashAt(_) => Moment { stage: StageKind::Map, percent: 0 },
            _ if fault.needs_runs() => Moment { stage: StageKind::Reduce, percent: 0 },
            _ if in_reduce => {
                Moment { stage: StageKind::Reduce, percent: PERCENTS[random.usize(..PERCENTS.len())] }
            }
            _ => Moment { stage: StageKind::Map, percent: PERCENTS[random.usize(..PERCENTS.len())] },
        };
        // Only sorting jobs spend much time in reduce.
        let struck = match moment.stage {
            StageKind::Reduce => random.u32(..drill.jobs_at_once.div_ceil(kinds)) * kinds,
            _ => random.u32(..drill.jobs_at_once),
        };
        let replication = if random.bool() { Replication::Rack } else { Replication::None };
        let choice = random.u64(..1 << 48);
        Trial { drill, round, fault, moment, struck, replication, choice, turn }
    }

    /// Runs the trial from submit to verdict.
    pub fn run(&self) -> Result<Row, Failure> {
        let (started, cluster) = (Instant::now(), &self.drill.cluster);
        let mut row = self.empty_row();
        if let Err(error) = cluster.check_others(&[self.fault]) {
            row.fired = Err(error.to_string());
            row.may_fire_again = false;
            return Ok(row);
        }
        let jobs = (0..self.drill.jobs_at_once).map(|place| self.submit(place));
        let jobs = jobs.collect::<Result<Vec<Handed>, Failure>>()?;
        let strike = self.strike_in_time(&jobs[self.struck as usize])?;
        row.gone_after = self.given_up(&strike)?;
        let mut outcomes = Vec::new();
        for handed in &jobs {
            outcomes.push(cluster.wait(handed.job)?);
        }
        if !cluster.stop.is_stopped() {
            self.look_at_node(strike, &mut row)?;
            for (handed, outcome) in jobs.iter().zip(&outcomes) {
                row.verdicts.push(self.judge(handed, outcome));
            }
            self.ask_what_was_done(&jobs, &mut row)?;
        }
        let numbers: Vec<JobId> = jobs.iter().map(|handed| handed.job).collect();
        cluster.clean(&numbers)?;
        for handed in &jobs {
            // Remaining files are removed with the directory of the drill.
            let _ = std::fs::remove_dir_all(self.drill.inputs.output(&handed.name));
        }
        row.took = started.elapsed();
        Ok(row)
    }

    fn empty_row(&self) -> Row {
        let struck = Kind::ALL[self.struck as usize % Kind::ALL.len()];
        let replicates = self.replication == Replication::Rack;
        let replicas = if replicates { " with replicas" } else { "" };
        Row {
            round: self.round,
            fault: self.fault.name(),
            node: None,
            moment: format!("{} of a {} job{replicas}", self.moment.words(), struck.word()),
            replicates,
            fired: Err("no job reached the moment of the fault".to_string()),
            may_fire_again: true,
            did: Vec::new(),
            said: Vec::new(),
            gone_after: None,
            came_back: None,
            verdicts: Vec::new(),
            took: Duration::ZERO,
        }
    }

    fn submit(&self, place: u32) -> Result<Handed, Failure> {
        let kind = Kind::ALL[place as usize % Kind::ALL.len()];
        let (round, fault) = (self.round, self.fault.name().replace(':', "-"));
        let name =
            format!("{DRILL_JOB_PREFIX}{:x}-{round}-{fault}-{place}-{}", self.choice & 0xffff, kind.word());
        let cluster = &self.drill.cluster;
        let plan = self.drill.inputs.plan(kind, &name, &cluster.site, cluster.slots, self.replication)?;
        Ok(Handed { job: cluster.submit(plan)?, kind, name })
    }

    /// Waits for the moment and injects the fault, or returns the reason why it did not.
    fn strike_in_time(&self, handed: &Handed) -> Result<Result<Strike, Miss>, Failure> {
        let cluster = &self.drill.cluster;
        let (mut miss, mut looks) = (Miss::of("no job reached the moment of the fault"), 0);
        while !cluster.stop.is_stopped() && looks < LOOKS_MAX {
            let progress = cluster.progress(handed.job)?;
            match self.moment.compare(&progress.stages, progress.over) {
                Now::Early => {}
                Now::Late(late) if looks == 0 => {
                    return Ok(Err(Miss::of(&format!("{late} before the moment of the fault"))));
                }
                Now::Late(_) => break,
                Now::Here => {
                    looks += 1;
                    match self.strike(handed.job)? {
                        Ok(strike) => return Ok(Ok(strike)),
                        Err(missed) => miss = missed,
                    }
                    if !miss.no_victim {
                        break;
                    }
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Err(miss))
    }

    /// Injects the fault into the first node with a victim, beginning with nodes that work on the job.
    fn strike(&self, job: JobId) -> Result<Result<Strike, Miss>, Failure> {
        let cluster = &self.drill.cluster;
        let nodes = cluster.nodes()?;
        let attempts = cluster.details(job)?.attempts;
        let works = |node: &NodeId| {
            attempts.iter().any(|attempt| attempt.node == *node && attempt.state == AttemptState::Running)
        };
        let mut order: Vec<(NodeId, String)> = nodes.into_iter().collect();
        let first = self.turn as usize % order.len().max(1);
        order.rotate_left(first);
        order.sort_by_key(|(node, _)| !works(node));
        let fault = self.fault.order(job, self.choice, ARMED_SECONDS_MAX);
        let mut miss = Miss::of("no node that takes part in drills is connected");
        for (node, name) in order {
            match cluster.strike(&name, &fault) {
                Ok(DrillOutcome::Struck { what }) => return Ok(Ok(Strike { node, name, what })),
                Ok(DrillOutcome::NoVictim { why }) => miss = Miss { why, no_victim: true, is_refused: false },
                Ok(DrillOutcome::Refused { why }) => miss = Miss { why, is_refused: true, ..miss },
                Err(error) => {
                    let is_refused = error.code() == Some(ErrorCode::Refused);
                    miss = Miss { why: error.to_string(), is_refused, ..miss };
                }
            }
        }
        Ok(Err(miss))
    }

    /// Enters into the row whether the fault was injected, its node, and whether that node came back.
    fn look_at_node(&self, strike: Result<Strike, Miss>, row: &mut Row) -> Result<(), Failure> {
        let cluster = &self.drill.cluster;
        let strike = match strike {
            Ok(strike) => strike,
            Err(miss) => {
                row.fired = Err(miss.why);
                row.may_fire_again = !miss.is_refused;
                return Ok(());
            }
        };
        row.node = Some(strike.name.clone());
        row.fired = Ok(strike.what);
        if let Fault::CrashAt(Some(point)) = self.fault {
            // Another process may have joined under its name.
            let answers = cluster.strike(&strike.name, &DrillFault::Disarm).is_ok();
            if answers && cluster.has(strike.node)? {
                row.fired = Err(format!("no attempt on {} reached {}", strike.name, point.name()));
                return Ok(());
            }
            row.fired = Ok(format!("process ended at {}", point.name()));
        }
        if self.fault.hits_others() {
            let limit = match self.fault {
                Fault::PauseNode { seconds } => Duration::from_secs(seconds.into()) + WAKE_MAX,
                _ => RETURN_MAX,
            };
            row.came_back = Some(cluster.comes_back(&strike.name, limit));
        }
        Ok(())
    }

    /// Returns the time until the server removed the node; None if it did not, or if the time of the fault is unknown.
    fn given_up(&self, strike: &Result<Strike, Miss>) -> Result<Option<Duration>, Failure> {
        let limit = match self.fault {
            Fault::KillNode => GIVEN_UP_MAX,
            Fault::PauseNode { seconds } => Duration::from_secs(seconds.into()),
            _ => return Ok(None),
        };
        let cluster = &self.drill.cluster;
        strike.as_ref().map_or(Ok(None), |strike| cluster.given_up(strike.node, limit))
    }

    fn judge(&self, handed: &Handed, outcome: &JobOutcome) -> Verdict {
        let inputs = &self.drill.inputs;
        let judged = match outcome {
            JobOutcome::Succeeded(_) | JobOutcome::Done => {
                let judged = inputs.reference(handed.kind).judge(&inputs.output(&handed.name));
                judged.map_err(|error| format!("{error:#}"))
            }
            JobOutcome::Failed { failure, .. } => Err(format!("failed: {}", failure.message)),
            JobOutcome::Cancelled { reason } => Err(format!("was {reason}")),
        };
        Verdict { job: handed.job, name: handed.name.clone(), judged }
    }

    /// Enters into the row how the jobs continued, according to the server.
    fn ask_what_was_done(&self, jobs: &[Handed], row: &mut Row) -> Result<(), Failure> {
        let cluster = &self.drill.cluster;
        let (mut lost, mut failed, mut again) = (0, 0, std::collections::BTreeMap::<String, u64>::new());
        for handed in jobs {
            let details = cluster.details(handed.job)?;
            for attempt in &details.attempts {
                lost += u64::from(attempt.state == AttemptState::Interrupted);
                failed += u64::from(attempt.state == AttemptState::Failed);
                if attempt.attempt.attempt.0 > 0 {
                    let stage = details.stages.get(usize::from(attempt.attempt.task.stage.0));
                    let name = stage.map_or("?", |stage| stage.kind.word());
                    *again.entry(name.to_string()).or_default() += 1;
                }
            }
            let told = cluster.placements(handed.job)?.losses;
            row.said.extend(
                told.into_iter().take(SENTENCES_MAX).map(|said| format!("job {}: {said}", handed.job)),
            );
        }
        let attempts = |count: u64, what: &str| format!("{} {what}", counted(count, "attempt"));
        row.did.extend((lost > 0).then(|| attempts(lost, "lost")));
        row.did.extend((failed > 0).then(|| attempts(failed, "failed")));
        row.did.extend(
            again.into_iter().map(|(stage, count)| format!("{} of {stage} retried", counted(count, "task"))),
        );
        row.did.extend(
            row.gone_after.map(|after| format!("node removed after {}", seconds(after.as_secs_f64()))),
        );
        row.did.extend(row.came_back.map(|back| {
            let word = if back { "node came back" } else { "node did not come back" };
            word.to_string()
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Moment, Now};
    use api::control::StageProgress;
    use ids::StageKind;

    #[test]
    fn a_moment_comes_and_goes() {
        let moment = Moment { stage: StageKind::Map, percent: 50 };
        let check = |done, running, over, expected: &str| {
            let stage =
                StageProgress { kind: StageKind::Map, expanded: true, tasks: 4, done, running, skipped: 0 };
            let now = match moment.compare(&[stage], over) {
                Now::Early => "early",
                Now::Here => "here",
                Now::Late(_) => "late",
            };
            assert_eq!(now, expected, "{done} done, {running} running");
        };
        check(0, 0, false, "early");
        check(1, 2, false, "early");
        check(2, 0, false, "early");
        check(2, 1, false, "here");
        check(4, 0, false, "late");
        check(3, 1, true, "late");
        assert!(matches!(moment.compare(&[], false), Now::Early));
        assert_eq!(moment.words(), "map at 50 %");
    }
}
