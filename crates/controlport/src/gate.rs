//! The gate in front of all routes: identifies the caller, applies the rule of the route, and writes the audit.

mod audit;
mod caller;
mod failed_tokens;
mod keyring;
mod limits;
mod programs;
mod rules;

pub(crate) use audit::{Refusals, TELL_EVERY};
pub(crate) use caller::{Caller, SpeakingNode};
pub(crate) use failed_tokens::FailedTokens;
pub(crate) use keyring::{Holder, Keyring, now_ns};
pub(crate) use limits::Meters;
pub use limits::UserLimits;
pub(crate) use rules::route_of_today;

use crate::answer::Problem;
use crate::port::{Port, TokensAsked};
use crate::routes::tokens::OWN_USER;
use api::control::ErrorCode;
use api::people::Role;
use audit::{Kind, shortened};
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ids::{JobId, NodeId};
use listener::PeerAddress;
use metastore::AuditRow;
use rules::{Admits, Rule, rule_of};
use server::ControlError;
use std::time::Instant;
use trust::TokenText;

/// The beginning of routes about one job.
const OF_JOB: &str = "/v1/jobs/{job}";
const NO_TOKEN: &str = "a token is needed: give a file with one by --token-file";
const NO_NODE: &str = "only nodes may ask this, each with the secret that it got when it joined";
/// Message for callers of a server that has its own token.
const NO_OWN_TOKEN: &str = "a token is needed: give a file with one by --token-file. Programs of the server's user on its machine \
     find the server's own token if they can verify that the port belongs to their user; a server on loopback requires \
     none with --no-tokens";

/// Passes a request to its route, or refuses it.
pub(crate) async fn gate(State(port): State<Port>, mut request: Request, next: Next) -> Response {
    let Some(route) = request.extensions().get::<MatchedPath>().cloned() else {
        // Without a route, the caller learns only this.
        return next.run(request).await;
    };
    let Some(rule) = rule_of(request.method(), route.as_str()) else {
        return crate::answer::no_such_route().await.into_response();
    };
    let action = format!("{} {}", rule.method, rule.path);
    let target = request.uri().path().to_string();
    let source = request.extensions().get::<PeerAddress>().map(|peer| peer.0);
    let caller = match identify(&port, rule, request.headers()) {
        Ok(caller) => caller,
        Err(problem) => {
            if let Some(source) = source.filter(|_| request.headers().contains_key(header::AUTHORIZATION)) {
                port.failed_tokens.wait(source).await;
            }
            let kind = Kind { user: None, source, action, code: problem.code() };
            return refuse(&port, kind, &target, problem).await;
        }
    };
    let caller = match programs::caller_behind(&port, rule, caller, request.headers()).await {
        Ok(caller) => caller,
        Err((node, problem)) => {
            let kind = Kind { user: node.user, source, action, code: problem.code() };
            return refuse(&port, kind, &target, problem).await;
        }
    };
    let user = caller.user.clone();
    if let Err(problem) = admit(&port, rule, &caller, &mut request).await {
        return refuse(&port, Kind { user, source, action, code: problem.code() }, &target, problem).await;
    }
    if rule.is_audited {
        let row = AuditRow {
            time_ns: now_ns(),
            user: user.as_deref().map(str::to_string),
            source: source.map(|source| source.to_string()),
            action: action.clone(),
            target: shortened(&target),
            allowed: true,
            detail: None,
        };
        // Written before the action, so that no action lacks its row.
        if let Err(error) = port.server.audit(vec![row]).await {
            return Problem::from(error).into_response();
        }
    }
    request.extensions_mut().insert(caller);
    let response = next.run(request).await;
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        note_refusal(&port, Kind { user, source, action, code: ErrorCode::TooMany }, &target).await;
    }
    response
}

/// Identifies the caller of a request. A given token must be valid even if no token is required.
fn identify(port: &Port, rule: &Rule, headers: &HeaderMap) -> Result<Caller, Problem> {
    let asked = port.access.tokens;
    // A node acts in its own name, even if no tokens are required.
    if asked == TokensAsked::Never && rule.admits != Admits::Nodes {
        return Ok(Caller::local());
    }
    let nobody = |message: &str| Problem::new(ErrorCode::Unauthenticated, message);
    let Some(given) = headers.get(header::AUTHORIZATION) else {
        return match rule.admits {
            Admits::Everybody => Ok(Caller::nobody()),
            Admits::Nodes => Err(nobody(NO_NODE)),
            _ if asked == TokensAsked::OwnOrIssued => Err(nobody(NO_OWN_TOKEN)),
            _ => Err(nobody(NO_TOKEN)),
        };
    };
    let token = given.to_str().ok().and_then(|text| text.split_once(' '));
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = token.and_then(|(_, token)| TokenText::parse(token));
    let token = token.ok_or_else(|| nobody("the header authorization holds no token of this server"))?;
    let holder = port.keyring.find(&token.secret, now_ns())?;
    let is_own = holder.user() == Some(OWN_USER);
    if is_own && asked == TokensAsked::Issued {
        return Err(nobody("a server with --require-tokens admits no token of its own"));
    }
    Ok(match holder {
        Holder::OfToken { name, .. } if is_own => Caller { token: Some(name), ..Caller::local() },
        Holder::OfToken { name, user, role } => {
            let quota = is_limited(role).then_some(port.access.limits.quota);
            Caller { user: Some(user), role, token: Some(name), quota, ..Caller::local() }
        }
        Holder::Node { node, user } => Caller { user, role: Role::Node, node: Some(node), ..Caller::local() },
    })
}

fn is_limited(role: Role) -> bool {
    matches!(role, Role::User | Role::ReadOnly)
}

async fn admit(port: &Port, rule: &Rule, caller: &Caller, request: &mut Request) -> Result<(), Problem> {
    let forbidden = |message: String| Err(Problem::new(ErrorCode::Forbidden, message));
    let role = caller.role;
    if rule.path.starts_with(OF_JOB) && is_limited(role) && port.hides_from(caller) {
        check_seen(port, caller, request.uri().path()).await?;
    }
    match rule.admits {
        Admits::Everybody => {}
        Admits::Nodes => match caller.node {
            Some(node) if speaks_for_itself(node, request.uri().path()) => return Ok(()),
            Some(node) => return forbidden(format!("{node} may act only in its own name")),
            None => return forbidden(NO_NODE.to_string()),
        },
        // The secret of a node permits the actions of a node, and no joining.
        _ if caller.node.is_some() => return forbidden("a node may not do this".to_string()),
        Admits::Roles(roles) if roles.contains(&role) => {}
        Admits::LookersAndPrograms if role != Role::Node => {}
        Admits::SubmittersAndPrograms if matches!(role, Role::Admin | Role::User) => {}
        Admits::OwnerOfJob if role == Role::Admin => {}
        Admits::OwnerOfJob if role == Role::User => {
            if let Some(owner) = owner_of_job(port, request.uri().path()).await?
                && owner.as_deref() != caller.user.as_deref()
            {
                return forbidden("the job belongs to another user".to_string());
            }
        }
        Admits::Roles(_)
        | Admits::SubmittersAndPrograms
        | Admits::LookersAndPrograms
        | Admits::OwnerOfJob => {
            return forbidden(format!("a caller of the role {} may not do this", role.word()));
        }
    }
    if let Some(user) = caller.user.as_ref().filter(|_| is_limited(role)) {
        let limits = &port.access.limits;
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let length = length.and_then(|text| text.parse::<u64>().ok());
        // A body of unknown length counts as the longest permitted one.
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let length = length.unwrap_or(if is_chunked { limits.body_bytes_max as u64 } else { 0 });
        let length = length.min(limits.body_bytes_max as u64);
        if !port.meters.take(user, length, limits, Instant::now()) {
            let message = "too many requests or too many bytes: retry in a moment";
            return Err(Problem::new(ErrorCode::TooMany, message));
        }
        DefaultBodyLimit::max(limits.body_bytes_max).apply(request);
    }
    Ok(())
}

/// Returns whether the path names no other node.
fn speaks_for_itself(node: NodeId, path: &str) -> bool {
    let named = path.strip_prefix("/v1/nodes/").and_then(|rest| rest.split('/').next());
    // The route decodes escapes: only plain digits name a node here.
    named.is_none_or(|named| named.parse() == Ok(node.0))
}

/// Returns the error for an unknown job, also for one of another user.
async fn check_seen(port: &Port, caller: &Caller, path: &str) -> Result<(), Problem> {
    match owner_of_job(port, path).await? {
        Some(owner) if owner.is_some() && owner.as_deref() == caller.user.as_deref() => Ok(()),
        _ => Err(ControlError::UnknownJob { job: job_in(path)? }.into()),
    }
}

/// Returns the user of the job in the path; None if there is no such job, which the route reports.
async fn owner_of_job(port: &Port, path: &str) -> Result<Option<Option<String>>, Problem> {
    Ok(port.store.job(job_in(path)?).await?.map(|row| row.user))
}

/// Returns the job in the path.
fn job_in(path: &str) -> Result<JobId, Problem> {
    let job = path.strip_prefix("/v1/jobs/").and_then(|rest| rest.split('/').next());
    // The route decodes escapes in a path, and may see a number that is not plain here: such a path is refused.
    let unclear = || Problem::new(ErrorCode::NotFound, "a job is named by the digits of its number");
    job.and_then(|number| number.parse().ok()).map(JobId).ok_or_else(unclear)
}

async fn refuse(port: &Port, kind: Kind, target: &str, problem: Problem) -> Response {
    note_refusal(port, kind, target).await;
    problem.into_response()
}

async fn note_refusal(port: &Port, kind: Kind, target: &str) {
    if let Some(row) = port.refusals.count(kind, target, Instant::now(), now_ns()) {
        // A server that has ended has refused everything.
        let _ = port.server.audit(vec![row]).await;
    }
}
