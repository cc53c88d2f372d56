//! # What it does
//! The server's HTTP port: routes for clients and nodes, each of which reads a message, asks the server, and answers
//! with a message.
//!
//! # Where it sits
//! server, metastore, trust -> controlport -> listener, cli (`sailfish server`); `client` speaks to it.
//!
//! # Invariants
//! Bodies are bounded before they are read, JSON by its depth. A gate stands before all routes: it knows the caller by
//! a token and lets through whom the one table of rules admits; a route without a rule answers nobody. What changes
//! something, and what is refused, leaves a row in the audit.
//! An error is always an `api::control::ErrorAnswer`. A poll or a wait is held back for a bounded time.
//!
//! # Deliberately absent
//! No decisions: it only carries. No record data.
//!
//! # How it is tested
//! `tests/access.rs` tries every route with every kind of caller; the rest by the black-box tests of a cluster.

mod answer;
mod audit;
mod caller;
mod console;
mod drills;
mod failed_tokens;
mod files;
mod gate;
mod history;
mod intermediates;
mod jobs;
mod keyring;
mod limits;
mod nodes;
mod of_others;
mod rules;
mod status;
mod tokens;

pub use answer::Problem;
pub use console::ConsoleProgram;
pub use limits::UserLimits;

use api::control::ErrorCode;
use audit::{Refusals, TELL_EVERY};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use console::Console;
use failed_tokens::FailedTokens;
use files::Passages;
use keyring::{Keyring, now_ns};
use limits::Meters;
use listener::Refusal;
use metastore::{Metastore, StoreError};
use server::Server;

use std::sync::Arc;
use std::time::Instant;
use trust::Authority;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Which tokens a server admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokensAsked {
    /// None is needed: each caller is the administrator. For a port that only this machine reaches.
    Never,
    /// Those that the server issued, and its own, by which programs of its user come in without set-up.
    OwnOrIssued,
    /// Those that it issued.
    #[default]
    Issued,
}

/// Rules of access: callers that may come in, and the limits for them.
#[derive(Default)]
pub struct Access {
    pub tokens: TokensAsked,
    pub limits: UserLimits,
    /// Signs the certificates of data ports and is named in the tokens that are given out, where there is TLS.
    pub authority: Option<Authority>,
    /// Starts a process that answers questions of the console; None: there are no answers.
    pub console: Option<ConsoleProgram>,
    /// Nodes must keep user programs in a sandbox.
    pub sandbox: bool,
}

/// State that the routes work on.
#[derive(Clone)]
pub struct Port {
    pub(crate) server: Arc<Server>,
    /// For looking at what the store remembers.
    pub(crate) store: Arc<Metastore>,
    pub(crate) access: Arc<Access>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) failed_tokens: Arc<FailedTokens>,
    pub(crate) passages: Arc<Passages>,
    pub(crate) console: Console,
}

impl Port {
    /// A port of a server; `store` is that of the server, opened for reading.
    pub async fn open(server: Arc<Server>, store: Metastore, access: Access) -> Result<Self, StoreError> {
        let keyring = Keyring::default();
        keyring.reload(&store).await?;
        Ok(Self {
            server,
            store: Arc::new(store),
            access: Arc::new(access),
            keyring: Arc::new(keyring),
            meters: Arc::default(),
            refusals: Arc::default(),
            failed_tokens: Arc::default(),
            passages: Arc::default(),
            console: Console::default(),
        })
    }

    /// Tells from time to time how many refusals were only counted; ends with the server.
    pub async fn tell_refusals(self) {
        loop {
            tokio::time::sleep(TELL_EVERY).await;
            let rows = self.refusals.due(Instant::now(), now_ns());
            if !rows.is_empty() && self.server.audit(rows).await.is_err() {
                return;
            }
        }
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
        .layer(middleware::from_fn_with_state(port.clone(), gate::gate))
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
        .routes(routes!(history::placements))
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
        .routes(routes!(intermediates::list, intermediates::create))
        .routes(routes!(intermediates::open))
        .routes(routes!(intermediates::remove))
        .routes(routes!(intermediates::news))
        .routes(routes!(tokens::admission))
        .routes(routes!(tokens::list_tokens, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(nodes::drain))
        .routes(routes!(drills::drill))
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

/// A request that the listener refused, in the words of this port.
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
