//! Files of a client's machine that are shipped by the hash of their content, to the server and from there to the
//! nodes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use utoipa::ToSchema;

/// Maximum bytes of a shipped file.
pub const SHIPPED_FILE_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of files of a job.
pub const SHIPPED_FILES_MAX: usize = 1_000;

/// The SHA-256 of a file's content; 64 hex digits in text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct ContentHash(pub [u8; 32]);

/// An error: the text is not the 64 lower-case hex digits of a SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a content is named by the 64 lower-case hex digits of its SHA-256")]
pub struct NotAHash;

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

impl FromStr for ContentHash {
    type Err = NotAHash;

    /// Parses a hash in its only valid form, lower case, because it becomes a file name.
    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| NotAHash)?;
        match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Err(NotAHash),
            false => Ok(Self(bytes)),
        }
    }
}

impl TryFrom<String> for ContentHash {
    type Error = NotAHash;

    fn try_from(text: String) -> Result<Self, NotAHash> {
        text.parse()
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> String {
        hash.to_string()
    }
}

/// A file that is shipped by the hash of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShippedFile {
    /// Path of the file on the client's machine, as the specification of its job names it. A node replaces every equal
    /// path by that of its own copy.
    #[schema(value_type = String)]
    pub path: PathBuf,
    pub sha256: ContentHash,
    pub bytes: u64,
    pub executable: bool,
}

/// Contents, by their hashes; at most [`SHIPPED_FILES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    pub sha256: Vec<ContentHash>,
}

#[cfg(test)]
mod tests {
    use super::{ContentHash, NotAHash};

    #[test]
    fn a_hash_has_one_text() {
        let text = "00ff".repeat(16);
        let hash: ContentHash = text.parse().unwrap();
        assert_eq!((hash.0[0], hash.0[31], hash.to_string()), (0, 255, text.clone()));
        for wrong in ["", "00", &text.to_uppercase(), &text[1..], "../../../etc/passwd", &format!("{text}0")]
        {
            assert_eq!(wrong.parse::<ContentHash>(), Err(NotAHash), "{wrong}");
        }
        assert!(serde_json::from_str::<ContentHash>("\"..\"").is_err());
    }
}
