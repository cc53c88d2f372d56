//! Stored files that programs of a job open by a path: programs, words of their command lines, files beside them. Each gets
//! its version at submit.

use super::is_stored;
use crate::front_end::{FrontEnd, StoredPin, StoredUse};
use anyhow::{Context, ensure};
use api::stored::PINNED_FILES_MAX;
use api::{Compression, ContentHash, Function, PinnedFile, StoredContent};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Pins the stored files that a job names.
pub struct Pinning<'a> {
    front_end: &'a dyn FrontEnd,
    state_dir: &'a Path,
    /// Files by their names as written: one name has one version in a job.
    files: BTreeMap<String, PinnedFile>,
    pins: Vec<StoredPin>,
}

/// The pinned files of a job.
#[derive(Debug, Default)]
pub struct Pinned {
    pub files: Vec<PinnedFile>,
    /// They keep the versions while they live.
    pub pins: Vec<StoredPin>,
}

impl<'a> Pinning<'a> {
    pub fn new(front_end: &'a dyn FrontEnd, state_dir: &'a Path) -> Self {
        Self { front_end, state_dir, files: BTreeMap::new(), pins: Vec::new() }
    }

    /// Pins the stored files among files for programs.
    pub fn pin_files<'p>(
        &mut self,
        option: &str,
        files: impl IntoIterator<Item = &'p mut PathBuf>,
    ) -> anyhow::Result<()> {
        for file in files {
            if let Some(name) = file.to_str().filter(|text| is_stored(text)) {
                *file = self.pin(option, name)?.path.clone();
            }
        }
        Ok(())
    }

    /// Pins the stored files among the words of a command line.
    pub fn pin_words(&mut self, option: &str, words: &mut [String]) -> anyhow::Result<()> {
        for word in words.iter_mut().filter(|word| is_stored(word)) {
            *word = self.pin(option, word)?.path.display().to_string();
        }
        Ok(())
    }

    /// Pins those of a function, unless it is a built-in.
    pub fn pin_function(&mut self, option: &str, function: Option<&mut Function>) -> anyhow::Result<()> {
        match function {
            Some(Function::Command { words }) => self.pin_words(option, words),
            _ => Ok(()),
        }
    }

    /// Pins a stored file.
    pub fn pin(&mut self, option: &str, name: &str) -> anyhow::Result<&PinnedFile> {
        if !self.files.contains_key(name) {
            let found = self.front_end.stored_inputs(self.state_dir, name, StoredUse::OneFile);
            let found = found.with_context(|| format!("{option} {name}"))?;
            let one = found.files.into_iter().find_map(|file| Some((file.path, file.stored?)));
            let (path, stored) = one.with_context(|| format!("{option} {name}: it is no stored file"))?;
            self.files.insert(name.to_string(), PinnedFile { path, stored, by_partition: false });
            self.pins.extend(found.pin);
            ensure!(
                self.files.len() <= PINNED_FILES_MAX,
                "{option} {name}: programs of a job open at most {PINNED_FILES_MAX} stored files"
            );
        }
        Ok(&self.files[name])
    }

    /// Pins an input of a MapReduce job. Returns the identity of its bytes and its compression.
    pub fn pin_input(
        &mut self,
        option: &str,
        name: &str,
    ) -> anyhow::Result<(ContentHash, Option<Compression>)> {
        let pinned = self.pin(option, name)?;
        let (version, identity) = (pinned.path.to_string_lossy().into_owned(), pinned.stored.identity());
        let found = self.front_end.stored_inputs(self.state_dir, &version, StoredUse::OneInput);
        let found = found.with_context(|| format!("{option} {name}"))?;
        Ok((identity, found.files.first().and_then(|file| file.compression)))
    }

    /// Pins a stored file of which steps read partitions. Returns the identity of the bytes of one of them.
    pub fn pin_partition(
        &mut self,
        option: &str,
        name: &str,
        partition: usize,
    ) -> anyhow::Result<ContentHash> {
        self.pin(option, name)?;
        let file = self.files.get_mut(name).filter(|file| partition < file.stored.parts.len());
        let file =
            file.with_context(|| format!("{option} {name}: it has no partition {partition} any more"))?;
        file.by_partition = true;
        Ok(StoredContent { parts: vec![file.stored.parts[partition]] }.identity())
    }

    /// Returns the files, each once.
    pub fn finish(self) -> Pinned {
        let mut files: Vec<PinnedFile> = self.files.into_values().collect();
        files.sort();
        files.dedup();
        Pinned { files, pins: self.pins }
    }
}

/// Returns whether a program is a stored file, by its name in the store or by that of a file beside it.
pub(crate) fn is_pinned(program: &str, files: &[PathBuf]) -> bool {
    let plain_name = program.strip_prefix("./").unwrap_or(program);
    let mut stored = files.iter().filter(|file| file.to_str().is_some_and(is_stored));
    is_stored(program) || stored.any(|file| api::name_beside(file).is_some_and(|name| name == plain_name))
}
