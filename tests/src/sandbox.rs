//! A directory of its own for each test.

use crate::leftovers::leftovers;
use crate::{Fifo, Finished, Running, corpus, sailfish_binary};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The user and group `nobody`.
const PLAIN_USER: u32 = 65534;

/// Directory for the state of the user, so that tests leave none in that of the person who runs them.
const XDG_STATE: &str = "xdg-state";

/// A temporary directory with `state/`, `disk/` and room for inputs and outputs, removed with the value.
/// Relative paths on a command line count from it.
pub struct Sandbox {
    root: TempDir,
    environment: Vec<(String, String)>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// The file for which programs at the gate wait.
    pub(crate) const GATE_FILE: &str = "go";

    pub fn new() -> Sandbox {
        Self::with_environment(Vec::new())
    }

    /// One whose processes have these variables as well.
    pub fn with_environment(environment: Vec<(String, String)>) -> Sandbox {
        let root =
            tempfile::Builder::new().prefix("sailfish-test-").tempdir().expect("a temporary directory");
        let sandbox = Sandbox { root, environment };
        fs::create_dir(sandbox.path("disk")).expect("our own directory takes another");
        sandbox
    }

    /// A path below the sandbox.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The state directory; made by the first run.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The file in which the server at this address keeps its own token, if it has one.
    pub fn own_token_file(&self, address: &str) -> Option<PathBuf> {
        let files = fs::read_dir(self.path(XDG_STATE).join("sailfish/servers")).ok()?;
        let mut paths = files.map(|file| file.expect("our own directory is read").path());
        paths.find(|path| path.to_string_lossy().ends_with(&format!("-{address}.token")))
    }

    /// The directory for intermediate data.
    pub fn disk(&self) -> PathBuf {
        self.path("disk")
    }

    /// The output that [`Sandbox::run_job`] names where the test names none.
    pub fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// Writes a file, with the directories above it.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("directories are made");
        fs::write(&path, bytes).expect("our own directory takes a file");
        path
    }

    /// Writes English-like text of so many bytes, cut into so many files `in/0.txt`, `in/1.txt` and so on.
    pub fn write_text(&self, bytes: usize, files: usize) {
        let text = corpus(bytes);
        for (number, piece) in text.chunks(text.len() / files + 1).enumerate() {
            self.write(&format!("in/{number}.txt"), piece);
        }
    }

    /// Writes so many files below `in` with so many lines each: numbers in no order, each once, and values of so many bytes. The answer
    /// is all lines in order.
    pub fn write_numbers(&self, files: usize, lines: usize, value_bytes: usize) -> String {
        let mut all = Vec::with_capacity(files * lines);
        for file in 0..files {
            let mut text = String::new();
            for line in 0..lines {
                let number = (line * files + file) * 7919 % (files * lines);
                let line = format!("{number:08}\t{line:0value_bytes$}\n");
                text.push_str(&line);
                all.push(line);
            }
            self.write(&format!("in/{file}.txt"), text);
        }
        all.sort_unstable();
        all.concat()
    }

    /// Writes an executable script with its `#!` line.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        self.set_mode(name, 0o755);
        path
    }

    /// Sets the permission bits of a file or directory.
    pub fn set_mode(&self, name: &str, mode: u32) {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.path(name), permissions).expect("our own file changes its mode");
    }

    /// Makes a named pipe.
    pub fn fifo(&self, name: &str) -> Fifo {
        Fifo::new(self.path(name))
    }

    /// The binary with a clean environment (PATH, HOME and XDG_STATE_HOME), to be given a subcommand. Starts in the
    /// sandbox.
    pub fn sailfish(&self) -> Command {
        let mut command = Command::new(sailfish_binary());
        self.clean(&mut command);
        command
    }

    /// Gives a command the sandbox as directory and an environment of PATH, HOME and what was given.
    pub fn clean(&self, command: &mut Command) {
        command.env_clear().current_dir(self.root.path());
        for name in ["PATH", "HOME"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("XDG_STATE_HOME", self.path(XDG_STATE));
        command.envs(self.environment.iter().cloned());
    }

    /// `sailfish run` with these options; `--state`, `--disk` and `--output` are those of the sandbox where
    /// the test gives none.
    pub fn job(&self, args: &[&str]) -> Command {
        let mut command = self.sailfish();
        command.arg("run").args(args);
        for (option, dir) in [("--state", self.state()), ("--disk", self.disk()), ("--output", self.out())] {
            if !args.contains(&option) {
                command.arg(option).arg(dir);
            }
        }
        command
    }

    /// [`Sandbox::job`] as a user whom permissions bind: root reads and writes everything, so as root the
    /// sandbox is given to another user and the binary runs as that one. None, and said so, where the machine
    /// does not let us.
    pub fn job_of_plain_user(&self, args: &[&str]) -> Option<Command> {
        let with_options = self.job(args);
        self.as_plain_user(with_options.get_args())
    }

    /// The binary with these arguments, run by a user whom permissions bind. As root the sandbox is given to another user
    /// first. None, and said so, where the machine does not let us.
    pub fn as_plain_user(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Option<Command> {
        if !rustix::process::geteuid().is_root() {
            let mut command = self.sailfish();
            command.args(args);
            return Some(command);
        }
        // The binary may lie where only root looks.
        let binary = self.path("sailfish");
        // Not by this process: a child that another test is starting would have it open for writing, and then nobody can start it.
        let copied = Command::new("cp")
            .args(["--remove-destination", "--"])
            .arg(sailfish_binary())
            .arg(&binary)
            .status();
        assert!(copied.is_ok_and(|status| status.success()), "our own directory takes the binary");
        self.set_mode("", 0o755);
        if let Err(error) = give_away(self.root.path()) {
            crate::could_not_run("what a plain user may not do", &format!("cannot give files away: {error}"));
            return None;
        }
        let mut command = Command::new(binary);
        self.clean(&mut command);
        command.args(args).uid(PLAIN_USER).gid(PLAIN_USER);
        Some(command)
    }

    /// Runs [`Sandbox::job`] to its end.
    #[track_caller]
    pub fn run_job(&self, args: &[&str]) -> Finished {
        Running::start(&mut self.job(args)).wait()
    }

    /// Starts [`Sandbox::job`].
    pub fn start_job(&self, args: &[&str]) -> Running {
        Running::start(&mut self.job(args))
    }

    /// Runs a command that looks at the state: `args[0]` is `jobs`, `show`, `report` or `state`.
    #[track_caller]
    pub fn look(&self, args: &[&str]) -> Finished {
        let mut command = self.sailfish();
        command.args(args).arg("--state").arg(self.state());
        Running::start(&mut command).wait()
    }

    /// Runs `sailfish workflow` with these words.
    #[track_caller]
    pub fn workflow(&self, words: &[&str]) -> Finished {
        self.look(&[&["workflow"], words].concat())
    }

    /// Runs a command without options of its own: `verify`, `ifile`.
    #[track_caller]
    pub fn sailfish_with(&self, args: &[&str]) -> Finished {
        Running::start(self.sailfish().args(args)).wait()
    }

    /// The names of the parts of an output, sorted. Fails where there is no whole output.
    #[track_caller]
    pub fn part_names(&self, output: &Path) -> Vec<String> {
        assert!(output.join("_SUCCESS").exists(), "{} is incomplete: it has no _SUCCESS", output.display());
        let entries = fs::read_dir(output).expect("an output is a directory");
        let names = entries.map(|entry| entry.expect("an output can be listed").file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.starts_with('_'));
        names.sort();
        assert!(names.iter().all(|name| name.starts_with("part-")), "stray files in the output: {names:?}");
        names
    }

    /// The parts one after another.
    #[track_caller]
    pub fn concatenated(&self, output: &Path) -> Vec<u8> {
        let parts = self.part_names(output).into_iter();
        parts.flat_map(|name| fs::read(output.join(name)).expect("a part can be read")).collect()
    }

    /// Checks that two outputs, by their names in the sandbox, have the same bytes, and have some.
    #[track_caller]
    pub fn assert_same_output(&self, one: &str, other: &str) {
        let [one_bytes, other_bytes] = [one, other].map(|output| self.concatenated(&self.path(output)));
        assert!(!one_bytes.is_empty(), "{one} is empty");
        assert!(one_bytes == other_bytes, "{one} and {other} differ");
    }

    /// The lines of all parts, in order of part; bytes that are no text are replaced.
    #[track_caller]
    pub fn output_lines(&self, output: &Path) -> Vec<String> {
        let bytes = self.concatenated(output);
        crate::part_lines(&bytes).iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }

    /// The report of an output.
    #[track_caller]
    pub fn report(&self, output: &Path) -> serde_json::Value {
        let text = fs::read(output.join("_report.json")).expect("a whole output has a report");
        serde_json::from_slice(&text).expect("a report is JSON")
    }

    /// Lists the leftovers of jobs that are over, see [`Sandbox::assert_no_leftovers`].
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let state = self.state();
        let disks = [&self.disk(), &state.join("disk")];
        leftovers(&[self.root.path()], &disks.map(PathBuf::as_path), &state)
    }

    /// No hidden sibling of an output directly in the sandbox, no directory of a job on `disk/` or
    /// `state/disk/`, no lock of a dead process.
    #[track_caller]
    pub fn assert_no_leftovers(&self) {
        let found = self.leftovers();
        assert!(found.is_empty(), "left behind: {found:?}");
    }

    /// Neither an output nor anything else is left of a job that failed.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        assert!(!self.out().exists(), "an output of a failed job: {}", self.out().display());
        self.assert_no_leftovers();
    }
}

/// Makes a tree the plain user's.
fn give_away(path: &Path) -> std::io::Result<()> {
    lchown(path, Some(PLAIN_USER), Some(PLAIN_USER))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_away(&entry?.path())?;
        }
    }
    Ok(())
}
