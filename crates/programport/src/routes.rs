//! Requests of programs, which go on to the server or to the node of a file.

use crate::stored;
use api::control::{ErrorAnswer, ErrorCode};
use api::intermediate::{
    ChangeIntermediate, CreatedIntermediate, IntermediatePlace, NewIntermediate, OpenIntermediate,
    OpenedIntermediate, RemoveIntermediate,
};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use client::{Client, ClientError};
use dataport::{DataClient, DataScope, Passed, Peer};
use ids::NodeId;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Maximum number of nodes that a port remembers; more forget the one with the lowest number, which is the oldest.
const NODES_MAX: usize = 4096;

/// The state of one port.
#[derive(Clone)]
pub(crate) struct Asking {
    client: Client,
    data: DataClient,
    /// The nodes that the server has named in answers.
    nodes: Arc<Mutex<BTreeMap<NodeId, Peer>>>,
    /// Places for questions to the server.
    questions: Arc<Semaphore>,
}

impl Asking {
    /// Makes the state of a port whose requests go through `client`, which names the job.
    pub fn new(client: Client, data: DataClient, questions: Arc<Semaphore>) -> Self {
        Self { client, data, nodes: Arc::default(), questions }
    }

    /// Remembers a node, and returns the URL of its data port for programs: it leads through this port.
    pub fn url_by_this_port(&self, peer: Peer) -> String {
        let url = format!("http://localhost/nodes/{}", peer.node.0);
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(peer.node, peer);
        if nodes.len() > NODES_MAX {
            nodes.pop_first();
        }
        url
    }

    fn by_this_port(&self, place: IntermediatePlace) -> IntermediatePlace {
        let (node, url, incarnation) = (place.node, place.data_url, place.incarnation);
        let data_url = self.url_by_this_port(Peer { node, url, incarnation });
        IntermediatePlace { data_url, ..place }
    }

    /// Asks the server on a thread that may wait: calls are repeated while it restarts.
    pub async fn ask<T: Send + 'static>(
        &self,
        call: impl AsyncFnOnce(&Client) -> Result<T, ClientError> + Send + 'static,
    ) -> Result<T, Refused> {
        // The places are never closed.
        let _place = self.questions.acquire().await.ok();
        let (client, runtime) = (self.client.clone(), Handle::current());
        let asked = tokio::task::spawn_blocking(move || runtime.block_on(call(&client))).await;
        match asked {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(ClientError::Refused { answer })) => Err(Refused(answer)),
            Ok(Err(error)) => Err(Refused::new(ErrorCode::Failed, error.to_string())),
            Err(error) => Err(Refused::new(ErrorCode::Failed, error.to_string())),
        }
    }

    fn peer(&self, node: NodeId) -> Option<Peer> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned()
    }
}

pub(crate) fn routes(asking: Asking) -> Router {
    Router::new()
        .route("/v1/intermediate-files", post(create).get(list))
        .route("/v1/intermediate-files/open", post(open))
        .route("/v1/intermediate-files/remove", post(remove))
        .route("/v1/intermediate-files/change", post(change))
        .route("/nodes/{node}/data/v1/intermediate/stage-blocks", post(blocks))
        .route("/nodes/{node}/data/v1/intermediate/{file}", get(read))
        .route("/nodes/{node}/data/v1/intermediate/{file}/write", post(write))
        .route("/nodes/{node}/data/v1/intermediate/{file}/close", post(close))
        .route("/nodes/{node}/data/v1/intermediate/{file}/abandon", post(abandon))
        .merge(stored::routes())
        .fallback(elsewhere)
        .method_not_allowed_fallback(elsewhere)
        .with_state(asking)
}

/// Reads the body first: a program that still sends it would not see the answer.
async fn elsewhere(_: Result<Bytes, BytesRejection>) -> Response {
    let message = "a program reaches only intermediate and stored files through the socket of its node; anything else \
         needs --server, a token and the network";
    Refused::new(ErrorCode::Forbidden, message.to_string()).into_response()
}

/// A request that was not done.
pub(crate) struct Refused(ErrorAnswer);

impl Refused {
    fn new(code: ErrorCode, message: String) -> Self {
        Self(ErrorAnswer { code, message })
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status());
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let head = [(header::CONTENT_TYPE, "application/json")];
        (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), head, body).into_response()
    }
}

pub(crate) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    let parsed = serde_json::from_slice(body);
    parsed
        .map_err(|error| Refused::new(ErrorCode::BadRequest, format!("the request cannot be read: {error}")))
}

pub(crate) fn message<T: Serialize>(message: &T) -> Response {
    match serde_json::to_vec(message) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => Refused::new(ErrorCode::Failed, error.to_string()).into_response(),
    }
}

async fn create(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let new: NewIntermediate = parsed(&body)?;
    let created = asking.ask(async move |client| client.create_intermediate(&new).await).await?;
    Ok(message(&CreatedIntermediate { place: asking.by_this_port(created.place), ..created }))
}

async fn list(State(asking): State<Asking>) -> Result<Response, Refused> {
    Ok(message(&asking.ask(async |client| client.intermediates().await).await?))
}

async fn open(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let open: OpenIntermediate = parsed(&body)?;
    let opened = asking.ask(async move |client| client.open_intermediate(&open).await).await?;
    let places = opened.places.into_iter().map(|place| asking.by_this_port(place)).collect();
    Ok(message(&OpenedIntermediate { places, ..opened }))
}

async fn remove(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let remove: RemoveIntermediate = parsed(&body)?;
    asking.ask(async move |client| client.remove_intermediate(&remove).await).await?;
    Ok(message(&()))
}

async fn change(State(asking): State<Asking>, body: Bytes) -> Result<Response, Refused> {
    let change: ChangeIntermediate = parsed(&body)?;
    asking.ask(async move |client| client.change_intermediate(&change).await).await?;
    Ok(message(&()))
}

/// Node of a request, and its file.
type OfFile = Path<(u32, i64)>;

async fn blocks(
    State(asking): State<Asking>,
    Path(node): Path<u32>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request = Request { node, method: Method::POST, route: "stage-blocks".to_string(), body };
    request.send(&asking, &headers).await
}

async fn read(
    State(asking): State<Asking>,
    Path((node, file)): OfFile,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let request = Request { node, method: Method::GET, route: route(file, "", query), body: Bytes::new() };
    request.send(&asking, &headers).await
}

async fn write(
    State(asking): State<Asking>,
    Path((node, file)): OfFile,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request = Request { node, method: Method::POST, route: route(file, "/write", query), body };
    request.send(&asking, &headers).await
}

async fn close(
    State(asking): State<Asking>,
    Path((node, file)): OfFile,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let request =
        Request { node, method: Method::POST, route: route(file, "/close", query), body: Bytes::new() };
    request.send(&asking, &headers).await
}

async fn abandon(
    State(asking): State<Asking>,
    Path((node, file)): OfFile,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request = Request { node, method: Method::POST, route: route(file, "/abandon", None), body };
    request.send(&asking, &headers).await
}

fn route(file: i64, verb: &str, query: Option<String>) -> String {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{file}{verb}{query}")
}

/// A request to the data port of a node.
struct Request {
    node: u32,
    method: Method,
    route: String,
    body: Bytes,
}

impl Request {
    async fn send(self, asking: &Asking, headers: &HeaderMap) -> Response {
        let passed = Passed {
            scope: DataScope::Users,
            method: self.method,
            route: &self.route,
            authorization: headers.get(header::AUTHORIZATION).cloned(),
            body: self.body.into(),
            is_patient: false,
        };
        pass_on(asking, NodeId(self.node), passed).await
    }
}

/// Sends a request to a node with the grant of the program, and never with a right of this node.
pub(crate) async fn pass_on(asking: &Asking, node: NodeId, passed: Passed<'_>) -> Response {
    let Some(peer) = asking.peer(node) else {
        let message = format!("{node} is the place of no file that this program has asked for");
        return (StatusCode::FORBIDDEN, message).into_response();
    };
    match asking.data.pass_on(&peer, passed).await {
        Ok(answer) => (answer.status(), Body::new(reqwest::Body::from(answer))).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, dataport::with_causes(&error)).into_response(),
    }
}
