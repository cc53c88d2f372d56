//! Machines of a cluster as network namespaces of this one: their links can be cut, mended and made slow.
//!
//! ```text
//!   hub 10.77.0.1, a bridge:  link0 ---- port 10.77.0.10 of machine 0
//!                             link1 ---- port 10.77.0.11 of machine 1 ...
//! ```
//! All namespaces belong to processes that only wait; with them they go, and nothing of them is seen outside.

use crate::{Running, Sandbox, could_not_run};
use std::process::{Command, Stdio};

/// The name of the link on the side of each machine.
const PORT: &str = "port";

/// A hub and the machines on it.
pub struct Racks {
    hub: Running,
    machines: Vec<Running>,
}

impl Racks {
    /// The address of the hub, where the server runs.
    pub const HUB: &str = "10.77.0.1";

    /// Makes so many machines; None, and said so, where this one lets us make no network namespaces.
    pub fn start(what: &str, machines: u32) -> Option<Racks> {
        let tools = [("ip", "-V"), ("tc", "-V"), ("nsenter", "-V"), ("unshare", "-V")];
        let missing = tools.iter().find(|(tool, option)| !answers(Command::new(tool).arg(option)));
        if let Some((tool, _)) = missing {
            could_not_run(what, &format!("there is no {tool} (packages iproute2 and util-linux)"));
            return None;
        }
        if !answers(Command::new("unshare").args(["--net", "true"])) {
            could_not_run(what, "making a network namespace needs root");
            return None;
        }
        let mut racks = Racks { hub: holder(), machines: Vec::new() };
        racks.on_hub(&["ip", "link", "set", "lo", "up"]);
        racks.on_hub(&["ip", "link", "add", "hub", "type", "bridge"]);
        racks.on_hub(&["ip", "address", "add", &format!("{}/24", Racks::HUB), "dev", "hub"]);
        racks.on_hub(&["ip", "link", "set", "hub", "up"]);
        (0..machines).for_each(|number| racks.add_machine(number));
        Some(racks)
    }

    fn add_machine(&mut self, number: u32) {
        let machine = holder();
        let (link, pid) = (link(number), machine.id().to_string());
        self.on_hub(&["ip", "link", "add", &link, "type", "veth", "peer", "name", PORT, "netns", &pid]);
        self.on_hub(&["ip", "link", "set", &link, "master", "hub", "up"]);
        self.machines.push(machine);
        let address = format!("{}/24", Racks::address(number));
        self.on_machine(number, &["ip", "link", "set", "lo", "up"]);
        self.on_machine(number, &["ip", "address", "add", &address, "dev", PORT]);
        self.on_machine(number, &["ip", "link", "set", PORT, "up"]);
    }

    /// The address of a machine, counted from 0.
    pub fn address(machine: u32) -> String {
        format!("10.77.0.{}", 10 + machine)
    }

    /// The same command on the hub.
    pub fn hub(&self, sandbox: &Sandbox, command: &Command) -> Command {
        inside(&self.hub, sandbox, command)
    }

    /// The same command on a machine.
    pub fn machine(&self, number: u32, sandbox: &Sandbox, command: &Command) -> Command {
        inside(&self.machines[number as usize], sandbox, command)
    }

    /// Cuts the link of a machine: nothing goes through, and nobody is told.
    pub fn cut(&self, machine: u32) {
        self.on_hub(&["ip", "link", "set", &link(machine), "down"]);
    }

    /// Mends it.
    pub fn mend(&self, machine: u32) {
        self.on_hub(&["ip", "link", "set", &link(machine), "up"]);
    }

    /// Lets a link carry no more than `rate` either way, as `tc` writes rates: `20mbit`.
    pub fn cap(&self, machine: u32, rate: &str) {
        let limit = |device: &str| -> Vec<String> {
            let words = ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate];
            words.into_iter().chain(["burst", "64kb", "latency", "100ms"]).map(str::to_string).collect()
        };
        fn texts(words: &[String]) -> Vec<&str> {
            words.iter().map(String::as_str).collect()
        }
        self.on_hub(&texts(&limit(&link(machine))));
        self.on_machine(machine, &texts(&limit(PORT)));
    }

    #[track_caller]
    fn on_hub(&self, words: &[&str]) {
        run(&self.hub, words);
    }

    #[track_caller]
    fn on_machine(&self, number: u32, words: &[&str]) {
        run(&self.machines[number as usize], words);
    }
}

fn link(machine: u32) -> String {
    format!("link{machine}")
}

fn answers(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// A process with a network namespace of its own, which waits until it is killed.
fn holder() -> Running {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "echo ready >&2; exec sleep infinity"]);
    let holder = Running::start(&mut command);
    holder.wait_for_stderr("ready");
    holder
}

fn enter(holder: &Running) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", holder.id()));
    command
}

/// `nsenter` becomes the command, so that signals reach it.
fn inside(holder: &Running, sandbox: &Sandbox, command: &Command) -> Command {
    let mut entered = enter(holder);
    sandbox.clean(&mut entered);
    entered.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            entered.env(name, value);
        }
    }
    entered
}

#[track_caller]
fn run(holder: &Running, words: &[&str]) {
    Running::start(enter(holder).args(words)).wait().expect_success();
}
