//! One request over a socket, written as it is given: also such as no library would send.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Version of the protocol that clients and nodes speak that know nothing but `docs/protocol.md`.
pub const PROTOCOL: u32 = 26;

/// A server that says nothing for so long hangs: polls and waits are held back for five seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The header that shows the server's own token, by the address of the server.
static SHOWN: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);

/// From now on each request to this address shows this token, unless its head has a header `authorization`.
pub fn show_token(address: &str, token: &str) {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let header = format!("authorization: Bearer {}", token.trim());
    shown.get_or_insert_default().insert(address.to_string(), header);
}

/// The header that [`show_token`] has for this address.
pub fn shown_at(address: &str) -> Option<String> {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    shown.as_ref()?.get(address).cloned()
}

/// Answer of a server.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// In lower case, as they came.
    pub headers: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; None where it is none.
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends a head (its first line without the version, more lines below it) and a body on a connection of its own, and the token of
/// [`show_token`]. The error says what came in place of an answer.
pub fn exchange(address: &str, head: &str, body: &[u8]) -> Result<Answer, String> {
    exchange_within(address, head, body, SILENCE_MAX)
}

/// The same, but whoever says nothing for so long is not waited for.
pub fn exchange_within(
    address: &str,
    head: &str,
    body: &[u8],
    silence_max: Duration,
) -> Result<Answer, String> {
    let has_own = head.to_ascii_lowercase().contains("\nauthorization:");
    let token = shown_at(address).filter(|_| !has_own);
    send(address, head, body, token.as_deref(), silence_max)
}

/// As [`exchange`], by a caller without a token.
pub fn exchange_without_token(address: &str, head: &str, body: &[u8]) -> Result<Answer, String> {
    send(address, head, body, None, SILENCE_MAX)
}

fn send(
    address: &str,
    head: &str,
    body: &[u8],
    token: Option<&str>,
    silence_max: Duration,
) -> Result<Answer, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
    let limits = [
        stream.set_read_timeout(Some(silence_max)),
        stream.set_write_timeout(Some(SILENCE_MAX)),
        stream.set_nodelay(true),
    ];
    limits.into_iter().collect::<Result<(), _>>().expect("a socket has time-outs");
    let (first, more) = head.split_once('\n').unwrap_or((head, ""));
    let length = match more.to_ascii_lowercase().contains("content-length") {
        true => String::new(),
        false => format!("content-length: {}\r\n", body.len()),
    };
    // Without one a server takes the request for that of a web page.
    let is_marked = first.starts_with("GET ") || more.to_ascii_lowercase().contains("content-type:");
    let media_type = if is_marked { "" } else { "content-type: application/json\r\n" };
    let token = token.map(|header| format!("{header}\r\n")).unwrap_or_default();
    let more: String = more.lines().map(|line| format!("{line}\r\n")).collect();
    let ours = format!("host: {address}\r\nconnection: close\r\n{media_type}{length}{token}");
    let head = format!("{first} HTTP/1.1\r\n{ours}{more}\r\n");
    let sent = stream.write_all(&[head.as_bytes(), body].concat());
    // A server may answer, and close, before it has read all.
    if let Err(error) = sent
        && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
    {
        return Err(format!("it does not read: {error}"));
    }
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if bytes.is_empty() => Err(format!("no answer: {error}")),
        _ => parsed(&bytes),
    }
}

/// Sends the beginning of a request and hangs up.
pub fn break_off(address: &str, text: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("a server listens");
    stream.write_all(text).expect("it reads");
    // Whoever has hung up already is told nothing.
    let _ = stream.shutdown(Shutdown::Both);
}

fn parsed(bytes: &[u8]) -> Result<Answer, String> {
    let garbled = || format!("no HTTP: {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(garbled)?;
    let headers = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(garbled)?;
    Ok(Answer { status, headers, body: bytes[end + 4..].to_vec() })
}
