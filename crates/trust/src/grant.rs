//! Rights that a server signs and data ports verify alone. Nodes have only the public keys, so they cannot grant
//! themselves rights. A right to a job is for nodes, and valid while its key is the newest; a right to a file is for
//! its user, and valid until its time.

use crate::TrustError;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

const SIGNATURE_BYTES: usize = 64;
const SEED_BYTES: usize = 32;
/// Hex digits of a public key that identify it in a signed text.
const KEY_NAME_DIGITS: usize = 16;

/// A public key with which data ports verify the signatures of their server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataKey([u8; 32]);

impl DataKey {
    /// Parses 64 hex digits; None for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Returns the text that [`Self::parse`] reads.
    pub fn text(&self) -> String {
        hex::encode(self.0)
    }

    /// Returns whether a text is this right, signed with this key.
    pub fn has_signed(&self, right: &DataRight, text: &str) -> bool {
        let Some((claim, signature)) = text.rsplit_once('.') else { return false };
        let mut bytes = [0; SIGNATURE_BYTES];
        // Each right has one spelling, so texts are compared.
        claim == self.claim(right)
            && signature.len() == 2 * SIGNATURE_BYTES
            && hex::decode_to_slice(signature, &mut bytes).is_ok()
            && UnparsedPublicKey::new(&ED25519, self.0).verify(claim.as_bytes(), &bytes).is_ok()
    }

    fn claim(&self, right: &DataRight) -> String {
        format!("{}.{}", right.words(), &self.text()[..KEY_NAME_DIGITS])
    }
}

/// Signer of rights. The private key exists only in the memory of its process.
pub struct DataSigner {
    pair: Ed25519KeyPair,
    key: DataKey,
}

impl DataSigner {
    /// Makes a signer with a new key, from the randomness of the machine.
    pub fn generate() -> Result<Self, TrustError> {
        let mut seed = [0; SEED_BYTES];
        getrandom::fill(&mut seed).map_err(|error| TrustError::NoRandomness(error.to_string()))?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| TrustError::NoKey)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| TrustError::NoKey)?;
        Ok(Self { pair, key: DataKey(public) })
    }

    /// Returns the key that verifies its signatures.
    pub fn key(&self) -> DataKey {
        self.key
    }

    /// Returns the right with its signature, as the value of a header.
    pub fn sign(&self, right: &DataRight) -> String {
        let claim = self.key.claim(right);
        let signature = self.pair.sign(claim.as_bytes());
        format!("{claim}.{}", hex::encode(signature.as_ref()))
    }
}

impl std::fmt::Debug for DataSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DataSigner({})", self.key.text())
    }
}

/// An action at data ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataRight {
    /// To read and write the data of a job on nodes.
    Job(i64),
    /// To send a node a copy of a user's file.
    Copy { file: i64, to_node: u32 },
    /// To act on a user's file.
    File(FileGrant),
}

impl DataRight {
    /// Returns the copy that a text claims a right to, and its target node; the signature is not checked here.
    pub fn claimed_copy(text: &str) -> Option<(i64, u32)> {
        let mut words = text.strip_prefix("copy.")?.split('.');
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    }

    fn words(&self) -> String {
        match self {
            Self::Job(job) => format!("job.{job}"),
            Self::Copy { file, to_node } => format!("copy.{file}.{to_node}"),
            Self::File(FileGrant { file, right, expires_seconds, bytes_max }) => {
                format!("file.{file}.{}.{expires_seconds}.{bytes_max}", right.word())
            }
        }
    }
}

/// An action on a file of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRight {
    Read,
    /// Also to complete or abandon it.
    Write,
}

impl FileRight {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The right to act on one file of a user until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileGrant {
    pub file: i64,
    pub right: FileRight,
    /// Seconds since 1970, by the clock of the server.
    pub expires_seconds: u64,
    /// Maximum size of the file by writes.
    pub bytes_max: u64,
}

impl FileGrant {
    /// Returns the grant that a text claims for this file and right, unless it has expired. The signature is not
    /// checked here.
    pub fn claimed(file: i64, right: FileRight, text: &str, now_seconds: u64) -> Option<Self> {
        let mut words = text.split('.').skip(3);
        let (expires_seconds, bytes_max) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (expires_seconds >= now_seconds).then_some(Self { file, right, expires_seconds, bytes_max })
    }
}

#[cfg(test)]
mod tests {
    use super::{DataKey, DataRight, DataSigner, FileGrant, FileRight};

    #[test]
    fn right_is_limited_to_its_subject_and_key() {
        let (signer, other) = (DataSigner::generate().unwrap(), DataSigner::generate().unwrap());
        let rights = [
            DataRight::Job(7),
            DataRight::Job(8),
            DataRight::Copy { file: 7, to_node: 3 },
            DataRight::Copy { file: 7, to_node: 4 },
            DataRight::File(FileGrant {
                file: 7,
                right: FileRight::Read,
                expires_seconds: 100,
                bytes_max: 5,
            }),
            DataRight::File(FileGrant {
                file: 7,
                right: FileRight::Write,
                expires_seconds: 100,
                bytes_max: 5,
            }),
            DataRight::File(FileGrant {
                file: 7,
                right: FileRight::Read,
                expires_seconds: 200,
                bytes_max: 5,
            }),
            DataRight::File(FileGrant {
                file: 7,
                right: FileRight::Write,
                expires_seconds: 100,
                bytes_max: 6,
            }),
        ];
        for signed in &rights {
            let text = signer.sign(signed);
            for asked in &rights {
                assert_eq!(signer.key().has_signed(asked, &text), signed == asked, "{asked:?} by {text}");
                assert!(!other.key().has_signed(asked, &text), "{asked:?} by {text}");
            }
            let wrong = [
                String::new(),
                "job".to_string(),
                text[..text.len() - 2].to_string(),
                format!("{text}00"),
                text.to_uppercase(),
                text.replacen('.', ".0", 1),
                text.replacen('.', "..", 1),
                // The words of one right with the signature of another.
                format!(
                    "{}.{}",
                    text.rsplit_once('.').unwrap().0,
                    other.sign(signed).rsplit_once('.').unwrap().1
                ),
            ];
            for wrong in wrong {
                assert!(!signer.key().has_signed(signed, &wrong), "{wrong}");
            }
        }
    }

    #[test]
    fn a_grant_ends_with_its_time() {
        let signer = DataSigner::generate().unwrap();
        let grant = FileGrant { file: 7, right: FileRight::Read, expires_seconds: 100, bytes_max: 5 };
        let text = signer.sign(&DataRight::File(grant));
        assert_eq!(FileGrant::claimed(7, FileRight::Read, &text, 100), Some(grant));
        assert_eq!(FileGrant::claimed(7, FileRight::Read, &text, 101), None);
        for wrong in ["", "file", "file.7.read", "file.7.read.x.5.y", "file.7.read.100"] {
            assert_eq!(FileGrant::claimed(7, FileRight::Read, wrong, 1), None, "{wrong}");
        }
    }

    #[test]
    fn keys_round_trip_and_private_ones_stay_unprinted() {
        let signer = DataSigner::generate().unwrap();
        let key = signer.key();
        assert_eq!(DataKey::parse(&key.text()), Some(key));
        assert_eq!(DataKey::parse("ab"), None);
        assert_eq!(format!("{signer:?}"), format!("DataSigner({})", key.text()));
    }
}
