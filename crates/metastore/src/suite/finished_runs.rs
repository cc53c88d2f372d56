//! Finished runs of steps.

use crate::{Change, Metastore};
use api::ContentHash;
use api::task::{CACHING_RULES, FileContent, FinishedRun, RecordedRun};
use ids::JobId;
use std::collections::BTreeSet;
use std::sync::Arc;

fn recorded(step: &str, path: &str, bytes: u64) -> Arc<RecordedRun> {
    let output = FileContent {
        path: path.into(),
        real_path: None,
        sha256: None,
        bytes,
        stamp: None,
        made_by: None,
        stored: None,
        compression: None,
    };
    let (none, outputs) = (ContentHash([0; 32]), vec![output]);
    let run = FinishedRun { outputs, ..FinishedRun::default() };
    let (rules, step, words, env, identity) = (CACHING_RULES, step.to_string(), none, none, none);
    Arc::new(RecordedRun { rules, step, words, env, identity, waits: None, run })
}

fn finished(user: &str, path: &str, job: Option<i64>, bytes: u64) -> Change {
    let (user, run, job) = (user.to_string(), recorded("a step", path, bytes), job.map(JobId));
    Change::RunFinished { user, path: path.into(), job, run, now_ns: 7 }
}

pub(crate) async fn last_run_of_each_path_is_found(store: &Metastore) {
    let all = |count: usize| -> Vec<Change> {
        (0..count).map(|index| finished("ann", &format!("/w/{index:05}"), Some(1), 1)).collect()
    };
    store.apply(&all(25_000)).await.unwrap();
    store
        .apply(&[finished("bob", "/w/00003", Some(2), 5), finished("ann", "/w/00003", Some(3), 9)])
        .await
        .unwrap();
    // A refreshed run keeps its job; one that is not known is not stored.
    store.apply(&[finished("ann", "/w/00004", None, 8), finished("ann", "/w/none", None, 8)]).await.unwrap();
    let ask = async |user: &str, paths: &[&str]| {
        let paths: BTreeSet<String> = paths.iter().map(|path| path.to_string()).collect();
        let found = store.finished_runs(user, &paths).await.unwrap();
        found.into_iter().map(|(path, run)| (path, run.run.outputs[0].bytes)).collect::<Vec<_>>()
    };
    let path = |path: &str| path.to_string();
    let found = ask("ann", &["/w/00003", "/w/00004", "/w/none", "/x"]).await;
    assert_eq!(found, [(path("/w/00003"), 9), (path("/w/00004"), 8)]);
    assert_eq!(ask("bob", &["/w/00003", "/w/00004"]).await, [(path("/w/00003"), 5)]);
    // So far apart that more rows lie between them than are read.
    assert_eq!(ask("ann", &["/w/00000", "/w/24999"]).await, [(path("/w/00000"), 1), (path("/w/24999"), 1)]);
    assert_eq!(ask("eve", &["/w/00003"]).await, []);
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let (page, last) = store.finished_runs_after(None, after).await.unwrap();
        rows.extend(page);
        after = last;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(rows.len(), 25_001);
    assert_eq!((rows[4].job, rows[4].run.run.outputs[0].bytes), (JobId(1), 8));
    let (of_bob, last) = store.finished_runs_after(Some("bob"), None).await.unwrap();
    assert_eq!((of_bob.len(), of_bob[0].job, last), (1, JobId(2), None));
}
