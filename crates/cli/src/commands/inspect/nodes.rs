//! `sailfish nodes`: the nodes of a server.

use crate::exit::Failure;
use crate::options::connect::CredentialArgs;
use crate::show::escape;
use crate::show::quantity::{self, bytes, count};
use crate::show::tables::{left, right, table};
use crate::show::terminal::{print, tell};
use anyhow::anyhow;
use api::control::{NodeState, NodeStatus};
use api::machine::{DiskReport, DiskState, MachineSample};
use api::stored::need::STORED_NEED_NAMES_MAX;
use clap::{Args, Subcommand};
use client::Blocking;
use ids::NodeId;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct NodesArgs {
    #[command(subcommand)]
    pub action: Option<NodesAction>,
    /// Server of the cluster, as in http://127.0.0.1:7070
    #[arg(long, value_name = "URL", global = true)]
    pub server: Option<String>,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Action on a node.
#[derive(Debug, Subcommand)]
pub enum NodesAction {
    /// Drain a node: it gets no new work, data that running jobs need and stored files move to other nodes, and the node
    /// exits when nothing needs it
    Drain {
        /// Name of the node, or its number as in #5 (quoted in a shell: '#5')
        node: String,
        /// Wait until it is empty
        #[arg(long)]
        wait: bool,
    },
}

/// Interval between two checks of a node that is being drained.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Prints the live nodes, by number, the recently drained ones and those that died within a day; or drains a node.
pub fn run(args: &NodesArgs) -> Result<(), Failure> {
    let server = args.server.as_deref();
    let server = server.ok_or_else(|| Failure::refused(anyhow!("--server is missing: give its URL")))?;
    let connection = args.credentials.connect(server)?;
    if let Some(NodesAction::Drain { node, wait }) = &args.action {
        return drain(&connection, node, *wait);
    }
    let cluster = connection.run(async |client| client.cluster().await).map_err(Failure::from_client)?;
    if args.json {
        let text = serde_json::to_string_pretty(&cluster).map_err(anyhow::Error::from)?;
        return Ok(print(&format!("{text}\n"))?);
    }
    if cluster.nodes.is_empty() && cluster.gone.is_empty() {
        return Ok(print(&format!("the server at {server} has no nodes\n"))?);
    }
    let columns = [
        left("node"),
        left("name"),
        left("rack"),
        left("state"),
        right("slots"),
        right("running"),
        right("memory"),
        right("cpu"),
        right("memory used"),
        right("disk busy"),
        left("disks"),
        right("heard of"),
        left("data port"),
        left("resources"),
        left("sees"),
    ];
    let cells = |node: &NodeStatus| {
        vec![
            number(node.node),
            escape::cell(&node.info.name),
            escape::cell(&node.info.rack),
            state(node),
            count(node.info.slots.into()),
            count(node.running.into()),
            bytes(node.info.memory_bytes),
            sampled(node, |sample| permille(sample.cpu_permille)),
            sampled(node, |sample| bytes(sample.memory_used_bytes)),
            sampled(node, |sample| permille(sample.disk_busy_permille)),
            disks(&node.disks),
            format!("{} ago", quantity::seconds(node.silent_ms as f64 / 1000.0)),
            escape::cell(&node.info.data_url),
            node.info.resources.to_string(),
            sees(node),
        ]
    };
    print(&table(&columns, cluster.nodes.iter().chain(&cluster.gone).map(cells).collect()))?;
    for line in cluster.nodes.iter().filter_map(without_place) {
        tell(&line);
    }
    Ok(())
}

/// Returns the directories that a node sees and not every other.
fn sees(node: &NodeStatus) -> String {
    let dirs: Vec<String> =
        node.info.sees.iter().map(|dir| escape::cell(&dir.display().to_string())).collect();
    dirs.join(", ")
}

/// Returns the state of a node, with the stored files that keep it from leaving.
fn state(node: &NodeStatus) -> String {
    let word = node.state.word();
    match &node.stored_need {
        Some(need) if need.files > 0 => format!("{word}, {} stored parts left", count(need.files)),
        _ => word.to_string(),
    }
}

/// Returns a sentence about the stored files of a drained node that no other node can take, and the way out.
fn without_place(node: &NodeStatus) -> Option<String> {
    let need = node.stored_need.as_ref().filter(|need| need.without_place > 0)?;
    let mut names: Vec<String> =
        need.names.iter().map(|name| format!("files:{}", escape::cell(name))).collect();
    if need.names.len() == STORED_NEED_NAMES_MAX {
        names.push("perhaps others".to_string());
    }
    let of = if names.is_empty() { String::new() } else { format!(" (of {})", names.join(", ")) };
    Some(format!(
        "sailfish: note: {name} stays, because no other node can take {parts} parts of stored files{of}: add a \
         node or a disk, remove the files, or end the process of the node; without it they have fewer replicas, \
         and those without another one cannot be read until it is started again",
        name = escape::cell(&node.info.name),
        parts = count(need.without_place),
    ))
}

/// Drains a node, and prints its state.
fn drain(connection: &Blocking, name: &str, wait: bool) -> Result<(), Failure> {
    let mut status = connection.run(async |client| client.drain(name).await).map_err(Failure::from_client)?;
    if !status.kept_jobs.is_empty() {
        let jobs: Vec<String> = status.kept_jobs.iter().map(ToString::to_string).collect();
        tell(&format!(
            "sailfish: note: {} has kept I-files, which stay on its disks; they can be reduced again \
             once a node uses these disks (of job {})",
            status.info.name,
            jobs.join(", ")
        ));
    }
    let mut told = None;
    while wait && status.state != NodeState::Drained {
        tell_need(&status, &mut told);
        std::thread::sleep(LOOK_EVERY);
        let nodes =
            connection.run(async |client| client.cluster().await).map_err(Failure::from_client)?.nodes;
        let found = nodes.into_iter().find(|node| node.node == status.node);
        status = found.ok_or_else(|| {
            let node = number(status.node);
            Failure::from(anyhow!(
                "node {node} left before it was empty; its data is recomputed, and its stored files get replicas elsewhere"
            ))
        })?;
    }
    let (node, name) = (number(status.node), escape::cell(&status.info.name));
    print(&format!("{node} {name} {}\n", state(&status)))?;
    if !wait {
        without_place(&status).iter().for_each(|line| tell(line));
    }
    Ok(())
}

/// Says which stored files keep a node, whenever other ones find no place.
fn tell_need(node: &NodeStatus, told: &mut Option<u64>) {
    let Some(need) = node.stored_need.as_ref().filter(|need| need.files > 0) else { return };
    if told.replace(need.without_place) != Some(need.without_place) {
        let (name, parts) = (escape::cell(&node.info.name), count(need.files));
        tell(&format!(
            "sailfish: {name} stays until {parts} parts of stored files have copies on other nodes"
        ));
        without_place(node).iter().for_each(|line| tell(line));
    }
}

/// Returns the number of a node in the form that `drain` accepts, which cannot be a name.
fn number(node: NodeId) -> String {
    format!("#{}", node.0)
}

/// Formats a figure of the last sample, if there is one.
fn sampled(node: &NodeStatus, text: impl Fn(&MachineSample) -> String) -> String {
    node.sample.as_ref().map_or_else(|| "-".to_string(), text)
}

fn permille(value: u32) -> String {
    quantity::percent(f64::from(value) / 10.0)
}

/// Shows the free bytes of all usable disks together, and the state of each other disk.
fn disks(disks: &[DiskReport]) -> String {
    if disks.is_empty() {
        return "-".to_string();
    }
    let usable = disks.iter().filter(|disk| disk.state == DiskState::Usable);
    let free = bytes(usable.map(|disk| disk.free_bytes).sum());
    let others = disks.iter().filter(|disk| disk.state != DiskState::Usable);
    let others = others.map(|disk| format!(", {} {}", escape::cell(&disk.path), disk.state.word()));
    format!("{free} free{}", others.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::disks;
    use api::machine::{DiskReport, DiskState};

    #[test]
    fn disks_that_take_nothing_are_named() {
        let disk = |path: &str, free_bytes, state| DiskReport {
            path: path.to_string(),
            total_bytes: 1 << 40,
            free_bytes,
            state,
        };
        assert_eq!(disks(&[]), "-");
        let all = [
            disk("/a", 1 << 30, DiskState::Usable),
            disk("/b", 1 << 10, DiskState::Full),
            disk("/c", 1 << 30, DiskState::ReadOnly),
            disk("/d", 1 << 30, DiskState::Usable),
        ];
        assert_eq!(disks(&all), "2.00 GiB free, /b full, /c read-only");
    }
}
