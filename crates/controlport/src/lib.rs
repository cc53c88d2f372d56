//! # What it does
//! The server's HTTP port: each route reads a message, asks the server, and answers with a message. It serves clients
//! and nodes.
//!
//! # Where it sits
//! server, filecatalog, metastore, trust -> controlport -> listener, cli (`sailfish server`); `client` speaks to it.
//!
//! # Invariants
//! Bodies are bounded before they are read, JSON by its depth. A gate precedes all routes: it identifies the caller by
//! a token and applies the one table of rules; a route without a rule admits nobody. Changes and refusals leave a row
//! in the audit. An error is always an `api::control::ErrorAnswer`. The answer to a poll or a wait is delayed for a
//! bounded time.
//!
//! # Deliberately absent
//! No decisions, only transport. No record data.
//!
//! # How it is tested
//! `tests/access/` tries every route with every kind of caller; the rest by the black-box tests of a cluster.

mod answer;
mod gate;
mod port;
mod routes;

pub use answer::Problem;
pub use filecatalog::RepairPace;
pub use gate::UserLimits;
pub use port::{Access, Port, TokensAsked};
pub use routes::ConsoleProgram;

use api::control::ErrorCode;
use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use listener::Refusal;
use routes::{
    drills, files, groups, history, intermediates, jobs, nodes, seen, status, stored_files, tokens, usage,
};
use std::sync::{Arc, Once};
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns all routes.
pub fn router(port: Port) -> Router {
    // Routes and document come from the same list.
    let (routes, document) = described();
    let document = Arc::new(document_text(document));
    routes
        .route("/openapi.json", get(move || std::future::ready(answer::document(&document))))
        .merge(old_routes())
        .fallback(answer::no_such_route)
        .layer(middleware::from_fn_with_state(port.clone(), gate::gate))
        .layer(DefaultBodyLimit::max(api::control::BODY_BYTES_MAX))
        .with_state(port)
}

/// Returns earlier spellings of routes (`gate::OLD_ROUTES`), which the document does not have.
fn old_routes() -> Router<Port> {
    Router::new()
        .route("/v1/ifiles", get(intermediates::list).post(intermediates::create))
        .route("/v1/ifiles/open", post(intermediates::open))
        .route("/v1/ifiles/remove", post(intermediates::remove))
        .route_layer(middleware::from_fn(name_new_route))
}

/// Names the new spelling in the log of the server, once in a process: a program that polls must not fill it.
async fn name_new_route(route: MatchedPath, request: Request, next: Next) -> Response {
    static NAMED: Once = Once::new();
    if let Some(new) = gate::route_of_today(route.as_str()) {
        NAMED.call_once(|| {
            let old = route.as_str();
            tracing::warn!("a client calls {old}: change it to call {new}");
        });
    }
    next.run(request).await
}

/// Returns the OpenAPI document of all routes, as served and as written in `docs/openapi.json`.
pub fn openapi_text() -> String {
    document_text(described().1)
}

fn described() -> (Router<Port>, OpenApi) {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(history::list, jobs::submit))
        .routes(routes!(history::details))
        .routes(routes!(history::placements))
        .routes(routes!(history::runs))
        .routes(routes!(history::lineage))
        .routes(routes!(usage::usage))
        .routes(routes!(history::ask))
        .routes(routes!(jobs::submit_batch))
        .routes(routes!(jobs::submit_flow))
        .routes(routes!(jobs::logs))
        .routes(routes!(jobs::wait))
        .routes(routes!(jobs::progress))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::report))
        .routes(routes!(jobs::collect))
        .routes(routes!(jobs::fsck))
        .routes(routes!(files::missing))
        .routes(routes!(files::send, files::receive))
        .routes(routes!(nodes::brief))
        .routes(routes!(nodes::places))
        .routes(routes!(nodes::propose))
        .routes(routes!(nodes::list, nodes::register))
        .routes(routes!(nodes::renew_tokens))
        .routes(routes!(nodes::poll))
        .routes(routes!(nodes::leave))
        .routes(routes!(nodes::kept))
        .routes(routes!(nodes::checked))
        .routes(routes!(drills::struck))
        .routes(routes!(seen::listed))
        .routes(routes!(intermediates::list, intermediates::create))
        .routes(routes!(intermediates::open))
        .routes(routes!(intermediates::remove))
        .routes(routes!(intermediates::change))
        .routes(routes!(intermediates::news))
        .routes(routes!(stored_files::find))
        .routes(routes!(stored_files::list))
        .routes(routes!(stored_files::lease))
        .routes(routes!(stored_files::change))
        .routes(routes!(stored_files::commits))
        .routes(routes!(stored_files::begin))
        .routes(routes!(stored_files::known))
        .routes(routes!(stored_files::number))
        .routes(routes!(stored_files::place))
        .routes(routes!(stored_files::record))
        .routes(routes!(stored_files::commit))
        .routes(routes!(stored_files::abandon))
        .routes(routes!(stored_files::news))
        .routes(routes!(stored_files::parts))
        .routes(routes!(stored_files::of_job))
        .routes(routes!(stored_files::place_output))
        .routes(routes!(stored_files::commit_output))
        .routes(routes!(tokens::admission))
        .routes(routes!(tokens::list_tokens, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(groups::list, groups::create))
        .routes(routes!(groups::delete))
        .routes(routes!(groups::add))
        .routes(routes!(groups::remove))
        .routes(routes!(nodes::drain))
        .routes(routes!(drills::drill))
        .routes(routes!(seen::ask))
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

/// Returns the text of the document, with a line feed at its end.
fn document_text(document: OpenApi) -> String {
    let text = document.to_pretty_json().expect("what was derived from types can be written");
    format!("{text}\n")
}

/// Formats a refusal of the listener as an error of this port.
pub fn refuse(refusal: &Refusal) -> Response {
    let code = match refusal {
        Refusal::NoHost | Refusal::Unmarked(_) => ErrorCode::BadRequest,
        Refusal::OtherHost(_) | Refusal::OtherOrigin(_) | Refusal::OtherSite => ErrorCode::Forbidden,
        Refusal::Full => ErrorCode::TooMany,
    };
    let mut response = Problem::new(code, refusal.to_string()).into_response();
    *response.status_mut() = refusal.status();
    response
}
