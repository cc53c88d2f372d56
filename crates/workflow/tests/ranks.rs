//! Upward ranks of steps.

use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{CACHING_RULES, FinishedRun, RecordedRun, RunTask, TaskFile};
use api::{ContentHash, JsonText};
use ids::StepNumber;
use jobkind::{Kinds, KnownRuns, StepPlan};
use proptest::prelude::*;
use std::sync::Arc;
use workflow::Workflow;

/// Steps: those before each, and the step whose standard output is its standard input.
type Steps = Vec<(Vec<u32>, Option<u32>)>;

fn file(step: u32) -> TaskFile {
    TaskFile { name: format!("f{step}").into(), path: format!("/w/f{step}").into(), ..TaskFile::default() }
}

fn plan(steps: &Steps) -> Arc<dyn StepPlan> {
    let step = |(index, (after, stream)): (usize, &(Vec<u32>, Option<u32>))| {
        let output = file(index as u32);
        let program = RunTask {
            words: vec!["cat".to_string()],
            stdin: stream.map(|stream| file(stream).name),
            inputs: stream.map(file).into_iter().collect(),
            stdout: Some(output.name.clone()),
            outputs: vec![output],
            ..RunTask::default()
        };
        WorkflowStep { name: format!("s{index}"), program, after: after.clone(), job: None }
    };
    let spec = WorkflowSpec { steps: steps.iter().enumerate().map(step).collect(), only_judges: false };
    let spec = JsonText::of(&spec).expect("a specification can be written");
    Kinds::default().with::<Workflow>().read("workflow", &spec).expect("it has no cycle")
}

/// Returns records of runs of these times.
fn known(times_ms: &[Option<u64>]) -> KnownRuns {
    let hash = ContentHash([0; 32]);
    let record = |(index, ran_ms): (usize, &Option<u64>)| {
        let run = FinishedRun { ran_ms: (*ran_ms)?, ..FinishedRun::default() };
        let (step, rules) = (String::new(), CACHING_RULES);
        let recorded = RecordedRun { rules, step, words: hash, env: hash, identity: hash, waits: None, run };
        Some((StepNumber(index as u32), Arc::new(recorded)))
    };
    KnownRuns { recorded: times_ms.iter().enumerate().filter_map(record).collect(), ..KnownRuns::default() }
}

#[track_caller]
fn check(steps: &[(&[u32], Option<u32>)], times_ms: &[Option<u64>], expected: &[u64]) {
    let steps = steps.iter().map(|(after, stream)| (after.to_vec(), *stream)).collect();
    assert_eq!(plan(&steps).ranks(&known(times_ms)), expected);
}

#[test]
fn rank_is_the_longest_way_to_the_end() {
    let diamond: &[(&[u32], Option<u32>)] = &[(&[], None), (&[0], None), (&[0], None), (&[1, 2], None)];
    check(diamond, &[Some(10), Some(200), Some(3_000), Some(40)], &[3_050, 240, 3_040, 40]);
    // A step without a time is as long as the median of the others.
    check(diamond, &[Some(10), None, Some(3_000), Some(40)], &[3_050, 80, 3_040, 40]);
    check(diamond, &[None; 4], &[3_000, 2_000, 2_000, 1_000]);
    // Programs of less than a millisecond make chains too.
    check(diamond, &[Some(0); 4], &[3, 2, 2, 1]);
}

#[test]
fn streams_count_once() {
    let chain: &[(&[u32], Option<u32>)] = &[(&[], None), (&[], Some(0)), (&[1], None)];
    check(chain, &[Some(50), Some(50), Some(7)], &[57, 57, 7]);
    check(chain, &[Some(50), Some(20), Some(7)], &[57, 27, 7]);
    check(chain, &[Some(20), Some(50), Some(7)], &[57, 57, 7]);
}

fn any_steps() -> impl Strategy<Value = (Steps, Vec<Option<u64>>)> {
    let step = (prop::collection::vec(any::<prop::sample::Index>(), 0..4), any::<prop::sample::Index>());
    prop::collection::vec((step, prop::option::of(0..5_000_u64)), 1..40).prop_map(|steps| {
        let (steps, times): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
        let step = |(index, (before, stream)): (usize, (Vec<prop::sample::Index>, prop::sample::Index))| {
            let of = |each: prop::sample::Index| each.index(index) as u32;
            match index {
                0 => (Vec::new(), None),
                // Some read a stream.
                _ if stream.index(3) == 0 => (Vec::new(), Some(of(stream))),
                _ => (before.into_iter().map(of).collect(), None),
            }
        };
        (steps.into_iter().enumerate().map(step).collect(), times)
    })
}

proptest! {
    /// Each step is followed by shorter ways only, and one of them explains its rank.
    #[test]
    fn ranks_fall_along_every_way((steps, times) in any_steps()) {
        let ranks = plan(&steps).ranks(&known(&times));
        prop_assert_eq!(ranks.len(), steps.len());
        let mut recorded: Vec<u64> = times.iter().flatten().map(|ran_ms| (*ran_ms).max(1)).collect();
        recorded.sort_unstable();
        let unknown_ms = recorded.get(recorded.len() / 2).copied().unwrap_or(1_000);
        let time = |step: usize| times[step].map_or(unknown_ms, |ran_ms| ran_ms.max(1));
        let mut expected: Vec<u64> = (0..steps.len()).map(time).collect();
        for (reader, (after, stream)) in steps.iter().enumerate().rev() {
            for before in after.iter().map(|before| *before as usize) {
                expected[before] = expected[before].max(time(before) + expected[reader]);
            }
            for before in stream.iter().map(|before| *before as usize) {
                let together_ms = time(before).max(time(reader));
                expected[before] = expected[before].max(together_ms + expected[reader] - time(reader));
            }
        }
        prop_assert_eq!(ranks, expected);
    }
}
