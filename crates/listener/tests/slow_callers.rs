//! Callers on real sockets that send nothing, stop in the middle, or are too many.

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use listener::{BodyPace, ConnectionLimits, Door, HostNames, PeerAddress, serve};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Short, so that tests do not wait; the tested behaviour does not depend on it.
const SHORT: Duration = Duration::from_millis(100);

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        connections_max: 8,
        connections_per_address_max: 4,
        reserve: 2,
        head_time_max: SHORT,
        body_pace: Some(BodyPace { grace: SHORT, bytes_per_second_min: 1 << 20 }),
    }
}

async fn start(limits: ConnectionLimits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let source = |axum::Extension(peer): axum::Extension<PeerAddress>| async move { peer.0.to_string() };
    let length = |body: Bytes| async move { body.len().to_string() };
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/source", get(source))
        .route("/length", post(length));
    let door = Door { tls: None, names: HostNames::default(), limits, refuse: listener::plain_text };
    tokio::spawn(serve(listener, door, routes));
    address
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("a port that listens")
}

/// Reads until the connection ends.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset counts as an end too.
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

async fn asked(address: SocketAddr, head: &str) -> String {
    let mut stream = connect(address).await;
    let request = format!("{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    rest(&mut stream).await
}

#[tokio::test]
async fn caller_that_finishes_no_head_is_disconnected() {
    let address = start(limits()).await;
    let mut silent = connect(address).await;
    let mut slow = connect(address).await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: loc").await.expect("it reads");
    assert_eq!((rest(&mut silent).await, rest(&mut slow).await), (String::new(), String::new()));
    let answer = asked(address, "GET /source").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("127.0.0.1"), "{answer}");
}

#[tokio::test]
async fn body_must_keep_its_pace() {
    let address = start(ConnectionLimits { head_time_max: Duration::from_secs(60), ..limits() }).await;
    let head = "POST /length HTTP/1.1\r\nhost: localhost\r\nsailfish-request: 1\r\nconnection: close\r\n";
    let mut slow = connect(address).await;
    slow.write_all(format!("{head}content-length: 10\r\n\r\n12345").as_bytes()).await.expect("it reads");
    let answer = rest(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("too slowly: 5 bytes"), "{answer}");
    let mut whole = connect(address).await;
    whole.write_all(format!("{head}content-length: 5\r\n\r\n12345").as_bytes()).await.expect("it reads");
    let answer = rest(&mut whole).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with('5'), "{answer}");
}

#[tokio::test]
async fn only_health_is_answered_beyond_the_limit() {
    let address = start(ConnectionLimits { head_time_max: Duration::from_secs(60), ..limits() }).await;
    // Connections are accepted in order, so these count before the next one.
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(connect(address).await);
    }
    for _ in 0..5 {
        let health = asked(address, "GET /healthz").await;
        assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok"), "{health}");
    }
    let full = asked(address, "GET /source").await;
    assert!(full.starts_with("HTTP/1.1 503") && full.contains("too many connections"), "{full}");
    drop(held);
    while !asked(address, "GET /source").await.starts_with("HTTP/1.1 200") {}
}

#[tokio::test]
async fn a_refused_request_ends_its_connection() {
    let address = start(limits()).await;
    let mut stream = connect(address).await;
    let first = "POST /length HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60\r\n\r\n";
    // The body of one request must not be parsed as the next one.
    let smuggled = "GET /source HTTP/1.1\r\nhost: localhost\r\nsailfish-request: 1\r\n\r\n";
    stream.write_all(format!("{first}{smuggled}").as_bytes()).await.expect("it reads");
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}
