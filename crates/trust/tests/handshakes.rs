//! Handshakes in memory: the pairs of ends that succeed, and those that fail.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use trust::{Authority, Credentials, DataIdentity, Secret, TokenText, TrustError};

/// Returns whether both ends complete a handshake.
fn shake(client: ClientConfig, server: &Arc<ServerConfig>) -> Result<(), rustls::Error> {
    let host = ServerName::try_from("10.0.0.1").expect("an address");
    let mut client = ClientConnection::new(Arc::new(client), host)?;
    let mut server = ServerConnection::new(Arc::clone(server))?;
    let mut wire = Vec::new();
    while client.is_handshaking() || server.is_handshaking() {
        wire.clear();
        client.write_tls(&mut wire).expect("memory can be written");
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("memory can be read");
            server.process_new_packets()?;
        }
        wire.clear();
        server.write_tls(&mut wire).expect("memory can be written");
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory can be read");
            client.process_new_packets()?;
        }
    }
    Ok(())
}

struct Cluster {
    dir: TempDir,
    authority: Authority,
}

impl Cluster {
    fn new() -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::open(&dir.path().join("trust")).expect("an authority");
        Cluster { dir, authority }
    }

    fn control_port(&self) -> Arc<ServerConfig> {
        self.authority.control_port(&["server.example".into(), "10.0.0.1".into()]).expect("a port")
    }

    fn data_port(&self) -> Arc<ServerConfig> {
        let identity = DataIdentity::generate().expect("a key");
        let chain = self.authority.sign_data_port(&identity.request().expect("a request"));
        identity.data_port(&chain.expect("a certificate")).expect("a port")
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// Makes credentials in the two forms of users: a token that names the authority, and the certificate.
    fn credentials(&self) -> [Credentials; 2] {
        let secret = Secret::random().expect("a secret");
        let token = TokenText { secret: secret.clone(), authority: Some(self.authority.hash()) };
        let token = self.file("token", &token.text());
        let plain = self.file("plain", &secret.text());
        [
            Credentials::read(Some(&token), None).expect("credentials"),
            Credentials::read(Some(&plain), Some(self.authority.path())).expect("credentials"),
        ]
    }
}

#[test]
fn members_of_the_authority_connect() {
    let cluster = Cluster::new();
    for credentials in cluster.credentials() {
        assert!(credentials.believes_somebody());
        shake(credentials.to_control_port().unwrap(), &cluster.control_port()).unwrap();
        shake(credentials.to_data_ports().unwrap(), &cluster.data_port()).unwrap();
    }
    // A restarted server has the same authority.
    let again = Authority::open(&cluster.dir.path().join("trust")).unwrap();
    assert_eq!(again.hash(), cluster.authority.hash());
    let [credentials, _] = cluster.credentials();
    shake(credentials.to_control_port().unwrap(), &again.control_port(&[]).unwrap()).unwrap();
}

#[test]
fn other_authorities_are_not_believed() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    for credentials in other.credentials() {
        shake(credentials.to_control_port().unwrap(), &cluster.control_port()).unwrap_err();
        shake(credentials.to_data_ports().unwrap(), &cluster.data_port()).unwrap_err();
    }
    shake(Credentials::none().to_control_port().unwrap(), &cluster.control_port()).unwrap_err();
}

#[test]
fn nodes_and_server_cannot_impersonate_each_other() {
    let cluster = Cluster::new();
    for credentials in cluster.credentials() {
        shake(credentials.to_control_port().unwrap(), &cluster.data_port()).unwrap_err();
        shake(credentials.to_data_ports().unwrap(), &cluster.control_port()).unwrap_err();
    }
}

#[test]
fn only_a_request_is_signed() {
    let cluster = Cluster::new();
    let whole = DataIdentity::generate().unwrap().request().unwrap();
    // A changed byte within the key invalidates the signature of the request.
    let damaged: String = whole.lines().map(|line| format!("{}\n", line.replace('A', "B"))).collect();
    for request in ["", "no PEM", &whole[..whole.len() / 2], &damaged] {
        assert!(cluster.authority.sign_data_port(request).is_err(), "{request}");
    }
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let secret = Secret::random().unwrap();
    let token = TokenText { secret, authority: Some(cluster.authority.hash()) };
    let token = cluster.file("token", &token.text());
    let words = cluster.file("words", "neither token nor certificate");
    let read = |token: Option<&Path>, authority: Option<&Path>| Credentials::read(token, authority);
    assert!(matches!(
        read(Some(&token), Some(other.authority.path())),
        Err(TrustError::OtherAuthority { .. })
    ));
    assert!(matches!(read(Some(&words), None), Err(TrustError::NoToken { .. })));
    assert!(matches!(read(None, Some(&words)), Err(TrustError::NoCertificate { .. })));
    assert!(matches!(read(Some(Path::new("/nothing/there")), None), Err(TrustError::Missing { .. })));
    let trust = cluster.dir.path().join("trust");
    std::fs::remove_file(trust.join("ca.key")).unwrap();
    assert!(matches!(Authority::open(&trust), Err(TrustError::HalfAuthority { .. })));
}
