//! Random workflows keep the laws of kinds.

use api::JsonText;
use jobkind::{Kinds, laws};
use proptest::prelude::*;
use serde_json::json;
use workflow::Workflow;

/// Returns a workflow: a step may wait for earlier ones, in a random numbering.
fn any_workflow() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<usize>)> {
    let step = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
    (prop::collection::vec(step, 1..30), Just(()))
        .prop_map(|(steps, ())| {
            let after = |(index, before): (usize, &Vec<prop::sample::Index>)| -> Vec<u32> {
                if index == 0 {
                    Vec::new()
                } else {
                    before.iter().map(|each| each.index(index) as u32).collect()
                }
            };
            steps.iter().enumerate().map(after).collect::<Vec<_>>()
        })
        .prop_flat_map(|steps| {
            let numbers = (0..steps.len()).collect::<Vec<usize>>();
            (Just(steps), Just(numbers).prop_shuffle())
        })
}

fn written(steps: &[Vec<u32>], numbers: &[usize]) -> (JsonText, Vec<Vec<u32>>) {
    let mut after = vec![Vec::new(); steps.len()];
    for (index, before) in steps.iter().enumerate() {
        after[numbers[index]] = before.iter().map(|step| numbers[*step as usize] as u32).collect();
    }
    let step = |(index, after): (usize, &Vec<u32>)| json!({ "name": format!("s{index}"), "program": {}, "after": after });
    let spec = json!({ "steps": after.iter().enumerate().map(step).collect::<Vec<_>>() });
    (JsonText::of(&spec).expect("it can be written"), after)
}

proptest! {
    #[test]
    fn every_order_runs_each_step_once((steps, numbers) in any_workflow(), picks in prop::collection::vec(any::<prop::sample::Index>(), 30)) {
        let (spec, after) = written(&steps, &numbers);
        let plan = Kinds::default().with::<Workflow>().read("workflow", &spec).unwrap();
        let mut picks = picks.into_iter();
        let order = laws::check(plan.as_ref(), |count| picks.next().map_or(0, |pick| pick.index(count))).unwrap();
        let mut place = vec![usize::MAX; steps.len()];
        order.iter().enumerate().for_each(|(index, step)| place[step.0 as usize] = index);
        prop_assert_eq!(order.len(), steps.len());
        for (step, before) in after.iter().enumerate() {
            prop_assert!(before.iter().all(|before| place[*before as usize] < place[step]), "{order:?}");
        }
    }
}
