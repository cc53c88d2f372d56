//! Sockets, and the connections to them.

use crate::routes::{Asking, routes};
use axum::Router;
use axum::body::Body;
use client::Client;
use dataport::DataClient;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ids::JobId;
use rustix::fs::{Mode, OFlags, open};
use std::convert::Infallible;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tower::ServiceExt;
use trust::Secret;

/// Maximum number of connections of an attempt; others wait.
const CONNECTIONS_MAX: usize = 32;
/// Maximum number of questions to the server at once, each with a thread; others wait.
const QUESTIONS_MAX: usize = 64;
/// Time for the head of a request, and for which an idle connection stays open: longer than clients keep theirs.
const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// Pause when no file descriptor is free.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Beginning of the name of a socket.
const PREFIX: &str = ".sailfish-";
/// Digits of the secret part of its path.
const SECRET_DIGITS: usize = 32;

/// Opens ports for the programs of a node.
#[derive(Clone)]
pub struct ProgramPort {
    runtime: Handle,
    client: Client,
    data: DataClient,
    /// Places for questions to the server, of all attempts.
    questions: Arc<Semaphore>,
}

impl std::fmt::Debug for ProgramPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ProgramPort({:?})", self.client)
    }
}

impl ProgramPort {
    /// Makes the ports of the node that `client` acts as. `data` must present no token of its own.
    pub fn new(runtime: Handle, client: Client, data: DataClient) -> Self {
        Self { runtime, client, data, questions: Arc::new(Semaphore::new(QUESTIONS_MAX)) }
    }

    /// Opens a port in a directory for the programs of an attempt of this job.
    pub fn open(&self, dir: &Path, job: JobId) -> Result<OpenPort> {
        let secret = Secret::random().map_err(Error::other)?.text();
        let socket = dir.join(format!("{PREFIX}{}", &secret[secret.len() - SECRET_DIGITS..]));
        let listener = bind_secretly(dir, &socket)?;
        let _runtime = self.runtime.enter();
        let listener = UnixListener::from_std(listener)?;
        let client = self.client.clone().for_program_of(job);
        let routes = routes(Asking::new(client, self.data.clone(), Arc::clone(&self.questions)));
        let accepting = self.runtime.spawn(serve(listener, routes)).abort_handle();
        Ok(OpenPort { socket, accepting })
    }
}

/// An open port. Its drop ends all connections, and removes the socket.
#[derive(Debug)]
pub struct OpenPort {
    socket: PathBuf,
    accepting: AbortHandle,
}

impl OpenPort {
    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.accepting.abort();
        // It may have gone with its directory.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Binds a socket, and gives it its name afterwards: the kernel lists the names under which sockets were bound for all
/// to see, and limits their length.
fn bind_secretly(dir: &Path, socket: &Path) -> Result<std::os::unix::net::UnixListener> {
    let held = open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let first = format!("{PREFIX}{}", held.as_raw_fd());
    let listener =
        std::os::unix::net::UnixListener::bind(format!("/proc/self/fd/{}/{first}", held.as_raw_fd()))?;
    std::fs::rename(dir.join(first), socket)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers requests of this user's processes until it is dropped.
async fn serve(listener: UnixListener, routes: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // The connections end with this set.
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) if is_own_user(&stream) => {
                let answering = answer(stream, routes.clone());
                connections.spawn(async move {
                    answering.await;
                    drop(place);
                });
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of a program");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

fn is_own_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

async fn answer(stream: UnixStream, routes: Router) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let routes = routes.clone();
        async move {
            let answered = routes.oneshot(request.map(Body::new)).await;
            Ok::<_, Infallible>(answered.unwrap_or_else(|never| match never {}))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    // The program sees how its connection ended; nobody else needs the error.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}
