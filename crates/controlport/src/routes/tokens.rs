//! Routes for issuing and revoking tokens, and for admitting nodes.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::gate::{Holder, now_ns};
use crate::port::Port;
use api::control::ErrorCode;
use api::people::{
    Admission, AdmissionRequest, IssuedToken, TokenList, TokenRequest, TokenStatus, is_user_name,
};
use axum::extract::State;
use metastore::Role;
use server::NewToken;
use std::collections::HashMap;
use std::path::Path;
use trust::{Secret, TokenText, TrustError};

/// The user of the server's own tokens. No other user may have a name with this first character.
pub(crate) const OWN_USER: &str = "@server";

impl Port {
    /// Issues a token and stores its hash. Only the returned value contains the token.
    pub async fn issue(&self, request: TokenRequest) -> Result<IssuedToken, Problem> {
        let TokenRequest { user, role, seconds } = request;
        if !is_user_name(&user) {
            let message = "the name of a user is letters, digits, and . - _ @, at most 100 bytes, and @ is not the first";
            return Err(Problem::new(ErrorCode::Refused, message));
        }
        self.make_token(user, role, seconds).await
    }

    /// Ensures that the file holds a valid token of this server; a valid one stays.
    pub async fn keep_own_token(&self, path: &Path) -> Result<(), Problem> {
        // A file that cannot be read is replaced; otherwise the write error says why not.
        let kept = trust::read_token_file(path).ok();
        if kept.is_some_and(|kept| self.is_own(&kept)) {
            return Ok(());
        }
        let issued = self.make_token(OWN_USER.to_string(), Role::Admin, None).await?;
        Ok(trust::write_private(path, &format!("{}\n", issued.token))?)
    }

    /// Returns whether it is a valid token of this server that names its current authority.
    fn is_own(&self, token: &TokenText) -> bool {
        let authority = self.access.authority.as_ref().map(|authority| authority.hash());
        let found = self.keyring.find(&token.secret, now_ns());
        token.authority == authority
            && found.is_ok_and(|found| matches!(found, Holder::OfToken { user, .. } if &*user == OWN_USER))
    }

    async fn make_token(
        &self,
        user: String,
        role: Role,
        seconds: Option<u64>,
    ) -> Result<IssuedToken, Problem> {
        let life_ns = seconds.map(|seconds| seconds.saturating_mul(1_000_000_000));
        // The store has signed numbers.
        let expires_ns = life_ns.map(|life_ns| now_ns().saturating_add(life_ns).min(i64::MAX as u64));
        let (secret, label) = (Secret::random()?, Secret::random()?);
        let name = format!("{user}-{}", short_label(&label));
        let hash = secret.hash();
        self.server.issue_token(NewToken { name: name.clone(), user, role, hash, expires_ns }).await?;
        self.keyring.reload(&self.store).await?;
        let authority = self.access.authority.as_ref().map(|authority| authority.hash());
        Ok(IssuedToken { name, token: TokenText { secret, authority }.text() })
    }

    /// Returns whether there is a valid token of an administrator.
    pub async fn has_admin_token(&self) -> Result<bool, Problem> {
        let is_good = |status: &TokenStatus| {
            let expired = status.expires_ns.is_some_and(|end_ns| end_ns <= now_ns());
            status.role == Role::Admin && status.user != OWN_USER && status.revoked_ns.is_none() && !expired
        };
        Ok(self.token_list().await?.tokens.iter().any(is_good))
    }

    async fn token_list(&self) -> Result<TokenList, Problem> {
        let users = self.store.users().await?;
        let roles: HashMap<&str, Role> = users.iter().map(|user| (user.name.as_str(), user.role)).collect();
        let mut list = TokenList::default();
        for token in self.store.tokens().await? {
            let Some(role) = roles.get(token.user.as_str()) else { continue };
            list.tokens.push(TokenStatus {
                name: token.token,
                role: *role,
                user: token.user,
                created_ns: token.created_ns,
                expires_ns: token.expires_ns,
                revoked_ns: token.revoked_ns,
            });
        }
        Ok(list)
    }
}

/// Returns some digits of the hash of a secret that is used for nothing else.
fn short_label(label: &Secret) -> String {
    label.hash()[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl From<TrustError> for Problem {
    fn from(error: TrustError) -> Self {
        let code = match &error {
            TrustError::Certificate(_) => ErrorCode::Refused,
            _ => ErrorCode::Failed,
        };
        Self::new(code, error.to_string())
    }
}

#[utoipa::path(
    post,
    path = "/v1/tokens",
    tag = "administrators",
    request_body = TokenRequest,
    responses((status = 200, description = "The token, which is shown only once", body = IssuedToken), (status = "default", response = Refusal))
)]
pub(crate) async fn create(
    State(port): State<Port>,
    Message(request): Message<TokenRequest>,
) -> Result<Message<IssuedToken>, Problem> {
    Ok(Message(port.issue(request).await?))
}

#[utoipa::path(
    get,
    path = "/v1/tokens",
    tag = "administrators",
    responses((status = 200, description = "All tokens, without the secrets", body = TokenList), (status = "default", response = Refusal))
)]
pub(crate) async fn list_tokens(State(port): State<Port>) -> Result<Message<TokenList>, Problem> {
    Ok(Message(port.token_list().await?))
}

#[utoipa::path(
    post,
    path = "/v1/tokens/{token}/revoke",
    tag = "administrators",
    params(("token" = String, Path, description = "Name of the token")),
    responses((status = 200, description = "The token is revoked, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn revoke(
    State(port): State<Port>,
    Named(token): Named<String>,
) -> Result<Message<()>, Problem> {
    port.server.revoke_token(token).await?;
    port.keyring.reload(&port.store).await?;
    Ok(Message(()))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/admission",
    tag = "nodes",
    request_body = AdmissionRequest,
    responses((status = 200, description = "The certificates for the node's data port", body = Admission), (status = "default", response = Refusal))
)]
pub(crate) async fn admission(
    State(port): State<Port>,
    Message(request): Message<AdmissionRequest>,
) -> Result<Message<Admission>, Problem> {
    let authority = port.access.authority.as_ref();
    let certificates = match (authority, request.certificate_request) {
        (Some(authority), Some(request)) => Some(authority.sign_data_port(&request)?),
        _ => None,
    };
    Ok(Message(Admission { certificates }))
}
