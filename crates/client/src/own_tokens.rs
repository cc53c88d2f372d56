//! The own tokens of servers on this machine. A server without `--require-tokens` keeps one in a file of its user;
//! programs of that user send it without set-up, and only to a port that belongs to their user or to root.

use crate::listening::owners_of;
use reqwest::Url;
use reqwest::header::HeaderValue;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use trust::{AuthorityHash, TokenText};

/// Time for which the owner of a port, and the file, are assumed unchanged.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
const ROOT: u32 = 0;

/// Returns the file of the own token of a server on this machine that listens at `address`. Machines that share a home
/// directory have separate files.
pub fn own_token_path(dir: &Path, address: SocketAddr) -> PathBuf {
    dir.join(format!("{}-{address}.token", machine_id()))
}

/// Returns the authority named by the own token of the server at `url`; None without such a token or authority.
pub fn own_authority(dir: &Path, url: &str) -> Option<AuthorityHash> {
    let first = Url::parse(url.split(',').next()?.trim()).ok()?;
    listen_addresses(&first).into_iter().find_map(|address| token_of(dir, address)?.authority)
}

/// Finds the token for an address. The owner of a port and its token are cached for a second.
#[derive(Debug)]
pub(crate) struct OwnTokens {
    dir: PathBuf,
    found: Mutex<HashMap<String, Found>>,
}

#[derive(Clone, Debug)]
struct Found {
    at: Instant,
    /// True if every listener there belongs to this user or to root.
    is_own: bool,
    bearer: Option<HeaderValue>,
}

impl OwnTokens {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf(), found: Mutex::default() }
    }

    /// Returns the header `authorization` for a request to this server; None if there is no token for it.
    pub fn bearer(&self, server: &Url) -> Option<HeaderValue> {
        self.found(server).bearer
    }

    /// Returns whether only this user or root can read data sent there.
    pub fn is_own_port(&self, server: &Url) -> bool {
        self.found(server).is_own
    }

    fn found(&self, server: &Url) -> Found {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = server.origin().ascii_serialization();
        // A port without a listener may be our server's in a moment.
        let holds = |found: &&Found| found.is_own && found.at.elapsed() < LOOK_AGAIN_AFTER;
        if let Some(found) = found.get(&origin).filter(holds) {
            return found.clone();
        }
        let is_own = is_own_port(server);
        let bearer = if is_own { find(&self.dir, server) } else { None };
        let new = Found { at: Instant::now(), is_own, bearer };
        found.insert(origin, new.clone());
        new
    }

    /// Drops the cached entry, so that the next request checks again.
    pub fn forget(&self, server: &Url) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.remove(&server.origin().ascii_serialization());
    }
}

fn is_own_port(server: &Url) -> bool {
    let own_user = rustix::process::geteuid().as_raw();
    // It is unknown which address of a name will be used: every listener at any of them must be trusted.
    let owners = listen_addresses(server).into_iter().map(owners_of).collect::<std::io::Result<Vec<_>>>();
    let owners = owners.unwrap_or_default().concat();
    !owners.is_empty() && owners.iter().all(|owner| [own_user, ROOT].contains(owner))
}

fn find(dir: &Path, server: &Url) -> Option<HeaderValue> {
    let token = listen_addresses(server).into_iter().find_map(|address| token_of(dir, address))?;
    if token.authority.is_some() && server.scheme() != "https" {
        return None;
    }
    let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.secret.text())).ok()?;
    bearer.set_sensitive(true);
    Some(bearer)
}

fn token_of(dir: &Path, address: SocketAddr) -> Option<TokenText> {
    // A missing or damaged file is no token; the server's answer says what to do.
    trust::read_token_file(&own_token_path(dir, address)).ok()
}

/// Returns the addresses at which a server on this machine may listen with this URL; empty for other machines.
fn listen_addresses(server: &Url) -> Vec<SocketAddr> {
    let Some(port) = server.port_or_known_default() else { return Vec::new() };
    let host = server.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let hosts = match host.parse::<IpAddr>() {
        Ok(host) if host.is_loopback() => vec![host],
        Err(_) if host == "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        _ => Vec::new(),
    };
    hosts.into_iter().map(|host| SocketAddr::new(host, port)).collect()
}

/// Returns an id of this machine: the one of systemd and dbus, otherwise one that stays until the next boot.
fn machine_id() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = id.trim();
    if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return id.to_string();
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hash = Sha256::digest(format!("{}\n{host}", boot.trim()));
    hash[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{OwnTokens, listen_addresses, own_authority, own_token_path};
    use reqwest::Url;
    use std::net::TcpListener;
    use trust::{Secret, TokenText};

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn only_addresses_of_this_machine_have_own_tokens() {
        let of = |text: &str| listen_addresses(&url(text));
        assert_eq!(of("http://127.0.0.1:7070"), ["127.0.0.1:7070".parse().unwrap()]);
        assert_eq!(of("http://[::1]:7070"), ["[::1]:7070".parse().unwrap()]);
        assert_eq!(of("http://localhost:7"), ["127.0.0.1:7".parse().unwrap(), "[::1]:7".parse().unwrap()]);
        for elsewhere in ["http://192.0.2.1:7070", "http://example.com", "http://localhost.example.com:7070"]
        {
            assert!(of(elsewhere).is_empty(), "{elsewhere}");
        }
    }

    #[test]
    fn token_is_shown_only_to_trusted_listeners() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = url(&format!("http://{address}"));
        let (token, tokens) = (Secret::random().unwrap().text(), OwnTokens::new(dir.path()));
        assert_eq!(tokens.bearer(&server), None);
        std::fs::write(own_token_path(dir.path(), address), &token).unwrap();
        tokens.forget(&server);
        assert_eq!(tokens.bearer(&server).unwrap().to_str().unwrap(), format!("Bearer {token}"));
        assert!(tokens.bearer(&url(&format!("http://localhost:{}", address.port()))).is_some());
        drop(listener);
        tokens.forget(&server);
        assert_eq!(tokens.bearer(&server), None, "nobody listens");
    }

    #[test]
    fn a_token_for_tls_is_not_shown_without() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let text = format!("{}_{}", Secret::random().unwrap().text(), "ab".repeat(32));
        let token = TokenText::parse(&text).unwrap();
        std::fs::write(own_token_path(dir.path(), address), &text).unwrap();
        let tokens = OwnTokens::new(dir.path());
        assert_eq!(tokens.bearer(&url(&format!("http://{address}"))), None);
        assert!(tokens.bearer(&url(&format!("https://{address}"))).is_some());
        let named = own_authority(dir.path(), &format!("https://{address},https://127.0.0.1:1"));
        assert_eq!(named, token.authority);
    }
}
