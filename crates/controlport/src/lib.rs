//! # What it does
//! The server's HTTP port: routes for clients and nodes, each of which reads a message, asks the server, and answers
//! with a message.
//!
//! # Where it sits
//! server, metastore -> controlport -> cli (`sailfish server`); `client` speaks to it.
//!
//! # Invariants
//! Bodies are bounded before they are read, JSON by its depth. Every route asks who calls before it does anything.
//! An error is always an `api::control::ErrorAnswer`. A poll or a wait is held back for a bounded time.
//!
//! # Deliberately absent
//! No decisions: it only carries. No record data.
//!
//! # How it is tested
//! In `tests/` with the crate `client` over loopback, and by the black-box tests of a cluster.

mod answer;
mod caller;
mod history;
mod jobs;
mod nodes;
mod status;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use metastore::Metastore;
use server::Server;
use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpListener;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What the routes work on.
#[derive(Clone)]
pub struct Port {
    pub(crate) server: Arc<Server>,
    /// For looking at what the store remembers.
    pub(crate) store: Arc<Metastore>,
}

impl Port {
    /// A port of a server; `store` is that of the server, opened for reading.
    pub fn new(server: Arc<Server>, store: Metastore) -> Self {
        Self { server, store: Arc::new(store) }
    }
}

/// All routes.
pub fn router(port: Port) -> Router {
    // The document describes what is routed: both come of one list.
    let (routes, document) = described();
    let document = Arc::new(document_text(document));
    routes
        .route("/openapi.json", get(move || std::future::ready(answer::document(&document))))
        .fallback(answer::no_such_route)
        .layer(DefaultBodyLimit::max(api::control::BODY_BYTES_MAX))
        .with_state(port)
}

/// The OpenAPI document of all routes, as it is served and stands in `docs/openapi.json`.
pub fn openapi_text() -> String {
    document_text(described().1)
}

fn described() -> (Router<Port>, OpenApi) {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(history::list, jobs::submit))
        .routes(routes!(history::details))
        .routes(routes!(history::ask))
        .routes(routes!(jobs::submit_batch))
        .routes(routes!(jobs::logs))
        .routes(routes!(jobs::wait))
        .routes(routes!(jobs::progress))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::report))
        .routes(routes!(nodes::brief))
        .routes(routes!(nodes::propose))
        .routes(routes!(nodes::list, nodes::register))
        .routes(routes!(nodes::poll))
        .routes(routes!(nodes::leave))
        .routes(routes!(status::health))
        .routes(routes!(status::metrics))
        .split_for_parts()
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Sailfish control port",
        description = "Jobs in, work out to nodes, and what the store knows. docs/protocol.md says in which order.",
        version = "1",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(responses(answer::Refusal), schemas(api::control::ErrorAnswer, api::control::ErrorCode))
)]
struct Description;

/// With a line feed at its end, as files have it.
fn document_text(document: OpenApi) -> String {
    let text = document.to_pretty_json().expect("what was derived from types can be written");
    format!("{text}\n")
}

/// Answers requests until `stop` is done; requests that are being answered then come to their end.
pub async fn serve(
    listener: TcpListener,
    port: Port,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, router(port)).with_graceful_shutdown(stop).await
}

/// Answers requests to the data port of a node until it is dropped.
pub async fn serve_data(listener: TcpListener, routes: Router) {
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!(%error, "the data port stopped");
    }
}
