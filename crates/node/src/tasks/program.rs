//! The task of a job that is no MapReduce job: any executable, or a pipeline of several, run once.

use crate::attempt::{Assignment, JobRun};
use crate::failure::file_failure;
use crate::shared::Shared;
use crate::slots::run_gate::Turn;
use crate::stored::step_files::{self, NewVersion, StoringJob};
use crate::tasks::attempt_files::AttemptFiles;
use crate::tasks::declared_files::remove_files;
use crate::tasks::declared_reads;
use crate::tasks::finished_runs::{self, Reading, look};
use crate::tasks::growing_input::NodeStreams;
use crate::tasks::members::{Member, TEMPORARY, give_back};
use crate::tasks::phases::Phases;
use crate::tasks::pipeline_wiring::Edges;
use crate::tasks::work_dir::{SandboxNeeds, env_of_file, open_port, sandbox_for, socket_variable};
use api::task::{AttemptUsage, RunResult, RunTask, is_stored_path};
use api::{Blame, StoredContent, TaskFailure};
use faults::{IoCall, io_call};
use ids::{AttemptKey, JobId};
use program::{FunctionContext, PipelineProgram, ProgramSpec, Sandbox, TemporaryDir};
use programport::OpenPort;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of directories of programs in errors.
const SOCKETS: &str = "the directory for sockets of programs";

/// Creates links to files in a directory.
pub(super) fn link(files: &[PathBuf], dir: &Path) -> Result<(), TaskFailure> {
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

/// The things of an attempt that all its programs share.
pub(super) struct Shares<'a> {
    pub shared: &'a Shared,
    pub assignment: &'a Assignment,
    files: &'a AttemptFiles,
    env: Vec<(String, String)>,
    socket_dir: Option<&'a Path>,
    /// Directories of all its programs, and of streams between them.
    disk_dirs: Vec<PathBuf>,
    /// Paths of the programs of all phases, if there are several: the first phase prepares their space.
    named: Vec<PathBuf>,
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

    /// Returns an error if a program wrote to a copy of a stored file.
    pub fn check_unchanged(&self) -> Result<(), TaskFailure> {
        self.files.check_unchanged()
    }

    /// Returns the program with its context.
    pub fn program(&self, member: &Member<'_>, edges: Edges) -> Result<PipelineProgram, TaskFailure> {
        let Edges { reads, after, writers, streams } = edges;
        let task = member.task;
        declared_reads::check_named(task, &self.assignment.job.paths)?;
        let sandbox = self.sandbox(member, &writers)?;
        let has_sandbox = sandbox.is_some();
        let limit = if has_sandbox { None } else { declared_reads::limit(task, member.work_dir()) };
        let mut env = self.env.clone();
        // With a limit, new files in `/tmp` are unreadable if a user's directory lies there.
        let is_limited = has_sandbox || limit.is_some();
        if let Some(own) = member.temporary().or(member.own_path().filter(|_| is_limited)) {
            env.push(("TMPDIR".to_string(), own.to_string_lossy().into_owned()));
        }
        env.extend(task.resources.variables());
        env.extend(env_of_file(task.env_file.as_deref())?);
        env.extend(task.env.iter().cloned());
        let own =
            member.own_path().into_iter().chain(self.socket_dir).chain(self.files.paths()).chain(writers);
        let named = task
            .files
            .iter()
            .chain(task.inputs.iter().map(|input| &input.path))
            .chain(declared_reads::named(task))
            .chain(&self.named);
        let context = FunctionContext {
            programs: Arc::clone(&self.shared.options.programs),
            work_dir: member.work_dir().to_path_buf(),
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
            declared_reads: limit,
            any_exit_code: false,
            task_env: Vec::new(),
            kept_for: None,
            named: named.map(PathBuf::as_path).chain(own).map(Path::to_path_buf).collect(),
        };
        let spec = ProgramSpec { streams, ..ProgramSpec::new(&task.words, &context) };
        Ok(PipelineProgram { context, spec, reads, after, file_memory: member.file_memory().cloned() })
    }
}

/// Returns access to the files of a job, for hashing.
pub(super) fn reading<'a>(shared: &'a Shared, assignment: &'a Assignment) -> Reading<'a> {
    let (contents, paths) = (&shared.contents, &assignment.job.paths);
    Reading { contents, paths, cancelled: &assignment.cancelled }
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

/// Runs the program, or nothing if none is named. A failure includes its output too. The turn ends with the program: while its
/// outputs reach the disk, the next one runs.
pub(crate) fn run(
    shared: &Shared,
    assignment: &Assignment,
    task: &RunTask,
    turn: Turn<'_>,
) -> Result<RunResult, TaskFailure> {
    if task.words.is_empty() {
        return run_nothing(shared, assignment, task);
    }
    if task.pinned.is_empty() {
        return run_with(shared, assignment, task, &AttemptFiles::default(), turn);
    }
    let mut with_copies = task.clone();
    let files = AttemptFiles::bring_for_program(shared, assignment, &mut with_copies)?;
    let paths = assignment.job.paths.with_more_own(files.paths().map(Path::to_path_buf));
    let job = Arc::new(JobRun { paths, ..assignment.job.as_ref().clone() });
    let assignment = Assignment { job, ..assignment.clone() };
    let ran = run_with(shared, &assignment, &with_copies, &files, turn);
    let (_, moved_bytes) = files.reads().bytes();
    shared.meters.add_used(assignment.attempt, AttemptUsage { moved_bytes, ..AttemptUsage::default() });
    let mut result = ran.map_err(|failure| files.named_in(failure))?;
    for (program, run) in task.programs().zip(&mut result.runs) {
        run.iter_mut().for_each(|run| finished_runs::name_stored(program, run));
    }
    Ok(result)
}

/// Returns the variables of all programs of an attempt.
fn env_of(shared: &Shared, attempt: AttemptKey, socket: Option<&OpenPort>) -> Vec<(String, String)> {
    let mut env = vec![
        ("SAILFISH_JOB".to_string(), attempt.task.job.to_string()),
        ("SAILFISH_ATTEMPT".to_string(), attempt.attempt.0.to_string()),
    ];
    env.extend(shared.options.program_env.iter().cloned());
    env.extend(socket.map(socket_variable));
    env
}

/// Runs the program, which may open these copies of stored files, and the others of its pipeline.
fn run_with(
    shared: &Shared,
    assignment: &Assignment,
    task: &RunTask,
    files: &AttemptFiles,
    turn: Turn<'_>,
) -> Result<RunResult, TaskFailure> {
    let (attempt, listed) = (assignment.attempt, shared.outputs.begin(assignment.attempt));
    let output = &*listed.output;
    let socket = open_socket(shared, attempt.task.job)?;
    let env = env_of(shared, attempt, socket.as_ref());
    let socket_dir = socket.as_ref().and_then(|socket| socket.socket().parent());
    let members = Member::all(shared, task, attempt.attempt)?;
    let spills = (members.len() > 1).then(|| shared.options.programs.private_directory()).transpose();
    let spills = spills.map_err(|error| file_failure("create", Path::new(TEMPORARY), error))?;
    let spill_dir = spills.as_ref().map(TemporaryDir::path);
    let disk_dirs =
        members.iter().flat_map(Member::own_paths).chain(spill_dir).map(Path::to_path_buf).collect();
    let (named, error_path) = (named_of_phases(task, &members), output.error_path());
    let shares = Shares { shared, assignment, files, env, socket_dir, disk_dirs, named, error_path };
    let others = NodeStreams::open(shared, assignment, task)?;
    let mut phases = Phases::new(&shares, task, members, others, spill_dir);
    let store = |versions| store_versions(shared, assignment, socket.as_ref(), versions);
    let ran = phases.run(|bytes| output.add_output(bytes));
    phases.end_attempt();
    drop(turn);
    let outcome = ran.and_then(|()| {
        files.check_unchanged()?;
        phases.take_outputs(&store)
    });
    match outcome {
        Ok(runs) => {
            give_back(shared, phases.into_members());
            Ok(RunResult { runs, ..output.finish() })
        }
        Err(failure) => {
            let runs = phases.take_finished(&failure, &store);
            Err(TaskFailure { said: Some(Box::new(RunResult { runs, ..output.finish() })), ..failure })
        }
    }
}

/// Returns the paths that programs of all phases name, with their directories; none for a single phase.
fn named_of_phases(task: &RunTask, members: &[Member<'_>]) -> Vec<PathBuf> {
    if task.phases().len() < 2 {
        return Vec::new();
    }
    let texts = |program: &RunTask| {
        let values = program.env.iter().map(|(_, value)| value);
        program.words.iter().chain(values).flat_map(std::env::split_paths).collect::<Vec<_>>()
    };
    let of_program = |program: &RunTask| {
        let inputs = program.inputs.iter().map(|input| &input.path);
        let named = program.files.iter().chain(inputs).chain(declared_reads::named(program));
        named.cloned().chain([program.directory.clone()]).chain(texts(program)).collect::<Vec<_>>()
    };
    let own = members.iter().flat_map(Member::own_paths).map(Path::to_path_buf);
    task.programs().flat_map(of_program).chain(own).collect()
}
