//! A real browser without a window, and a web site that tells it what to do.

use crate::{WAIT_MAX, could_not_run};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tempfile::TempDir;

/// Names under which distributions install it.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Path to which a page posts the results of its attempts.
const DONE: &str = "/done";
/// A page tells once; nobody waits for more.
const TOLD_MAX: usize = 1;

/// A web site of one page. A request for anything else goes on to a server, as after its name was given another address (DNS
/// rebinding); or is not answered where there is none.
pub struct WebSite {
    pub address: SocketAddr,
    told: Receiver<String>,
}

impl WebSite {
    /// Serves a page at `listen`, until the process ends.
    pub fn start(listen: &str, page: String, rebound_to: Option<&str>) -> WebSite {
        let listener = TcpListener::bind(listen).expect("a loopback address and port are free");
        let address = listener.local_addr().expect("a socket has an address");
        let (tell, told) = sync_channel(TOLD_MAX);
        let rebound_to = rebound_to.map(str::to_string);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (page, rebound_to, tell) = (page.clone(), rebound_to.clone(), tell.clone());
                std::thread::spawn(move || answer(connection, &page, rebound_to.as_deref(), &tell));
            }
        });
        WebSite { address, told }
    }

    /// Waits until the page has told the results of its attempts, by their names.
    #[track_caller]
    pub fn told(&self) -> HashMap<String, String> {
        let told = self.told.recv_timeout(WAIT_MAX).expect("the page comes to its end");
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
    }
}

fn answer(connection: TcpStream, page: &str, rebound_to: Option<&str>, tell: &SyncSender<String>) {
    let mut reader = BufReader::new(connection.try_clone().expect("a socket has copies"));
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let begin = head.len();
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
        let line = head[begin..].to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let path = head.split(' ').nth(1).unwrap_or_default();
    match (path, rebound_to) {
        ("/", _) => reply(connection, "200 OK", page),
        (DONE, _) => {
            reply(connection, "200 OK", "");
            // A test that failed does not listen any more.
            let _ = tell.try_send(String::from_utf8(body).expect("text"));
        }
        (_, Some(server)) => pass_on(connection, server, &head, &body),
        _ => reply(connection, "404 Not Found", ""),
    }
}

fn reply(mut connection: TcpStream, status: &str, page: &str) {
    // A page of another port tells that it is done.
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {}\r\n", page.len());
    let head = format!("{head}access-control-allow-origin: *\r\nconnection: close\r\n\r\n");
    // The browser may be gone.
    let _ = connection.write_all(format!("{head}{page}").as_bytes());
}

/// A connection from its first request on, in both directions.
fn pass_on(mut connection: TcpStream, server: &str, head: &str, body: &[u8]) {
    let mut onward = TcpStream::connect(server).expect("the server listens");
    onward.write_all(head.as_bytes()).and_then(|()| onward.write_all(body)).expect("the server reads");
    let copies = connection.try_clone().and_then(|connection| Ok((connection, onward.try_clone()?)));
    let (mut requests, mut to_server) = copies.expect("a socket has copies");
    std::thread::spawn(move || {
        // Whichever end is cut off, the other one learns it.
        let _ = std::io::copy(&mut requests, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let _ = std::io::copy(&mut onward, &mut connection);
    let _ = connection.shutdown(Shutdown::Both);
}

/// A browser that looks at a page, and ends with the value.
pub struct Browser {
    process: Child,
    _profile: TempDir,
}

impl Browser {
    /// Opens a page. `names` are hosts that lead to other addresses, as `MAP evil.example 127.0.0.1`. None, and said so, where no
    /// browser is installed.
    pub fn open(url: &str, names: &str) -> Option<Browser> {
        let profile = tempfile::Builder::new().prefix("sailfish-browser-").tempdir().expect("a directory");
        for program in PROGRAMS {
            let mut command = Command::new(program);
            // Without its own sandbox, which root cannot have; it sees nothing but pages of the test.
            command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
            command.args(["--no-first-run", "--disable-background-networking", "--no-proxy-server"]);
            command.arg(format!("--user-data-dir={}", profile.path().display()));
            command.arg(format!("--host-resolver-rules={names}")).arg("--remote-debugging-port=0").arg(url);
            command
                .env("HOME", profile.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            if let Ok(process) = command.spawn() {
                return Some(Browser { process, _profile: profile });
            }
        }
        could_not_run("pages in a browser", "there is no Chromium (package chromium)");
        None
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end when the first is gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
