//! Programs of jobs, which ask through the node on which they run, without a token: the node names the job in a header,
//! and the server knows whether it runs there. Such a caller has the rights of the user of that job, and never those of
//! an administrator.

use crate::answer::Problem;
use crate::gate::caller::Caller;
use crate::gate::rules::{Admits, Rule};
use crate::port::{Port, TokensAsked};
use api::control::{ErrorCode, JOB_HEADER};
use api::people::Role;
use axum::http::HeaderMap;
use ids::JobId;
use std::sync::Arc;

/// Returns the caller of a request: where a node sent it for a program, the user of the program's job. Error: the node,
/// and why it may not.
pub(crate) async fn caller_behind(
    port: &Port,
    rule: &Rule,
    caller: Caller,
    headers: &HeaderMap,
) -> Result<Caller, (Caller, Problem)> {
    let (Some(node), Admits::SubmittersAndPrograms | Admits::LookersAndPrograms) = (caller.node, rule.admits)
    else {
        return Ok(caller);
    };
    let Some(job) = headers.get(JOB_HEADER) else { return Ok(caller) };
    let number = job.to_str().ok().and_then(|text| text.parse().ok()).map(JobId);
    let running = match number {
        Some(job) => port.server.running_on(node, job).await.map_err(Problem::from),
        None => Err(Problem::new(ErrorCode::BadRequest, format!("the header {JOB_HEADER} holds no number"))),
    };
    match running {
        Ok(running) => Ok(Caller {
            user: user_named(port, &running.user),
            role: Role::User,
            program_of: number,
            job_owner: Some(Arc::from(running.user)),
            quota: Some(port.access.limits.quota),
            ..Caller::local()
        }),
        Err(problem) => Err((caller, problem)),
    }
}

/// Returns the user of a job by its name; None is the user of the server's own token.
fn user_named(port: &Port, owner: &str) -> Option<Arc<str>> {
    // A caller with the server's own token names any user in its jobs.
    let is_own = port.access.tokens == TokensAsked::OwnOrIssued && !port.keyring.knows_user(owner);
    Some(Arc::from(owner)).filter(|_| !is_own)
}
