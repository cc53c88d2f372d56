//! Tests of tokens of people, secrets of nodes, keys of data ports, and texts that queries do not show.

use super::{attempt, node, owner, submitted};
use crate::{AttemptState, JobState, Metastore, QueryLimits, Role};
use api::history::{Cell, EventKind, Table};
use api::task::RunTask;
use api::{Blame, Task, TaskFailure};
use ids::{JobId, NodeId, StageIndex};
use rows::{AuditRow, Change, DATA_KEYS_MAX, DataKeyRow, NodeRow, NodeSecretRow, NodeState, TokenRow};

pub(crate) async fn people_come_by_their_tokens(store: &Metastore) {
    let token = |name: &str, byte| TokenRow {
        token: name.to_string(),
        user: "ann".to_string(),
        hash: [byte; 32],
        created_ns: 2,
        expires_ns: Some(99),
        revoked_ns: None,
    };
    let added = |role| Change::UserAdded { name: "ann".to_string(), role, now_ns: 1 };
    let issued = |token| Change::TokenIssued { token };
    let audit = AuditRow {
        time_ns: 5,
        user: Some("ann".to_string()),
        source: Some("10.0.0.7".to_string()),
        action: "DELETE /v1/jobs/7".to_string(),
        target: "job 7".to_string(),
        allowed: false,
        detail: None,
    };
    store
        .apply(&[
            added(Role::User),
            issued(token("t1", 1)),
            issued(token("t2", 2)),
            Change::TokenRevoked { token: "t2".to_string(), now_ns: 3 },
            Change::TokenRevoked { token: "t2".to_string(), now_ns: 4 },
            Change::Audit { row: audit.clone() },
        ])
        .await
        .unwrap();
    let (found, user) = store.token_by_hash(&[1; 32]).await.unwrap().unwrap();
    assert_eq!((found, user.role, user.disabled_ns), (token("t1", 1), Role::User, None));
    assert_eq!(store.token_by_hash(&[2; 32]).await.unwrap().unwrap().0.revoked_ns, Some(3));
    assert_eq!(store.token_by_hash(&[3; 32]).await.unwrap(), None);
    assert_eq!(store.tokens().await.unwrap().len(), 2);
    assert_eq!(store.audit(10).await.unwrap(), [audit]);
    let changed = Change::UserChanged { name: "ann".to_string(), role: Role::ReadOnly, disabled_ns: Some(6) };
    store.apply(&[changed]).await.unwrap();
    let user = store.users().await.unwrap().remove(0);
    assert_eq!((user.role, user.disabled_ns), (Role::ReadOnly, Some(6)));
    // The store refuses a second user of a name, a token of an unknown user, and a token that exists.
    assert!(store.apply(&[added(Role::Admin)]).await.is_err());
    let of_nobody = TokenRow { user: "bob".to_string(), ..token("t3", 3) };
    assert!(store.apply(&[issued(of_nobody)]).await.is_err());
    assert!(store.apply(&[issued(token("t4", 1))]).await.is_err());
}

pub(crate) async fn nodes_are_known_by_their_secrets(store: &Metastore) {
    let joined = |number: u32, token: Option<&str>| {
        let secret_hash = Some([number as u8; 32]);
        let join_token = token.map(str::to_string);
        let node = NodeRow { secret_hash, join_token, ..node(number, &format!("n{number}")) };
        Change::NodeRegistered { node, disks: Vec::new() }
    };
    let before = Change::NodeRegistered { node: node(9, "before"), disks: Vec::new() };
    let state = |node, state| Change::NodeStateChanged { node: NodeId(node), state, now_ns: 7 };
    store
        .apply(&[
            before,
            joined(1, Some("t1")),
            joined(2, None),
            joined(3, None),
            joined(4, Some("t1")),
            joined(5, None),
            state(3, NodeState::Dead),
            state(4, NodeState::Left),
            state(5, NodeState::Draining),
        ])
        .await
        .unwrap();
    let known = store.node_secrets().await.unwrap();
    let row = |number: u32, token: Option<&str>| {
        let (node, hash) = (NodeId(number), [number as u8; 32]);
        NodeSecretRow { node, hash, join_token: token.map(str::to_string) }
    };
    assert_eq!(known, [row(1, Some("t1")), row(2, None), row(5, None)]);
    assert_eq!(store.node_named("n1").await.unwrap().unwrap().join_token.as_deref(), Some("t1"));
}

pub(crate) async fn keys_of_data_ports_are_remembered(store: &Metastore) {
    let made = |key: &str, withdraws_earlier, now_ns| {
        let public_key = key.to_string();
        Change::DataKeyMade { public_key, withdraws_earlier, now_ns }
    };
    let row = |key: &str, withdrawn_ns| DataKeyRow { public_key: key.to_string(), withdrawn_ns };
    assert_eq!(store.data_keys().await.unwrap(), []);
    store.apply(&[made("a", false, 1)]).await.unwrap();
    store.apply(&[made("b", true, 2)]).await.unwrap();
    store.apply(&[made("c", false, 3)]).await.unwrap();
    let expected = [row("c", None), row("b", None), row("a", Some(2))];
    assert_eq!(store.data_keys().await.unwrap(), expected);
    // The first time is kept.
    store.apply(&[made("d", true, 4)]).await.unwrap();
    let expected = [row("d", None), row("c", Some(4)), row("b", Some(4)), row("a", Some(2))];
    assert_eq!(store.data_keys().await.unwrap(), expected);
    let many: Vec<Change> = (0..DATA_KEYS_MAX).map(|key| made(&key.to_string(), false, 5)).collect();
    store.apply(&many).await.unwrap();
    let kept = store.data_keys().await.unwrap();
    assert_eq!((kept.len() as u32, kept.iter().any(|row| row.public_key == "d")), (DATA_KEYS_MAX, false));
}

/// Queries that bypass the views, also through parts of a statement with the names of views.
const PAST_THE_VIEWS: &[&str] = &[
    "select payload from main.tasks",
    "select failure, * from main.attempts",
    "select detail from main.events",
    "select error from main.jobs",
    "with attempts as (select failure from main.attempts) select * from attempts",
    "with events as (select detail as d from main.events) select d from events",
    "select * from (select failure from main.attempts) attempts",
    "select count(*) from main.attempts where failure like '%hunter2%' having count(*) > 0",
    "select json_extract(failure, '$.stderr_tail') from main.attempts",
    "select group_concat(payload) from main.tasks",
    "select payload from public.tasks",
    "select failure from public.attempts",
    "select string_agg(detail, '') from public.events",
    "select sql from temp.sqlite_master",
    "select * from sqlite_temp_schema",
    "explain query plan select * from attempts",
];

const SECRET: &str = "hunter2";
const OURS: &str = "the disk is full";

/// Returns a job that failed by its program and one that failed by a disk, with a secret in every input and output of
/// their programs.
fn failed_jobs() -> Vec<Change> {
    let jobs = [JobId(1), JobId(2)];
    let program = RunTask {
        words: vec!["sh".into(), SECRET.into()],
        env: vec![("PASSWORD".into(), SECRET.into())],
        ..RunTask::default()
    };
    let by_program = TaskFailure {
        stderr_tail: vec![SECRET.to_string()],
        exit_code: Some(7),
        ..TaskFailure::new(Blame::UserProgram, format!("KeyError: {SECRET}"))
    };
    let by_disk =
        TaskFailure { stderr_tail: vec![SECRET.to_string()], ..TaskFailure::new(Blame::Environment, OURS) };
    let mut changes = vec![owner("me")];
    for (job, failure) in jobs.into_iter().zip([by_program, by_disk]) {
        let first = attempt(job, 0, 0, 0);
        let ended = Change::AttemptEnded {
            attempt: first,
            state: AttemptState::Failed,
            started_ns: 6,
            opened_ns: None,
            ended_ns: 8,
            failure: Some(failure.clone()),
        };
        let note = |kind| Change::Note { job: Some(job), kind, detail: SECRET.to_string(), now_ns: 9 };
        let error = Some(failure.message);
        changes.extend([
            submitted(job, "me"),
            Change::StageExpanded {
                job,
                stage: StageIndex(0),
                tasks: vec![Task::Run(Box::new(program.clone()))],
                now_ns: 4,
            },
            Change::AttemptStarted { attempt: first, node: NodeId(0), slot: 1, now_ns: 5 },
            ended,
            note(EventKind::StandardOutput),
            note(EventKind::StandardError),
            note(EventKind::Status),
            Change::JobEnded { job, state: JobState::Failed, exit_code: Some(7), error, now_ns: 10 },
        ]);
    }
    changes
}

/// Checks that no answer contains words, environment or output of programs, under any name.
pub(crate) async fn programs_are_hidden_from_questions(store: &Metastore) {
    store.apply(&failed_jobs()).await.unwrap();
    let ask = async |statement: &str| store.query(statement, QueryLimits::default()).await;
    let holds = |table: &Table, text: &str| {
        let is_it = |cell: &Cell| matches!(cell, Cell::Text(shown) if shown.contains(text));
        table.rows.iter().flatten().any(is_it)
    };
    for (table, shows_ours) in [("tasks", false), ("attempts", true), ("events", true), ("jobs", true)] {
        let shown = ask(&format!("select * from {table}")).await.unwrap();
        assert!(!shown.rows.is_empty() && !holds(&shown, SECRET), "{table}: {shown:?}");
        assert_eq!(holds(&shown, OURS), shows_ours, "{table}: {shown:?}");
    }
    let exit_codes = ask("select failure from attempts order by job").await.unwrap();
    assert!(
        holds(&exit_codes, "\"exit_code\":7") || holds(&exit_codes, "\"exit_code\": 7"),
        "{exit_codes:?}"
    );
    for statement in PAST_THE_VIEWS {
        if let Ok(shown) = ask(statement).await {
            assert!(!holds(&shown, SECRET), "{statement}: {shown:?}");
            assert!(!statement.contains("hunter2") || shown.rows.is_empty(), "{statement}: {shown:?}");
        }
    }
}

pub(crate) async fn answers_end_where_they_are_large(store: &Metastore) {
    let limits = QueryLimits { bytes_max: 1000, ..QueryLimits::default() };
    let numbers =
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000) select i from n";
    let cut = store.query(numbers, limits).await.unwrap();
    assert!(cut.truncated && (20..500).contains(&cut.rows.len()), "{}", cut.rows.len());
    let large = "with recursive n(t) as (select 'xxxxxxxxxxxxxxxx' union all select t || t from n where length(t) < 2000) \
                 select t from n where length(t) > 1000";
    let refused = store.query(large, limits).await;
    assert!(matches!(refused, Err(crate::QueryError::LargeRow { bytes_max: 1000 })), "{refused:?}");
}
