//! Random secrets and the text in which they travel.

use crate::TrustError;
use sha2::{Digest, Sha256};

const SECRET_BYTES: usize = 32;
const PREFIX: &str = "sailfish";

/// 256 random bits. Printed only by [`Secret::text`].
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// Makes a new secret, from the randomness of the machine.
    pub fn random() -> Result<Self, TrustError> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| TrustError::NoRandomness(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// Returns the SHA-256 of the secret. Only the hash is kept; the secret cannot be found from it.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0).into()
    }

    /// Returns the text for a header.
    pub fn text(&self) -> String {
        format!("{PREFIX}_{}", hex::encode(self.0))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// SHA-256 of the certificate of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorityHash(pub(crate) [u8; 32]);

impl AuthorityHash {
    pub(crate) fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

/// A token as users keep it: the secret, and with TLS the authority that may see it.
#[derive(Clone, Debug)]
pub struct TokenText {
    pub secret: Secret,
    pub authority: Option<AuthorityHash>,
}

impl TokenText {
    /// Reads `sailfish_SECRET` or `sailfish_SECRET_AUTHORITY`, each 64 hex digits; None for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.trim().split('_');
        let (prefix, secret, authority) = (words.next()?, words.next()?, words.next());
        if prefix != PREFIX || words.next().is_some() {
            return None;
        }
        let secret = Secret(digits(secret)?);
        let authority = match authority {
            Some(authority) => Some(AuthorityHash(digits(authority)?)),
            None => None,
        };
        Some(Self { secret, authority })
    }

    /// Returns the full text: to be shown once, or written to a private file.
    pub fn text(&self) -> String {
        match &self.authority {
            Some(authority) => format!("{}_{}", self.secret.text(), hex::encode(authority.0)),
            None => self.secret.text(),
        }
    }
}

fn digits(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{AuthorityHash, Secret, TokenText};

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let secret = Secret::random().unwrap();
        for authority in [None, Some(AuthorityHash::of(b"certificate"))] {
            let token = TokenText { secret: secret.clone(), authority };
            let read = TokenText::parse(&format!("{}\n", token.text())).unwrap();
            assert_eq!((read.secret.hash(), read.authority), (secret.hash(), authority));
        }
        assert_ne!(secret.hash(), Secret::random().unwrap().hash());
    }

    #[test]
    fn wrong_tokens_are_refused() {
        let good = Secret::random().unwrap().text();
        let long = format!("{good}00");
        let twice = format!("{good}_{0}_{0}", "00".repeat(32));
        let short = &good[..good.len() - 2];
        for text in ["", "sailfish", "sailfish_", "other_00", &long, short, &twice, &format!("{good}_12")] {
            assert!(TokenText::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn no_secret_is_printed_by_accident() {
        let token = TokenText { secret: Secret::random().unwrap(), authority: None };
        let digits = token.text().split_off("sailfish_".len());
        assert!(!format!("{token:?}").contains(&digits[..8]));
    }
}
