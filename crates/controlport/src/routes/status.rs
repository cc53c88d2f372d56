//! Routes for monitoring.

use crate::answer::{Problem, Refusal};
use crate::port::Port;
use api::control::{NodeState, NodeStatus};
use api::machine::{DiskReport, DiskState, MachineSample};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use shipped::Figures;

/// Answers every caller: it says only that the server answers and its event loop is alive.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "watchers",
    responses((status = 200, description = "The server answers and its event loop is alive", body = String, content_type = "text/plain"), (status = "default", response = Refusal))
)]
pub(crate) async fn health(State(port): State<Port>) -> Result<&'static str, Problem> {
    port.server.cluster_status().await?;
    Ok("ok\n")
}

/// Returns the figures in the text format of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "watchers",
    responses((status = 200, description = "Figures in the text format of Prometheus", body = String, content_type = "text/plain"), (status = "default", response = Refusal))
)]
pub(crate) async fn metrics(State(port): State<Port>) -> Result<Response, Problem> {
    let mut status = port.server.cluster_status().await?;
    status.nodes.retain(|node| node.state != NodeState::Drained);
    let running: u32 = status.nodes.iter().map(|node| node.running).sum();
    let gauges = [
        ("sailfish_nodes", "Live nodes", status.nodes.len() as u64),
        ("sailfish_slots", "Slots of all nodes", u64::from(status.slots())),
        ("sailfish_attempts_running", "Running attempts", u64::from(running)),
    ];
    let mut text = String::new();
    for (name, help, value) in gauges {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n"));
    }
    if let Some(depot) = port.server.depot() {
        push_files(&mut text, depot.figures());
    }
    push_machines(&mut text, &status.nodes);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

/// Writes the figures of shipped files: how many there are, and how many came and went.
fn push_files(text: &mut String, figures: Figures) {
    for (name, help, kind, value) in [
        ("sailfish_shipped_files", "Kept files of clients", "gauge", figures.files),
        ("sailfish_shipped_bytes", "Bytes of the kept files of clients", "gauge", figures.bytes),
        (
            "sailfish_shipped_received_total",
            "Files that clients have sent",
            "counter",
            figures.received_files,
        ),
        ("sailfish_shipped_received_bytes_total", "Bytes of these files", "counter", figures.received_bytes),
        ("sailfish_shipped_fetched_total", "Files that nodes have fetched", "counter", figures.sent_files),
    ] {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"));
    }
}

/// A figure of a node's last sample.
type OfSample = fn(&MachineSample) -> f64;
/// A figure of a disk.
type OfDisk = fn(&DiskReport) -> u64;

/// Writes the figures of machines: a line for each node, and for each of its disks.
fn push_machines(text: &mut String, nodes: &[NodeStatus]) {
    let samples: [(&str, &str, OfSample); 3] = [
        ("sailfish_node_cpu_ratio", "Fraction of its processors that a node uses", |sample| {
            f64::from(sample.cpu_permille) / 1000.0
        }),
        ("sailfish_node_memory_used_bytes", "Memory in use on a node", |sample| {
            sample.memory_used_bytes as f64
        }),
        (
            "sailfish_node_disk_busy_ratio",
            "Fraction of the time that the busiest disk of a node is busy",
            |sample| f64::from(sample.disk_busy_permille) / 1000.0,
        ),
    ];
    for (name, help, figure) in samples {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n"));
        for node in nodes {
            let Some(sample) = &node.sample else { continue };
            text.push_str(&format!("{name}{{node=\"{}\"}} {}\n", label(&node.info.name), figure(sample)));
        }
    }
    let disks: [(&str, &str, OfDisk); 2] = [
        ("sailfish_disk_free_bytes", "Free space on a disk of a node", |disk| disk.free_bytes),
        ("sailfish_disk_usable", "1 if a disk accepts new chunks", |disk| {
            u64::from(disk.state == DiskState::Usable)
        }),
    ];
    for (name, help, figure) in disks {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n"));
        for (node, disk) in nodes.iter().flat_map(|node| node.disks.iter().map(move |disk| (node, disk))) {
            let (node, path) = (label(&node.info.name), label(&disk.path));
            let value = figure(disk);
            text.push_str(&format!("{name}{{node=\"{node}\",disk=\"{path}\"}} {value}\n"));
        }
    }
}

/// Escapes a name as the value of a label.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn a_name_cannot_end_its_label() {
        assert_eq!(label("node-1"), "node-1");
        assert_eq!(label("a\"} 1\nb\\"), "a\\\"} 1\\nb\\\\");
    }
}
