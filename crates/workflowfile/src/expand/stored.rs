//! Stored files that match: those of this machine or of a cluster. Their paths are `files:/NAME` here, so that a pattern goes
//! through them as through the directories of a disk.

use super::error::ExpansionError;
use crate::machines::JobMachines;
use api::STORED_PREFIX;
use jobspec::StoredUse;
use jobspec::state_dir::state_dir;
use std::collections::{BTreeMap, BTreeSet};

/// The directory of all stored files.
pub const STORED_ROOT: &str = "files:";

/// Returns whether a path is that of a stored file, or of a directory of them.
pub fn is_of_store(path: &str) -> bool {
    path.starts_with(STORED_PREFIX)
}

/// Returns the path of a stored file as a step declares it: `files:NAME`.
pub fn declared_name(path: &str) -> String {
    path.replacen("files:/", STORED_PREFIX, 1)
}

/// The stored files as far as they were asked for. Each directory is listed once, with all below it.
pub struct StoredListing<'a> {
    machines: JobMachines<'a>,
    /// Numbers of partitions, by path.
    files: BTreeMap<String, usize>,
    listed: BTreeSet<String>,
}

/// A name in a directory.
pub struct StoredEntry {
    pub name: String,
    pub is_dir: bool,
}

impl<'a> StoredListing<'a> {
    pub fn new(machines: JobMachines<'a>) -> Self {
        Self { machines, files: BTreeMap::new(), listed: BTreeSet::new() }
    }

    /// Returns the names in a directory, in order. A missing one has none.
    pub fn entries(&mut self, dir: &str) -> Result<Vec<StoredEntry>, ExpansionError> {
        self.list(dir)?;
        let prefix = format!("{dir}/");
        let mut entries: Vec<StoredEntry> = Vec::new();
        for below in self.below(&prefix) {
            let (name, is_dir) = below.split_once('/').map_or((below, false), |(name, _)| (name, true));
            if entries.last().is_none_or(|last| last.name != name) {
                entries.push(StoredEntry { name: name.to_string(), is_dir });
            }
        }
        Ok(entries)
    }

    /// Returns the number of partitions of a file; None if there is no such file.
    pub fn partitions(&mut self, path: &str) -> Result<Option<usize>, ExpansionError> {
        self.list(path)?;
        Ok(self.files.get(path).copied())
    }

    /// Returns the rests of the paths of files after a prefix.
    fn below<'p>(&'p self, prefix: &'p str) -> impl Iterator<Item = &'p str> {
        self.files.range(prefix.to_string()..).map_while(move |(path, _)| path.strip_prefix(prefix))
    }

    fn list(&mut self, path: &str) -> Result<(), ExpansionError> {
        let mut above = path.match_indices('/').map(|(end, _)| &path[..end]).chain([path]);
        if above.any(|above| self.listed.contains(above)) {
            return Ok(());
        }
        let name = if path == STORED_ROOT { "files:/" } else { path };
        let listed = state_dir(self.machines.state)
            .and_then(|state_dir| self.machines.front_end.stored_inputs(&state_dir, name, StoredUse::Listed))
            .map_err(|source| ExpansionError::UnlistableStored { path: declared_name(path), source })?;
        for file in listed.files {
            let text = file.path.to_string_lossy();
            let name = text.strip_prefix(STORED_PREFIX).and_then(|name| name.rsplit_once('@'));
            let Some((name, _version)) = name else { continue };
            let partitions = file.stored.map_or(0, |stored| stored.parts.len());
            self.files.insert(format!("{STORED_ROOT}/{name}"), partitions);
        }
        self.listed.insert(path.to_string());
        Ok(())
    }
}
