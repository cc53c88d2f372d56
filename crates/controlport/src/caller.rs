//! Who calls: what the token of a request says, for the routes that ask.

use crate::answer::Problem;
use api::control::ErrorCode;
use api::people::Role;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ids::NodeId;
use server::{Submitter, UserQuota};
use std::sync::Arc;

/// Whoever sent a request. The gate puts it there, behind which all routes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// None where nobody needs a token: whoever can connect may do everything.
    pub user: Option<Arc<str>>,
    pub role: Role,
    /// The token that they showed.
    pub token: Option<Arc<str>>,
    /// The node that speaks, where one does.
    pub node: Option<NodeId>,
    /// Limits of the user; None: no limits.
    pub quota: Option<UserQuota>,
}

impl Caller {
    /// Whoever calls a server that asks for no token.
    pub fn local() -> Self {
        Self { user: None, role: Role::Admin, token: None, node: None, quota: None }
    }

    /// A caller without a token, who sees only what everybody may see.
    pub fn nobody() -> Self {
        Self { role: Role::ReadOnly, ..Self::local() }
    }

    /// What the server must know of them to take jobs.
    pub fn submitter(&self) -> Submitter {
        Submitter { quota: self.quota, files_of: self.owner_name().to_string() }
    }

    /// Under which name the files that they ship are kept; nobody's where nobody needs a token.
    pub fn owner_name(&self) -> &str {
        self.user.as_deref().unwrap_or_default()
    }

    /// Whose a job becomes: what the token says, and only without one what the caller says.
    pub fn job_user(&self, claimed: String) -> String {
        self.user.as_deref().map_or(claimed, str::to_string)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let missing = || Problem::new(ErrorCode::Forbidden, "the request has not passed the gate");
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}

/// The node that sent a request to a route for nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpeakingNode(pub NodeId);

impl<S: Send + Sync> FromRequestParts<S> for SpeakingNode {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let missing = || Problem::new(ErrorCode::Forbidden, "only a node may ask this");
        caller.node.map(Self).ok_or_else(missing)
    }
}
