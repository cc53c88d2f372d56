//! Routes for groups of users.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::gate::Caller;
use crate::port::Port;
use crate::routes::stored_files::asker;
use api::people::{GroupList, NewGroup, NewMember};
use axum::extract::State;

#[utoipa::path(
    get,
    path = "/v1/groups",
    tag = "clients",
    responses((status = 200, description = "The groups in which the user is; all, for an administrator", body = GroupList), (status = "default", response = Refusal))
)]
pub(crate) async fn list(State(port): State<Port>, caller: Caller) -> Result<Message<GroupList>, Problem> {
    let asker = asker(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.groups(&asker).await).await
}

#[utoipa::path(
    post,
    path = "/v1/groups",
    tag = "administrators",
    request_body = NewGroup,
    responses((status = 200, description = "The group is created, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn create(
    State(port): State<Port>,
    Message(new): Message<NewGroup>,
) -> Result<Message<()>, Problem> {
    port.stored.aside(async move |catalog| catalog.create_group(&new.name).await).await
}

#[utoipa::path(
    post,
    path = "/v1/groups/{group}/delete",
    tag = "administrators",
    params(("group" = String, Path, description = "Name of the group")),
    responses((status = 200, description = "The group is deleted, and its members have lost their rights by it, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn delete(
    State(port): State<Port>,
    Named(group): Named<String>,
) -> Result<Message<()>, Problem> {
    port.stored.aside(async move |catalog| catalog.delete_group(&group).await).await
}

#[utoipa::path(
    post,
    path = "/v1/groups/{group}/members",
    tag = "administrators",
    params(("group" = String, Path, description = "Name of the group")),
    request_body = NewMember,
    responses((status = 200, description = "The user is in the group, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn add(
    State(port): State<Port>,
    Named(group): Named<String>,
    Message(new): Message<NewMember>,
) -> Result<Message<()>, Problem> {
    port.stored.aside(async move |catalog| catalog.add_to_group(&group, &new.user).await).await
}

#[utoipa::path(
    post,
    path = "/v1/groups/{group}/members/remove",
    tag = "administrators",
    params(("group" = String, Path, description = "Name of the group")),
    request_body = NewMember,
    responses((status = 200, description = "The user has left the group, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn remove(
    State(port): State<Port>,
    Named(group): Named<String>,
    Message(member): Message<NewMember>,
) -> Result<Message<()>, Problem> {
    port.stored.aside(async move |catalog| catalog.remove_from_group(&group, &member.user).await).await
}
