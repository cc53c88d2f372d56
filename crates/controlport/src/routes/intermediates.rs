//! Routes for intermediate files of users, and for reports of nodes about them. The bytes travel through the data
//! ports: this module issues grants.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::gate::{Caller, now_ns};
use crate::port::Port;
use crate::routes::jobs::check_owner;
use crate::routes::stored_files::asker;
use api::control::POLL_MS_MAX;
use api::intermediate::{
    ChangeIntermediate, CreatedIntermediate, IntermediateAnswer, IntermediateChange, IntermediateList,
    IntermediateNews, IntermediateState, NewIntermediate, OpenIntermediate, OpenedIntermediate,
    RemoveIntermediate,
};
use api::stored::cluster::StoredGroup;
use axum::extract::State;
use filetree::{Changer, GroupSetting};
use ids::{IntermediateId, NodeId};
use server::NamedFile;
use std::time::Duration;
use trust::{DataRight, FileGrant, FileRight};

/// Validity of a grant. A longer read or write must ask for a new one.
const GRANTED: Duration = Duration::from_secs(24 * 3600);

/// Returns a file of the caller, or of the user whom the caller names, with the groups of the caller if these count.
async fn asked(
    port: &Port,
    caller: &Caller,
    user: Option<String>,
    name: String,
) -> Result<NamedFile, Problem> {
    let user = user.unwrap_or_else(|| caller.owner_name().to_string());
    let changer = asker(caller, String::new()).changer;
    let changer = match changer.has(&user) {
        true => changer,
        false => with_groups(port, changer).await?,
    };
    Ok(NamedFile { user, name, changer })
}

async fn with_groups(port: &Port, changer: Changer) -> Result<Changer, Problem> {
    let found = port.stored.aside(async move |catalog| catalog.with_groups(&changer).await).await;
    found.map(|Message(changer)| changer)
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
    let of = asked(&port, &caller, new.user.take(), new.name.clone()).await?;
    if let Some(job) = new.job {
        check_owner(&port, &caller, job).await?;
    }
    let bytes_max = caller.quota.map(|quota| quota.intermediate_bytes_max);
    let created = port.server.create_intermediate(of, new, bytes_max).await?;
    let grant = grant(&port, created.file, FileRight::Write, created.bytes_max);
    Ok(Message(CreatedIntermediate { grant, ..created }))
}

#[utoipa::path(
    get,
    path = "/v1/intermediate-files",
    tag = "clients",
    responses((status = 200, description = "The intermediate files that the caller may read; all, for an administrator", body = IntermediateList), (status = "default", response = Refusal))
)]
pub(crate) async fn list(
    State(port): State<Port>,
    caller: Caller,
) -> Result<Message<IntermediateList>, Problem> {
    let changer = with_groups(&port, asker(&caller, String::new()).changer).await?;
    Ok(Message(port.server.intermediates(changer).await?))
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
    let of = asked(&port, &caller, open.user, open.name).await?;
    let held = Duration::from_millis(open.wait_ms.min(POLL_MS_MAX));
    let mut opened = port.server.open_intermediate(of.clone()).await?;
    if opened.status.state == IntermediateState::Writing && !held.is_zero() {
        let waits = port.server.open_written_intermediate(of);
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
    let of = asked(&port, &caller, remove.user, remove.name).await?;
    Ok(Message(port.server.remove_intermediate(of).await?))
}

#[utoipa::path(
    post,
    path = "/v1/intermediate-files/change",
    tag = "clients",
    request_body = ChangeIntermediate,
    responses((status = 200, description = "The file has other groups or another owner, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn change(
    State(port): State<Port>,
    caller: Caller,
    Message(change): Message<ChangeIntermediate>,
) -> Result<Message<()>, Problem> {
    let of = asked(&port, &caller, change.user, change.name).await?;
    // Whoever may not choose the groups does not learn which ones exist.
    if let IntermediateChange::SetGroups { read, write } = &change.change
        && of.changer.has(&of.user)
    {
        let named = |group: &StoredGroup| GroupSetting::from(group).group().map(str::to_string);
        let groups: Vec<String> = [read, write].into_iter().filter_map(named).collect();
        port.stored.aside(async move |catalog| catalog.check_groups(&groups).await).await?;
    }
    Ok(Message(port.server.change_intermediate(of, change.change).await?))
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
