//! The task of a job that is no MapReduce job: any executable, or a pipeline of several, run once.

use crate::attempt::{Assignment, JobRun};
use crate::failure::file_failure;
use crate::shared::Shared;
use crate::stored::step_files::{self, NewVersion, StoringJob};
use crate::tasks::attempt_files::AttemptFiles;
use crate::tasks::declared_files::remove_files;
use crate::tasks::declared_reads;
use crate::tasks::finished_runs::{self, Reading, look};
use crate::tasks::pipeline_wiring::{Edges, Wired, Wiring};
use crate::tasks::work_dir::{SandboxNeeds, env_of_file, open_port, sandbox_for, socket_variable};
use api::task::{AttemptUsage, FinishedRun, RunResult, RunTask, is_stored_path};
use api::{AttemptLimits, Blame, LimitKind, StoredContent, TaskFailure};
use faults::{IoCall, io_call};
use ids::JobId;
use program::{FunctionContext, PipelineProgram, ProgramLimits, ProgramSpec, Sandbox, TemporaryDir};
use programport::OpenPort;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Names of directories of programs in errors.
const SOCKETS: &str = "the directory for sockets of programs";
const TEMPORARY: &str = "the directory for temporary files of a program";

/// Creates links to files in a directory.
fn link(files: &[PathBuf], dir: &Path) -> Result<(), TaskFailure> {
    for file in files {
        let link = dir.join(file.file_name().unwrap_or(file.as_os_str()));
        let linked = io_call(IoCall::Create, &link).and_then(|()| symlink(file, &link));
        linked.map_err(|error| file_failure("link", &link, error))?;
    }
    Ok(())
}

/// Opens a socket of the node for the program; None without a server.
fn open_socket(shared: &Shared, job: JobId) -> Result<Option<OpenPort>, TaskFailure> {
    if shared.options.program_port.is_none() {
        return Ok(None);
    }
    let dir = shared.options.programs.socket_directory();
    let dir = dir.map_err(|error| file_failure("create", Path::new(SOCKETS), error))?;
    open_port(shared, job, &dir)
}

/// Makes a directory for the temporary files of a program in a sandbox or with a limit on disks, or for links to files
/// of the job.
fn temporary_dir(
    shared: &Shared,
    task: &RunTask,
    limits: &ProgramLimits,
) -> Result<Option<TemporaryDir>, TaskFailure> {
    let is_measured = limits.get(LimitKind::Disk).is_some();
    let needs_own = is_measured || shared.options.sandbox.is_some() || task.has_own_directory();
    let programs = &shared.options.programs;
    let dir = needs_own.then(|| match is_of_one_user(shared) {
        true => programs.spare_directory(),
        false => programs.private_directory(),
    });
    dir.transpose().map_err(|error| file_failure("create", Path::new(TEMPORARY), error))
}

/// Returns whether all programs are of one user, on one machine: they may have the same directories, one after the other.
fn is_of_one_user(shared: &Shared) -> bool {
    shared.options.stored_files.is_some()
}

/// Keeps the directories of programs whose outputs were taken, and whose processes have ended, for later ones.
fn give_back(shared: &Shared, members: Vec<Member<'_>>) {
    let used = members.into_iter().filter(|member| member.task.has_own_directory());
    used.filter(|_| is_of_one_user(shared))
        .filter_map(|member| member.own)
        .for_each(|dir| shared.options.programs.give_back(dir));
}

/// A program of an attempt and its directories.
struct Member<'a> {
    task: &'a RunTask,
    limits: ProgramLimits,
    /// Directory of its own, in which it runs if it declares files.
    own: Option<TemporaryDir>,
    work_dir: PathBuf,
}

impl<'a> Member<'a> {
    fn new(shared: &Shared, task: &'a RunTask, slots: u32) -> Result<Self, TaskFailure> {
        let limits = ProgramLimits { of_job: *task.limits, of_node: of_slots(shared.options.limits, slots) };
        // The working directory belongs to the job; temporary files do not go there.
        let own = temporary_dir(shared, task, &limits)?;
        let runs_there = own.as_ref().filter(|_| task.has_own_directory());
        let work_dir = runs_there.map_or(task.directory.as_path(), TemporaryDir::path).to_path_buf();
        Ok(Self { task, limits, own, work_dir })
    }

    /// Returns the directory for its temporary files; None if it runs there and may use that of the machine.
    fn temporary(&self, is_limited: bool) -> Option<&Path> {
        let is_other = !self.task.has_own_directory() || is_limited;
        self.own.as_ref().filter(|_| is_other).map(TemporaryDir::path)
    }

    fn own_path(&self) -> Option<&Path> {
        self.own.as_ref().map(TemporaryDir::path)
    }
}

/// Returns the limits of the node for an attempt that takes several slots. Each program is measured with all others of
/// its attempt.
fn of_slots(limits: AttemptLimits, slots: u32) -> AttemptLimits {
    let times = |limit: Option<u64>| limit.map(|limit| limit.saturating_mul(u64::from(slots)));
    AttemptLimits {
        processes: times(limits.processes),
        memory_bytes: times(limits.memory_bytes),
        disk_bytes: times(limits.disk_bytes),
        ..limits
    }
}

/// The things of an attempt that all its programs share.
struct Shares<'a> {
    shared: &'a Shared,
    assignment: &'a Assignment,
    files: &'a AttemptFiles,
    env: Vec<(String, String)>,
    socket_dir: Option<&'a Path>,
    /// Directories of all its programs, and of streams between them.
    disk_dirs: Vec<PathBuf>,
    error_path: &'a Path,
}

impl Shares<'_> {
    /// Returns the sandbox of a program that reads what these others write; None: the node has none.
    fn sandbox(&self, member: &Member<'_>, writers: &[&Path]) -> Result<Option<Arc<Sandbox>>, TaskFailure> {
        let Some(base) = &self.shared.options.sandbox else { return Ok(None) };
        let task = member.task;
        let work_dir = Some(task.directory.clone()).filter(|_| !task.has_own_directory());
        let inputs = task.inputs.iter().map(|input| input.path.as_path());
        let needs = SandboxNeeds {
            readable: task
                .files
                .iter()
                .map(PathBuf::as_path)
                .chain(inputs)
                .chain(declared_reads::named(task).map(PathBuf::as_path))
                .chain(self.files.paths())
                .chain(writers.iter().copied())
                .map(Path::to_path_buf)
                .collect(),
            work_dir,
            writable: member.own_path().map(Path::to_path_buf).into_iter().collect(),
            has_network: task.network,
        };
        let paths = self.assignment.job.paths.with_more_own(writers.iter().map(|path| path.to_path_buf()));
        sandbox_for(base, &paths, needs).map(Some)
    }

    /// Returns the program with its context.
    fn program(&self, member: &Member<'_>, edges: Edges) -> Result<PipelineProgram, TaskFailure> {
        let Edges { reads, after, writers } = edges;
        let task = member.task;
        declared_reads::check_named(task, &self.assignment.job.paths)?;
        let sandbox = self.sandbox(member, &writers)?;
        let has_sandbox = sandbox.is_some();
        let limit = if has_sandbox { None } else { declared_reads::limit(task, &member.work_dir) };
        let mut env = self.env.clone();
        // With a limit, new files in `/tmp` are unreadable if a user's directory lies there.
        if let Some(own) = member.temporary(has_sandbox || limit.is_some()) {
            env.push(("TMPDIR".to_string(), own.to_string_lossy().into_owned()));
        }
        env.extend(env_of_file(task.env_file.as_deref())?);
        env.extend(task.env.iter().cloned());
        let own =
            member.own_path().into_iter().chain(self.socket_dir).chain(self.files.paths()).chain(writers);
        let named = task
            .files
            .iter()
            .chain(task.inputs.iter().map(|input| &input.path))
            .chain(declared_reads::named(task));
        let context = FunctionContext {
            programs: Arc::clone(&self.shared.options.programs),
            work_dir: member.work_dir.clone(),
            start_dir: task.directory.clone(),
            env,
            limits: member.limits,
            // The directory in which it runs belongs to the job, and may hold more.
            disk_dirs: self.disk_dirs.clone(),
            record_bytes_max: 0,
            buffer_bytes: 0,
            cancelled: Arc::clone(&self.assignment.cancelled),
            stderr_log: Some(self.error_path.to_path_buf()),
            reports: Arc::default(),
            sandbox,
            any_exit_code: false,
            task_env: Vec::new(),
            kept_for: None,
            named: named.map(PathBuf::as_path).chain(own).map(Path::to_path_buf).collect(),
        };
        let spec = ProgramSpec { declared_reads: limit, ..ProgramSpec::new(&task.words, &context) };
        Ok(PipelineProgram { context, spec, reads, after })
    }
}

/// Returns access to the files of a job, for hashing.
fn reading<'a>(shared: &'a Shared, assignment: &'a Assignment) -> Reading<'a> {
    let (contents, paths) = (&shared.contents, &assignment.job.paths);
    Reading { contents, paths, cancelled: &assignment.cancelled }
}

/// Begins the records of the runs of all programs of a pipeline that are remembered.
fn begin_runs(task: &RunTask, reading: Reading<'_>) -> Vec<Option<FinishedRun>> {
    let run =
        |program: &RunTask| program.is_recorded().then(|| finished_runs::begin(program, reading)).flatten();
    task.programs().map(run).collect()
}

/// Removes files, and compares others with finished runs.
fn run_nothing(shared: &Shared, assignment: &Assignment, task: &RunTask) -> Result<RunResult, TaskFailure> {
    let (stored, plain): (Vec<&Path>, Vec<&Path>) =
        task.removes.iter().map(PathBuf::as_path).partition(|path| is_stored_path(path));
    remove_files(&assignment.job.paths, &plain)?;
    let outputs = task.looks.iter().flat_map(|look| &look.run.outputs).map(|output| output.path.as_path());
    let asked: BTreeSet<&Path> = outputs.filter(|path| is_stored_path(path)).collect();
    let asked: Vec<&Path> = asked.into_iter().collect();
    let mut present = BTreeMap::new();
    if let Some(first) = asked.first().or(stored.first()) {
        let socket = open_socket(shared, assignment.attempt.task.job)?;
        let files = step_files::of_node(shared.options.step_files.as_deref(), first)?;
        let of = storing_job(assignment, socket.as_ref().map(OpenPort::socket));
        files.remove(&of, &stored)?;
        let contents = files.contents(&of, &asked)?;
        present.extend(
            asked
                .iter()
                .zip(contents)
                .filter_map(|(path, content)| Some((path.to_path_buf(), content?.identity()))),
        );
    }
    let looked = look(&task.looks, reading(shared, assignment), &present);
    let looked = looked.map_err(|error| TaskFailure::new(Blame::Cancelled, error.to_string()))?;
    Ok(RunResult { looked, ..RunResult::default() })
}

/// Returns the job of an attempt, whose outputs may be stored files.
fn storing_job<'a>(assignment: &'a Assignment, socket: Option<&'a Path>) -> StoringJob<'a> {
    let (job, name) = (assignment.attempt.task.job, assignment.job.spec.name.as_str());
    StoringJob { job, name, user: &assignment.job.user, socket, cancelled: &assignment.cancelled }
}

/// Stores the outputs of an attempt that are stored files.
fn store_versions(
    shared: &Shared,
    assignment: &Assignment,
    socket: Option<&OpenPort>,
    versions: Vec<NewVersion>,
) -> Result<Vec<StoredContent>, TaskFailure> {
    let first = versions.first().map_or(Path::new(""), |version| &version.path);
    let files = step_files::of_node(shared.options.step_files.as_deref(), first)?;
    files.store(&storing_job(assignment, socket.map(OpenPort::socket)), versions)
}

/// Runs the program, or nothing if none is named. A failure includes its output too.
pub(crate) fn run(
    shared: &Shared,
    assignment: &Assignment,
    task: &RunTask,
) -> Result<RunResult, TaskFailure> {
    if task.words.is_empty() {
        return run_nothing(shared, assignment, task);
    }
    if task.pinned.is_empty() {
        return run_with(shared, assignment, task, &AttemptFiles::default());
    }
    let mut with_copies = task.clone();
    let files = AttemptFiles::bring_for_program(shared, assignment, &mut with_copies)?;
    let paths = assignment.job.paths.with_more_own(files.paths().map(Path::to_path_buf));
    let job = Arc::new(JobRun { paths, ..assignment.job.as_ref().clone() });
    let assignment = Assignment { job, ..assignment.clone() };
    let ran = run_with(shared, &assignment, &with_copies, &files);
    let mut result = ran.map_err(|failure| files.named_in(failure))?;
    for (program, run) in task.programs().zip(&mut result.runs) {
        run.iter_mut().for_each(|run| finished_runs::name_stored(program, run));
    }
    Ok(result)
}

/// Runs the program, which may open these copies of stored files, and the others of its pipeline.
fn run_with(
    shared: &Shared,
    assignment: &Assignment,
    task: &RunTask,
    files: &AttemptFiles,
) -> Result<RunResult, TaskFailure> {
    let (attempt, listed) = (assignment.attempt, shared.outputs.begin(assignment.attempt));
    let output = &*listed.output;
    let mut env = vec![
        ("SAILFISH_JOB".to_string(), attempt.task.job.to_string()),
        ("SAILFISH_ATTEMPT".to_string(), attempt.attempt.0.to_string()),
    ];
    env.extend(shared.options.program_env.iter().cloned());
    let socket = open_socket(shared, attempt.task.job)?;
    env.extend(socket.as_ref().map(socket_variable));
    let socket_dir = socket.as_ref().and_then(|socket| socket.socket().parent());
    let members = task.programs().map(|program| Member::new(shared, program, task.slots()));
    let members: Vec<Member<'_>> = members.collect::<Result<_, _>>()?;
    let spills = (members.len() > 1).then(|| shared.options.programs.private_directory()).transpose();
    let spills = spills.map_err(|error| file_failure("create", Path::new(TEMPORARY), error))?;
    let spill_dir = spills.as_ref().map(TemporaryDir::path);
    let disk_dirs =
        members.iter().filter_map(Member::own_path).chain(spill_dir).map(Path::to_path_buf).collect();
    let error_path = output.error_path();
    let shares = Shares { shared, assignment, files, env, socket_dir, disk_dirs, error_path };
    let mut pipeline = Wiring::new(task, &assignment.job.paths, |position| &members[position].work_dir)?;
    let read_bytes = pipeline.input_bytes();
    shared.meters.add_used(attempt, AttemptUsage { read_bytes, ..AttemptUsage::default() });
    for member in members.iter().filter(|member| member.task.has_own_directory()) {
        link(&member.task.files, &member.work_dir)?;
    }
    let Wired { streams, relays } = pipeline.wire(spill_dir)?;
    let reading = reading(shared, assignment);
    let begun = begin_runs(task, reading);
    let own = |position: usize| members[position].work_dir.as_path();
    let programs = members.iter().enumerate();
    let programs = programs.map(|(position, member)| shares.program(member, pipeline.edges(position, own)));
    let programs: Vec<PipelineProgram> = programs.collect::<Result<_, _>>()?;
    let start = Instant::now();
    let ran = program::run_pipeline(
        programs,
        streams,
        relays,
        |position| pipeline.before_start(position),
        |bytes| output.add_output(bytes),
    );
    let ran_ms = start.elapsed().as_millis() as u64;
    let outcome = ran.and_then(|()| {
        files.check_unchanged()?;
        if !members.iter().any(|member| member.task.has_own_directory() || member.task.in_place) {
            return Ok(Vec::new());
        }
        // Processes that the programs left behind could still write to their outputs.
        shared.options.programs.end_attempt();
        let begun = begun.into_iter().map(|run| run.map(|run| FinishedRun { ran_ms, ..run }));
        let stored_bytes = pipeline.output_bytes();
        let store = |versions| store_versions(shared, assignment, socket.as_ref(), versions);
        let runs = pipeline.take_outputs(attempt, begun.collect(), reading, &store)?;
        shared.meters.add_used(attempt, AttemptUsage { stored_bytes, ..AttemptUsage::default() });
        Ok(runs)
    });
    drop(pipeline);
    match outcome {
        Ok(runs) => {
            give_back(shared, members);
            Ok(RunResult { runs, ..output.finish() })
        }
        Err(failure) => Err(TaskFailure { said: Some(Box::new(output.finish())), ..failure }),
    }
}
