//! Jobs with steps: their submission, and the checks of their steps before these begin.

use crate::event_loop::{EventLoop, Reply, Request, Submission};
use crate::messages::job_quota;
use crate::submission::job_steps::{self, StepPaths};
use crate::submission::{arguments, program_jobs, shipping};
use crate::{ServerError, check_names};
use api::control::SubmittedJob;
use api::task::{RecordedRun, RunTask, TaskFile, is_stored_path};
use api::{ContentHash, JobSpec, PinnedFile, StoredContent};
use control::{NewSteppedJob, NewSteps, RoomWanted, Service, spec_bytes};
use ids::StepNumber;
use jobkind::{RememberedStep, Step, StepPlan, StepWork};
use metastore::StoreError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl EventLoop {
    /// Submits a job with steps. An error of the store ends the server; all other errors go to the caller.
    pub async fn submit_stepped(
        &mut self,
        submission: Submission,
        plan: Arc<dyn StepPlan>,
        reply: Reply<SubmittedJob>,
    ) -> Result<(), StoreError> {
        let Submission { spec, hold, user, priority, quota, part_nodes, .. } = submission;
        let quota = quota.map(job_quota);
        let wanted = RoomWanted { jobs: 1, spec_bytes: spec_bytes(&spec), quota };
        if let Err(error) = self.control.check_room(&user, wanted, &[]) {
            self.answer(reply, Err(error.into()));
            return Ok(());
        }
        if let Some((path, job)) = self.control.other_writer(&user, plan.as_ref()) {
            self.answer(reply, Err(ServerError::WrittenByOther { path, job }));
            return Ok(());
        }
        let recorded = self.recorded_runs(&user, plan.as_ref()).await?;
        let job = self.numbers.take(&self.store, self.service, 1).await?;
        let (server, file_hold) = (self.owner(), hold);
        let new =
            NewSteppedJob { job, spec, plan, recorded, user, priority, quota, server, file_hold, part_nodes };
        self.control.begin_stepped(&mut self.outbox, new);
        self.answer(reply, Ok(SubmittedJob { job, staging: PathBuf::new(), disk_dirs: Vec::new() }));
        Ok(())
    }

    /// Returns the finished runs of the steps of a job that the store remembers.
    pub async fn recorded_runs(
        &self,
        user: &str,
        plan: &dyn StepPlan,
    ) -> Result<BTreeMap<StepNumber, Arc<RecordedRun>>, StoreError> {
        let Some(memory) = plan.memory() else { return Ok(BTreeMap::new()) };
        // A path that is no text is not remembered.
        let text = |step: RememberedStep| Some((step.path.into_os_string().into_string().ok()?, step.step));
        let steps: BTreeMap<String, StepNumber> = memory.remembered().into_iter().filter_map(text).collect();
        let runs = self.store.finished_runs(user, &steps.keys().cloned().collect()).await?;
        Ok(runs.into_iter().map(|(path, run)| (steps[&path], Arc::new(run))).collect())
    }

    /// Begins the steps whose turn has come. A check that reads file systems runs on another thread, and its steps
    /// begin with a later request.
    pub async fn begin_steps(&mut self) -> Result<(), StoreError> {
        self.control.watch_early_readers(&mut self.outbox);
        while let Some(mut new) = self.control.next_steps().or_else(|| self.control.next_early_step()) {
            let checked = bring_pinned(&mut new).and_then(|()| {
                new.steps.iter().try_for_each(|step| {
                    checked(step, &new, self.service)?;
                    self.check_fits(step)
                })
            });
            match checked {
                Err(problem) => self.take_steps(new, Some(problem)).await?,
                Ok(()) if self.files.paths.are_bounded() || has_jobs(&new) => self.check_places(new),
                Ok(()) => self.take_steps(new, None).await?,
            }
        }
        Ok(())
    }

    /// Returns an error for a step that no node could run.
    fn check_fits(&self, step: &Step) -> Result<(), String> {
        let program = match &step.work {
            StepWork::Program(task) if !task.is_demanding() => return Ok(()),
            StepWork::Program(task) => {
                Some(Arc::new(JobSpec::of_one_task(String::new(), task.as_ref().clone())))
            }
            StepWork::MapReduce(_) | StepWork::Flow(_) => None,
        };
        let specs = program.iter().chain(step.work.map_reduce());
        let specs: Vec<&JobSpec> = specs.map(Arc::as_ref).collect();
        let fits = self.control.check_room("", RoomWanted::default(), &specs);
        fits.map_err(|error| refusal(step, &error))
    }

    /// Checks on another thread that steps name only paths below the roots, and looks at the inputs of those that are
    /// MapReduce jobs.
    fn check_places(&self, mut new: NewSteps) {
        let place = StepPaths {
            paths: self.files.paths.for_user(&new.user),
            state_dir: self.files.state_dir.clone(),
        };
        let sender = self.files.sender();
        let (job, user, shipped) = (new.job, Arc::clone(&new.user), Arc::clone(&new.shipped));
        let checking = tokio::task::spawn_blocking(move || {
            let problem = new.steps.iter_mut().find_map(|step| {
                let checked = match &mut step.work {
                    StepWork::Program(task) => {
                        place.paths.check(|roots| roots.check_task(task)).map_err(ServerError::from)
                    }
                    StepWork::MapReduce(spec) => place.pin_inputs(spec),
                    StepWork::Flow(jobs) => {
                        jobs.iter_mut().try_for_each(|job| place.pin_inputs(&mut job.spec))
                    }
                };
                Some(refusal(step, &checked.err()?))
            });
            Request::StepsChecked { new, problem }
        });
        tokio::spawn(async move {
            let checked = checking.await.unwrap_or_else(|_| {
                let (pinned, steps) = (Arc::default(), Vec::new());
                let new = NewSteps { job, user, shipped, pinned, steps, early: None };
                Request::StepsChecked { new, problem: Some("a check of its steps failed".to_string()) }
            });
            // Nobody receives this if the server ends; the next one plans the steps again.
            let _ = sender.send(checked).await;
        });
    }

    /// Begins checked steps, or ends their job because of a problem.
    pub async fn take_steps(&mut self, new: NewSteps, problem: Option<String>) -> Result<(), StoreError> {
        let problem = match problem {
            Some(problem) => Some(problem),
            None => self.replaces_other(&new).await?,
        };
        if let Some(problem) = problem {
            self.control.refuse_steps(&mut self.outbox, new.job, problem);
            return Ok(());
        }
        let count = new.steps.iter().map(|step| step.work.jobs()).sum::<usize>() as u32;
        let first = self.numbers.take(&self.store, self.service, count).await?;
        let server = self.owner();
        let jobs = self.control.begin_steps(&mut self.outbox, new, first, &server);
        self.begin_job_steps(jobs).await
    }
}

fn has_jobs(new: &NewSteps) -> bool {
    new.steps.iter().any(|step| !matches!(step.work, StepWork::Program(_)))
}

/// Gives steps the stored files that they read, of those that their job has pinned.
fn bring_pinned(new: &mut NewSteps) -> Result<(), String> {
    let pinned = &new.pinned;
    for step in &mut new.steps {
        let brought = match &mut step.work {
            StepWork::Program(task) => bring_to_programs(task, pinned),
            StepWork::MapReduce(spec) => bring_to_job(spec, pinned),
            StepWork::Flow(jobs) => jobs.iter_mut().try_for_each(|job| bring_to_job(&mut job.spec, pinned)),
        };
        brought.map_err(|error| cannot_begin(&step.name, &error))?;
    }
    Ok(())
}

/// Stored files that a job has pinned, by the identities of their bytes.
type PinnedContents = BTreeMap<ContentHash, StoredContent>;

fn bring_to_job(spec: &mut Arc<JobSpec>, pinned: &PinnedContents) -> Result<(), ServerError> {
    if !spec.inputs.iter().any(|input| is_stored_path(&input.path)) {
        return Ok(());
    }
    for input in Arc::make_mut(spec).inputs.iter_mut().filter(|input| is_stored_path(&input.path)) {
        let stored = input.content.and_then(|content| pinned.get(&content));
        let Some(stored) = stored else {
            return Err(ServerError::StepReadsOther { path: input.path.clone() });
        };
        (input.size_bytes, input.stored) = (stored.bytes(), Some(stored.clone()));
    }
    Ok(())
}

fn bring_to_programs(task: &mut Arc<RunTask>, contents: &PinnedContents) -> Result<(), ServerError> {
    let mut pinned: BTreeMap<&Path, PinnedFile> = BTreeMap::new();
    let outputs = task.programs().flat_map(|program| &program.outputs);
    let written: BTreeSet<&Path> = outputs.map(|output| output.path.as_path()).collect();
    let is_read = |input: &&TaskFile| input.is_stored() && !written.contains(input.path.as_path());
    for input in task.programs().flat_map(|program| &program.inputs).filter(is_read) {
        let path = input.path.clone();
        let stored = input.content.and_then(|content| contents.get(&content));
        let Some(stored) = stored else { return Err(ServerError::StepReadsOther { path }) };
        pinned.insert(&input.path, PinnedFile { path, stored: stored.clone(), ..PinnedFile::default() });
    }
    let pinned: Vec<PinnedFile> = pinned.into_values().collect();
    if *pinned != task.pinned {
        Arc::make_mut(task).pinned = pinned;
    }
    Ok(())
}

/// Returns the reason why a step cannot begin, without reading file systems.
fn checked(step: &Step, of: &NewSteps, service: Service) -> Result<(), String> {
    let check = || -> Result<(), ServerError> {
        check_names(&step.name, "")?;
        if let StepWork::Program(task) = &step.work {
            arguments::check_task(task)?;
            program_jobs::check_retries(std::slice::from_ref(task.as_ref()))?;
            shipping::check_task(task, service)?;
        }
        job_steps::check(step, service)?;
        let of_program = step.work.program().into_iter().flat_map(|task| &task.shipped);
        let mut shipped = of_program.chain(step.work.map_reduce().into_iter().flat_map(|spec| &spec.shipped));
        match shipped.find(|file| !of.shipped.contains(&file.sha256)) {
            Some(file) => Err(ServerError::StepShipsOther { path: file.path.clone() }),
            None => Ok(()),
        }
    };
    check().map_err(|error| refusal(step, &error))
}

pub(super) fn refusal(step: &Step, error: &dyn std::error::Error) -> String {
    cannot_begin(&step.name, error)
}

fn cannot_begin(name: &str, error: &dyn std::error::Error) -> String {
    format!("the step {name:?} cannot begin: {error}")
}

#[cfg(test)]
mod tests {
    use super::bring_pinned;
    use api::task::{RunTask, TaskFile};
    use api::{StoredContent, StoredPart};
    use control::NewSteps;
    use ids::{ConcreteId, JobId, StepNumber};
    use jobkind::{Step, StepWork};
    use std::path::Path;
    use std::sync::Arc;

    fn stored(concrete: i64) -> StoredContent {
        StoredContent { parts: vec![StoredPart { concrete: ConcreteId(concrete), bytes: 1, crc32c: 1 }] }
    }

    /// A step that reads a stored file, and one beside it in its pipeline.
    fn steps(pinned: &[i64], read: [Option<i64>; 2]) -> NewSteps {
        let program = |name: &str, read: Option<i64>| {
            let content = read.map(|concrete| stored(concrete).identity());
            let path = format!("files:{name}").into();
            let inputs = vec![TaskFile { name: name.into(), path, content, ..TaskFile::default() }];
            RunTask { words: vec!["true".to_string()], inputs, ..RunTask::default() }
        };
        let task = RunTask { pipeline: vec![program("b", read[1])], ..program("a", read[0]) };
        let work = StepWork::Program(Arc::new(task));
        let step = Step { number: StepNumber(0), name: "step".into(), work, beside: Vec::new() };
        let pinned = pinned.iter().map(|concrete| (stored(*concrete).identity(), stored(*concrete)));
        let pinned = Arc::new(pinned.collect());
        let (user, steps) = ("ann".into(), vec![step]);
        NewSteps { job: JobId(1), user, shipped: Arc::default(), pinned, steps, early: None }
    }

    #[test]
    fn steps_get_only_files_of_their_job() {
        let mut new = steps(&[1, 2, 3], [Some(1), Some(2)]);
        bring_pinned(&mut new).unwrap();
        let task = new.steps[0].work.program().unwrap();
        let brought: Vec<_> = task.pinned.iter().map(|file| (file.path.as_path(), &file.stored)).collect();
        assert_eq!(brought, [(Path::new("files:a"), &stored(1)), (Path::new("files:b"), &stored(2))]);
        for read in [[Some(1), Some(4)], [None, Some(1)]] {
            let problem = bring_pinned(&mut steps(&[1, 2], read)).unwrap_err();
            assert!(problem.contains("sailfish workflow run"), "{problem}");
        }
    }
}
