//! A cluster over a real network, each node on a machine of its own: a link is cut and mended, another one is slow. Nothing
//! listens on a loopback address there, so the server has tokens and TLS.

use blackbox::{CLUSTER_MEMORY, Finished, NODE_MEMORY, Racks, Running, Sandbox, wait_until};
use std::process::Command;

struct World {
    racks: Racks,
    sandbox: Sandbox,
    _server: Running,
    nodes: Vec<Running>,
}

impl World {
    fn start(what: &str, machines: u32) -> Option<World> {
        let racks = Racks::start(what, machines)?;
        let sandbox = Sandbox::new();
        let mut serve = sandbox.sailfish();
        serve.args(["server", "--listen", &format!("{}:7070", Racks::HUB), "--require-tokens", "--tls"]);
        // Its programs wait for the test at FIFOs that no job names.
        serve.arg("--no-sandbox");
        serve.arg("--state").arg(sandbox.path("server-state")).arg("--allow-root").arg(sandbox.path(""));
        let server = Running::start(&mut racks.hub(&sandbox, &serve));
        server.wait_for_stderr("serving at");
        sandbox.write_text(4 << 20, 2);
        let mut world = World { racks, sandbox, _server: server, nodes: Vec::new() };
        let args = ["token", "create", "--user", "machines", "--role", "node", "--output", "node.token"];
        world.by_admin(&args).wait().expect_success();
        (0..machines).for_each(|machine| world.add_node(machine));
        Some(world)
    }

    fn url() -> String {
        format!("https://{}:7070", Racks::HUB)
    }

    fn add_node(&mut self, machine: u32) {
        let address = format!("{}:0", Racks::address(machine));
        let (name, rack) = (format!("machine-{machine}"), format!("rack-{}", machine % 2));
        let mut command = self.sandbox.sailfish();
        command.args(["node", "--server", &World::url(), "--token-file", "node.token", "--listen", &address]);
        command.args(["--slots", "2", "--memory", NODE_MEMORY, "--name", &name, "--rack", &rack]);
        command.arg("--disk").arg(self.sandbox.path(&name));
        let node = Running::start(&mut self.racks.machine(machine, &self.sandbox, &command));
        node.wait_for_stderr("joined");
        self.nodes.push(node);
    }

    /// A subcommand with `--server`, on the hub.
    fn by_admin(&self, args: &[&str]) -> Running {
        let token = self.sandbox.path("server-state/admin.token");
        let mut command: Command = self.sandbox.sailfish();
        command.args(args).args(["--server", &World::url(), "--token-file"]).arg(token);
        Running::start(&mut self.racks.hub(&self.sandbox, &command))
    }

    fn start_job(&self, args: &[&str], output: &str) -> Running {
        let own = ["run", "--memory", CLUSTER_MEMORY, "--slots", "2", "--output", output];
        self.by_admin(&[&own[..], args].concat())
    }

    fn expect_as_embedded(&self, job: Running, args: &[&str], output: &str) -> Finished {
        let finished = job.wait().expect_success();
        let own = ["--memory", CLUSTER_MEMORY, "--slots", "2", "--overwrite", "--output", "embedded"];
        self.sandbox.run_job(&[args, &own].concat()).expect_success();
        self.sandbox.assert_same_output(output, "embedded");
        finished
    }

    /// Waits until so many nodes live.
    fn wait_for_nodes(&self, count: usize) {
        let living = || {
            let nodes = self.by_admin(&["nodes", "--json"]).wait().expect_success().json();
            nodes["nodes"].as_array().expect("a list of nodes").len()
        };
        wait_until(&format!("{count} nodes live"), || living() == count);
    }
}

#[test]
fn unreachable_machine_is_replaced_and_comes_back() {
    let Some(world) = World::start("a cluster whose link is cut", 3) else { return };
    let mut hangs = world.sandbox.waiting_before_gate_program("hangs");
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", &hangs.path, "--total-order"];
    let job = world.start_job(&args, "cut");
    assert_eq!(hangs.here.read_line(), "here");
    // What machine 0 holds of the maps is out of reach; nobody is told, no connection is reset.
    world.racks.cut(0);
    world.wait_for_nodes(2);
    world.sandbox.open_gate();
    world.expect_as_embedded(job, &args, "cut");
    world.racks.mend(0);
    world.nodes[0].wait_for_stderr("joining again");
    world.wait_for_nodes(3);
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum"];
    world.expect_as_embedded(world.start_job(&args, "again"), &args, "again");
}

#[test]
fn slow_link_only_slows_its_job() {
    let Some(world) = World::start("a cluster with a slow link", 3) else { return };
    world.racks.cap(1, "20mbit");
    let args = ["--input", "in", "--mapper", "builtin:words", "--total-order"];
    world.expect_as_embedded(world.start_job(&args, "slow"), &args, "slow");
    // Nobody took it for dead: every node joined once.
    for node in &world.nodes {
        assert_eq!(node.stderr_so_far().matches("joined").count(), 1, "{}", node.stderr_so_far());
    }
}
