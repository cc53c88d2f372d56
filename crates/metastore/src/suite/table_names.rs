//! Questions by the names that tables have, and by those that they had.

use super::{half_run, node};
use crate::{Change, IntermediateReplicaRow, Metastore, QueryLimits, SampleRow};
use ids::{IntermediateId, NodeId};

/// Names until migration 13, the names since, and a column by which the rows have an order.
const RENAMED: &[(&str, &str, &str)] = &[
    ("replicas", "run_replicas", "run"),
    ("intermediate_replicas", "intermediate_file_replicas", "file"),
    ("sources", "source_sums", "chunk"),
    ("samples", "machine_samples", "time_ns"),
    ("leads", "leaderships", "lead"),
];

pub(crate) async fn questions_find_tables_by_both_names(store: &Metastore) {
    let job = store.reserve_job_id().await.unwrap();
    let sample = |time_ns| SampleRow { node: NodeId(1), time_ns, ..SampleRow::default() };
    let file = IntermediateId(1);
    let mut changes = half_run(job);
    changes.extend([
        Change::NodeRegistered { node: node(1, "one"), disks: Vec::new() },
        Change::Samples { rows: vec![sample(5), sample(6)] },
        Change::IntermediateReplica {
            row: IntermediateReplicaRow { file, node: NodeId(1), bytes: 8, single_ns: 9 },
        },
    ]);
    store.apply(&changes).await.unwrap();
    let ask = async |statement: String| store.query(&statement, QueryLimits::default()).await;
    for (before, after, column) in RENAMED {
        let all = async |table| ask(format!("select * from {table} order by {column}")).await.unwrap();
        let (by_before, by_after) = (all(before).await, all(after).await);
        assert_eq!(by_before, by_after, "{before}");
        // Nobody takes the lead here.
        assert!(!by_after.rows.is_empty() || *after == "leaderships", "{after}");
        let both = format!("select count(*) from {before} a join {after} b on a.{column} = b.{column}");
        assert!(ask(both).await.is_ok(), "{before}");
        // A statement may give the name to a table of its own.
        let own = ask(format!("with {before} as (select 7 as x) select x from {before}")).await.unwrap();
        assert_eq!(own.columns, ["x"], "{before}");
    }
    // What tasks gave back is read under neither name.
    for hidden in ["results", "task_results", "main.task_results", "public.task_results"] {
        assert!(ask(format!("select * from {hidden}")).await.is_err(), "{hidden}");
    }
}
