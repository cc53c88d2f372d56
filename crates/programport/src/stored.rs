//! Stored files: questions that go on to the server, and bytes that go on to the nodes with the files.

use crate::relay::relayed;
use crate::routes::{Asking, Refused, message, parsed, pass_on};
use api::stored::cluster::{
    BeginStored, ChangeStored, CommitStored, CommitsOfStored, FindStored, KnownOfPut, ListStored,
    NumberStored, PlaceStored, PlacesOfStored, RecordStored, StoredLease, StoredNode, StoredPage, StoredPut,
};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::middleware::from_fn;
use axum::response::Response;
use axum::routing::post;
use dataport::{DataScope, Passed, Peer, pass_over_refused};
use ids::NodeId;
use reqwest::Method;

/// Maximum bytes of a message that lists files of a put: a page of them, with long names.
const LISTED_BYTES_MAX: usize = 16 << 20;

pub(crate) fn routes() -> Router<Asking> {
    Router::new()
        .route("/v1/stored-files/puts/files", post(record))
        .route("/v1/stored-files/puts/commit", post(commit))
        .layer(DefaultBodyLimit::max(LISTED_BYTES_MAX))
        .route("/v1/stored-files/find", post(find))
        .route("/v1/stored-files/list", post(list))
        .route("/v1/stored-files/lease", post(lease))
        .route("/v1/stored-files/change", post(change))
        .route("/v1/stored-files/commits", post(commits))
        .route("/v1/stored-files/puts", post(begin))
        .route("/v1/stored-files/puts/known", post(known))
        .route("/v1/stored-files/puts/numbers", post(numbers))
        .route("/v1/stored-files/puts/places", post(places))
        .route("/v1/stored-files/puts/abandon", post(abandon))
        .route("/nodes/{node}/data/v1/stored/read", post(read))
        .route("/nodes/{node}/data/v1/stored/{disk}/write", post(write))
        .route("/nodes/{node}/data/v1/stored/{disk}/fetch", post(fetch))
        // A refused program would otherwise see a broken connection while it still sends.
        .layer(from_fn(pass_over_refused))
}

async fn find(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: FindStored = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.find_stored(&of).await).await?))
}

async fn lease(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: StoredLease = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.lease_stored(&of).await).await?))
}

async fn change(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: ChangeStored = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.change_stored(&of).await).await?))
}

async fn commits(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: CommitsOfStored = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.stored_commits(&of).await).await?))
}

async fn begin(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: BeginStored = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.begin_stored(&of).await).await?))
}

async fn known(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: KnownOfPut = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.known_stored(&of).await).await?))
}

async fn numbers(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: NumberStored = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.number_stored(&of).await).await?))
}

async fn record(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: RecordStored = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.record_stored(&of).await).await?))
}

async fn commit(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: CommitStored = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.commit_stored(&of).await).await?))
}

async fn abandon(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: StoredPut = parsed(&body)?;
    Ok(message(&asking.ask(async move |client| client.abandon_stored(&of).await).await?))
}

async fn list(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: ListStored = parsed(&body)?;
    let page = asking.ask(async move |client| client.list_stored(&of).await).await?;
    Ok(message(&StoredPage { nodes: by_this_port(&asking, page.nodes), ..page }))
}

async fn places(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let of: PlaceStored = parsed(&body)?;
    let placed = asking.ask(async move |client| client.place_stored(&of).await).await?;
    Ok(message(&PlacesOfStored { disks: by_this_port(&asking, placed.disks) }))
}

/// Returns nodes as programs reach them: through this port.
fn by_this_port(asking: &Asking, nodes: Vec<StoredNode>) -> Vec<StoredNode> {
    let reached = |node: StoredNode| {
        let peer = Peer { node: node.node, url: node.data_url, incarnation: node.incarnation };
        StoredNode { data_url: asking.url_by_this_port(peer), ..node }
    };
    nodes.into_iter().map(reached).collect()
}

async fn read(
    State(asking): State<Asking>,
    Path(node): Path<u32>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    send(&asking, node, "read", &headers, body).await
}

async fn write(
    State(asking): State<Asking>,
    Path((node, disk)): Path<(u32, i64)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    send(&asking, node, &format!("{disk}/write{query}"), &headers, body).await
}

async fn fetch(
    State(asking): State<Asking>,
    Path((node, disk)): Path<(u32, i64)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    send(&asking, node, &format!("{disk}/fetch"), &headers, body).await
}

/// Sends a request to a node. It may take as long as the program waits: the node syncs files, or fetches them.
async fn send(asking: &Asking, node: u32, route: &str, headers: &HeaderMap, body: Body) -> Response {
    let passed = Passed {
        scope: DataScope::Stored,
        method: Method::POST,
        route,
        authorization: headers.get(header::AUTHORIZATION).cloned(),
        body: relayed(body),
        is_patient: true,
    };
    pass_on(asking, NodeId(node), passed).await
}
