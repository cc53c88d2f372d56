//! Programs on nodes end with their attempt and see nothing of other jobs, as root and as a plain user.

use blackbox::{Cluster, Mounts, Running, wait_until};
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};

/// A cluster with one node of two slots, and a word that none but its programs have as an argument.
struct Contained {
    cluster: Cluster,
    mark: String,
    directory: PathBuf,
}

/// The ways in which a node may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeKind {
    Root,
    PlainUser,
    /// With `--no-contain`.
    Uncontained,
}

const KINDS: [NodeKind; 3] = [NodeKind::Root, NodeKind::PlainUser, NodeKind::Uncontained];

impl Contained {
    /// None, and said so, where the machine cannot run such a node.
    fn start(kind: NodeKind) -> Option<Self> {
        let mut cluster = Cluster::builder().server_command(|command| _ = command.arg("--no-tokens")).start();
        let has_started = match kind {
            NodeKind::Root => {
                cluster.add_node();
                true
            }
            NodeKind::PlainUser => cluster.add_plain_node(&[]),
            NodeKind::Uncontained => {
                cluster.add_changed_node(|command| _ = command.arg("--no-contain"));
                true
            }
        };
        has_started.then(|| Self::around(cluster, &format!("{kind:?}")))
    }

    fn around(cluster: Cluster, name: &str) -> Self {
        let directory = cluster.sandbox.path("job");
        std::fs::create_dir_all(&directory).expect("a directory");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&directory, open).expect("our own directory");
        let mark = format!("mark-of-{}-{name}", std::process::id());
        Self { cluster, mark, directory }
    }

    /// Starts a job that runs a script; `$MARK` is an argument that no other process has.
    fn start_job(&self, script: &str) -> Running {
        let mut command = self.cluster.sandbox.sailfish();
        command.args(["submit", "--server", &self.cluster.url, "--wait", "--", "sh", "-c"]);
        command.arg(script.replace("$MARK", &self.mark)).current_dir(&self.directory);
        Running::start(&mut command)
    }

    fn marked(&self) -> Vec<i32> {
        processes().filter(|pid| arguments(*pid).contains(&self.mark)).collect()
    }

    #[track_caller]
    fn wait_until_none_is_left(&self, when: &str) {
        wait_until(&format!("no process is left {when}"), || self.marked().is_empty());
    }

    fn node(&self) -> i32 {
        self.cluster.node(0).id() as i32
    }
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").expect("Linux has it").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn arguments(pid: i32) -> Vec<String> {
    let all = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    all.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Returns the children of a process with this name.
fn children_named(parent: i32, name: &str) -> Vec<i32> {
    let of_parent = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (start, rest) = stat.rsplit_once(") ").unwrap_or_default();
        start.ends_with(name) && rest.split(' ').nth(1) == Some(&parent.to_string())
    };
    processes().filter(of_parent).collect()
}

fn kill(pid: i32) {
    // It may have ended with the one that was killed before.
    let _ = rustix::process::kill_process(Pid::from_raw(pid).expect("a number"), Signal::KILL);
}

/// A process in its own session that ignores every signal it can, with the standard streams given.
fn leaves(streams: &str) -> String {
    format!("(setsid sh -c \"trap '' TERM HUP INT QUIT; while :; do sleep 3600; done\" sh $MARK {streams} &)")
}

#[test]
fn processes_that_hold_outputs_wedge_no_slot() {
    for kind in KINDS {
        let Some(place) = Contained::start(kind) else { continue };
        let jobs = [0; 4].map(|_| place.start_job(&format!("{}; echo out", leaves(""))));
        for job in jobs {
            job.wait().expect_failure(1, &["ended, but ", "still had its standard output open"]);
        }
        place.wait_until_none_is_left("after the jobs");
        place.start_job("echo free").wait().expect_success();
    }
}

#[test]
fn cancel_leaves_no_process() {
    for kind in KINDS {
        let Some(place) = Contained::start(kind) else { continue };
        let job = place.start_job(&format!("{}; kill -STOP $$", leaves("")));
        wait_until("it runs", || !place.marked().is_empty());
        place.cluster.run(&["cancel", "1"]).expect_success();
        job.wait().expect_failure(130, &["cancelled"]);
        place.wait_until_none_is_left("after the cancel");
        place.start_job("echo free").wait().expect_success();
    }
}

#[test]
fn killed_node_leaves_no_process() {
    for kind in KINDS {
        let Some(mut place) = Contained::start(kind) else { continue };
        let _job = place.start_job(&format!("{} & sleep 3600", leaves("")));
        wait_until("it runs", || !place.marked().is_empty());
        place.cluster.kill_node();
        place.wait_until_none_is_left("after the node");
    }
}

#[test]
fn node_spawner_and_init_killed_leave_nothing() {
    // Indices of node, spawner and init.
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let Some(place) = Contained::start(NodeKind::Root) else { continue };
        let _job = place.start_job(&format!("{} & sleep 3600", leaves("")));
        wait_until("it runs", || !place.marked().is_empty());
        let spawner = children_named(place.node(), "sailfish-spawn")[0];
        let init = children_named(spawner, "sailfish-init")[0];
        let all = [place.node(), spawner, init];
        order.into_iter().for_each(|index| kill(all[index]));
        place.wait_until_none_is_left(&format!("after {order:?}"));
    }
}

/// Without namespaces the spawner adopts the programs of a killed init, also when the node has ended.
#[test]
fn node_and_subreaper_killed_leave_nothing() {
    for first in [0, 1] {
        let Some(place) = Contained::start(NodeKind::Uncontained) else { continue };
        let _job = place.start_job(&format!("{} & sleep 3600", leaves("")));
        wait_until("it runs", || !place.marked().is_empty());
        let spawner = children_named(place.node(), "sailfish-spawn")[0];
        let both = [place.node(), children_named(spawner, "sailfish-init")[0]];
        [both[first], both[1 - first]].into_iter().for_each(kill);
        place.wait_until_none_is_left("after node and init");
    }
}

#[test]
fn node_replaces_killed_init_and_spawner() {
    for kind in KINDS {
        let Some(place) = Contained::start(kind) else { continue };
        place.start_job("true").wait().expect_success();
        let spawner = children_named(place.node(), "sailfish-spawn")[0];
        children_named(spawner, "sailfish-init").into_iter().for_each(kill);
        place.start_job("true").wait().expect_success();
        kill(spawner);
        place.start_job("true").wait().expect_success();
        place.start_job("true").wait().expect_success();
    }
}

#[test]
fn program_cannot_reach_its_node() {
    for kind in [NodeKind::Root, NodeKind::PlainUser] {
        let Some(place) = Contained::start(kind) else { continue };
        // The limit on processor time would kill the node within a second.
        let script = "pgrep -x sailfish; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c -e --disk
            prlimit --pid $PPID --cpu=1; kill -KILL 1; kill -STOP 1; sleep 1";
        place.start_job(script).wait();
        let script = "echo $$; pgrep -x sailfish || echo none
            cat /proc/1/cmdline /proc/1/environ | tr '\\0' '\\n' | grep -c -e disk -e HOME || true";
        let finished = place.start_job(script).wait().expect_success();
        assert!(finished.text().ends_with("none\n0\n"), "{kind:?}: {}", finished.story());
        assert!(!place.cluster.node(0).has_ended());
    }
}

#[test]
fn next_job_finds_nothing_of_the_last() {
    for kind in [NodeKind::Root, NodeKind::PlainUser] {
        let Some(place) = Contained::start(kind) else { continue };
        let leave = "echo x > /tmp/left; echo x > /dev/shm/left; ipcmk -M 4096; ipcmk -S 1; ipcmk -Q; mkdir -p /tmp/a/b";
        // Both slots have had such a job.
        for _ in 0..4 {
            place.start_job(leave).wait().expect_success();
        }
        let look = "find /tmp /dev/shm /run -maxdepth 1 '(' -name left -o -name a ')'; \
            tail -qn +2 /proc/sysvipc/*; echo end";
        for _ in 0..4 {
            let finished = place.start_job(look).wait().expect_success();
            assert_eq!(finished.text().lines().nth(1), Some("end"), "{kind:?}: {}", finished.story());
        }
    }
}

#[test]
fn killed_local_run_leaves_no_process() {
    let place = blackbox::Sandbox::new();
    place.write("in.txt", "a\n");
    let mark = format!("local-mark-{}", std::process::id());
    for option in [None, Some("--contain")] {
        place.script(
            "map.sh",
            &format!("#!/bin/sh\n{}\ncat | sleep 3600\n", leaves("").replace("$MARK", &mark)),
        );
        let mut args = vec!["--input", "in.txt", "--file", "map.sh", "--mapper", "./map.sh"];
        args.extend(option);
        let run = place.start_job(&args);
        let marked = || processes().any(|pid| arguments(pid).contains(&mark));
        wait_until("it runs", marked);
        run.signal(Signal::KILL);
        wait_until(&format!("no process is left, {option:?}"), || !marked());
    }
}

/// As in many containers: without the right to see all of /proc, a user namespace cannot mount one of its own.
#[test]
fn node_without_namespaces_says_so_and_ends_programs() {
    let Some(mounts) = Mounts::start("a node where namespaces are refused") else { return };
    mounts.small_disk(Path::new("/proc/tty"), "size=4k");
    let mut cluster = Cluster::builder().server_command(|command| _ = command.arg("--no-tokens")).start();
    if !cluster.add_plain_node_inside(&mounts) {
        return;
    }
    cluster.node(0).wait_for_stderr("because namespaces are refused (mount /proc: ");
    let place = Contained::around(cluster, "masked");
    place.start_job(&format!("{} > /dev/null; echo out", leaves("2> /dev/null"))).wait().expect_success();
    place.wait_until_none_is_left("after the job");
}
