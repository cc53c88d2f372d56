//! Rows of users, their tokens, and the audit of their calls. Times are nanoseconds since 1970.

use api::people::Role;

/// Maximum remembered public keys of data ports. Rights signed with older ones are invalid.
pub const DATA_KEYS_MAX: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRow {
    pub name: String,
    pub role: Role,
    pub created_ns: u64,
    /// Time since which the user is disabled.
    pub disabled_ns: Option<u64>,
}

/// A token, without its text: that is random, 256 bits, and only its user has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its name, for lists and revocation.
    pub token: String,
    pub user: String,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    pub created_ns: u64,
    /// None: never.
    pub expires_ns: Option<u64>,
    pub revoked_ns: Option<u64>,
}

/// A group of users, for the rights to stored files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserGroupRow {
    pub name: String,
    pub created_ns: u64,
    /// Its users, by name.
    pub members: Vec<String>,
}

/// The public key for verifying a server's rights at data ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataKeyRow {
    pub public_key: String,
    /// Time since which its rights for nodes are invalid; None: rights that the server signed may still be valid.
    pub withdrawn_ns: Option<u64>,
}

/// A request in the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub time_ns: u64,
    /// None if the caller is unknown.
    pub user: Option<String>,
    /// The address of the caller; None without a connection.
    pub source: Option<String>,
    /// Requested action, such as `POST /v1/jobs`.
    pub action: String,
    /// Object of the action: a job, a node, a user.
    pub target: String,
    pub allowed: bool,
    pub detail: Option<String>,
}
