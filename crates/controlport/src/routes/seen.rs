//! Routes of files that only some nodes see.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::port::Port;
use api::seen::{SeenAnswer, SeenNews, SeenNewsAnswer, SeenQuestion};
use axum::extract::State;
use ids::NodeId;

#[utoipa::path(
    post,
    path = "/v1/seen",
    tag = "clients",
    request_body = SeenQuestion,
    responses((status = 200, description = "A page of the listing, or its name while nodes list", body = SeenAnswer), (status = "default", response = Refusal))
)]
pub(crate) async fn ask(
    State(port): State<Port>,
    Message(question): Message<SeenQuestion>,
) -> Result<Message<SeenAnswer>, Problem> {
    Ok(Message(port.server.seen(question).await?))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/seen",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = SeenNews,
    responses((status = 200, description = "Whether the server wants more", body = SeenNewsAnswer), (status = "default", response = Refusal))
)]
pub(crate) async fn listed(
    State(port): State<Port>,
    Named(node): Named<u32>,
    Message(news): Message<SeenNews>,
) -> Result<Message<SeenNewsAnswer>, Problem> {
    Ok(Message(port.server.seen_news(NodeId(node), news).await?))
}
