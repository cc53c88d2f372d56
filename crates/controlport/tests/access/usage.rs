//! Accounts: whose they are, and that an end that is reported again counts once.

use crate::place::Place;
use api::control::{ErrorCode, NodeOrders, NodeWelcome};
use api::history::usage::{UsageList, UsageRow};
use api::people::Role;
use axum::http::StatusCode;
use controlport::{TokensAsked, UserLimits};
use serde_json::{Value, json};

fn poll(place: &Place, welcome: &NodeWelcome, received: u64, finished: Value) -> NodeOrders {
    let poll = json!({
        "incarnation": welcome.incarnation, "received": received, "free_slots": [0], "finished": finished,
        "held": [], "report": {},
    });
    let path = format!("/v1/nodes/{}/poll", welcome.node.0);
    let (status, _, body) = place.ask("post", &path, Some(&welcome.secret.0), poll.to_string());
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).expect("orders")
}

fn usage(place: &Place, token: &str, question: &str) -> Vec<UsageRow> {
    let (status, _, body) = place.ask("get", &format!("/v1/usage?{question}"), Some(token), "");
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice::<UsageList>(&body).expect("rows").rows
}

/// Returns the end of the attempt of the first order.
fn end(orders: &NodeOrders, outcome: &Value) -> Value {
    let order = serde_json::to_value(&orders.orders[0].order).expect("JSON");
    let usage = json!({ "cpu_us": 7000, "read_bytes": u64::MAX });
    json!([{ "attempt": order["start"]["attempt"], "outcome": outcome, "started_ns": 1, "ended_ns": 2, "usage": usage }])
}

#[test]
fn ends_reported_twice_count_once_for_their_user() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let token = |user, role| place.token(user, role, None).token;
    let (ann, bob, root) = (token("ann", Role::User), token("bob", Role::User), token("root", Role::Admin));
    let welcome = place.welcome("n1", Some(&token("rack", Role::Node)));
    let first = place.submit(&ann, 3).expect("jobs").first.0;
    let orders = poll(&place, &welcome, 0, json!([]));
    let failed = json!({ "failed": { "blame": "user_program", "message": "it failed", "stderr_tail": [] } });
    let ended = end(&orders, &failed);
    let second = poll(&place, &welcome, 1, ended.clone());
    // The answer was lost: the end comes again, and so does the order.
    let again = poll(&place, &welcome, 1, ended);
    assert_eq!(again.orders[0].number, second.orders[0].number);
    let succeeded = json!({ "succeeded": { "run": {} } });
    poll(&place, &welcome, 2, end(&again, &succeeded));
    let rows = usage(&place, &ann, "by=job");
    let found: Vec<_> =
        rows.iter().map(|row| (row.job.expect("a job").0, row.attempts, row.cpu_ms)).collect();
    assert_eq!(found, [(first + 1, 1, 7), (first, 1, 7)]);
    let all = usage(&place, &root, "");
    assert_eq!((all.len(), all[0].user.as_deref(), all[0].jobs), (1, Some("ann"), 2));
    // A figure that no node can measure is cut.
    assert_eq!(all[0].read_bytes, 2 * api::task::ATTEMPT_USAGE_MAX);
    assert_eq!(usage(&place, &bob, ""), []);
    assert_eq!(usage(&place, &bob, &format!("by=job&job={first}")), []);
    let code =
        |question: &str, token: &str| place.code("get", &format!("/v1/usage?{question}"), Some(token), "");
    assert_eq!(code("user=ann", &bob), Some(ErrorCode::Forbidden));
    assert_eq!(code("user=ann", &root), None);
    assert_eq!(code("since=yesterday", &root), Some(ErrorCode::BadRequest));
    assert_eq!(code("by=moon", &root), Some(ErrorCode::BadRequest));
}
