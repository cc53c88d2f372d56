//! Roles of users, and the messages by which tokens are issued and revoked.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Role of a user or a node: it decides about permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// May do everything.
    Admin,
    /// Submits jobs, and cancels its own.
    User,
    /// Reads only.
    ReadOnly,
    /// A machine that runs tasks.
    Node,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Admin, Self::User, Self::ReadOnly, Self::Node];

    /// Returns the word in the table, which users write too.
    pub fn word(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::User => "user",
            Self::ReadOnly => "read-only",
            Self::Node => "node",
        }
    }

    /// Returns the role of a word; None for any other word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// A request for a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The user who will own the token; an unknown user is added.
    pub user: String,
    /// Role of the user, which never changes.
    pub role: Role,
    /// Seconds from now until it expires; without it the token does not expire.
    #[serde(default)]
    pub seconds: Option<u64>,
}

/// Longest name of a user, in bytes.
pub const USER_BYTES_MAX: usize = 100;

/// A new token. Only this answer contains the token itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuedToken {
    /// Name for listing and revoking it.
    pub name: String,
    /// The token: keep it in a file that no other user can read.
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

/// The store's facts about a token. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenStatus {
    pub name: String,
    pub user: String,
    pub role: Role,
    pub created_ns: u64,
    /// Time of its expiry; absent if it does not expire.
    pub expires_ns: Option<u64>,
    pub revoked_ns: Option<u64>,
}

/// A new group of users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroup {
    pub name: String,
}

/// A user who is added to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMember {
    pub user: String,
}

/// Groups of users, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupList {
    pub groups: Vec<UserGroup>,
}

/// A group of users, for the rights to stored files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserGroup {
    pub name: String,
    /// Nanoseconds since 1970.
    pub created_ns: u64,
    /// Its users, by name.
    pub members: Vec<String>,
}

/// Returns whether a text can be the name of a user or of a group.
pub fn is_user_name(text: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    !text.is_empty() && !text.starts_with('@') && text.len() <= USER_BYTES_MAX && text.chars().all(is_name)
}

/// A node's request before it opens its data port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdmissionRequest {
    /// A certificate request (PKCS #10) in PEM, if its data port will use TLS.
    #[serde(default)]
    pub certificate_request: Option<String>,
}

/// The certificates of a node's data port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// The requested certificate and that of the authority, in PEM; absent if this server has no TLS.
    pub certificates: Option<String>,
}
