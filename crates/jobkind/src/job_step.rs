//! MapReduce jobs that are steps: the parts of a specification that such a job may not have.

use crate::FlowStep;
use api::task::is_stored_path;
use api::{InputFile, JobKind, JobSpec, MapReduce, is_object_url, is_stored_output};
use std::path::PathBuf;

/// A reason why a MapReduce job is no step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobStepError {
    #[error(
        "it is a job with its own steps, without a shuffle, or without inputs: give a job that maps and reduces files"
    )]
    Kind,
    #[error("it reads {path}: a job that is a step reads plain and stored files", path = path.display())]
    Input { path: PathBuf },
    #[error("it writes {path}: a job that is a step writes a plain directory", path = path.display())]
    Output { path: PathBuf },
    #[error("it has `{what}`, which a job that is a step may not have")]
    Field { what: &'static str },
}

/// Checks that a job can be a step. The server has nobody to ask when a step begins, so it holds no stored files for
/// the job, and keeps no data of it.
pub fn check_job_step(spec: &JobSpec) -> Result<(), JobStepError> {
    match spec.stage {
        Some(_) => Err(JobStepError::Field { what: "stage" }),
        None if spec.inputs.is_empty() => Err(JobStepError::Kind),
        None => check(spec),
    }
}

/// Checks a job of a flow in the same way.
pub fn check_flow_step(step: &FlowStep) -> Result<(), JobStepError> {
    match step.spec.inputs.is_empty() && step.reads.is_empty() {
        true => Err(JobStepError::Kind),
        false => check(&step.spec),
    }
}

fn check(spec: &JobSpec) -> Result<(), JobStepError> {
    if spec.kind != JobKind::MapReduce(MapReduce::Shuffled { generate: None }) {
        return Err(JobStepError::Kind);
    }
    let is_known = |input: &&InputFile| {
        // The server alone gives it the content: inputs of a step are made from its declared files.
        is_stored_path(&input.path) || input.is_path() && !is_object_url(&input.path)
    };
    if let Some(input) = spec.inputs.iter().find(|input| !is_known(input)) {
        return Err(JobStepError::Input { path: input.path.clone() });
    }
    if is_object_url(&spec.output) || is_stored_output(&spec.output) || !spec.output.is_absolute() {
        return Err(JobStepError::Output { path: spec.output.clone() });
    }
    let fields = [
        ("seen_by", !spec.seen_by.is_empty()),
        ("stored_output", spec.stored_output.is_some()),
        ("output_replicas", spec.output_replicas.is_some()),
        ("keep_ifiles", spec.keep_ifiles || spec.keep_seconds.is_some()),
        ("streaming", spec.streaming.is_some()),
        ("pinned", !spec.pinned.is_empty()),
    ];
    match fields.into_iter().find(|(_, has)| *has) {
        Some((what, _)) => Err(JobStepError::Field { what }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{JobStepError, check_job_step};
    use api::{InputFile, JobSpec, MapReduce};

    fn step() -> JobSpec {
        let input = InputFile { path: "/data/text".into(), ..InputFile::default() };
        JobSpec { inputs: vec![input], output: "/data/counts".into(), ..JobSpec::named("count") }
    }

    fn error(change: impl FnOnce(&mut JobSpec)) -> Option<JobStepError> {
        let mut spec = step();
        change(&mut spec);
        check_job_step(&spec).err()
    }

    #[test]
    fn only_plain_jobs_are_steps() {
        assert_eq!(error(|_| ()), None);
        assert_eq!(
            error(|spec| spec.kind = MapReduce::ReduceAgain { source: ids::JobId(1) }.into()),
            Some(JobStepError::Kind)
        );
        assert_eq!(error(|spec| spec.inputs.clear()), Some(JobStepError::Kind));
        assert_eq!(error(|spec| spec.inputs[0].path = "files:a".into()), None);
        let input = JobStepError::Input { path: "s3://bucket/a".into() };
        assert_eq!(error(|spec| spec.inputs[0].path = "s3://bucket/a".into()), Some(input));
        for path in ["files:a", "s3://bucket/a"] {
            let output = JobStepError::Output { path: path.into() };
            assert_eq!(error(|spec| spec.output = path.into()), Some(output));
        }
        assert_eq!(error(|spec| spec.keep_ifiles = true), Some(JobStepError::Field { what: "keep_ifiles" }));
    }
}
