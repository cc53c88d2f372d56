//! Messages by which a server tells nodes which callers their data ports admit.

use ids::{IntermediateId, JobId, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A bearer secret. Left out when a value that contains it is printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// The public keys of the server's signatures for data ports. A server makes a new key when it starts, and when it
/// revokes a token by which nodes may have joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DataKeys {
    /// Key that signs from now on. All keys are hex digits.
    pub current: String,
    /// Keys that signed before, newest first.
    pub earlier: Vec<EarlierKey>,
    /// Seconds since 1970 by the clock of the server, which determines the expiry of grants.
    pub now_seconds: u64,
}

/// An earlier key. Grants of users that it signed stay valid until they expire. Tokens of nodes that it signed stay
/// valid for a while, in which the nodes ask for new ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlierKey {
    pub key: String,
    /// True if a removed node may have tokens that it signed: node tokens stay valid for two seconds then, otherwise
    /// ten minutes.
    pub is_withdrawn: bool,
}

/// A token of a job: it proves to other nodes that a node is involved in the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobToken {
    pub job: JobId,
    /// Valid while the key that signed it is the newest.
    pub token: SecretText,
}

/// A node's question for the facts of a job, because it will run an attempt of the job, or because another node sent
/// data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BriefQuestion {
    /// The token of the job that the other node presented.
    #[serde(default)]
    pub token: Option<SecretText>,
}

/// A node's request for tokens signed with the newest key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokensQuestion {
    pub incarnation: String,
    /// The tokens that it has.
    pub tokens: Vec<JobToken>,
}

/// The current keys, and a token for each running job in which the node is involved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokensAnswer {
    pub keys: DataKeys,
    pub tokens: Vec<JobToken>,
}

/// A node's request to copy a file of a user to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileCopy {
    pub file: IntermediateId,
    pub to: NodeId,
}
