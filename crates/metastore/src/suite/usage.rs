//! Accounts by user, job and day.

use super::samples::{owner, submitted};
use crate::{Change, Metastore, UsageSums};
use api::history::StepOf;
use api::history::usage::{USAGE_ROWS_MAX, UsageBy, UsageDay, UsageQuestion, UsageRow};
use api::task::AttemptUsage;
use ids::{JobId, StepNumber};

const DAY_NS: u64 = 86_400_000_000_000;

fn used(job: i64, user: &str, day: u64, cpu_us: u64) -> Change {
    let used = AttemptUsage { cpu_us, read_bytes: 10, shuffled_bytes: 20, stored_bytes: 30, moved_bytes: 40 };
    let sums = Box::new(UsageSums { kept_bytes: 50, ..UsageSums::attempt(used, 1 << 20, 3_000_000_000) });
    Change::Used { job: JobId(job), user: user.to_string(), sums, now_ns: day * DAY_NS + 5 }
}

fn by(by: UsageBy) -> UsageQuestion {
    UsageQuestion { by, ..UsageQuestion::default() }
}

async fn rows(store: &Metastore, question: &UsageQuestion) -> Vec<UsageRow> {
    let list = store.usage(question).await.unwrap();
    assert!(!list.is_cut);
    list.rows
}

/// Returns users, jobs, days and processor milliseconds.
async fn brief(store: &Metastore, question: &UsageQuestion) -> Vec<String> {
    let line = |row: UsageRow| {
        let (user, job) = (row.user.unwrap_or_default(), row.job.map_or(0, |job| job.0));
        let day = row.day.map(|day| day.to_string()).unwrap_or_default();
        format!("{user} {job} {day} {}", row.cpu_ms)
    };
    rows(store, question).await.into_iter().map(line).collect()
}

pub(crate) async fn accounts_add_up_by_day_user_job(store: &Metastore) {
    store
        .apply(&[used(1, "ann", 3, 1_000), used(1, "ann", 3, 2_000), used(2, "ann", 4, 500_000)])
        .await
        .unwrap();
    store.apply(&[used(1, "ann", 3, 4_000), used(3, "bob", 4, 600_000)]).await.unwrap();
    // A refused transaction adds nothing: its last change violates a primary key.
    let refused = store.apply(&[used(1, "ann", 3, 9_000), owner("me"), owner("me")]).await;
    assert!(refused.is_err());
    let question = UsageQuestion { job: Some(JobId(1)), ..by(UsageBy::User) };
    let expected = UsageRow {
        user: Some("ann".to_string()),
        jobs: 1,
        attempts: 3,
        cpu_ms: 7,
        memory_mib_seconds: 9,
        read_bytes: 30,
        shuffled_bytes: 60,
        stored_bytes: 90,
        moved_bytes: 120,
        kept_bytes: 150,
        ..UsageRow::default()
    };
    assert_eq!(rows(store, &question).await, [expected]);
    assert_eq!(brief(store, &by(UsageBy::User)).await, ["bob 0  600", "ann 0  507"]);
    assert_eq!(brief(store, &by(UsageBy::Job)).await, ["bob 3  600", "ann 2  500", "ann 1  7"]);
    assert_eq!(brief(store, &by(UsageBy::Day)).await, [" 0 1970-01-05 1100", " 0 1970-01-04 7"]);
    let since = UsageQuestion { since: Some(UsageDay(4)), user: Some("ann".to_string()), ..by(UsageBy::Day) };
    assert_eq!(brief(store, &since).await, [" 0 1970-01-05 500"]);
    let until = UsageQuestion { until: Some(UsageDay(3)), ..by(UsageBy::User) };
    assert_eq!(brief(store, &until).await, ["ann 0  7"]);
    assert_eq!(
        brief(store, &UsageQuestion { user: Some("eve".to_string()), ..by(UsageBy::User) }).await,
        [""; 0]
    );
}

pub(crate) async fn steps_count_for_their_jobs(store: &Metastore) {
    let of = store.reserve_job_ids(2).await.unwrap();
    let mut step = submitted(JobId(of.start.0 + 1), "me");
    if let Change::JobSubmitted { step_of, .. } = &mut step {
        *step_of = Some(StepOf { job: of.start, step: StepNumber(0), beside: Vec::new() });
    }
    store.apply(&[owner("me"), submitted(of.start, "me"), step]).await.unwrap();
    store.apply(&[used(of.start.0, "ann", 1, 1_000), used(of.start.0 + 1, "ann", 1, 2_000)]).await.unwrap();
    let list = rows(store, &by(UsageBy::Job)).await;
    assert_eq!(list.len(), 1);
    let found = (list[0].job, list[0].name.as_deref(), list[0].cpu_ms, list[0].jobs);
    assert_eq!(found, (Some(of.start), Some("a job"), 3, 1));
    let question = UsageQuestion { job: Some(of.start), ..by(UsageBy::User) };
    assert_eq!(brief(store, &question).await, ["ann 0  3"]);
    let question = UsageQuestion { job: Some(JobId(of.start.0 + 1)), ..by(UsageBy::User) };
    assert_eq!(brief(store, &question).await, ["ann 0  2"]);
}

pub(crate) async fn accounts_stay_for_days_and_within_bounds(store: &Metastore) {
    let most = used(1, "", 9, u64::MAX);
    store.apply(&[used(1, "", 7, 1_000), used(1, "", 8, 2_000), most.clone()]).await.unwrap();
    store.apply(&[Change::UsageForgotten { before_day: 8 }]).await.unwrap();
    let days = rows(store, &by(UsageBy::Day)).await;
    assert_eq!(days.iter().map(|row| row.day.unwrap().0).collect::<Vec<_>>(), [9, 8]);
    // Sums never overflow, however often a node lies.
    let mut sums = UsageSums { kept_bytes: u64::MAX, memory_mib_ms: u64::MAX, ..UsageSums::default() };
    sums.used.cpu_us = u64::MAX;
    let lie = Change::Used { job: JobId(1), user: String::new(), sums: Box::new(sums), now_ns: 9 * DAY_NS };
    for _ in 0..3 {
        store.apply(&[lie.clone(), lie.clone()]).await.unwrap();
    }
    let days = rows(store, &by(UsageBy::Day)).await;
    assert!(days[0].kept_bytes >= 1 << 62 && days[0].cpu_ms >= 1 << 52, "{:?}", days[0]);
    let many: Vec<Change> = (0..=i64::from(USAGE_ROWS_MAX)).map(|job| used(job + 10, "ann", 9, 1)).collect();
    store.apply(&many).await.unwrap();
    let list = store.usage(&by(UsageBy::Job)).await.unwrap();
    assert_eq!((list.rows.len(), list.is_cut), (USAGE_ROWS_MAX as usize, true));
}
