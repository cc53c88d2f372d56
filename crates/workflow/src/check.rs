//! Errors of workflows: names used twice, steps that are not there, cycles.

use crate::StepSpec;
use api::control::NAME_BYTES_MAX;
use ids::StepNumber;
use jobkind::STEPS_MAX;
use std::collections::BTreeSet;

/// Maximum number of steps of a cycle in a message.
const CYCLE_SHOWN_MAX: usize = 8;

/// Returns a sentence for a workflow that cannot run.
pub(crate) fn checked(steps: &[StepSpec]) -> Result<(), String> {
    if steps.is_empty() {
        return Err("it has no steps".to_string());
    }
    if steps.len() > STEPS_MAX {
        return Err(format!("it has {} steps: give at most {STEPS_MAX}", steps.len()));
    }
    let mut names = BTreeSet::new();
    for (index, StepSpec { name, after, .. }) in steps.iter().enumerate() {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(format!(
                "step {index} has the name {name:?}: give 1 to {NAME_BYTES_MAX} printable bytes"
            ));
        }
        if !names.insert(name) {
            return Err(format!("two steps have the name {name:?}"));
        }
        if let Some(missing) = after.iter().find(|before| **before as usize >= steps.len()) {
            return Err(format!(
                "the step {name:?} waits for step {missing}, and the last one is {}",
                steps.len() - 1
            ));
        }
    }
    match cycle(steps) {
        None => Ok(()),
        Some(cycle) => Err(format!("steps wait for each other: {}", cycle_text(steps, &cycle))),
    }
}

/// Returns for each step the steps that wait for it, in order, each once.
pub(crate) fn readers(steps: &[StepSpec]) -> Vec<Vec<StepNumber>> {
    let mut readers = vec![Vec::new(); steps.len()];
    for (index, step) in steps.iter().enumerate() {
        for before in &step.after {
            let readers: &mut Vec<StepNumber> = &mut readers[*before as usize];
            if readers.last() != Some(&StepNumber(index as u32)) {
                readers.push(StepNumber(index as u32));
            }
        }
    }
    readers
}

/// Returns the positions of steps each of which waits for the next, and the last for the first; None if there is no
/// cycle. Removes steps that wait for nothing until none is left (Kahn), so depth costs no stack.
fn cycle(steps: &[StepSpec]) -> Option<Vec<usize>> {
    let readers = readers(steps);
    let distinct = |step: &StepSpec| step.after.iter().collect::<BTreeSet<_>>().len();
    let mut waits: Vec<usize> = steps.iter().map(distinct).collect();
    let mut free: Vec<usize> = (0..steps.len()).filter(|step| waits[*step] == 0).collect();
    while let Some(step) = free.pop() {
        for reader in &readers[step] {
            let reader = reader.0 as usize;
            waits[reader] -= 1;
            if waits[reader] == 0 {
                free.push(reader);
            }
        }
    }
    // Each step that is left waits for one that is left too: following them must come back.
    let mut path = vec![(0..steps.len()).find(|step| waits[*step] > 0)?];
    let mut place = vec![None; steps.len()];
    loop {
        let step = path[path.len() - 1];
        if let Some(first) = place[step] {
            path.pop();
            return Some(path.split_off(first));
        }
        place[step] = Some(path.len() - 1);
        let left = steps[step].after.iter().find(|before| waits[**before as usize] > 0)?;
        path.push(*left as usize);
    }
}

fn cycle_text(steps: &[StepSpec], cycle: &[usize]) -> String {
    let shown = cycle.iter().take(CYCLE_SHOWN_MAX).map(|step| format!("{:?}", steps[*step].name));
    let mut text = shown.collect::<Vec<_>>().join(" after ");
    match cycle.len() > CYCLE_SHOWN_MAX {
        true => text.push_str(&format!(" after {} more", cycle.len() - CYCLE_SHOWN_MAX)),
        false => text.push_str(&format!(" after {:?}", steps[cycle[0]].name)),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{checked, cycle};
    use crate::StepSpec;

    fn steps(after: &[&[u32]]) -> Vec<StepSpec> {
        let step = |(index, after): (usize, &&[u32])| StepSpec {
            name: format!("s{index}"),
            after: after.to_vec(),
            ..StepSpec::default()
        };
        after.iter().enumerate().map(step).collect()
    }

    #[test]
    fn bad_workflows_get_a_sentence() {
        let error = |steps: &[StepSpec]| checked(steps).err().unwrap_or_default();
        assert_eq!(error(&steps(&[&[], &[0], &[0, 1, 1]])), "");
        assert_eq!(error(&[]), "it has no steps");
        assert_eq!(error(&steps(&[&[], &[7]])), "the step \"s1\" waits for step 7, and the last one is 1");
        assert_eq!(error(&steps(&[&[0]])), "steps wait for each other: \"s0\" after \"s0\"");
        let cyclic = steps(&[&[], &[0, 3], &[1], &[2]]);
        assert_eq!(
            error(&cyclic),
            "steps wait for each other: \"s1\" after \"s3\" after \"s2\" after \"s1\""
        );
        let mut twice = steps(&[&[], &[]]);
        twice[1].name = "s0".to_string();
        assert_eq!(error(&twice), "two steps have the name \"s0\"");
        twice[1].name = "a\nb".to_string();
        assert!(error(&twice).starts_with("step 1 has the name \"a\\nb\""));
    }

    #[test]
    fn long_chains_and_cycles_need_no_stack() {
        let count = 100_000_u32;
        let chain = |first: &'static [u32]| {
            let after: Vec<Vec<u32>> = (0..count)
                .map(|step| step.checked_sub(1).map_or(first.to_vec(), |before| vec![before]))
                .collect();
            steps(&after.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        assert_eq!(checked(&chain(&[])), Ok(()));
        assert_eq!(cycle(&chain(&[99_999])).map(|cycle| cycle.len()), Some(100_000));
    }
}
