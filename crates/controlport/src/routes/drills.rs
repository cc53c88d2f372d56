//! Routes of fault drills.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::port::Port;
use api::drill::{DrillFault, DrillNews, DrillOutcome};
use axum::extract::State;
use ids::NodeId;

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/drill",
    tag = "clients",
    params(("node" = String, Path, description = "Name of the node, or its number as it is printed")),
    request_body = DrillFault,
    responses((status = 200, description = "The outcome of the fault, as the node reports it", body = DrillOutcome), (status = "default", response = Refusal))
)]
pub(crate) async fn drill(
    State(port): State<Port>,
    Named(node): Named<String>,
    Message(fault): Message<DrillFault>,
) -> Result<Message<DrillOutcome>, Problem> {
    Ok(Message(port.server.drill_node(node, fault).await?))
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/struck",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = DrillNews,
    responses((status = 200, description = "The server has received the outcome of the fault, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn struck(
    State(port): State<Port>,
    Named(node): Named<u32>,
    Message(news): Message<DrillNews>,
) -> Result<Message<()>, Problem> {
    Ok(Message(port.server.drill_news(NodeId(node), news).await?))
}
