//! Who calls. Every route takes a [`Caller`], so that none is open by being forgotten.

use crate::Port;
use crate::answer::Problem;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Admin,
}

/// Whoever sent a request. The port listens on loopback, where everybody who can connect may do everything; tokens
/// and the roles they carry belong here.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub role: Role,
}

impl FromRequestParts<Port> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(_parts: &mut Parts, _port: &Port) -> Result<Self, Problem> {
        Ok(Self { role: Role::Admin })
    }
}

impl Caller {
    /// Refuses whoever may not do what the route does.
    pub fn must_be(&self, role: Role) -> Result<(), Problem> {
        match self.role >= role {
            true => Ok(()),
            false => {
                Err(Problem::new(api::control::ErrorCode::Forbidden, "the caller's role does not allow this"))
            }
        }
    }
}
