//! Messages by which a server tells nodes what their data ports let in.

use ids::{IntermediateId, JobId, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A text that whoever has it may use. Not printed with what holds it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// The public keys of what servers sign for data ports. A server has a new one when it starts, and when it takes back a token by
/// which nodes may have joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DataKeys {
    /// Signs from now on. Hex digits, as all of them.
    pub current: String,
    /// Signed before, newest first.
    pub earlier: Vec<EarlierKey>,
    /// Seconds since 1970 by the clock of the server, which grants go by.
    pub now_seconds: u64,
}

/// Grants of users that it signed are good until their time. Tokens of nodes that it signed are good for a while, in which they ask for
/// new ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlierKey {
    pub key: String,
    /// A node that was sent away may have tokens that it signed: that while is two seconds, else ten minutes.
    pub is_withdrawn: bool,
}

/// By it nodes know each other as those that have to do with a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobToken {
    pub job: JobId,
    /// Good while the key that signed it is the newest.
    pub token: SecretText,
}

/// A node asks what a job is, because it is to run an attempt of it, or because another node came with data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BriefQuestion {
    /// The token of the job that the other node showed.
    #[serde(default)]
    pub token: Option<SecretText>,
}

/// A node asks for tokens signed with the newest key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokensQuestion {
    pub incarnation: String,
    /// Those that it has.
    pub tokens: Vec<JobToken>,
}

/// The keys of today, and a token for each running job that the node has to do with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokensAnswer {
    pub keys: DataKeys,
    pub tokens: Vec<JobToken>,
}

/// A node wants to send a file of a user to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileCopy {
    pub file: IntermediateId,
    pub to: NodeId,
}
