//! A cluster of real processes: a server and nodes that a test may kill and start again.

use crate::waiting::wait_for_some;
use crate::{Finished, Mounts, Running, Sandbox, http};
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// Memory of the jobs of tests, which must not follow from the machine.
pub const CLUSTER_MEMORY: &str = "256M";

/// Memory of a node for all its jobs: four of those of tests at once.
pub const NODE_MEMORY: &str = "1G";

/// Change of the command of a server before it is started.
type CommandChange<'a> = Box<dyn FnOnce(&mut Command) + 'a>;

/// Description of a cluster that is to be started.
#[derive(Default)]
pub struct ClusterBuilder<'a> {
    racks: Vec<String>,
    environment: Vec<(String, String)>,
    database: Option<String>,
    roots: Vec<&'a str>,
    change: Option<CommandChange<'a>>,
}

impl<'a> ClusterBuilder<'a> {
    /// Starts so many nodes in one rack, with two slots and a disk each.
    pub fn nodes(self, count: u32) -> Self {
        self.racks(&vec!["rack-0"; count as usize])
    }

    /// Starts one node in each of these racks.
    pub fn racks(mut self, racks: &[&str]) -> Self {
        self.racks = racks.iter().map(ToString::to_string).collect();
        self
    }

    /// Adds variables to the environment of all processes.
    pub fn environment(mut self, environment: Vec<(String, String)>) -> Self {
        self.environment = environment;
        self
    }

    /// Keeps the rows in a PostgreSQL, by its URL, in place of SQLite.
    pub fn database(mut self, url: impl Into<Option<String>>) -> Self {
        self.database = url.into();
        self
    }

    /// Lets jobs name only paths below these directories of the sandbox.
    pub fn roots(mut self, roots: &[&'a str]) -> Self {
        self.roots = roots.to_vec();
        self
    }

    /// Changes the command of the first server. A restarted server does not have the change.
    pub fn server_command(mut self, change: impl FnOnce(&mut Command) + 'a) -> Self {
        self.change = Some(Box::new(change));
        self
    }

    /// Starts the server and its nodes, and waits until all have joined.
    pub fn start(self) -> Cluster {
        let sandbox = Sandbox::with_environment(self.environment);
        let roots: Vec<PathBuf> = self.roots.iter().map(|root| sandbox.path(root)).collect();
        for root in &roots {
            std::fs::create_dir_all(root).expect("our own directory takes another");
        }
        let mut command = server_command(&sandbox, &own_address(), self.database.as_deref(), &roots);
        if let Some(change) = self.change {
            change(&mut command);
        }
        let mut cluster = Cluster::join(sandbox, Running::start(&mut command), self.database, roots);
        self.racks.iter().for_each(|rack| cluster.add_node_in(rack));
        cluster
    }
}

/// A server in a sandbox and the nodes that work for it.
pub struct Cluster {
    pub sandbox: Sandbox,
    pub url: String,
    server: Option<Running>,
    /// A PostgreSQL that has the rows, where it is not the state directory.
    database: Option<String>,
    /// Directories of the sandbox below which jobs may name paths; empty: everywhere.
    roots: Vec<PathBuf>,
    nodes: Vec<Running>,
    /// Racks of all nodes that were ever started.
    racks: Vec<String>,
}

impl Cluster {
    /// Describes a cluster: a server on SQLite without nodes, until the builder says more.
    pub fn builder<'a>() -> ClusterBuilder<'a> {
        ClusterBuilder::default()
    }

    fn join(sandbox: Sandbox, server: Running, database: Option<String>, roots: Vec<PathBuf>) -> Cluster {
        server.wait_for_stderr("serving at");
        let told = server.stderr_so_far();
        let url = told.split_whitespace().find(|word| word.starts_with("http://"));
        let url = url.expect("a server tells its URL").trim_end_matches(',').to_string();
        let address = url.trim_start_matches("http://");
        if let Some(file) = sandbox.own_token_file(address) {
            http::show_token(address, &std::fs::read_to_string(file).expect("our own file"));
        }
        let server = Some(server);
        Cluster { sandbox, url, server, database, roots, nodes: Vec::new(), racks: Vec::new() }
    }

    /// Starts one more node, with a disk of its own.
    pub fn add_node(&mut self) {
        self.add_node_in("rack-0");
    }

    /// The same, watched by a process that starts it again; the oldest node is that process.
    pub fn add_supervised_node(&mut self) {
        self.add_node_with("rack-0", &["--supervise"]);
    }

    /// Process number of the node that the process at this place, the oldest being 0, watches; None while none runs.
    pub fn watched_by(&self, number: usize) -> Option<u32> {
        let id = self.nodes[number].id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        children.split_whitespace().next().and_then(|child| child.parse().ok())
    }

    /// The process of the server.
    pub fn server(&self) -> &Running {
        self.server.as_ref().expect("a server runs")
    }

    /// Returns the address at which the server listens, without the scheme.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// The header `authorization` with the server's own token, for requests without a library.
    pub fn own_token_header(&self) -> String {
        http::shown_at(self.address()).expect("the server has a token of its own")
    }

    /// The process at this place among the nodes that live.
    pub fn node(&self, number: usize) -> &Running {
        &self.nodes[number]
    }

    /// One more in a rack.
    pub fn add_node_in(&mut self, rack: &str) {
        self.add_node_with(rack, &[]);
    }

    /// One more that reaches the server at another address, as `127.0.0.1:5432`.
    pub fn add_node_by(&mut self, address: &str) {
        let token = self.sandbox.own_token_file(self.address());
        let direct = std::mem::replace(&mut self.url, format!("http://{address}"));
        // The server's own token is found only at the server's own address.
        self.add_changed_node(|command| {
            if let Some(file) = token {
                command.arg("--token-file").arg(file);
            }
        });
        self.url = direct;
    }

    /// One more, with changes to its command.
    pub fn add_changed_node(&mut self, change: impl FnOnce(&mut Command)) {
        self.add_node_as("rack-0", &[], change);
    }

    /// One more in a place where file systems are mounted, with changes to its arguments, the last of which name its disk.
    pub fn add_node_inside(&mut self, mounts: &Mounts, change: impl FnOnce(&mut Vec<OsString>)) {
        self.racks.push("rack-0".to_string());
        let mut args = self.node_args(self.racks.len() as u32 - 1, &[]);
        change(&mut args);
        let mut command = self.sandbox.sailfish();
        self.start_node(&mut mounts.inside(&self.sandbox, command.args(args)));
    }

    /// One more that runs as a user whom permissions bind, and needs no token. False, and said so, where the machine does
    /// not let us.
    pub fn add_plain_node(&mut self, more: &[&str]) -> bool {
        self.racks.push("rack-0".to_string());
        let number = self.racks.len() as u32 - 1;
        std::fs::create_dir_all(self.node_disk(number)).expect("our own directory takes another");
        match self.sandbox.as_plain_user(self.node_args(number, more)) {
            Some(mut command) => {
                self.start_node(&mut command);
                true
            }
            None => false,
        }
    }

    /// The same in a place where file systems are mounted.
    pub fn add_plain_node_inside(&mut self, mounts: &Mounts) -> bool {
        self.racks.push("rack-0".to_string());
        let number = self.racks.len() as u32 - 1;
        std::fs::create_dir_all(self.node_disk(number)).expect("our own directory takes another");
        let Some(plain) = self.sandbox.as_plain_user(self.node_args(number, &[])) else { return false };
        // Only root enters the place.
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(plain.get_program()).args(plain.get_args());
        self.start_node(&mut mounts.inside(&self.sandbox, &command));
        true
    }

    /// One more in a rack, with more options.
    pub fn add_node_with(&mut self, rack: &str, more: &[&str]) {
        self.add_node_as(rack, more, |_| ());
    }

    fn add_node_as(&mut self, rack: &str, more: &[&str], change: impl FnOnce(&mut Command)) {
        self.racks.push(rack.to_string());
        self.start_changed_node(self.racks.len() as u32 - 1, more, change);
    }

    /// Starts the node again that was started as this one, counting from 0: under its name, in its rack, on its disk. It
    /// waits until the server has noticed that the one before it is gone.
    pub fn restart_node(&mut self, number: u32) {
        self.restart_changed_node(number, &[], |_| ());
    }

    /// The same with more options and changes to its command.
    pub fn restart_changed_node(&mut self, number: u32, more: &[&str], change: impl FnOnce(&mut Command)) {
        self.start_changed_node(number, &[&["--again"], more].concat(), change);
    }

    fn start_changed_node(&mut self, number: u32, more: &[&str], change: impl FnOnce(&mut Command)) {
        let mut command = self.sandbox.sailfish();
        command.args(self.node_args(number, more));
        // Programs get that of their node.
        command.env("LANG", "C.UTF-8");
        change(&mut command);
        self.start_node(&mut command);
    }

    /// Returns the arguments of the node that is started as this one, counting from 0.
    fn node_args(&self, number: u32, more: &[&str]) -> Vec<OsString> {
        let (name, rack) = (format!("node-{number}"), &self.racks[number as usize]);
        let own = ["node", "--server", &self.url, "--memory", NODE_MEMORY, "--name", &name, "--rack", rack];
        let slots: &[&str] = if more.contains(&"--slots") { &[] } else { &["--slots", "2"] };
        let own = own.into_iter().chain(slots.iter().copied());
        // Disks of test machines may be full.
        let reserve: &[&str] =
            if more.contains(&"--shuffle-reserve") { &[] } else { &["--shuffle-reserve", "0"] };
        let own = own.chain(reserve.iter().copied());
        let mut args: Vec<OsString> = own.chain(more.iter().copied()).map(OsString::from).collect();
        args.extend(["--disk".into(), self.node_disk(number).into_os_string()]);
        args
    }

    fn start_node(&mut self, command: &mut Command) {
        let node = Running::start(command);
        node.wait_for_stderr("joined");
        self.nodes.push(node);
    }

    /// The disk of the node that was started as this one, counting from 0.
    pub fn node_disk(&self, number: u32) -> PathBuf {
        self.sandbox.path(&format!("node-disk-{number}"))
    }

    /// Kills the oldest node that lives, at once.
    #[track_caller]
    pub fn kill_node(&mut self) {
        self.kill_node_at(0);
    }

    /// The same of the one that was started as this one among those that live.
    pub fn kill_node_at(&mut self, number: usize) {
        let node = self.nodes.remove(number);
        node.signal(Signal::KILL);
        // Programs of its tasks hold its outputs; it is not waited for.
        drop(node);
    }

    /// Tells the oldest node that lives to end, and waits for it.
    #[track_caller]
    pub fn stop_node(&mut self) {
        let node = self.nodes.remove(0);
        node.signal(Signal::TERM);
        node.wait().expect_success();
    }

    /// Takes the node out that was started as this one among those that live: the test ends it.
    pub fn take_node(&mut self, number: usize) -> Running {
        self.nodes.remove(number)
    }

    /// Waits until the node ends by itself that was started as this one among those that live, the oldest being 0.
    #[track_caller]
    pub fn wait_for_node(&mut self, number: usize) {
        self.nodes.remove(number).wait().expect_success();
    }

    /// Waits until a crash point ends the node that was started as this one among those that live.
    #[track_caller]
    pub fn wait_for_crash(&mut self, number: usize) {
        let ended = self.nodes.remove(number).wait();
        assert!(ended.signal().is_some(), "should have been aborted:\n{}", ended.story());
    }

    /// Kills the server at once and starts it again at the same address.
    #[track_caller]
    pub fn restart_server(&mut self) {
        let server = self.server.take().expect("a server runs");
        server.signal(Signal::KILL);
        server.wait();
        let started = self.another_server();
        started.wait_for_stderr("serving at");
        self.server = Some(started);
    }

    /// Starts a server at the address of the first; where that one lives, it waits.
    pub fn another_server(&self) -> Running {
        self.another_changed_server(|_| ())
    }

    /// The same with a change to its command.
    pub fn another_changed_server(&self, change: impl FnOnce(&mut Command)) -> Running {
        let mut command =
            server_command(&self.sandbox, self.address(), self.database.as_deref(), &self.roots);
        change(&mut command);
        Running::start(&mut command)
    }

    /// The same with a state directory of its own, as on another machine, and more options.
    pub fn server_elsewhere(&self, state: &str, more: &[&str]) -> Running {
        let database = self.database.as_deref().expect("servers share a database");
        let mut command = self.sandbox.sailfish();
        command.args(["server", "--listen", self.address(), "--database", database]).args(more);
        Running::start(command.arg("--state").arg(self.sandbox.path(state)))
    }

    /// Puts a server in the place of the one that was killed.
    pub fn led_by(&mut self, server: Running) {
        self.server = Some(server);
    }

    /// Waits until the server ends by itself.
    #[track_caller]
    pub fn wait_for_server(&mut self) -> Finished {
        self.server.take().expect("a server runs").wait()
    }

    /// Kills the server at once.
    #[track_caller]
    pub fn kill_server(&mut self) {
        let server = self.server.take().expect("a server runs");
        server.signal(Signal::KILL);
        server.wait();
    }

    /// A subcommand with `--server`.
    pub fn sailfish(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.sailfish();
        command.args(args).args(["--server", &self.url]);
        command
    }

    /// Runs a subcommand with `--server` to its end.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Finished {
        Running::start(&mut self.sailfish(args)).wait()
    }

    /// Asks again and again until the answer, from standard output, is as it should be.
    #[track_caller]
    pub fn ask_until(&self, args: &[&str], is_right: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let found = wait_for_some(|| {
            last = self.run(args).expect_success().text();
            is_right(&last).then(|| last.clone())
        });
        found.unwrap_or_else(|| panic!("{args:?} went on to say\n{last}"))
    }

    /// Returns what `sailfish explain` says of a job.
    #[track_caller]
    pub fn explain(&self, job: i64) -> String {
        self.run(&["explain", &job.to_string()]).expect_success().text()
    }

    /// `sailfish run` on the cluster with memory and slots set, so that its sizes are those of an embedded run.
    pub fn job(&self, args: &[&str]) -> Command {
        let mut command = self.sailfish(&["run", "--memory", CLUSTER_MEMORY, "--slots", "2"]);
        command.args(args);
        command
    }

    /// Runs [`Cluster::job`] to its end.
    #[track_caller]
    pub fn run_job(&self, args: &[&str]) -> Finished {
        Running::start(&mut self.job(args)).wait()
    }

    /// Checks that the output `out` of [`Cluster::job`] with these options is that of one machine.
    #[track_caller]
    pub fn assert_as_embedded(&self, args: &[&str]) {
        let own = ["--memory", CLUSTER_MEMORY, "--slots", "2", "--output", "embedded"];
        self.sandbox.run_job(&[args, &own].concat()).expect_success();
        self.sandbox.assert_same_output("out", "embedded");
    }
}

fn server_command(sandbox: &Sandbox, address: &str, database: Option<&str>, roots: &[PathBuf]) -> Command {
    let mut command = sandbox.sailfish();
    command.args(["server", "--listen", address, "--state"]).arg(sandbox.path("server-state"));
    command.args(["--repair-grace", "1s"]);
    for root in roots {
        command.arg("--allow-root").arg(root);
    }
    if let Some(database) = database {
        command.args(["--database", database]);
    }
    command
}

/// Returns an address whose port no other process gets between two servers of a test: the kernel gives none below 32768,
/// and each test holds a lock on its own.
fn own_address() -> String {
    const FIRST: u32 = 20_000;
    const PORTS: u32 = 12_000;
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let locks = std::env::temp_dir().join(format!("blackbox-ports-{}", rustix::process::getuid().as_raw()));
    std::fs::create_dir_all(&locks).expect("a directory for locks");
    let start = std::process::id().wrapping_mul(31);
    for port in (0..PORTS).map(|step| FIRST + start.wrapping_add(step) % PORTS) {
        let lock = File::create(locks.join(port.to_string())).expect("a lock");
        if lock.try_lock().is_ok() && std::net::TcpListener::bind(("127.0.0.1", port as u16)).is_ok() {
            HELD.lock().expect("no panic").push(lock);
            return format!("127.0.0.1:{port}");
        }
    }
    panic!("no port is free");
}
