//! The route for accounts.

use crate::answer::{Message, Problem, Refusal};
use crate::gate::Caller;
use crate::port::Port;
use api::control::ErrorCode;
use api::history::usage::{UsageBy, UsageList, UsageQuestion};
use api::people::Role;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};

#[utoipa::path(
    get,
    path = "/v1/usage",
    tag = "clients",
    params(("by" = Option<UsageBy>, Query, description = "Subject of each row; the default is `user`"),
        ("since" = Option<String>, Query, description = "The first day, in UTC, as YYYY-MM-DD"),
        ("until" = Option<String>, Query, description = "The last day"),
        ("user" = Option<String>, Query, description = "Only this user; others only for administrators"),
        ("job" = Option<i64>, Query, description = "Only this job, with its steps")),
    responses((status = 200, description = "Sums of what ended attempts used, for administrators of all users", body = UsageList),
        (status = "default", response = Refusal))
)]
pub(crate) async fn usage(
    State(port): State<Port>,
    caller: Caller,
    question: Result<Query<UsageQuestion>, QueryRejection>,
) -> Result<Message<UsageList>, Problem> {
    let Query(mut question) =
        question.map_err(|error| Problem::new(ErrorCode::BadRequest, error.body_text()))?;
    if caller.role != Role::Admin {
        let own = caller.owner_name();
        if question.user.as_deref().is_some_and(|user| user != own) {
            let message = "only administrators see what other users used: leave `user` out";
            return Err(Problem::new(ErrorCode::Forbidden, message));
        }
        // An empty name would be no condition.
        if own.is_empty() {
            return Ok(Message(UsageList::default()));
        }
        question.user = Some(own.to_string());
    }
    Ok(Message(port.store.usage(&question).await?))
}
