//! Identity of a port: its key and the certificates that vouch for it.

use crate::TrustError;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, version};
use std::sync::Arc;

/// The key of a data port. It never leaves the process.
pub struct DataIdentity(KeyPair);

impl DataIdentity {
    /// Makes a new key.
    pub fn generate() -> Result<Self, TrustError> {
        Ok(Self(KeyPair::generate()?))
    }

    /// Returns the request that the authority is asked to sign, in PEM.
    pub fn request(&self) -> Result<String, TrustError> {
        Ok(CertificateParams::default().serialize_request(&self.0)?.pem()?)
    }

    /// Makes the TLS configuration of the data port, with the answer of the authority.
    pub fn data_port(&self, chain_pem: &str) -> Result<Arc<ServerConfig>, TrustError> {
        server_config(chain_pem, &self.0)
    }
}

pub(crate) fn server_config(chain_pem: &str, key: &KeyPair) -> Result<Arc<ServerConfig>, TrustError> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(chain_pem.as_bytes()).collect();
    let chain = chain.map_err(|_| TrustError::BadCertificate)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(crate::provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}
