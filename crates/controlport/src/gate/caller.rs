//! The caller of a request by its token, for the routes that ask.

use crate::answer::Problem;
use api::control::ErrorCode;
use api::people::Role;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ids::NodeId;
use server::{Submitter, UserQuota};
use std::sync::Arc;

/// The sender of a request. The gate, behind which all routes lie, puts it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// None if nobody needs a token: everybody who can connect may do everything.
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

    /// Returns the facts about the caller that the server needs to take jobs.
    pub fn submitter(&self) -> Submitter {
        Submitter { quota: self.quota, files_of: self.owner_name().to_string() }
    }

    /// Returns the name under which the files that they ship are kept; empty if nobody needs a token.
    pub fn owner_name(&self) -> &str {
        self.user.as_deref().unwrap_or_default()
    }

    /// Returns the user of a job: the user of the token, and only without one the user that the caller names.
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
