//! One fault: its victim, and the damage done to it.

use super::jobs::Jobs;
use super::plan::{Fault, FaultKind};
use super::world::{NODES_ALIVE_MIN, ServerState, Undo, World};
use crate::Random;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Longest stretch of bytes that is changed at once.
const FLIPPED_BYTES_MAX: u64 = 64;

/// A fault that has struck a victim.
pub(super) struct Struck {
    /// A row of the table.
    pub what: &'static str,
    detail: String,
}

impl fmt::Display for Struck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.detail)
    }
}

/// The rows of the table; what stands here and never fired is told.
pub(super) const WHAT: [&str; 17] = [
    "server killed",
    "server stopped",
    "node killed",
    "node stopped",
    "program killed",
    "program stopped",
    "init killed",
    "spawner killed",
    "run: bytes changed",
    "run: cut off",
    "run: taken away",
    "raw chunk: bytes changed",
    "raw chunk: cut off",
    "raw chunk: taken away",
    "part: bytes changed",
    "part: cut off",
    "part: taken away",
];

/// The first row about files.
const FILES: usize = 8;
/// Chance, in percent, that a part of a stage is damaged instead of a run, if there is any.
const PARTS_PERCENT: u64 = 40;

impl World {
    /// None where there is no victim at the moment.
    pub fn strike(&mut self, fault: &Fault, jobs: &mut Jobs) -> Option<Struck> {
        match fault.kind {
            FaultKind::ServerKilled | FaultKind::ServerStopped => self.strike_server(fault),
            FaultKind::NodeKilled | FaultKind::NodeStopped => self.strike_node(fault),
            FaultKind::ProgramKilled | FaultKind::ProgramStopped => self.strike_program(fault, jobs),
            FaultKind::InitKilled | FaultKind::SpawnerKilled => self.strike_containment(fault, jobs),
            FaultKind::FileDamaged => self.damage_file(fault, jobs),
        }
    }

    fn strike_server(&mut self, fault: &Fault) -> Option<Struck> {
        if self.server != ServerState::Runs {
            return None;
        }
        self.server_faults += 1;
        if fault.kind == FaultKind::ServerKilled {
            self.kill_server();
            self.later(fault.absence, Undo::ServerComes);
            return Some(Struck { what: WHAT[0], detail: format!("for {:?}", fault.absence) });
        }
        self.cluster.server().signal(Signal::STOP);
        self.server = ServerState::Stopped;
        self.later(fault.stop, Undo::ServerGoesOn);
        Some(Struck { what: WHAT[1], detail: format!("for {:?}", fault.stop) })
    }

    fn strike_node(&mut self, fault: &Fault) -> Option<Struck> {
        let working = self.working();
        if working.len() <= NODES_ALIVE_MIN {
            return None;
        }
        let number = working[(fault.choice % working.len() as u64) as usize];
        if fault.kind == FaultKind::NodeKilled {
            self.kill_node(number);
            self.later(fault.absence, Undo::NodeComes(number));
            return Some(Struck { what: WHAT[2], detail: format!("{number} for {:?}", fault.absence) });
        }
        self.stop_node(number);
        self.later(fault.stop, Undo::NodeGoesOn(number));
        Some(Struck { what: WHAT[3], detail: format!("{number} for {:?}", fault.stop) })
    }

    fn strike_program(&mut self, fault: &Fault, jobs: &mut Jobs) -> Option<Struck> {
        let kills = fault.kind == FaultKind::ProgramKilled;
        let mut programs = self.programs();
        programs.retain(|program| !kills || jobs.may_kill_program_of(program.job));
        let Program { job, id, init, .. } = one_of(programs, fault)?;
        let handle = handle_of(id, init)?;
        let signal = if kills { Signal::KILL } else { Signal::STOP };
        pidfd_send_signal(&handle, signal).ok()?;
        if kills {
            jobs.killed_program_of(job);
            return Some(Struck { what: WHAT[4], detail: format!("of job {job}") });
        }
        self.later(fault.stop, Undo::ProgramGoesOn(handle));
        Some(Struck { what: WHAT[5], detail: format!("of job {job} for {:?}", fault.stop) })
    }

    /// Kills the init of a program, or the spawner of its node: all programs below it end, and their attempts run again.
    fn strike_containment(&mut self, fault: &Fault, jobs: &mut Jobs) -> Option<Struck> {
        let programs = self.programs();
        let may_end = |of: &dyn Fn(&Program) -> bool| {
            programs.iter().filter(|program| of(program)).all(|program| jobs.may_kill_program_of(program.job))
        };
        let is_init = fault.kind == FaultKind::InitKilled;
        let ends_with = |victim: &Program, other: &Program| match is_init {
            true => other.init == victim.init,
            false => other.spawner == victim.spawner,
        };
        let possible = programs.iter().filter(|victim| may_end(&|other| ends_with(victim, other)));
        let victim = one_of(possible.copied().collect(), fault)?;
        let (id, parent, what) = match is_init {
            true => (victim.init, victim.spawner, WHAT[6]),
            false => (victim.spawner, victim.node, WHAT[7]),
        };
        pidfd_send_signal(&handle_of(id as i32, parent)?, Signal::KILL).ok()?;
        let ended: Vec<i64> =
            programs.iter().filter(|other| ends_with(&victim, other)).map(|other| other.job).collect();
        ended.iter().for_each(|job| jobs.killed_program_of(*job));
        Some(Struck { what, detail: format!("with programs of jobs {ended:?}") })
    }

    fn programs(&self) -> Vec<Program> {
        let nodes = self.working().into_iter().filter_map(|number| self.nodes[number].process.as_ref());
        nodes.flat_map(|node| programs_of(node.id())).collect()
    }

    /// Raw chunks are rare and go first; parts of stages are few beside runs.
    fn damage_file(&mut self, fault: &Fault, jobs: &mut Jobs) -> Option<Struck> {
        let disks = self.working().into_iter().flat_map(|number| self.disks(number));
        let mut files: Vec<JobFile> = disks.flat_map(|disk| job_files(&disk)).collect();
        files.retain(|file| !jobs.is_over(file.job));
        let mut random = Random::new(fault.choice);
        let first = match random.chance(PARTS_PERCENT) {
            true => [Contents::Raw, Contents::Part],
            false => [Contents::Raw, Contents::Run],
        };
        if let Some(wanted) =
            first.into_iter().find(|wanted| files.iter().any(|file| file.contents == *wanted))
        {
            files.retain(|file| file.contents == wanted);
        }
        files.sort_by(|left, right| (left.job, &left.path).cmp(&(right.job, &right.path)));
        if files.is_empty() {
            return None;
        }
        let file = files.swap_remove(random.below(files.len() as u64) as usize);
        let (damage, row): (Damage, usize) = match random.below(100) {
            0..55 => (flip, 0),
            55..85 => (cut_off, 1),
            _ => (take_away, 2),
        };
        let detail = damage(&file, &mut random);
        // It may have gone just now.
        let detail = detail.ok()?;
        jobs.damaged(file.job);
        let what = WHAT[FILES + 3 * file.contents as usize + row];
        let name = file.path.strip_prefix(self.cluster.sandbox.path("")).unwrap_or(&file.path);
        Some(Struck { what, detail: format!("of job {}: {detail} of {}", file.job, name.display()) })
    }
}

/// A user program that runs, and the processes above it.
#[derive(Clone, Copy)]
struct Program {
    job: i64,
    id: i32,
    init: u32,
    spawner: u32,
    node: u32,
}

fn one_of(mut programs: Vec<Program>, fault: &Fault) -> Option<Program> {
    programs.sort_by_key(|program| (program.job, program.id));
    let count = programs.len() as u64;
    (count > 0).then(|| programs[(fault.choice % count) as usize])
}

/// The children of a node's inits that know their job: what was forked and is no program yet does not.
fn programs_of(node: u32) -> Vec<Program> {
    let mut programs = Vec::new();
    for spawner in children_of(node) {
        for init in children_of(spawner) {
            let jobs = children_of(init).into_iter().map(|id| id as i32);
            let known = jobs.filter_map(|id| Some((job_of_process(id)?, id)));
            programs.extend(known.map(|(job, id)| Program { job, id, init, spawner, node }));
        }
    }
    programs
}

fn children_of(parent: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let children =
        |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let lists: Vec<String> = threads.flatten().map(children).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|id| id.parse().ok()).collect()
}

/// Returns the processes of programs of jobs of a server.
pub(super) fn programs_left(url: &str) -> Vec<String> {
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let server = format!("SAILFISH_SERVER={url}");
    let is_its = |id: &i32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == server.as_bytes())
    };
    let of_jobs = ids.filter(|id| is_its(id) && job_of_process(*id).is_some());
    of_jobs
        .map(|id| {
            format!("{id} {}", fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim())
        })
        .collect()
}

fn job_of_process(id: i32) -> Option<i64> {
    let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let job = variables.find_map(|variable| variable.strip_prefix(b"SAILFISH_JOB="))?;
    std::str::from_utf8(job).ok()?.parse().ok()
}

/// Names the process for good, if it still is that child.
fn handle_of(id: i32, parent: u32) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(id)?, PidfdFlags::empty()).ok()?;
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Behind the name, which may hold anything: state, parent.
    let (_, rest) = stat.rsplit_once(')')?;
    let is_child = rest.split_whitespace().nth(1)?.parse() == Ok(parent);
    is_child.then_some(handle)
}

/// A file of intermediate data.
struct JobFile {
    job: i64,
    path: PathBuf,
    contents: Contents,
    bytes: u64,
}

/// Contents of a file, in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Run,
    Raw,
    Part,
}

impl Contents {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "ifile" => Some(Self::Run),
            "raw" => Some(Self::Raw),
            "stage" => Some(Self::Part),
            _ => None,
        }
    }
}

/// Runs, raw chunks and parts of stages in the directories of jobs on a disk; not what jobs keep that are over.
fn job_files(disk: &Path) -> Vec<JobFile> {
    let Ok(entries) = fs::read_dir(disk) else { return Vec::new() };
    let mut files = Vec::new();
    for directory in entries.flatten() {
        let name = directory.file_name().to_string_lossy().into_owned();
        let Some((owner, job)) = name.rsplit_once("-job") else { continue };
        let Ok(job) = job.parse() else { continue };
        if owner.starts_with("sailfish-kept") {
            continue;
        }
        let Ok(entries) = fs::read_dir(directory.path()) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let bytes = entry.metadata().map(|metadata| metadata.len()).unwrap_or(0);
            if let Some(contents) = Contents::of(&path).filter(|_| bytes > 0) {
                files.push(JobFile { job, path, contents, bytes });
            }
        }
    }
    files
}

/// Damages a file; the answer is how.
type Damage = fn(&JobFile, &mut Random) -> std::io::Result<String>;

fn flip(file: &JobFile, random: &mut Random) -> std::io::Result<String> {
    let opened = fs::File::options().read(true).write(true).open(&file.path)?;
    let offset = random.below(file.bytes);
    let count = (1 + random.below(FLIPPED_BYTES_MAX)).min(file.bytes - offset);
    let mut bytes = vec![0; count as usize];
    opened.read_exact_at(&mut bytes, offset)?;
    // Every byte changes.
    bytes.iter_mut().for_each(|byte| *byte ^= 1 + random.below(255) as u8);
    opened.write_all_at(&bytes, offset)?;
    Ok(format!("{count} bytes from {offset} on, of {},", file.bytes))
}

fn cut_off(file: &JobFile, random: &mut Random) -> std::io::Result<String> {
    let opened = fs::File::options().write(true).open(&file.path)?;
    let left = random.below(file.bytes);
    opened.set_len(left)?;
    Ok(format!("{left} bytes left of {},", file.bytes))
}

fn take_away(file: &JobFile, _: &mut Random) -> std::io::Result<String> {
    fs::remove_file(&file.path)?;
    Ok(format!("all {} bytes,", file.bytes))
}
