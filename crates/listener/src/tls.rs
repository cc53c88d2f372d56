//! The start of a connection to a port with TLS.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use trust::ServerConfig;

/// Time limit of the handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The first byte of every connection with TLS.
const HANDSHAKE_RECORD: u8 = 22;
/// In the format of the control port's errors.
const SPEAK_TLS: &str =
    r#"{"code": "bad_request", "message": "this server speaks TLS: use https:// in place of http://"}"#;

/// Does the handshake; None if it fails.
pub(crate) async fn accept(config: Arc<ServerConfig>, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    timeout(HANDSHAKE_MAX, shake_hands(config, stream)).await.ok().flatten()
}

async fn shake_hands(config: Arc<ServerConfig>, mut stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first[0] == HANDSHAKE_RECORD {
        return TlsAcceptor::from(config).accept(stream).await.ok();
    }
    // Probably plain HTTP, whose client would wait for an answer forever.
    let length = SPEAK_TLS.len();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{SPEAK_TLS}"
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    // The request is read first: closing before would discard the answer.
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    None
}
