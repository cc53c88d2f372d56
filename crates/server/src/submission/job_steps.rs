//! Steps that are MapReduce jobs. Each is checked as a submitted job of its user, and its inputs are looked at when it
//! begins, because steps before it may have written them.

use crate::ServerError;
use crate::directories::{self, Directories};
use crate::event_loop::{EventLoop, Submission};
use crate::submission::jobs::{Incoming, Refused};
use crate::submission::steps::refusal;
use crate::submission::{arguments, shipping};
use api::task::{FileStamp, JobRecording};
use api::{InputFile, JobSpec};
use control::{NewJobStep, NewSteps, Service};
use ids::JobId;
use jobkind::{Step, StepWork, check_flow_step, check_job_step};
use mapreduce::layout::{self, LayoutRequest};
use metastore::StoreError;
use roots::{JobPaths, is_below_system};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of splits that the server makes for a step: a file with holes may claim any size.
const SPLITS_MAX: u64 = 500_000;

/// Returns an error for a step that the server refuses without reading file systems.
pub(crate) fn check(step: &Step, service: Service) -> Result<(), ServerError> {
    match &step.work {
        StepWork::Program(_) => {}
        StepWork::MapReduce(spec) => check_job_step(spec)?,
        StepWork::Flow(jobs) => jobs.iter().try_for_each(check_flow_step)?,
    }
    step.work.map_reduce().into_iter().try_for_each(|spec| check_job(spec, service))
}

fn check_job(spec: &JobSpec, service: Service) -> Result<(), ServerError> {
    arguments::check_spec(spec)?;
    shipping::check(spec)?;
    match service {
        Service::Cluster => shipping::check_env_files(spec),
        Service::Embedded => Ok(()),
    }
}

/// The paths that a step may name.
pub(crate) struct StepPaths {
    pub paths: JobPaths,
    /// Directory of the server, which no output replaces.
    pub state_dir: PathBuf,
}

impl StepPaths {
    /// Gives a job its inputs as they are now, and the sizes that follow from them. Reads file systems.
    pub fn pin_inputs(&self, spec: &mut Arc<JobSpec>) -> Result<(), ServerError> {
        *spec = Arc::new(self.pinned(spec)?);
        Ok(())
    }

    fn pinned(&self, spec: &JobSpec) -> Result<JobSpec, ServerError> {
        self.paths.check(|roots| roots.check_job(spec))?;
        if let Some(recording) = &spec.recording {
            let reads = recording.reads.iter().filter(|path| !is_below_system(path));
            for file in recording.files.iter().chain(reads) {
                self.paths.open_place(file).map_err(|source| mapper::input::unopened(file, source))?;
            }
        }
        let pinned = spec.inputs.iter().map(|input| self.pin(input)).collect::<Result<Vec<_>, _>>()?;
        let (inputs, stamps): (Vec<InputFile>, Vec<FileStamp>) = pinned.into_iter().unzip();
        let recording =
            spec.recording.clone().map(|recording| Box::new(JobRecording { inputs: stamps, ..*recording }));
        mapper::input::check_whole_records(&inputs, spec.formats.input)?;
        let input_bytes = inputs.iter().map(|input| input.size_bytes).fold(0, u64::saturating_add);
        let (memory_bytes, slots, combines) = (spec.memory_bytes, spec.slots, spec.combiner.is_some());
        let layout = layout::derive(&LayoutRequest { memory_bytes, slots, input_bytes, combines })?;
        if input_bytes / layout.split_bytes >= SPLITS_MAX {
            return Err(ServerError::LargeStep { bytes: input_bytes, max: SPLITS_MAX * layout.split_bytes });
        }
        let pinned = JobSpec { inputs, layout, recording, ..spec.clone() };
        mapreduce::check(&pinned, &splits(&pinned))?;
        directories::check_output(&pinned, &self.state_dir)?;
        Ok(pinned)
    }

    fn pin(&self, input: &InputFile) -> Result<(InputFile, FileStamp), ServerError> {
        if input.stored.is_some() {
            // Its bytes never change.
            return Ok((input.clone(), FileStamp::default()));
        }
        let path: &Path = &input.path;
        let unopened = |source| mapper::input::unopened(path, source);
        let file = self.paths.open_file(path).map_err(unopened)?;
        let stamp = FileStamp::of(&file.metadata().map_err(unopened)?);
        Ok((InputFile { named: input.named, ..mapper::input::pin_file(path, &file)? }, stamp))
    }
}

fn splits(spec: &JobSpec) -> Vec<api::Split> {
    mapreduce::splits::plan(&spec.inputs, spec.layout.split_bytes, spec.formats.input)
}

impl EventLoop {
    /// Stores checked steps, creates their directories, and begins them.
    pub async fn begin_job_steps(&mut self, steps: Vec<Vec<NewJobStep>>) -> Result<(), StoreError> {
        if steps.is_empty() {
            return Ok(());
        }
        // Their rows name the job of which they are steps, whose row may not be written yet.
        self.write_and_reply().await?;
        for together in steps {
            let jobs: Vec<JobId> = together.iter().map(|step| step.job).collect();
            // One that failed before it in this list ends their job.
            let ends = together.first().is_some_and(|step| self.control.ends_steps(step.step_of.job));
            let begun = match ends {
                true => Err(ServerError::StepTooLate.into()),
                false => self.begin_together(together).await,
            };
            match begun {
                Ok(()) => {}
                Err(Refused::Answer(error)) => {
                    self.tell_time();
                    for job in jobs {
                        self.control.job_step_failed(&mut self.outbox, job, error.to_string());
                    }
                }
                Err(Refused::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Begins a job, or all jobs of a flow.
    async fn begin_together(&mut self, steps: Vec<NewJobStep>) -> Result<(), Refused> {
        let numbers: Vec<JobId> = steps.iter().map(|step| step.job).collect();
        let mut incoming = Vec::with_capacity(steps.len());
        for step in steps {
            let NewJobStep { job, step_of, spec, reads, user, priority, file_hold } = step;
            let directories = Directories::choose(&spec, job, &self.lock.uuid, self.service)?;
            let mut submission = Submission {
                // The inputs of a stage that reads others are divided when those are done.
                splits: if reads.is_empty() { splits(&spec) } else { Vec::new() },
                spec,
                hold: file_hold,
                user,
                priority,
                // It counts among the open steps of its job.
                quota: None,
                reads,
                part_nodes: Default::default(),
                plan: None,
                step_of: Some(step_of),
            };
            submission.name_stages(job, &numbers);
            incoming.push(Incoming { job, submission, directories });
        }
        self.store_and_begin(incoming).await?;
        Ok(())
    }

    /// Returns the reason why checked steps cannot begin: one would replace an output that another user's job has made, as
    /// far as the store knows. On one machine there is one user.
    pub async fn replaces_other(&self, new: &NewSteps) -> Result<Option<String>, StoreError> {
        if self.service == Service::Embedded {
            return Ok(None);
        }
        for (step, spec) in
            new.steps.iter().flat_map(|step| step.work.map_reduce().into_iter().map(move |spec| (step, spec)))
        {
            if spec.feeds() {
                continue;
            }
            let is_own = match directories::job_of_output(&spec.output) {
                Ok(None) => true,
                Ok(Some(replaced)) => self.is_own(&new.user, &spec.output, replaced).await?,
                Err(error) => return Ok(Some(refusal(step, &error))),
            };
            if !is_own {
                let error = ServerError::OutputOfOther { path: spec.output.clone() };
                return Ok(Some(refusal(step, &error)));
            }
        }
        Ok(None)
    }

    async fn is_own(&self, user: &str, output: &Path, made_by: JobId) -> Result<bool, StoreError> {
        // The report may be a copy, or from another server.
        let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let row = self.store.job(made_by).await?;
        let row = row.filter(|row| resolved(Path::new(&row.output)) == resolved(output));
        Ok(row.is_some_and(|row| row.user.unwrap_or_default() == user))
    }
}
