//! Routes for intermediate files of users, and for reports of nodes about them. The bytes travel through the data
//! ports: this module issues grants.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::gate::{Caller, now_ns};
use crate::port::Port;
use crate::routes::jobs::check_owner;
use api::control::{ErrorCode, POLL_MS_MAX};
use api::intermediate::{
    CreatedIntermediate, IntermediateAnswer, IntermediateList, IntermediateNews, IntermediateState,
    NewIntermediate, OpenIntermediate, OpenedIntermediate, RemoveIntermediate,
};
use api::people::Role;
use axum::extract::State;
use ids::{IntermediateId, NodeId};
use std::time::Duration;
use trust::{DataRight, FileGrant, FileRight};

/// Validity of a grant. A longer read or write must ask for a new one.
const GRANTED: Duration = Duration::from_secs(24 * 3600);

/// Returns the user who owns the file: the caller, unless an administrator names another user.
fn owner(caller: &Caller, claimed: Option<String>) -> Result<String, Problem> {
    match claimed {
        Some(user) if user != caller.owner_name() && caller.role != Role::Admin => {
            let message = format!("the intermediate files of {user:?} belong to another user");
            Err(Problem::new(ErrorCode::Forbidden, message))
        }
        Some(user) => Ok(user),
        None => Ok(caller.owner_name().to_string()),
    }
}

fn grant(port: &Port, file: IntermediateId, right: FileRight, bytes_max: Option<u64>) -> Option<String> {
    let expires_seconds = now_ns() / 1_000_000_000 + GRANTED.as_secs();
    let bytes_max = bytes_max.unwrap_or(u64::MAX);
    Some(port.server.sign(&DataRight::File(FileGrant { file: file.0, right, expires_seconds, bytes_max })))
}

#[utoipa::path(
    post,
    path = "/v1/intermediate-files",
    tag = "clients",
    request_body = NewIntermediate,
    responses((status = 200, description = "The file is created, and may be written on its node", body = CreatedIntermediate), (status = "default", response = Refusal))
)]
pub(crate) async fn create(
    State(port): State<Port>,
    caller: Caller,
    Message(mut new): Message<NewIntermediate>,
) -> Result<Message<CreatedIntermediate>, Problem> {
    let user = owner(&caller, new.user.take())?;
    if let Some(job) = new.job {
        check_owner(&port, &caller, job).await?;
    }
    let bytes_max = caller.quota.map(|quota| quota.intermediate_bytes_max);
    let created = port.server.create_intermediate(user, new, bytes_max).await?;
    let grant = grant(&port, created.file, FileRight::Write, created.bytes_max);
    Ok(Message(CreatedIntermediate { grant, ..created }))
}

#[utoipa::path(
    get,
    path = "/v1/intermediate-files",
    tag = "clients",
    responses((status = 200, description = "The intermediate files of the caller; of all, for an administrator", body = IntermediateList), (status = "default", response = Refusal))
)]
pub(crate) async fn list(
    State(port): State<Port>,
    caller: Caller,
) -> Result<Message<IntermediateList>, Problem> {
    let only_of = (caller.role != Role::Admin).then(|| caller.owner_name().to_string());
    Ok(Message(port.server.intermediates(only_of).await?))
}

#[utoipa::path(
    post,
    path = "/v1/intermediate-files/open",
    tag = "clients",
    request_body = OpenIntermediate,
    responses((status = 200, description = "The state of the file, and where to read it once it is complete", body = OpenedIntermediate), (status = "default", response = Refusal))
)]
pub(crate) async fn open(
    State(port): State<Port>,
    caller: Caller,
    Message(open): Message<OpenIntermediate>,
) -> Result<Message<OpenedIntermediate>, Problem> {
    let user = owner(&caller, open.user)?;
    let held = Duration::from_millis(open.wait_ms.min(POLL_MS_MAX));
    let mut opened = port.server.open_intermediate(user.clone(), open.name.clone()).await?;
    if opened.status.state == IntermediateState::Writing && !held.is_zero() {
        let waits = port.server.open_written_intermediate(user, open.name);
        // If the file is still being written, the answer has the state from before the wait.
        if let Ok(waited) = tokio::time::timeout(held, waits).await {
            opened = waited?;
        }
    }
    let grant = match opened.places.is_empty() {
        true => None,
        false => grant(&port, opened.status.file, FileRight::Read, None),
    };
    Ok(Message(OpenedIntermediate { grant, ..opened }))
}

#[utoipa::path(
    post,
    path = "/v1/intermediate-files/remove",
    tag = "clients",
    request_body = RemoveIntermediate,
    responses((status = 200, description = "The file is removed, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn remove(
    State(port): State<Port>,
    caller: Caller,
    Message(remove): Message<RemoveIntermediate>,
) -> Result<Message<()>, Problem> {
    let user = owner(&caller, remove.user)?;
    Ok(Message(port.server.remove_intermediate(user, remove.name).await?))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/intermediate-files",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = IntermediateNews,
    responses((status = 200, description = "The report is stored; the node must drop the named files", body = IntermediateAnswer), (status = "default", response = Refusal))
)]
pub(crate) async fn news(
    State(port): State<Port>,
    Named(node): Named<u32>,
    Message(news): Message<IntermediateNews>,
) -> Result<Message<IntermediateAnswer>, Problem> {
    Ok(Message(port.server.intermediate_news(NodeId(node), news).await?))
}
