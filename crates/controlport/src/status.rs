//! Routes for those who watch.

use crate::Port;
use crate::answer::{Problem, Refusal};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Open to everybody: it tells only that the server answers and its loop lives.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "watchers",
    responses((status = 200, description = "The server answers and its loop lives", body = String, content_type = "text/plain"), (status = "default", response = Refusal))
)]
pub(crate) async fn health(State(port): State<Port>) -> Result<&'static str, Problem> {
    port.server.cluster_status().await?;
    Ok("ok\n")
}

/// Figures in the text format of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "watchers",
    responses((status = 200, description = "Figures in the text format of Prometheus", body = String, content_type = "text/plain"), (status = "default", response = Refusal))
)]
pub(crate) async fn metrics(State(port): State<Port>) -> Result<Response, Problem> {
    let status = port.server.cluster_status().await?;
    let running: u32 = status.nodes.iter().map(|node| node.running).sum();
    let gauges = [
        ("sailfish_nodes", "Nodes that live", status.nodes.len() as u64),
        ("sailfish_slots", "Slots of all nodes", u64::from(status.slots())),
        ("sailfish_attempts_running", "Attempts that run now", u64::from(running)),
    ];
    let mut text = String::new();
    for (name, help, value) in gauges {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n"));
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}
