//! A MapReduce job that is a step of a workflow: its inputs are listed when the step begins.

use super::{Plan, plan};
use crate::front_end::FrontEnd;
use crate::job_file::options_of_step;
use crate::options::{JobOptions, StagePlace};
use anyhow::bail;
use api::{JobFile, JobSpec};
use mapreduce::layout::MEMORY_BYTES_MIN;
use std::path::{Path, PathBuf};

/// The place of a step: directories, and the machines that run it.
#[derive(Clone, Copy, Debug)]
pub struct JobStepPlace<'a> {
    /// Directory at which relative paths start.
    pub dir: &'a Path,
    /// State directory; None: the default one.
    pub state: Option<&'a Path>,
    /// Memory of a job that names none; at least the minimum.
    pub memory_bytes: u64,
    /// Slots of a job that names none.
    pub slots: u32,
    pub in_cluster: bool,
}

/// Checks the options of a job without inputs, which writes a directory and may replace it. Errors name the option.
pub fn plan_job_step(
    name: String,
    file: JobFile,
    output: PathBuf,
    place: JobStepPlace<'_>,
    front_end: &dyn FrontEnd,
) -> anyhow::Result<JobSpec> {
    let file = JobFile { name: Some(name), ..file };
    let mut options = options_of_step(file, place.dir)?;
    options.in_cluster = place.in_cluster;
    options.state = place.state.map(Path::to_path_buf);
    options.slots.get_or_insert(place.slots);
    options.memory.get_or_insert_with(|| place.memory_bytes.max(MEMORY_BYTES_MIN).to_string());
    // As a stage of a flow, it gets its input from others, and names no output.
    let stage = StagePlace { name: String::new(), reads: vec![0], feeds: true };
    let Plan { spec, .. } = plan(JobOptions { stage: Some(stage), ..options }, front_end)?;
    if let Some(pinned) = spec.pinned.first() {
        bail!("{} is a stored file: name a plain file", pinned.path.display());
    }
    Ok(JobSpec { stage: None, output, overwrite: true, ..spec })
}
