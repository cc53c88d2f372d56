//! Something that listens where a server should, and answers every request the same way.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Whoever connects and says nothing is not waited for longer.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Answers until it is dropped.
pub struct StubServer {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StubServer {
    /// Answers with a status line's rest (`200 OK`), a content type and a body.
    pub fn start(status: &'static str, content_type: &'static str, body: &'static str) -> StubServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n{body}"
        );
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if told.load(Ordering::Relaxed) {
                    return;
                }
                // Whoever hangs up has had enough.
                let _ = stream.and_then(|stream| reply(stream, &answer));
            }
        });
        StubServer { address, ends, thread: Some(thread) }
    }

    /// For `--server`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Reads a request with its body, and answers.
fn reply(mut stream: TcpStream, answer: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let (mut read, mut block) = (Vec::new(), [0; 4096]);
    let is_whole = |read: &[u8]| {
        let text = String::from_utf8_lossy(read).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        body.len() >= length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)
    };
    while !is_whole(&read) {
        match stream.read(&mut block)? {
            0 => return Ok(()),
            count => read.extend_from_slice(&block[..count]),
        }
    }
    stream.write_all(answer.as_bytes())
}

impl Drop for StubServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // It waits for somebody.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
