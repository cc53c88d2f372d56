//! Validation of the stages that are submitted together as a flow.

use api::RecordFormat;
use api::flow::{FLOW_STAGES_MAX, FlowSubmission};
use std::collections::BTreeSet;
use std::path::PathBuf;

const NAME_BYTES_MAX: usize = 100;

/// A reason why the stages of a submission do not form a flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    #[error("a flow has {count} stages: give 1 to {FLOW_STAGES_MAX}")]
    Stages { count: usize },
    #[error("the stage {name:?} reads itself or a later stage")]
    ReadsLater { name: String },
    #[error("the stage {name:?} has no output and no stage reads it")]
    FeedsNobody { name: String },
    #[error("the stage {name:?} has an output of its own, so that no other stage can read it")]
    Published { name: String },
    #[error(
        "{name:?} cannot name a stage: give each stage a unique name of 1 to {NAME_BYTES_MAX} bytes without control characters"
    )]
    Name { name: String },
    #[error("the outputs {} and {} of two stages are nested: give separate directories", first.display(), second.display())]
    Outputs { first: PathBuf, second: PathBuf },
    #[error("the stage {name:?} {what}, but it reads other stages")]
    CannotRead { name: String, what: &'static str },
    #[error("the stage {name:?} {what}, but other stages read it")]
    CannotFeed { name: String, what: &'static str },
}

/// Returns an error if the stages do not form a flow.
pub fn check(flow: &FlowSubmission) -> Result<(), FlowError> {
    let count = flow.stages.len();
    if !(1..=FLOW_STAGES_MAX).contains(&count) {
        return Err(FlowError::Stages { count });
    }
    let is_read: BTreeSet<u32> = flow.stages.iter().flat_map(|stage| stage.reads.iter().copied()).collect();
    let mut names = BTreeSet::new();
    for (index, stage) in flow.stages.iter().enumerate() {
        let of_flow = stage.spec.stage.clone().unwrap_or_default();
        let name = of_flow.name;
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        if !is_name || !names.insert(name.clone()) {
            return Err(FlowError::Name { name });
        }
        if stage.reads.iter().any(|read| *read as usize >= index) {
            return Err(FlowError::ReadsLater { name });
        }
        let spec = &stage.spec;
        match (of_flow.feeds, is_read.contains(&(index as u32))) {
            (true, false) => return Err(FlowError::FeedsNobody { name }),
            (false, true) => return Err(FlowError::Published { name }),
            _ => {}
        }
        let only_kept = [
            (spec.kind.generated().is_some(), "generates rows"),
            (spec.kind.source().is_some(), "reduces again what another job kept"),
            (spec.formats.input == RecordFormat::Stretches, "has stretches for its records"),
        ];
        if let Some((_, what)) = only_kept.into_iter().find(|(is_so, _)| *is_so && !stage.reads.is_empty()) {
            return Err(FlowError::CannotRead { name, what });
        }
        let hinders = [
            (spec.keep_ifiles, "keeps its I-files"),
            (spec.kind.source().is_some(), "reduces again what another job kept"),
            (spec.formats.output_codec.is_some(), "compresses its output"),
            (spec.streaming.is_some(), "is a Hadoop Streaming job"),
        ];
        if let Some((_, what)) = hinders.into_iter().find(|(is_so, _)| of_flow.feeds && *is_so) {
            return Err(FlowError::CannotFeed { name, what });
        }
    }
    check_outputs(flow)
}

/// Returns an error if the output of a stage lies in the output of another one.
fn check_outputs(flow: &FlowSubmission) -> Result<(), FlowError> {
    let ends = flow.stages.iter().map(|stage| &stage.spec).filter(|spec| !spec.feeds());
    let outputs: Vec<&PathBuf> = ends.map(|spec| &spec.output).collect();
    for (index, first) in outputs.iter().enumerate() {
        let shares = |second: &&&PathBuf| first.starts_with(second) || second.starts_with(first);
        if let Some(second) = outputs[index + 1..].iter().find(shares) {
            return Err(FlowError::Outputs { first: first.to_path_buf(), second: second.to_path_buf() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{FlowError, check};
    use api::flow::{FLOW_STAGES_MAX, FlowSubmission, StageSubmission};
    use api::{FlowStage, GeneratedRows, JobSpec, MapReduce, TeraLayout};

    fn stage(name: &str, reads: &[u32], feeds: bool) -> StageSubmission {
        let of_flow = FlowStage { name: name.into(), feeds, ..FlowStage::default() };
        let output = if feeds { "".into() } else { format!("/out/{name}").into() };
        let spec = JobSpec { stage: Some(of_flow), output, ..JobSpec::named(name) };
        StageSubmission { spec, splits: Vec::new(), reads: reads.to_vec() }
    }

    fn refusal(stages: Vec<StageSubmission>) -> Option<String> {
        let flow = FlowSubmission { stages, user: String::new(), priority: 0 };
        check(&flow).err().map(|error: FlowError| error.to_string())
    }

    #[track_caller]
    fn refused(stages: Vec<StageSubmission>, word: &str) {
        let told = refusal(stages).unwrap_or_default();
        assert!(told.contains(word), "{word:?} is not in {told:?}");
    }

    #[test]
    fn impossible_flows_are_refused() {
        let (first, last) = (stage("a", &[], true), stage("b", &[0], false));
        assert_eq!(refusal(vec![first.clone(), last.clone()]), None);
        assert_eq!(refusal(vec![stage("only", &[], false)]), None);
        refused(Vec::new(), "0 stages");
        refused(vec![last.clone(); FLOW_STAGES_MAX + 1], "65 stages");
        refused(vec![first.clone(), stage("b", &[0, 1], false)], "reads itself");
        refused(vec![first.clone(), stage("b", &[0, 7], false)], "a later stage");
        refused(vec![first.clone(), stage("b", &[], false)], "no stage reads it");
        refused(vec![stage("a", &[], false), last.clone()], "has an output of its own");
        refused(vec![first.clone(), stage("a", &[0], false)], "unique name");
        refused(vec![first.clone(), stage("a\nb", &[0], false)], "unique name");
        refused(vec![first.clone(), stage(&"n".repeat(101), &[0], false)], "100 bytes");
        let mut within = stage("c", &[0], false);
        within.spec.output = "/out/b/c".into();
        refused(vec![first.clone(), last.clone(), within], "are nested");
        let mut keeps = first.clone();
        keeps.spec.keep_ifiles = true;
        refused(vec![keeps, last.clone()], "keeps its I-files");
        let mut makes = last;
        let layout = TeraLayout::Modern;
        let rows = GeneratedRows { layout, skewed: false, start: 0, rows: 1 };
        makes.spec.kind = MapReduce::Shuffled { generate: Some(rows) }.into();
        refused(vec![first.clone(), makes], "generates rows");
        let mut by_itself = stage("b", &[0], false);
        by_itself.spec.formats.input = api::RecordFormat::Stretches;
        refused(vec![first, by_itself], "has stretches for its records, but it reads other stages");
    }
}
