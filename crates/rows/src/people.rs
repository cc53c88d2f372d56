//! Rows of users, their tokens, and the audit of their calls. Times are nanoseconds since 1970.

use api::people::Role;

/// Public keys of data ports that are remembered. Of one that is older nothing is good any more.
pub const DATA_KEYS_MAX: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRow {
    pub name: String,
    pub role: Role,
    pub created_ns: u64,
    /// Since when they may do nothing.
    pub disabled_ns: Option<u64>,
}

/// A token, without the token: it is random, 256 bits, and nowhere but with its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its name, to list and revoke it by.
    pub token: String,
    pub user: String,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    pub created_ns: u64,
    /// None: never.
    pub expires_ns: Option<u64>,
    pub revoked_ns: Option<u64>,
}

/// The public key of what a server signed for data ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataKeyRow {
    pub public_key: String,
    /// Since when nothing that nodes show of it is good; None: what a server signed then may be good still.
    pub withdrawn_ns: Option<u64>,
}

/// Something that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub time_ns: u64,
    /// None where nobody could be told.
    pub user: Option<String>,
    /// The address that it came from; None where no connection brought it.
    pub source: Option<String>,
    /// Action that was asked for, such as `POST /v1/jobs`.
    pub action: String,
    /// Object of the action: a job, a node, a user.
    pub target: String,
    pub allowed: bool,
    pub detail: Option<String>,
}
