//! Files that the processes of each step opened, and files that came into place, from a trace of system calls.
//!
//! A step is found by the variable [`STEP`] in its environment; its processes are the one that was started with it, and all
//! below. `strace -ff` writes a file for each thread, so no line is broken by another one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable with the name of the step.
pub const STEP: &str = "TRACED_STEP";
const CALLS: &str = "execve,open,openat,openat2,creat,clone,clone3,fork,vfork,dup2,dup3,chdir,fchdir,linkat,rename,renameat,renameat2";

/// One step as its trace tells it.
#[derive(Debug, Default)]
pub struct TracedStep {
    /// Files that its processes opened for reading, and its program. Links are resolved.
    pub opened: BTreeSet<PathBuf>,
    /// Paths whose opening was refused (EACCES).
    pub refused: BTreeSet<PathBuf>,
    /// Standard input at the start of its program: a path, or `pipe:[N]`.
    pub stdin: String,
    /// Files that came into place from its directory.
    pub placed: BTreeSet<PathBuf>,
    /// Its own directory, which later steps may have too.
    directory: PathBuf,
    /// Time at which its program was started, in seconds.
    started_s: f64,
}

/// Returns why nothing can be traced here; None if it can.
pub fn obstacle() -> Option<String> {
    match Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "true"]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        Err(error) => Some(format!("there is no strace: {error}")),
    }
}

/// Returns the command under `strace`, which writes its files into a directory.
pub fn under_strace(command: &Command, directory: &Path) -> Command {
    let mut traced = Command::new("strace");
    traced.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    traced.current_dir(command.get_current_dir().expect("commands of tests start in a sandbox"));
    traced
        .args(["-ff", "-ttt", "--seccomp-bpf", "-qq", "-y", "-v", "-s", "4096", "-o"])
        .arg(directory.join("t"));
    traced.args(["-e", &format!("trace={CALLS}")]).arg(command.get_program()).args(command.get_args());
    traced
}

/// Returns the steps whose programs were started.
pub fn traced_steps(directory: &Path) -> BTreeMap<String, TracedStep> {
    let list = std::fs::read_dir(directory).expect("strace has written here");
    let mut lines = BTreeMap::new();
    for entry in list.map(|entry| entry.expect("our own directory is read").path()) {
        let text = std::fs::read(&entry).expect("a trace is read");
        let pid = entry.extension().and_then(|pid| pid.to_str()?.parse::<u64>().ok());
        lines.insert(pid.expect("a number"), String::from_utf8_lossy(&text).into_owned());
    }
    let calls = |text: &String| text.lines().filter_map(Call::parse).collect::<Vec<_>>();
    let threads: BTreeMap<u64, Vec<Call>> = lines.iter().map(|(pid, text)| (*pid, calls(text))).collect();
    let children: BTreeSet<u64> = threads.values().flatten().filter_map(Call::child).collect();
    let mut trace = Trace { threads, steps: BTreeMap::new(), placed: Vec::new() };
    let mut next: Vec<(u64, Process)> = trace.threads.keys().map(|pid| (*pid, Process::default())).collect();
    next.retain(|(pid, _)| !children.contains(pid));
    while let Some((pid, process)) = next.pop() {
        next.extend(trace.follow(pid, process));
    }
    for Placed { from, to, at_s } in &trace.placed {
        let steps = trace.steps.values_mut();
        let step = steps
            .filter(|step| from.starts_with(&step.directory) && step.started_s <= *at_s)
            .max_by(|one, other| one.started_s.total_cmp(&other.started_s));
        step.unwrap_or_else(|| panic!("{} came into place from nowhere", to.display()))
            .placed
            .insert(to.clone());
    }
    trace.steps
}

/// A system call as `strace -y` prints it.
struct Call {
    /// Time at which it was called, in seconds.
    at_s: f64,
    name: String,
    /// Text between the brackets.
    args: String,
    result: String,
}

impl Call {
    fn parse(line: &str) -> Option<Call> {
        let (time, line) = line.split_once(' ')?;
        let (name, rest) = line.split_once('(')?;
        let (args, result) = rest.rsplit_once(" = ")?;
        let args = args.trim_end().strip_suffix(')')?.to_string();
        let at_s = time.parse().ok()?;
        Some(Call { at_s, name: name.to_string(), args, result: result.to_string() })
    }

    fn child(&self) -> Option<u64> {
        let starts = matches!(self.name.as_str(), "clone" | "clone3" | "fork" | "vfork");
        self.result.parse().ok().filter(|pid| starts && *pid > 0)
    }

    fn succeeded(&self) -> bool {
        !self.result.starts_with('-')
    }

    /// Returns the texts in quotation marks.
    fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        let mut rest = self.args.as_str();
        while let Some((_, from)) = rest.split_once('"') {
            let end = text_end(from);
            texts.push(unescaped(&from[..end]));
            rest = from.get(end + 1..).unwrap_or_default();
        }
        texts
    }

    /// Returns the paths of the file descriptors among the arguments, as `19</tmp>`.
    fn descriptors(&self) -> Vec<String> {
        let outside = self.args.split(", ").filter(|arg| !arg.starts_with('"'));
        outside.filter_map(described).collect()
    }

    /// Returns an argument that is a path, below the directory that stands before it.
    fn paths(&self) -> Vec<PathBuf> {
        let directories = self.descriptors();
        let texts = self.texts().into_iter().enumerate();
        texts
            .map(|(index, text)| match directories.get(index) {
                Some(directory) => Path::new(directory).join(text),
                None => PathBuf::from(text),
            })
            .collect()
    }

    fn has(&self, flag: &str) -> bool {
        self.args.contains(flag)
    }
}

/// Returns the position of the closing quotation mark.
fn text_end(text: &str) -> usize {
    let mut is_escaped = false;
    for (place, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return place,
            _ => {}
        }
    }
    text.len()
}

/// Returns the path of a descriptor with its number, as in `3</tmp/a b>`.
fn described(text: &str) -> Option<String> {
    let (number, path) = text.trim().split_once('<')?;
    let is_one = number == "AT_FDCWD" || number.bytes().all(|byte| byte.is_ascii_digit());
    path.strip_suffix('>').filter(|_| is_one && !number.is_empty()).map(unescaped)
}

/// Returns a text without the escapes of `strace`: `\"`, `\\`, `\n` and octal numbers.
fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.iter().take(3).take_while(|byte| (b'0'..b'8').contains(*byte)).count();
        if digits > 0 {
            let number = rest[..digits].iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
            bytes.push(number as u8);
            rest = &rest[digits..];
        } else if let Some((escaped, others)) = rest.split_first() {
            bytes.push(match escaped {
                b'n' => b'\n',
                b't' => b'\t',
                other => *other,
            });
            rest = others;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// State that a process inherits.
#[derive(Clone, Default)]
struct Process {
    step: Option<String>,
    stdin: String,
    directory: PathBuf,
}

/// A file that came into place.
struct Placed {
    from: PathBuf,
    to: PathBuf,
    at_s: f64,
}

struct Trace {
    threads: BTreeMap<u64, Vec<Call>>,
    steps: BTreeMap<String, TracedStep>,
    placed: Vec<Placed>,
}

impl Trace {
    /// Follows a thread. Returns the processes that it started.
    fn follow(&mut self, pid: u64, mut process: Process) -> Vec<(u64, Process)> {
        let calls = self.threads.remove(&pid).unwrap_or_default();
        let (mut started, mut open, mut linked) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for call in &calls {
            if let Some(child) = call.child() {
                started.push((child, process.clone()));
            }
            match call.name.as_str() {
                "dup2" | "dup3" if process.step.is_none() && call.has(", 0<") => {
                    process.stdin = call.descriptors().into_iter().next().unwrap_or_default();
                }
                "chdir" if process.step.is_none() => {
                    process.directory = call.paths().pop().unwrap_or_default();
                }
                "fchdir" if process.step.is_none() => {
                    process.directory = call.descriptors().pop().unwrap_or_default().into();
                }
                "execve" if call.succeeded() => self.start(&mut process, call),
                "open" | "openat" | "openat2" | "creat" => {
                    self.open(&process, call);
                    if let (Some(path), Some((number, _))) =
                        (described(&call.result), call.result.split_once('<'))
                    {
                        open.insert(format!("/proc/self/fd/{number}"), PathBuf::from(path));
                    }
                }
                "linkat" if call.succeeded() && process.step.is_none() => {
                    let from = call.texts().first().and_then(|held| open.get(held)).cloned();
                    if let (Some(from), Some(hidden)) = (from, call.paths().pop()) {
                        linked.insert(hidden, from);
                    }
                }
                "rename" | "renameat" | "renameat2" if call.succeeded() && process.step.is_none() => {
                    let paths = call.paths();
                    let from = paths.first().and_then(|hidden| linked.remove(hidden));
                    let at_s = call.at_s;
                    let placed = from.zip(paths.last().cloned());
                    self.placed.extend(placed.map(|(from, to)| Placed { from, to, at_s }));
                }
                _ => {}
            }
        }
        started
    }

    fn start(&mut self, process: &mut Process, call: &Call) {
        let texts = call.texts();
        let name = texts.iter().find_map(|text| text.strip_prefix(STEP)?.strip_prefix('='));
        let (Some(name), None) = (name, &process.step) else { return };
        process.step = Some(name.to_string());
        let step = self.steps.entry(name.to_string()).or_default();
        step.started_s = call.at_s;
        step.directory = process.directory.clone();
        step.stdin = process.stdin.clone();
        // A script is opened by its interpreter, and by a name that may have links.
        step.opened.extend(texts.first().and_then(|program| std::fs::canonicalize(program).ok()));
    }

    fn open(&mut self, process: &Process, call: &Call) {
        let step = process.step.as_ref().and_then(|name| self.steps.get_mut(name));
        let Some(step) = step.filter(|_| !call.has("O_PATH") && !call.has("O_WRONLY")) else { return };
        match described(&call.result) {
            Some(path) => drop(step.opened.insert(path.into())),
            None if call.result.contains("EACCES") => step.refused.extend(call.paths()),
            None => {}
        }
    }
}
