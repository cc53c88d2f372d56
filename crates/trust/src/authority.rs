//! The authority of a cluster: the key with which its server signs certificates.

use crate::files::{private_directory, read, write_private, write_public};
use crate::secret::AuthorityHash;
use crate::{CONTROL_NAME, DATA_NAME, TrustError, identity};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CERTIFICATE_NAME: &str = "ca.pem";
const KEY_NAME: &str = "ca.key";

/// Signer of certificates for the ports of one cluster. Its certificates do not expire: the key of each lives only in
/// the memory of its process, and a new authority ends the trust in all of them.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    hash: AuthorityHash,
    path: PathBuf,
}

impl Authority {
    /// Opens the authority of a directory: `ca.pem` for everybody, `ca.key` for its owner alone. Creates both on first
    /// use.
    pub fn open(dir: &Path) -> Result<Self, TrustError> {
        private_directory(dir)?;
        let (certificate_path, key_path) = (dir.join(CERTIFICATE_NAME), dir.join(KEY_NAME));
        let (certificate_pem, key_pem) = match (read(&certificate_path)?, read(&key_path)?) {
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(_), None) => {
                return Err(TrustError::HalfAuthority { here: certificate_path, missing: key_path });
            }
            // After a crash between the two files only the key exists: nobody has seen a certificate of it.
            (None, _) => {
                let (certificate, key) = make()?;
                write_private(&key_path, &key)?;
                write_public(&certificate_path, &certificate)?;
                (certificate, key)
            }
        };
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|_| TrustError::NoCertificate { path: certificate_path.clone() })?;
        let hash = AuthorityHash::of(&certificate);
        let issuer = Issuer::from_ca_cert_der(&certificate, KeyPair::from_pem(&key_pem)?)?;
        Ok(Self { issuer, certificate_pem, hash, path: certificate_path })
    }

    /// Returns the hash of the certificate, by which a token names the authority.
    pub fn hash(&self) -> AuthorityHash {
        self.hash
    }

    /// Returns the path of its certificate, for callers that should trust it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the TLS configuration of a control port under these hosts, names or addresses, with a new key.
    pub fn control_port(&self, hosts: &[String]) -> Result<Arc<ServerConfig>, TrustError> {
        let mut names = vec![CONTROL_NAME.to_string()];
        names.extend(hosts.iter().cloned());
        let key = KeyPair::generate()?;
        let certificate = named(CONTROL_NAME, names)?.signed_by(&key, &self.issuer)?;
        identity::server_config(&self.chain(&certificate.pem()), &key)
    }

    /// Signs the key of a data port. Other requested attributes are ignored: the certificate is valid only for data
    /// ports. Returns the certificate and this authority's own, in PEM.
    pub fn sign_data_port(&self, request_pem: &str) -> Result<String, TrustError> {
        let request = CertificateSigningRequestParams::from_pem(request_pem)?;
        let certificate = named(DATA_NAME, vec![DATA_NAME.to_string()])?;
        Ok(self.chain(&certificate.signed_by(&request.public_key, &self.issuer)?.pem()))
    }

    /// Appends the authority's own certificate, for callers that know only its hash.
    fn chain(&self, certificate_pem: &str) -> String {
        format!("{certificate_pem}{}", self.certificate_pem)
    }
}

fn make() -> Result<(String, String), TrustError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = called("Sailfish cluster authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn named(name: &str, alternatives: Vec<String>) -> Result<CertificateParams, TrustError> {
    let mut params = CertificateParams::new(alternatives)?;
    params.distinguished_name = called(name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}
