//! Directories below a root that are exchanged for links while a job runs: nothing outside is read or written.

use blackbox::{Cluster, Running};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

const SECRET: &str = "secret";
const HARMLESS: &str = "public";
const FILES: usize = 40;

/// A root `data` with a directory `moving`, and a directory outside whose files have the same names, sizes and times.
struct Race {
    cluster: Cluster,
    moving: PathBuf,
    link: PathBuf,
}

impl Race {
    fn start() -> Race {
        let cluster = Cluster::builder().nodes(1).roots(&["data"]).start();
        let sandbox = &cluster.sandbox;
        // More than is read ahead: the files behind it are opened when its lines have been taken.
        sandbox.write("data/first/text", "first\n".repeat(1 << 20));
        let time = SystemTime::now();
        for file in 0..FILES {
            for (directory, word) in [("data/moving", HARMLESS), ("outside", SECRET)] {
                let path = sandbox.write(&format!("{directory}/{file:02}"), format!("{word}\n"));
                let opened = File::options().write(true).open(path).expect("our own file");
                opened.set_modified(time).expect("our own file");
            }
        }
        symlink(sandbox.path("outside"), sandbox.path("data/link")).expect("a link");
        let (moving, link) = (sandbox.path("data/moving"), sandbox.path("data/link"));
        Race { cluster, moving, link }
    }

    /// The directory becomes a link that leads out, or a directory again.
    fn exchange(&self) {
        renameat_with(CWD, &self.moving, CWD, &self.link, RenameFlags::EXCHANGE).expect("both are ours");
    }

    /// A job whose programs wait for a pipe to be opened before they read anything, so that their first files are open and no
    /// others. The answer has the name of that pipe.
    fn waiting_job(&self, inputs: &[&str], output: &str) -> (Running, PathBuf) {
        let sandbox = &self.cluster.sandbox;
        let (mut here, go) = (sandbox.fifo("here"), sandbox.fifo("go"));
        // Whoever comes first says so; nobody reads what others would say.
        let say =
            format!("mkdir '{0}' 2> /dev/null && echo here > '{0}/../here'", sandbox.path("said").display());
        let program = format!("#!/bin/sh\n{say}\n: < '{}'\nexec sort -u\n", go.text());
        let program = sandbox.script("waits.sh", &program);
        let mut command = self.cluster.job(&["--map-only", "--no-sync", "--output", output, "--mapper"]);
        let job = Running::start(command.arg(program).arg("--input").args(inputs));
        assert_eq!(here.read_line(), "here");
        (job, go.path().to_path_buf())
    }

    /// Lets the programs go on, as long as the answer lives.
    fn let_go(&self, pipe: &Path) -> File {
        File::options().write(true).open(pipe).expect("a program waits")
    }

    #[track_caller]
    fn check_no_secret(&self) {
        for file in files_below(&self.cluster.sandbox.path("data/out")) {
            let text = std::fs::read_to_string(&file).expect("an output is text");
            assert!(!text.contains(SECRET), "{} has {text:?}", file.display());
        }
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn input_that_leads_out_at_open_is_unread() {
    let race = Race::start();
    let (job, go) = race.waiting_job(&["data/first", "data/moving"], "data/out");
    race.exchange();
    let _open = race.let_go(&go);
    job.wait().expect_failure(2, &["data/moving/00", "outside of the roots"]);
    race.check_no_secret();
    // As the operator meant it, the same job runs.
    race.exchange();
    let mapper = ["--map-only", "--no-sync", "--mapper", "sort -u", "--output", "data/out"];
    let mut again = race.cluster.job(&[&mapper[..], &["--input", "data/first", "data/moving"]].concat());
    Running::start(&mut again).wait().expect_success();
    let mut lines = race.cluster.sandbox.output_lines(&race.cluster.sandbox.path("data/out"));
    lines.sort();
    lines.dedup();
    assert_eq!(lines, ["first", HARMLESS]);
}

#[test]
fn an_exchange_in_a_loop_reads_nothing_outside() {
    let race = Race::start();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (job, go) = race.waiting_job(&["data/first", "data/moving"], "data/out");
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                race.exchange();
            }
        });
        let _open = race.let_go(&go);
        // Whatever becomes of it.
        let ended = job.wait();
        done.store(true, Ordering::Relaxed);
        assert!(!ended.story().contains(SECRET), "{}", ended.story());
    });
    race.check_no_secret();
}

#[test]
fn output_that_leads_out_at_write_is_unwritten() {
    let race = Race::start();
    let sandbox = &race.cluster.sandbox;
    let (job, go) = race.waiting_job(&["data/first"], "data/moving/out");
    let staging =
        files_below(&race.moving).into_iter().find(|path| path.is_dir()).expect("a staging directory");
    // The name of it is no secret.
    let trap = sandbox.path("outside").join(staging.file_name().expect("a name"));
    std::fs::create_dir(&trap).expect("a directory of the test");
    race.exchange();
    let _open = race.let_go(&go);
    job.wait().expect_failure(2, &["data/moving", "outside of the roots"]);
    assert_eq!(files_below(&trap), Vec::<PathBuf>::new());
    assert!(trap.exists() && !sandbox.path("outside/out").exists());
}

/// Links are followed where they lead, as long as that lies below a root.
#[test]
fn links_inside_the_roots_are_read() {
    let cluster = Cluster::builder().nodes(1).roots(&["data", "more"]).start();
    let sandbox = &cluster.sandbox;
    sandbox.write("data/real/a", "one\n");
    sandbox.write("more/b", "two\n");
    sandbox.write("data/set/note", "three\n");
    symlink(sandbox.path("data/real/a"), sandbox.path("data/set/absolute")).expect("a link");
    symlink("../../more/b", sandbox.path("data/set/other-root")).expect("a link");
    symlink("real", sandbox.path("data/directory")).expect("a link");
    symlink(sandbox.path("more"), sandbox.path("data/out-there")).expect("a link");
    let job =
        ["--map-only", "--mapper", "cat", "--input", "data/set", "data/directory/a", "data/set/../real/a"];
    cluster.run_job(&[&job[..], &["--output", "data/out-there/result"]].concat()).expect_success();
    let mut lines = sandbox.output_lines(&sandbox.path("more/result"));
    lines.sort();
    assert_eq!(lines, ["one", "one", "one", "three", "two"]);
}
