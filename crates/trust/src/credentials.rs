//! Credentials of a caller: its token, the authority that it trusts, and its proxy.

use crate::verifier::{Believed, client_config};
use crate::{AuthorityHash, CONTROL_NAME, DATA_NAME, Secret, TokenText, TrustError, files};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};

/// The token of a caller and the authority that it trusts. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    secret: Option<Secret>,
    believed: Option<Believed>,
    /// True if the token names the authority of its server, which therefore uses TLS.
    is_for_tls: bool,
    own_tokens: Option<PathBuf>,
    proxy: Option<String>,
    socket: Option<PathBuf>,
}

impl Credentials {
    /// Makes the credentials of a caller without a token and an authority, such as callers on one machine.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads the file of a token, and that of an authority's certificate in PEM. A token that names its authority needs
    /// no certificate; if both are given they must agree.
    pub fn read(token: Option<&Path>, authority: Option<&Path>) -> Result<Self, TrustError> {
        let token = token.map(read_token_file).transpose()?;
        let mut credentials = token.map(Self::of_token).unwrap_or_default();
        if let Some(path) = authority {
            let certificate = CertificateDer::from_pem_slice(read_there(path)?.as_bytes())
                .map_err(|_| TrustError::NoCertificate { path: path.to_path_buf() })?;
            let given = Believed::Certificate(certificate);
            if let Some(Believed::Hash(hash)) = credentials.believed
                && !given.is(hash)
            {
                return Err(TrustError::OtherAuthority { path: path.to_path_buf() });
            }
            credentials.believed = Some(given);
        }
        Ok(credentials)
    }

    /// Makes the credentials of a caller that has this token.
    pub fn of_token(token: TokenText) -> Self {
        let is_for_tls = token.authority.is_some();
        let believed = token.authority.map(Believed::Hash);
        Self { secret: Some(token.secret), believed, is_for_tls, ..Self::default() }
    }

    /// Without a token: the directory in which servers of this user keep their own tokens.
    pub fn or_own_tokens_in(mut self, dir: PathBuf) -> Self {
        self.own_tokens = Some(dir).filter(|_| self.secret.is_none());
        self
    }

    /// Adds the directory of servers' own tokens, one of which is used if no other is given.
    pub fn own_tokens(&self) -> Option<&Path> {
        self.own_tokens.as_deref()
    }

    /// Makes the caller reach the control port through this proxy.
    pub fn by_proxy(mut self, url: String) -> Self {
        self.proxy = Some(url);
        self
    }

    /// Returns the proxy for the control port.
    pub fn proxy(&self) -> Option<&str> {
        self.proxy.as_deref()
    }

    /// Makes the credentials of a program that reaches its cluster only through the socket of its node.
    pub fn through_socket(socket: PathBuf) -> Self {
        Self { socket: Some(socket), ..Self::default() }
    }

    /// Returns the UNIX socket to which all requests go, over plain HTTP.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Makes the caller trust this authority, unless another one is given.
    pub fn or_believing(mut self, authority: AuthorityHash) -> Self {
        self.believed = self.believed.or(Some(Believed::Hash(authority)));
        self
    }

    /// Returns the value of the header `authorization`; None without a token.
    pub fn bearer(&self) -> Option<String> {
        self.secret.as_ref().map(|secret| format!("Bearer {}", secret.text()))
    }

    /// Returns whether the token must not be sent without TLS, not even on this machine: a process that listens in
    /// place of its server would get it.
    pub fn is_for_tls(&self) -> bool {
        self.is_for_tls
    }

    /// Returns whether any port with TLS can be trusted.
    pub fn believes_somebody(&self) -> bool {
        self.believed.is_some()
    }

    /// Returns the TLS configuration for the control port.
    pub fn to_control_port(&self) -> Result<ClientConfig, TrustError> {
        client_config(self.believed.as_ref(), CONTROL_NAME)
    }

    /// Returns the TLS configuration for data ports.
    pub fn to_data_ports(&self) -> Result<ClientConfig, TrustError> {
        client_config(self.believed.as_ref(), DATA_NAME)
    }
}

fn read_there(path: &Path) -> Result<String, TrustError> {
    files::read(path)?.ok_or_else(|| TrustError::Missing { path: path.to_path_buf() })
}

/// Reads the token of a file.
pub fn read_token_file(path: &Path) -> Result<TokenText, TrustError> {
    TokenText::parse(&read_there(path)?).ok_or_else(|| TrustError::NoToken { path: path.to_path_buf() })
}
