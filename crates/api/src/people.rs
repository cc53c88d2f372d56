//! Roles of users, and the messages by which tokens are given out and taken back.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Role of a user or a node: it decides what they may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Everything.
    Admin,
    /// Submits jobs, and stops their own.
    User,
    /// Looks.
    ReadOnly,
    /// A machine that runs tasks.
    Node,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Admin, Self::User, Self::ReadOnly, Self::Node];

    /// The word in the table, and as people write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::User => "user",
            Self::ReadOnly => "read-only",
            Self::Node => "node",
        }
    }

    /// The role of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// Asks for a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// User whom the token will belong to; a user who is not known yet is known from then on.
    pub user: String,
    /// Role of the user, who has one role for good.
    pub role: Role,
    /// Seconds from now after which it is good for nothing; absent: it does not expire.
    #[serde(default)]
    pub seconds: Option<u64>,
}

/// Longest name of a user, in bytes.
pub const USER_BYTES_MAX: usize = 100;

/// A token that was made. This is the only time that it is told.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuedToken {
    /// To list and revoke it by.
    pub name: String,
    /// The token: keep it in a file that nobody else reads.
    pub token: String,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IssuedToken({})", self.name)
    }
}

/// All tokens, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenList {
    pub tokens: Vec<TokenStatus>,
}

/// Facts that the store remembers of a token. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenStatus {
    pub name: String,
    pub user: String,
    pub role: Role,
    pub created_ns: u64,
    /// Absent: it does not expire.
    pub expires_ns: Option<u64>,
    pub revoked_ns: Option<u64>,
}

/// Question of a node before it opens its data port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdmissionRequest {
    /// A certificate request (PKCS #10) in PEM, where its data port shall speak TLS.
    #[serde(default)]
    pub certificate_request: Option<String>,
}

/// The certificates of a node's data port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// The certificate for the request and that of the authority, in PEM; absent where this server has no TLS.
    pub certificates: Option<String>,
}
