//! Tests of the lists that people see.

use super::{attempt, new_job, node, submitted};
use crate::{Change, JobState, Metastore, NodeState};
use api::history::{EventKind, JobsQuestion, StepOf};
use ids::*;

pub(crate) async fn jobs_are_listed_by_state_user_and_name(store: &Metastore) {
    let first = new_job(store).await;
    let second = store.reserve_job_id().await.unwrap();
    store.apply(&[submitted(second, "me")]).await.unwrap();
    let ended =
        Change::JobEnded { job: first, state: JobState::Failed, exit_code: None, error: None, now_ns: 9 };
    store.apply(&[ended]).await.unwrap();
    let check = async |question: JobsQuestion, expected: &[JobId], more: u64| {
        let list = store.list_jobs(&question).await.unwrap();
        let jobs: Vec<JobId> = list.jobs.iter().map(|row| row.job).collect();
        assert_eq!((jobs.as_slice(), list.more), (expected, more), "{question:?}");
    };
    let all = JobsQuestion::default;
    let text = |text: &str| Some(text.to_string());
    check(all(), &[second, first], 0).await;
    check(JobsQuestion { limit: Some(1), ..all() }, &[second], 1).await;
    check(JobsQuestion { limit: Some(0), ..all() }, &[], 2).await;
    check(JobsQuestion { state: Some(JobState::Failed), limit: Some(1), ..all() }, &[first], 0).await;
    check(JobsQuestion { user: text("ann"), ..all() }, &[second, first], 0).await;
    check(JobsQuestion { user: text("an"), ..all() }, &[], 0).await;
    check(JobsQuestion { name: text("A J"), ..all() }, &[second, first], 0).await;
    for nothing in ["a%b", "_ job", "!", "'"] {
        check(JobsQuestion { name: text(nothing), ..all() }, &[], 0).await;
    }
    // Steps are listed with their job only.
    let third = store.reserve_job_id().await.unwrap();
    let mut step = submitted(third, "me");
    let Change::JobSubmitted { step_of, .. } = &mut step else { unreachable!("a submit") };
    *step_of = Some(StepOf { job: second, step: StepNumber(7), beside: vec![StepNumber(9)] });
    store.apply(&[step]).await.unwrap();
    check(all(), &[second, first], 0).await;
    check(JobsQuestion { steps_of: Some(second), ..all() }, &[third], 0).await;
    check(JobsQuestion { steps_of: Some(first), ..all() }, &[], 0).await;
    let row = store.job(third).await.unwrap().unwrap();
    assert_eq!(row.step_of, Some(StepOf { job: second, step: StepNumber(7), beside: vec![StepNumber(9)] }));
}

pub(crate) async fn logs_of_tasks_are_no_events(store: &Metastore) {
    let job = new_job(store).await;
    let said = |task, text: &str| Change::AttemptSaid {
        attempt: attempt(job, 0, task, 1),
        text: text.to_string(),
        now_ns: 5,
    };
    store.apply(&[said(3, "first"), said(2, "second\nline")]).await.unwrap();
    let logs = store.logs_of_tasks(job, 9).await.unwrap();
    let told = logs.iter().map(|event| (event.task, event.attempt, event.detail.as_deref()));
    let number = Some(AttemptNumber(1));
    let expected =
        [(Some(TaskIndex(3)), number, Some("first")), (Some(TaskIndex(2)), number, Some("second\nline"))];
    assert!(told.eq(expected), "{logs:?}");
    assert_eq!(store.logs_of_tasks(job, 1).await.unwrap().len(), 1);
    // The stderr of a one-task job is among the events.
    let note =
        Change::Note { job: Some(job), kind: EventKind::StandardError, detail: "x".to_string(), now_ns: 6 };
    store.apply(&[note]).await.unwrap();
    let events = store.events(job, 9).await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.word()).collect();
    assert_eq!(kinds, ["job submitted", "standard error"]);
}

pub(crate) async fn dead_nodes_are_listed_for_a_while(store: &Metastore) {
    let registered = |number, name| Change::NodeRegistered { node: node(number, name), disks: Vec::new() };
    let dead = |number| Change::NodeStateChanged { node: NodeId(number), state: NodeState::Dead, now_ns: 22 };
    // The second node comes back as the third, under the same name.
    let seen = Change::NodesSeen { nodes: vec![(NodeId(1), 30), (NodeId(2), 31), (NodeId(4), 32)] };
    store
        .apply(&[
            registered(1, "one"),
            registered(2, "two"),
            registered(4, "four"),
            seen,
            dead(1),
            dead(2),
            dead(4),
            registered(3, "two"),
        ])
        .await
        .unwrap();
    let listed = async |since_ns, count_max| {
        let rows = store.dead_nodes(since_ns, count_max).await.unwrap();
        rows.iter().map(|row| row.node.0).collect::<Vec<u32>>()
    };
    assert_eq!(listed(0, 9).await, [4, 1]);
    assert_eq!(listed(31, 9).await, [4]);
    assert_eq!(listed(0, 1).await, [4]);
}
