//! Accepting connections, and answering requests on them.

use crate::connections::{ConnectionLimits, Connections, Counted};
use crate::host_names::{HostNames, Refusal};
use crate::once_a_minute::OnceAMinute;
use crate::paced_body::PacedBody;
use crate::tls;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;
use trust::ServerConfig;

/// A connection beyond the bounds ends after this time.
const RESERVE_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause when no file descriptor is free.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
const HEALTH: &str = "/healthz";

/// The address of the caller of a request, in the extensions of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Settings of a port: TLS, host names and limits of connections.
pub struct Door {
    pub tls: Option<Arc<ServerConfig>>,
    pub names: HostNames,
    pub limits: ConnectionLimits,
    /// Function that makes the answer to a refusal in the format of the port.
    pub refuse: fn(&Refusal) -> Response,
}

/// Formats a refusal as text, for ports whose callers are our programs.
pub fn plain_text(refusal: &Refusal) -> Response {
    (refusal.status(), format!("{refusal}\n")).into_response()
}

struct Open {
    door: Door,
    routes: Router,
    refusal_told: OnceAMinute,
}

/// A connection with its two addresses; it may request everything or only `/healthz`.
#[derive(Clone, Copy)]
struct Connection {
    peer: IpAddr,
    local: IpAddr,
    /// True beyond the limits: only `/healthz` is answered.
    is_reserve: bool,
}

/// Answers requests until it is dropped.
pub async fn serve(listener: TcpListener, door: Door, routes: Router) -> Infallible {
    let connections = Connections::new(door.limits);
    let open = Arc::new(Open { door, routes, refusal_told: OnceAMinute::default() });
    loop {
        let (stream, peer) = accepted(&listener).await;
        let open = Arc::clone(&open);
        match connections.count(peer.ip()) {
            Some(counted) => drop(tokio::spawn(open.answer(stream, peer, Some(counted)))),
            None => {
                let answering = tokio::spawn(async move {
                    // A client that is too slow for the handshake frees its place.
                    let _ = tokio::time::timeout(RESERVE_TIME_MAX, open.answer(stream, peer, None)).await;
                });
                connections.hold_in_reserve(answering.abort_handle());
            }
        }
    }
}

async fn accepted(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

fn is_of_one_connection(error: &Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

impl Open {
    async fn answer(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, counted: Option<Counted>) {
        let Ok(local) = stream.local_addr() else { return };
        // Messages are small, and each is awaited. If the option cannot be set, only speed suffers.
        let _ = stream.set_nodelay(true);
        let connection = Connection { peer: peer.ip(), local: local.ip(), is_reserve: counted.is_none() };
        match self.door.tls.clone() {
            None => self.requests(stream, connection).await,
            Some(config) => {
                if let Some(stream) = tls::accept(config, stream).await {
                    self.requests(stream, connection).await;
                }
            }
        }
    }

    async fn requests(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin, connection: Connection) {
        let limits = self.door.limits;
        let service = service_fn(move |request| {
            let open = Arc::clone(&self);
            async move { Ok::<_, Infallible>(open.respond(request, connection).await) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(limits.head_time_max);
        http.keep_alive(!connection.is_reserve);
        // The peer sees how its connection ended; nobody else needs the error.
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn respond(&self, request: Request<Incoming>, connection: Connection) -> Response {
        if let Err(refusal) = self.check(&request, connection) {
            return self.refused(&refusal, connection);
        }
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(PeerAddress(connection.peer));
        let body = match self.door.limits.body_pace {
            Some(pace) => Body::new(PacedBody::new(body, pace)),
            None => Body::new(body),
        };
        let answered = self.routes.clone().oneshot(Request::from_parts(parts, body)).await;
        answered.unwrap_or_else(|never| match never {})
    }

    fn check(&self, request: &Request<Incoming>, connection: Connection) -> Result<(), Refusal> {
        if connection.is_reserve && request.uri().path() != HEALTH {
            return Err(Refusal::Full);
        }
        let names = &self.door.names;
        names.check(request.method(), request.uri(), request.headers(), connection.local)
    }

    fn refused(&self, refusal: &Refusal, connection: Connection) -> Response {
        if self.refusal_told.is_due() {
            tracing::warn!(peer = %connection.peer, "a request was refused: {refusal}");
        }
        let mut response = (self.door.refuse)(refusal);
        // An unread body must not be parsed as the next request.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}
