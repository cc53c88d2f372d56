//! Names of requests, and the facts of decisions about them.

use crate::error::CatalogError;
use filetree::{FoundPath, Making, TreePath};
use metastore::FileFacts;
use rows::FileSpace;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the time in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses the name of a request.
pub(crate) fn path_of(text: &str) -> Result<TreePath, CatalogError> {
    TreePath::parse(text).map_err(|source| CatalogError::Name { text: text.to_string(), source })
}

/// Returns the rows of the paths of a question.
pub(crate) fn found_paths(facts: &FileFacts, paths: &[&TreePath]) -> Vec<FoundPath> {
    let found = |(index, path): (usize, &&TreePath)| {
        let rows = facts.found.get(index).cloned().unwrap_or_default();
        FoundPath {
            path: (*path).clone(),
            root: FileSpace::Cluster.root(),
            rows: rows.rows,
            has_entries: rows.has_entries,
        }
    };
    paths.iter().enumerate().map(found).collect()
}

/// Returns the facts of everything that a change makes.
pub(crate) fn making(facts: &FileFacts, user: &str, keep_versions: u32) -> Making {
    Making {
        version: facts.version,
        put: facts.put,
        next_number: 0,
        user: user.to_string(),
        now_ns: now_ns(),
        keep_versions,
        ttl_ns: None,
    }
}
