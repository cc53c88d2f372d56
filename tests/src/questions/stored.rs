//! Questions about the stored files of a cluster.

use super::{Answers, column, numbers};
use crate::wait_until;
use std::collections::BTreeSet;

/// The questions of tests about stored files.
pub trait StoredQuestions: Answers + Sized {
    /// Returns the contents that puts under way have recorded.
    #[track_caller]
    fn recorded_contents(&self) -> BTreeSet<i64> {
        numbers(self, "select content from file_put_files").into_iter().collect()
    }

    /// Returns the contents that names of the tree of the cluster have.
    #[track_caller]
    fn named_contents(&self) -> BTreeSet<i64> {
        let statement = "select item from file_names where tree = 1 and is_directory = 0";
        numbers(self, statement).into_iter().collect()
    }

    /// Counts the puts of the cluster that are not committed.
    #[track_caller]
    fn open_puts(&self) -> i64 {
        numbers(self, "select count(*) from file_puts where tree = 1 and version is null")[0]
    }

    /// Returns the numbers of replicas that needed concrete files have, each once.
    #[track_caller]
    fn replica_counts(&self) -> BTreeSet<i64> {
        let statement = "select distinct (select count(*) from concrete_replicas r where r.concrete = f.concrete) \
                         from concrete_files f where f.is_removed = 0 and f.replicas > 0";
        numbers(self, statement).into_iter().collect()
    }

    /// Counts the rows of replicas on the disks of a node, by its number among all that were started.
    #[track_caller]
    fn replicas_on(&self, number: u32) -> i64 {
        let statement = format!(
            "select count(*) from concrete_replicas r join file_disks d on d.disk = r.disk \
             where d.node_name = 'node-{number}'"
        );
        numbers(self, &statement)[0]
    }

    /// Waits until so many disks of nodes take stored files: a node tells of its disks after it has joined.
    #[track_caller]
    fn wait_for_stored_disks(&self, count: i64) {
        let statement = "select count(*) from file_disks";
        wait_until(&format!("{count} disks are known"), || numbers(self, statement) == [count]);
    }

    /// Returns the changes of the tree of the cluster: their verbs and names, in their order.
    #[track_caller]
    fn stored_changes(&self) -> Vec<String> {
        let statement = "select verb || ' ' || path from file_commits where tree = 1 order by version";
        column(self, statement).iter().map(|value| value.as_str().unwrap_or_default().to_string()).collect()
    }
}

impl<T: Answers> StoredQuestions for T {}
