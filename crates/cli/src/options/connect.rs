//! The server of a command, its credentials, and the trusted authority.

use crate::exit::Failure;
use clap::Args;
use client::Blocking;
use jobspec::state_dir;
use rustix::fs::{Mode, OFlags};
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use trust::Credentials;

/// Variables with the files, if no option names them.
pub const TOKEN_FILE_VARIABLE: &str = "SAILFISH_TOKEN_FILE";
/// Variable with the server, if no option names one. It is set for programs of cluster jobs, where it only affects
/// intermediate and stored files, so that a program that runs `sailfish run` does not submit to the cluster; another variable has
/// the name of its node.
pub const SERVER_VARIABLE: &str = "SAILFISH_SERVER";
pub const NODE_VARIABLE: &str = "SAILFISH_NODE";
pub const CA_VARIABLE: &str = "SAILFISH_CA";
/// Variable with the socket of the node, for programs of cluster jobs.
const SOCKET_VARIABLE: &str = "SAILFISH_SOCKET";
/// Longest path of a socket, in bytes.
const SOCKET_BYTES_MAX: usize = 107;
/// URL of requests that go through such a socket: its host is not looked up.
pub const SOCKET_URL: &str = "http://localhost";

/// Given with every `--server`, also behind a subcommand such as `nodes drain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct CredentialArgs {
    /// File with the token for the server [default: the server's own token, if this user started it on this machine]
    #[arg(long, global = true, value_name = "FILE", env = TOKEN_FILE_VARIABLE)]
    pub token_file: Option<PathBuf>,
    /// Certificate of the server's authority, in PEM [default: the authority that the token names]
    #[arg(long, global = true, value_name = "FILE", env = CA_VARIABLE)]
    pub ca: Option<PathBuf>,
    /// Proxy between this machine and the server, as in http://127.0.0.1:3128; HTTP_PROXY and ALL_PROXY are ignored
    #[arg(long, global = true, value_name = "URL")]
    pub proxy: Option<String>,
}

impl CredentialArgs {
    /// Reads the files. Without a token file, servers' own tokens are looked up when requests are sent.
    pub fn read(&self, url: &str) -> Result<Credentials, Failure> {
        let given = Credentials::read(self.token_file.as_deref(), self.ca.as_deref());
        let given = given.map_err(Failure::refused)?;
        if let Some(proxy) = &self.proxy {
            // The owner of a remote port cannot be verified here.
            return Ok(given.by_proxy(proxy.clone()));
        }
        let Some(dir) = state_dir::servers_dir().filter(|_| self.token_file.is_none()) else {
            return Ok(given);
        };
        let given = match client::own_authority(&dir, url) {
            Some(authority) => given.or_believing(authority),
            None => given,
        };
        Ok(given.or_own_tokens_in(dir))
    }

    /// Returns the credentials of a program of a job, which reaches its server through the socket of its node; None for
    /// other programs, and for one that names a token or another server.
    pub fn of_program(&self, url: Option<&str>) -> Option<Credentials> {
        let socket = std::env::var_os(SOCKET_VARIABLE).filter(|socket| !socket.is_empty())?;
        let is_of_node = url.is_none() || url == std::env::var(SERVER_VARIABLE).ok().as_deref();
        (is_of_node && self.token_file.is_none()).then(|| Credentials::through_socket(short(socket.into())))
    }

    /// Returns a connection to a server.
    pub fn connect(&self, url: &str) -> Result<Blocking, Failure> {
        Blocking::with(url, &self.read(url)?).map_err(Failure::from_client)
    }
}

/// Returns a path of a socket that is short enough for the kernel.
fn short(socket: PathBuf) -> PathBuf {
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else { return socket };
    if socket.as_os_str().len() <= SOCKET_BYTES_MAX {
        return socket;
    }
    match rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        // Each connection of this process looks it up again.
        Ok(held) => PathBuf::from(format!("/proc/self/fd/{}", held.into_raw_fd())).join(name),
        // The connection fails and says why.
        Err(_) => socket,
    }
}

/// Returns the server of the environment; None in programs of jobs.
pub fn server_of_environment() -> Option<String> {
    let in_program = std::env::var_os(NODE_VARIABLE).is_some();
    std::env::var(SERVER_VARIABLE).ok().filter(|url| !in_program && !url.is_empty())
}

/// Returns a command for a hint, with the server of the job.
pub fn hint(command: &str, server: Option<&str>) -> String {
    match server {
        Some(url) => format!("`sailfish {command} --server {url}`"),
        None => format!("`sailfish {command}`"),
    }
}

/// Returns a message of a server with `--server` in the command that it names for a job.
pub fn with_server(message: &str, url: &str) -> String {
    const SHOW: &str = "`sailfish show ";
    let Some((before, after)) = message.split_once(SHOW) else { return message.to_string() };
    match after.split_once('`') {
        Some((job, rest)) if !job.is_empty() && job.bytes().all(|each| each.is_ascii_digit()) => {
            format!("{before}{}{rest}", hint(&format!("show {job}"), Some(url)))
        }
        _ => message.to_string(),
    }
}

/// A server and the credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub url: String,
    pub credentials: CredentialArgs,
}

impl Site {
    pub fn connect(&self) -> Result<Blocking, Failure> {
        self.credentials.connect(&self.url)
    }
}

/// State of jobs: a directory of this machine, or the server of a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct StateArgs {
    /// Directory of the state [default: sailfish in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Use the cluster of this server, as in http://127.0.0.1:7070, instead of this machine. Addresses of its standbys
    /// follow, separated by commas; they are tried in this order
    #[arg(long, value_name = "URL", conflicts_with = "state")]
    pub server: Option<String>,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

impl StateArgs {
    /// Returns a connection to the server; None if none is named.
    pub fn connection(&self) -> Result<Option<Blocking>, Failure> {
        self.site().map(|site| site.connect()).transpose()
    }

    /// Returns the server with its credentials; None if none is named.
    pub fn site(&self) -> Option<Site> {
        let url = self.server.clone()?;
        Some(Site { url, credentials: self.credentials.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::with_server;

    #[test]
    fn named_commands_get_the_server() {
        let url = "http://127.0.0.1:7070";
        assert_eq!(
            with_server("the step \"a\" failed: `sailfish show 189`; more", url),
            "the step \"a\" failed: `sailfish show 189 --server http://127.0.0.1:7070`; more"
        );
        for other in ["exit code 3", "`sailfish show it`", "`sailfish show 1"] {
            assert_eq!(with_server(other, url), other);
        }
    }
}
