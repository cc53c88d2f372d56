//! `sailfish nodes`: who works for a server.

use crate::args::NodesArgs;
use crate::exit::Failure;
use crate::quantity::{bytes, count};
use crate::tables::{left, right, table};
use crate::terminal::print;
use crate::{escape, quantity};
use api::control::NodeStatus;

/// Prints the nodes that live, by number.
pub fn run(args: &NodesArgs) -> Result<(), Failure> {
    let connection = args.credentials.connect(&args.server)?;
    let cluster = connection.run(async |client| client.cluster().await).map_err(Failure::from_client)?;
    if args.json {
        let text = serde_json::to_string_pretty(&cluster).map_err(anyhow::Error::from)?;
        return Ok(print(&format!("{text}\n"))?);
    }
    if cluster.nodes.is_empty() {
        return Ok(print(&format!("no node works for {}\n", args.server))?);
    }
    let columns = [
        left("node"),
        left("name"),
        left("rack"),
        right("slots"),
        right("running"),
        right("memory"),
        right("heard of"),
        left("data port"),
    ];
    let cells = |node: &NodeStatus| {
        vec![
            node.node.to_string(),
            escape::cell(&node.info.name),
            escape::cell(&node.info.rack),
            count(node.info.slots.into()),
            count(node.running.into()),
            bytes(node.info.memory_bytes),
            format!("{} ago", quantity::seconds(node.silent_ms as f64 / 1000.0)),
            escape::cell(&node.info.data_url),
        ]
    };
    Ok(print(&table(&columns, cluster.nodes.iter().map(cells).collect()))?)
}
