//! Tests for PostgreSQL only: a leader and its standby, and a database that goes away and comes back.

use api::history::EventKind;
use ids::JobId;
use metastore::{Change, JobState, Metastore, QueryError, QueryLimits, StoreError};
use private_postgres::PrivatePostgres;
use std::time::Duration;

fn note(detail: &str) -> Change {
    Change::Note { job: Some(JobId(1)), kind: EventKind::Status, detail: detail.to_string(), now_ns: 1 }
}

async fn notes(store: &Metastore) -> Vec<String> {
    let events = store.events(JobId(1), 100).await.unwrap();
    events.into_iter().filter_map(|event| event.detail).collect()
}

#[tokio::test]
async fn one_server_leads() {
    let Some(postgres) = PrivatePostgres::start_or_say("a standby on PostgreSQL", &["fsync = off"]) else {
        return;
    };
    let url = postgres.url("postgres");
    let (first, second) = (Metastore::connect(&url).await.unwrap(), Metastore::connect(&url).await.unwrap());
    assert!(matches!(first.keep_lead().await, Err(StoreError::LeadLost { .. })), "nobody leads yet");
    assert!(first.try_lead("one").await.unwrap() && first.try_lead("one").await.unwrap());
    assert!(!second.try_lead("two").await.unwrap());
    first.apply(&[note("a")]).await.unwrap();
    first.keep_lead().await.unwrap();
    // Who does not lead can still read, and write what needs no leader, such as tokens.
    assert_eq!(notes(&second).await, ["a"]);
    // The standby has it as soon as the leader is gone, however it goes.
    let waiting = tokio::spawn(async move {
        second.lead("two").await.unwrap();
        second
    });
    drop(first);
    let second = tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    second.apply(&[note("b")]).await.unwrap();
    let third = Metastore::connect(&url).await.unwrap();
    assert!(!third.try_lead("three").await.unwrap());
    second.resign().await.unwrap();
    third.lead("three").await.unwrap();
    assert!(matches!(second.keep_lead().await, Err(StoreError::LeadLost { .. })));
    assert_eq!(notes(&third).await, ["a", "b"]);
}

#[tokio::test]
async fn a_leader_survives_a_restart_of_the_database() {
    let what = "a restart of PostgreSQL under a server";
    let Some(postgres) = PrivatePostgres::start_or_say(what, &[]) else { return };
    let store = Metastore::connect(&postgres.url("postgres")).await.unwrap();
    let standby = Metastore::connect(&postgres.url("postgres")).await.unwrap();
    let plain = Metastore::connect(&postgres.url("postgres")).await.unwrap();
    plain.apply(&[note("a")]).await.unwrap();
    assert!(store.try_lead("one").await.unwrap());
    assert_eq!(notes(&store).await.len(), 1);
    for mode in ["fast", "immediate"] {
        postgres.restart(mode);
        // The leader gets over it, whatever it does next; who does not lead is told, and goes on when asked again.
        store.apply(&[note(mode)]).await.unwrap();
        let told = plain.apply(&[note("lost")]).await.unwrap_err();
        assert!(told.retryable(), "{told:?}");
        plain.apply(&[note("again")]).await.unwrap();
        assert!(!standby.try_lead("two").await.is_ok_and(|leads| leads));
        store.keep_lead().await.unwrap();
    }
    assert_eq!(notes(&store).await, ["a", "fast", "again", "immediate", "again"]);
    // It is away for a while.
    postgres.stop("fast");
    let reading = store.jobs(1).await.unwrap_err();
    assert!(reading.retryable(), "{reading:?}");
    let late = [note("late"), note("later")];
    let apply = store.apply(&late);
    let start = tokio::task::spawn_blocking(move || {
        postgres.begin().unwrap();
        postgres
    });
    let (applied, postgres) = tokio::join!(apply, start);
    applied.unwrap();
    assert_eq!(notes(&store).await[5..], ["late", "later"]);
    // Another one led while the database was away: the old leader must not write any more.
    postgres.as_ref().unwrap().stop("fast");
    postgres.as_ref().unwrap().begin().unwrap();
    standby.lead("two").await.unwrap();
    let lost = store.apply(&[note("too late")]).await;
    assert!(matches!(lost, Err(StoreError::LeadLost { .. })), "{lost:?}");
    assert!(!notes(&standby).await.contains(&"too late".to_string()));
    drop(postgres);
}

#[tokio::test]
async fn errors_of_postgres_say_the_remedy() {
    let bad = |url| async move { Metastore::connect(url).await.err().unwrap() };
    assert!(matches!(bad("mysql://host/db").await, StoreError::BadUrl { .. }));
    let nobody = bad("postgres://me:secret@127.0.0.1:1/db").await;
    assert!(nobody.retryable() && matches!(nobody, StoreError::Unreachable { .. }), "{nobody:?}");
    assert!(!nobody.to_string().contains("secret"), "{nobody}");
    let Some(postgres) = PrivatePostgres::start_or_say("errors of PostgreSQL", &["fsync = off"]) else {
        return;
    };
    let missing = Metastore::connect(&postgres.url("nowhere")).await.err().unwrap();
    assert!(!missing.retryable() && matches!(missing, StoreError::Denied { .. }), "{missing:?}");
    // A second server of the same version finds everything in place; one that came first, and one beside it.
    let url = postgres.create_database("both");
    let (first, second) = tokio::join!(Metastore::connect(&url), Metastore::connect(&url));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.reserve_job_id().await.unwrap(), JobId(1));
    assert_eq!(second.reserve_job_id().await.unwrap(), JobId(2));
    let unknown =
        Change::JobEnded { job: JobId(9), state: JobState::Failed, exit_code: None, error: None, now_ns: 1 };
    first.apply(&[unknown]).await.unwrap();
    let answer = first.query("select count(*) from jobs", QueryLimits::default()).await;
    assert!(!matches!(answer, Err(QueryError::NoReader { .. })), "{answer:?}");
}
