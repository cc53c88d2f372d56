//! Routes for nodes.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::gate::{Caller, SpeakingNode};
use crate::port::Port;
use api::Boundaries;
use api::control::{
    BoundariesProposal, ClusterStatus, JobBrief, NodeInfo, NodeOrders, NodePoll, NodeStatus, NodeWelcome,
    PlacesAnswer, PlacesQuestion,
};
use api::data_access::{BriefQuestion, SecretText, TokensAnswer, TokensQuestion};
use api::fsck::{CheckAnswer, CheckNews};
use api::kept::KeptAnnouncement;
use axum::extract::State;
use ids::{JobId, NodeId};
use trust::Secret;

#[utoipa::path(
    get,
    path = "/v1/nodes",
    tag = "clients",
    responses((status = 200, description = "The live nodes, and the recently lost ones", body = ClusterStatus), (status = "default", response = Refusal))
)]
pub(crate) async fn list(
    State(port): State<Port>,
    caller: Caller,
) -> Result<Message<ClusterStatus>, Problem> {
    let status = port.server.cluster_status().await?;
    let mut status = ClusterStatus { gone: server::gone_nodes(&port.store).await?, ..status };
    if port.hides_from(&caller) {
        status.nodes.iter_mut().chain(&mut status.gone).for_each(|node| node.kept_jobs.clear());
    }
    Ok(Message(status))
}

#[utoipa::path(
    post,
    path = "/v1/nodes",
    tag = "nodes",
    request_body = NodeInfo,
    responses((status = 200, description = "The node has joined", body = NodeWelcome), (status = "default", response = Refusal))
)]
pub(crate) async fn register(
    State(port): State<Port>,
    caller: Caller,
    Message(info): Message<NodeInfo>,
) -> Result<Message<NodeWelcome>, Problem> {
    let secret = Secret::random()?;
    let join_token = caller.token.as_deref().map(str::to_string);
    let welcome = port.server.register_node(info, secret.hash(), join_token.clone()).await?;
    port.keyring.add_node(secret.hash(), welcome.node, join_token);
    Ok(Message(NodeWelcome {
        secret: SecretText(secret.text()),
        sandbox: port.access.sandbox,
        roots: port.server.roots(),
        ..welcome
    }))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/data-tokens",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = TokensQuestion,
    responses((status = 200, description = "Tokens of the jobs in which the node is involved, signed with the newest key", body = TokensAnswer), (status = "default", response = Refusal))
)]
pub(crate) async fn renew_tokens(
    State(port): State<Port>,
    Named(node): Named<u32>,
    Message(question): Message<TokensQuestion>,
) -> Result<Message<TokensAnswer>, Problem> {
    Ok(Message(port.server.renew_tokens(NodeId(node), question).await?))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/poll",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = NodePoll,
    responses((status = 200, description = "Orders; the answer is delayed for at most five seconds while there are none", body = NodeOrders), (status = "default", response = Refusal))
)]
pub(crate) async fn poll(
    State(port): State<Port>,
    Named(node): Named<u32>,
    Message(poll): Message<NodePoll>,
) -> Result<Message<NodeOrders>, Problem> {
    Ok(Message(port.server.poll_node(NodeId(node), poll).await?))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/kept",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = KeptAnnouncement,
    responses((status = 200, description = "The server has received the list of kept directories, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn kept(
    State(port): State<Port>,
    Named(node): Named<u32>,
    Message(announcement): Message<KeptAnnouncement>,
) -> Result<Message<()>, Problem> {
    port.server.kept(NodeId(node), announcement).await?;
    Ok(Message(()))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/checked",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = CheckNews,
    responses((status = 200, description = "The server has received the findings, and says whether the check continues", body = CheckAnswer), (status = "default", response = Refusal))
)]
pub(crate) async fn checked(
    State(port): State<Port>,
    Named(node): Named<u32>,
    Message(news): Message<CheckNews>,
) -> Result<Message<CheckAnswer>, Problem> {
    Ok(Message(port.server.check_news(NodeId(node), news).await?))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/leave",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = NodePoll,
    responses((status = 200, description = "The node is removed from the cluster, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn leave(
    State(port): State<Port>,
    Named(node): Named<u32>,
    Message(poll): Message<NodePoll>,
) -> Result<Message<()>, Problem> {
    port.server.leave_node(NodeId(node), poll.incarnation).await?;
    Ok(Message(()))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/drain",
    tag = "clients",
    params(("node" = String, Path, description = "Name of the node, or its number as it is printed")),
    responses((status = 200, description = "The node gets no new work, and leaves when no job needs it", body = NodeStatus), (status = "default", response = Refusal))
)]
pub(crate) async fn drain(
    State(port): State<Port>,
    Named(node): Named<String>,
) -> Result<Message<NodeStatus>, Problem> {
    Ok(Message(port.server.drain_node(node).await?))
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/brief",
    tag = "nodes",
    params(("job" = i64, Path, description = "Number of the job")),
    request_body = BriefQuestion,
    responses((status = 200, description = "The facts that a node needs to run attempts of the job", body = JobBrief), (status = "default", response = Refusal))
)]
pub(crate) async fn brief(
    State(port): State<Port>,
    SpeakingNode(node): SpeakingNode,
    Named(job): Named<i64>,
    Message(question): Message<BriefQuestion>,
) -> Result<Message<JobBrief>, Problem> {
    Ok(Message(port.server.job_brief(node, JobId(job), question).await?))
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/places",
    tag = "nodes",
    params(("job" = i64, Path, description = "Number of the job")),
    request_body = PlacesQuestion,
    responses((status = 200, description = "The current locations of these runs of the job, for a reader that cannot reach them", body = PlacesAnswer), (status = "default", response = Refusal))
)]
pub(crate) async fn places(
    State(port): State<Port>,
    Named(job): Named<i64>,
    Message(question): Message<PlacesQuestion>,
) -> Result<Message<PlacesAnswer>, Problem> {
    Ok(Message(port.server.places(JobId(job), question).await?))
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/boundaries",
    tag = "nodes",
    params(("job" = i64, Path, description = "Number of the job")),
    request_body = BoundariesProposal,
    responses((status = 200, description = "The boundaries in effect, which may be another proposal", body = Boundaries), (status = "default", response = Refusal))
)]
pub(crate) async fn propose(
    State(port): State<Port>,
    Named(job): Named<i64>,
    Message(proposal): Message<BoundariesProposal>,
) -> Result<Message<Boundaries>, Problem> {
    Ok(Message(port.server.propose(JobId(job), proposal.keys).await?))
}
