//! Rights that a server signs and data ports verify alone. Nodes have only the public keys, so they cannot grant
//! themselves rights. A right to a job is for nodes, and valid while its key is the newest; a right to a file, or
//! to stored files, is for its user, and valid until its time.

use crate::TrustError;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

const SIGNATURE_BYTES: usize = 64;
const SEED_BYTES: usize = 32;
/// Hex digits of a public key that identify it in a signed text.
const KEY_NAME_DIGITS: usize = 16;
/// First word of a right to stored files.
const STORED_WORD: &str = "stored";

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
    /// To read or write stored files.
    Stored(StoredGrant),
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
            Self::Stored(StoredGrant { right, first, last, expires_seconds }) => {
                format!("{STORED_WORD}.{}.{first}.{last}.{expires_seconds}", right.word())
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

/// The right to read or write a range of concrete files until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredGrant {
    pub right: FileRight,
    /// The first and the last concrete file, both included.
    pub first: i64,
    pub last: i64,
    /// Seconds since 1970, by the clock of the server.
    pub expires_seconds: u64,
}

impl StoredGrant {
    /// Returns the grant that a text claims, unless it has expired. The signature is not checked here.
    pub fn claimed(text: &str, now_seconds: u64) -> Option<Self> {
        let mut words = text.split('.');
        if words.next()? != STORED_WORD {
            return None;
        }
        let word = words.next()?;
        let right = [FileRight::Read, FileRight::Write].into_iter().find(|right| right.word() == word)?;
        let (first, last) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let expires_seconds = words.next()?.parse().ok()?;
        (expires_seconds >= now_seconds).then_some(Self { right, first, last, expires_seconds })
    }

    /// Returns whether a concrete file may be read or written. Who may write a file may read it too, because the nodes
    /// of its other replicas fetch it with the grant of its writer.
    pub fn covers(&self, file: i64, right: FileRight) -> bool {
        let permits = self.right == right || self.right == FileRight::Write;
        permits && (self.first..=self.last).contains(&file)
    }
}

#[cfg(test)]
mod tests {
    use super::{DataKey, DataRight, DataSigner, FileGrant, FileRight, StoredGrant};

    fn stored(right: FileRight, first: i64, last: i64, expires_seconds: u64) -> DataRight {
        DataRight::Stored(StoredGrant { right, first, last, expires_seconds })
    }

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
            stored(FileRight::Read, 7, 100, 5),
            stored(FileRight::Write, 7, 100, 5),
            stored(FileRight::Read, 8, 100, 5),
            stored(FileRight::Read, 7, 101, 5),
            stored(FileRight::Read, 7, 100, 6),
            // The same digits, cut at another place.
            stored(FileRight::Read, 71, 0, 5),
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
    fn a_stored_grant_covers_its_range() {
        let signer = DataSigner::generate().unwrap();
        for (right, other) in [(FileRight::Read, FileRight::Write), (FileRight::Write, FileRight::Read)] {
            let grant = StoredGrant { right, first: 7, last: 9, expires_seconds: 100 };
            let text = signer.sign(&DataRight::Stored(grant));
            assert_eq!(StoredGrant::claimed(&text, 100), Some(grant));
            assert_eq!(StoredGrant::claimed(&text, 101), None);
            for file in [i64::MIN, -7, 6, 7, 9, 10, i64::MAX] {
                let is_within = (7..=9).contains(&file);
                assert_eq!(grant.covers(file, right), is_within, "{file}");
                assert_eq!(grant.covers(file, other), is_within && right == FileRight::Write, "{file}");
            }
        }
        let of_nothing = StoredGrant { right: FileRight::Write, first: 9, last: 7, expires_seconds: 100 };
        assert!(!(0..20).any(|file| of_nothing.covers(file, FileRight::Read)));
        let file = FileGrant { file: 7, right: FileRight::Read, expires_seconds: 100, bytes_max: 5 };
        let of_others = [DataRight::Job(7), DataRight::Copy { file: 7, to_node: 3 }, DataRight::File(file)];
        for other in of_others {
            assert_eq!(StoredGrant::claimed(&signer.sign(&other), 1), None, "{other:?}");
        }
        for wrong in
            ["", "stored", "stored.read.1.2", "stored.run.1.2.300", "stored.read.1.x.300", "stored..1.2.3"]
        {
            assert_eq!(StoredGrant::claimed(wrong, 1), None, "{wrong}");
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
