//! The caller of a request according to its token, for the routes that need it.

use crate::answer::Problem;
use api::control::ErrorCode;
use api::people::Role;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ids::{JobId, NodeId};
use server::{Submitter, UserQuota};
use std::sync::Arc;

/// The sender of a request. The gate adds it to every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// None if no token is required: every caller who can connect may do everything.
    pub user: Option<Arc<str>>,
    pub role: Role,
    /// The presented token.
    pub token: Option<Arc<str>>,
    /// The node that sent the request, if a node did.
    pub node: Option<NodeId>,
    /// The job whose program sent the request through its node.
    pub program_of: Option<JobId>,
    /// The user of that job, also one that a caller with the server's own token has named: stored files are theirs.
    pub job_owner: Option<Arc<str>>,
    /// Quota of the user; None is unlimited.
    pub quota: Option<UserQuota>,
}

impl Caller {
    /// Returns the caller of a server that requires no token.
    pub fn local() -> Self {
        Self {
            user: None,
            role: Role::Admin,
            token: None,
            node: None,
            program_of: None,
            job_owner: None,
            quota: None,
        }
    }

    /// Returns a caller without a token, who sees only public data.
    pub fn nobody() -> Self {
        Self { role: Role::ReadOnly, ..Self::local() }
    }

    /// Returns the facts about the caller that the server needs to accept jobs.
    pub fn submitter(&self) -> Submitter {
        let files_of = self.owner_name().to_string();
        Submitter { quota: self.quota, files_of, ..Submitter::default() }
    }

    /// Returns the name under which the caller's shipped files are kept; empty if no token is required.
    pub fn owner_name(&self) -> &str {
        self.user.as_deref().unwrap_or_default()
    }

    /// Returns the user of a job: the user of the token, or, only without a token, the user that the caller names.
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
