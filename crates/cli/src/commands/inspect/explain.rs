//! `sailfish explain`: the reasons for the placement of a job's attempts.

use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{count, counted, seconds};
use crate::show::tables::{left, right, table};
use crate::show::terminal::print;
use anyhow::{Context, anyhow};
use api::placement::{JobPlacements, PlacedAttempt, PlacementKind, PlacementReason};
use clap::Args;
use ids::{JobId, StageKind};
use metastore::Metastore;

/// Shortest wait that is shown, in nanoseconds.
const WAIT_SHOWN_MIN_NS: u64 = 10_000_000;

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Number of the job
    pub job: i64,
    /// Only this task, as in reduce/3, or every task of this stage; a stage is given by name or number
    #[arg(value_name = "STAGE/TASK")]
    pub task: Option<String>,
    #[command(flatten)]
    pub from: StateArgs,
    /// Maximum number of attempts to list
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u32,
}

/// Prints a line for each attempt.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    store::expect_no_steps(&store::details(&args.from, JobId(args.job), 0)?)?;
    let placements = placements(&args.from, JobId(args.job))?;
    let chosen = match &args.task {
        None => Chosen::default(),
        Some(text) => Chosen::parse(text, &placements.stages).map_err(Failure::refused)?,
    };
    let attempts: Vec<&PlacedAttempt> =
        placements.attempts.iter().filter(|attempt| chosen.has(attempt)).collect();
    if let Some(waits_for) = &placements.waits_for {
        return Ok(print(&format!("no attempt runs: {waits_for}\n"))?);
    }
    if attempts.is_empty() {
        return Ok(print("no attempt has started yet: no slot that can run one was free\n")?);
    }
    let columns = [left("task"), right("attempt"), left("node"), right("slot"), left("state"), left("why")];
    let shown = attempts.iter().take(args.limit as usize);
    let rows = shown.map(|attempt| {
        vec![
            task_name(attempt, &placements.stages),
            count(attempt.attempt.attempt.0.into()),
            attempt.node.to_string(),
            count(attempt.slot.into()),
            attempt.state.word().to_string(),
            attempt.reason.as_ref().map_or_else(|| "the only task of its stage: any slot".to_string(), why),
        ]
    });
    let mut text = table(&columns, rows.collect());
    if let Some(more) = attempts.len().checked_sub(args.limit as usize).filter(|more| *more > 0) {
        text.push_str(&format!("and {} more; --limit N lists more\n", count(more as u64)));
    }
    for sentence in placements.losses.iter().chain(&placements.slow) {
        text.push_str(&format!("{}\n", escape::sentence(sentence)));
    }
    Ok(print(&text)?)
}

fn placements(from: &StateArgs, job: JobId) -> Result<JobPlacements, Failure> {
    if let Some(connection) = from.connection()? {
        return connection.run(async |client| client.placements(job).await).map_err(Failure::from_client);
    }
    store::look(from.state.as_deref(), async |store: Metastore| {
        store::job_row(&store, job).await?;
        Ok(server::job_placements(&store, job).await?)
    })
}

fn task_name(attempt: &PlacedAttempt, stages: &[StageKind]) -> String {
    let task = attempt.attempt.task;
    match stages.get(usize::from(task.stage.0)) {
        Some(stage) => format!("{}/{}", stage, task.task.0),
        None => format!("{}/{}", task.stage.0, task.task.0),
    }
}

/// Returns a sentence for the user.
fn why(reason: &PlacementReason) -> String {
    let place = match reason.place {
        PlacementKind::Any => "any node can run it, and this slot asked first",
        PlacementKind::OnlyHere => "only this node has its data",
        PlacementKind::NearData => "near its data",
        PlacementKind::BesideSlow => "speculative: the attempt on another node was slow",
        PlacementKind::NotWhereItFailed => "moved: an earlier attempt failed because of its node",
        PlacementKind::NoNearerSlot => "far from its data: no slot near it asked in time",
    };
    let mut text = place.to_string();
    if reason.slots_free > 1 {
        text.push_str(&format!(", of {} free", counted(reason.slots_free.into(), "slot")));
    }
    if reason.waited_ns >= WAIT_SHOWN_MIN_NS {
        text.push_str(&format!("; its job had waited {}", seconds(reason.waited_ns as f64 / 1e9)));
    }
    if reason.levels_risen > 0 {
        text.push_str(&format!(" and risen by {}", counted(reason.levels_risen.into(), "priority level")));
    }
    if reason.user_running > 0 {
        let running = counted(reason.user_running.into(), "attempt");
        text.push_str(&format!("; its user was running {running}"));
    }
    text
}

/// The selected tasks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    stage: Option<u16>,
    task: Option<u32>,
}

impl Chosen {
    fn parse(text: &str, stages: &[StageKind]) -> anyhow::Result<Self> {
        let (stage, task) = match text.split_once('/') {
            Some((stage, task)) => (stage, Some(task)),
            None => (text, None),
        };
        let by_name = stages.iter().position(|kind| kind.word() == stage);
        let by_number = || stage.parse().ok().filter(|number| *number < stages.len());
        let stage = by_name.or_else(by_number).ok_or_else(|| {
            anyhow!(
                "{text}: there is no stage {stage:?}; the job has {}",
                stages.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(", ")
            )
        })?;
        let number =
            |task: &str| task.parse().with_context(|| format!("{text}: {task:?} is not a task number"));
        Ok(Self { stage: Some(stage as u16), task: task.map(number).transpose()? })
    }

    fn has(&self, attempt: &PlacedAttempt) -> bool {
        let task = attempt.attempt.task;
        self.stage.is_none_or(|stage| stage == task.stage.0)
            && self.task.is_none_or(|each| each == task.task.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Chosen, PlacementKind, PlacementReason, why};
    use ids::StageKind;

    #[test]
    fn tasks_are_named_by_stage_and_number() {
        let stages = [StageKind::Map, StageKind::Seal, StageKind::Reduce];
        let check = |text: &str, expected: Option<(u16, Option<u32>)>| {
            let chosen = Chosen::parse(text, &stages).ok();
            let expected = expected.map(|(stage, task)| Chosen { stage: Some(stage), task });
            assert_eq!(chosen, expected, "{text}");
        };
        check("map/0", Some((0, Some(0))));
        check("reduce/17", Some((2, Some(17))));
        check("1/2", Some((1, Some(2))));
        check("seal", Some((1, None)));
        check("3/1", None);
        check("merge/1", None);
        check("map/x", None);
        check("map/", None);
        check("", None);
    }

    #[test]
    fn a_reason_reads_as_a_sentence() {
        let plain = PlacementReason {
            place: PlacementKind::NearData,
            waited_ns: 5,
            slots_free: 1,
            user_running: 0,
            levels_risen: 0,
        };
        assert_eq!(why(&plain), "near its data");
        let waited = PlacementReason {
            place: PlacementKind::Any,
            waited_ns: 125_000_000_000,
            slots_free: 3,
            user_running: 1,
            levels_risen: 2,
        };
        let text = why(&waited);
        for part in ["any node", "of 3 slots free", "had waited", "risen by 2 priority levels", "1 attempt"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
