//! Verification of the other end: a certificate of the one authority, for the one role.

use crate::TrustError;
use crate::secret::AuthorityHash;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, version,
};
use std::sync::Arc;

/// The authority that a caller trusts.
#[derive(Clone, Debug)]
pub(crate) enum Believed {
    /// The authority's certificate comes with the handshake.
    Hash(AuthorityHash),
    Certificate(CertificateDer<'static>),
}

impl Believed {
    pub fn is(&self, hash: AuthorityHash) -> bool {
        match self {
            Self::Hash(own) => *own == hash,
            Self::Certificate(certificate) => AuthorityHash::of(certificate) == hash,
        }
    }

    fn root(&self, sent: &[CertificateDer<'_>]) -> Option<CertificateDer<'static>> {
        match self {
            Self::Certificate(certificate) => Some(certificate.clone()),
            Self::Hash(hash) => {
                let root = sent.iter().find(|each| AuthorityHash::of(each) == *hash)?;
                Some(root.clone().into_owned())
            }
        }
    }
}

#[derive(Debug)]
struct RoleVerifier {
    believed: Believed,
    name: ServerName<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for RoleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let mut roots = RootCertStore::empty();
        roots.add(self.believed.root(intermediates).ok_or_else(unknown)?)?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider));
        let verifier = verifier.build().map_err(|error| Error::General(error.to_string()))?;
        // The host is not checked: the authority signs for this cluster alone, and each certificate names its role.
        verifier.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not supported".to_string()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the reason why the other end of a connection was not trusted, if that ended the connection.
pub fn distrust(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(error.to_string());
        }
        // The source of an I/O error skips the error that it wraps.
        let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match held {
            Some(held) => Some(held as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    None
}

/// Makes the TLS configuration of a caller for ports of this name; without an authority, no handshake succeeds.
pub(crate) fn client_config(
    believed: Option<&Believed>,
    name: &'static str,
) -> Result<ClientConfig, TrustError> {
    let provider = crate::provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13])?;
    let Some(believed) = believed.cloned() else {
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    };
    let name =
        ServerName::try_from(name).map_err(|error| rustls::Error::General(error.to_string()))?.to_owned();
    let verifier = RoleVerifier { believed, name, provider };
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(builder.with_no_client_auth())
}
