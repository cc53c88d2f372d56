//! The front end of the planner: memory and slots of this machine or of a cluster, and messages on the terminal.

use crate::engine::step_outputs::is_missing;
use crate::engine::{machine, seen_inputs, stored_outputs};
use crate::exit::Failure;
use crate::options::connect::Site;
use crate::show::terminal::tell;
use anyhow::{Context, ensure};
use api::{Compression, InputFile, STORED_PREFIX, StoredContent, StoredPart};
use clusterfiles::ClusterFiles;
use filestore::{FileStore, FilesError};
use filetransfer::{FileToGet, GetPlan};
use filetree::TreeName;
use jobspec::{FrontEnd, SeenInputs, StoredInputs, StoredShape, StoredUse};
use mapper::input::{MAGIC_BYTES, compression_of, never_data};
use mapreduce::layout::MEMORY_BYTES_MIN;
use output::output_dir::{ForeignEntry, foreign_entry};
use server::ServerError;
use std::path::{Path, PathBuf};

/// Number of jobs without `--memory` that fit at the same time.
const JOBS_AT_ONCE: u64 = 4;

/// Returns the memory of a job without `--memory`, a share of the memory that every node has for jobs; and the slots of
/// all nodes.
fn cluster_resources(site: &Site) -> Result<(u64, u32), Failure> {
    let status = site.connect()?.run(async |client| client.cluster().await).map_err(Failure::from_client)?;
    let missing = || format!("the server at {} has no nodes yet", site.url);
    let memory_bytes = status.memory_bytes().with_context(missing).map_err(Failure::refused)?;
    // Other jobs must fit beside it.
    let memory_bytes = (memory_bytes / JOBS_AT_ONCE).max(MEMORY_BYTES_MIN);
    Ok((memory_bytes, status.slots().max(1)))
}

/// The command line as the front end of a job that runs on this machine or in the cluster of a server.
pub struct CommandLineFrontEnd<'a> {
    pub site: Option<&'a Site>,
}

impl FrontEnd for CommandLineFrontEnd<'_> {
    fn resources(&self, memory_bytes: Option<u64>, slots: Option<u32>) -> anyhow::Result<(u64, u32)> {
        if let (Some(asked_bytes), None) = (memory_bytes, self.site) {
            machine::check_memory(asked_bytes)?;
        }
        Ok(match (memory_bytes, slots, self.site) {
            (Some(memory_bytes), Some(slots), _) => (memory_bytes, slots),
            (_, _, None) => (
                memory_bytes.unwrap_or_else(machine::default_memory_bytes),
                slots.unwrap_or_else(machine::default_slots),
            ),
            (_, _, Some(site)) => {
                let (free_bytes, cluster_slots) = cluster_resources(site).map_err(Failure::into_error)?;
                let slots = slots.unwrap_or(cluster_slots.min(machine::SLOTS_MAX));
                (memory_bytes.unwrap_or(free_bytes), slots)
            }
        })
    }

    fn check_replaced(&self, output: &Path) -> anyhow::Result<()> {
        match foreign_entry(output) {
            Ok(Some(entry)) => {
                Err(ServerError::from(ForeignEntry { path: output.to_path_buf(), entry }).into())
            }
            _ => Ok(()),
        }
    }

    fn stored_inputs(&self, state_dir: &Path, name: &str, wanted: StoredUse) -> anyhow::Result<StoredInputs> {
        match self.site {
            Some(site) => inputs_of_cluster(site, name, wanted),
            None => inputs_of_machine(state_dir, name, wanted),
        }
    }

    fn seen_inputs(&self, path: &str) -> anyhow::Result<SeenInputs> {
        seen_inputs::list(self.site.context("give --server: only nodes of a cluster see such files")?, path)
    }

    fn stored_output(
        &self,
        state_dir: &Path,
        name: &str,
        shape: StoredShape,
    ) -> anyhow::Result<Option<PathBuf>> {
        match self.site {
            // The server checks whether the name can be used.
            Some(_) => stored_outputs::path_of(name).map(|_| None),
            None => stored_outputs::check(state_dir, name, shape).map(Some),
        }
    }

    fn warn(&self, warning: &str) {
        tell(&format!("sailfish: warning: {warning}"));
    }
}

fn name_of(text: &str) -> anyhow::Result<TreeName> {
    let name = TreeName::parse(text);
    Ok(name.map_err(|source| FilesError::Name { text: text.to_string(), source })?)
}

/// Lists stored files of the cluster. The server keeps their version from the submit on.
fn inputs_of_cluster(site: &Site, text: &str, wanted: StoredUse) -> anyhow::Result<StoredInputs> {
    let name = name_of(text)?;
    let user = std::env::var("USER").unwrap_or_default();
    let credentials = site.credentials.read(&site.url).map_err(Failure::into_error)?;
    let below = match ClusterFiles::connect(&site.url, &credentials, &user)?.below(&name) {
        Err(error) if wanted == StoredUse::Listed && is_missing(&error) => return Ok(StoredInputs::default()),
        below => below?,
    };
    let first_bytes = |file: &FileToGet| below.first_bytes(file, MAGIC_BYTES as usize);
    let files = wanted_of(&name, &below.plan, wanted, first_bytes)?;
    Ok(StoredInputs { files, pin: Some(Box::new(below)) })
}

/// Lists stored files of this machine.
fn inputs_of_machine(state_dir: &Path, text: &str, wanted: StoredUse) -> anyhow::Result<StoredInputs> {
    let name = name_of(text)?;
    if wanted == StoredUse::Listed && !FileStore::exists(state_dir) {
        return Ok(StoredInputs::default());
    }
    ensure!(FileStore::exists(state_dir), "no files are stored in {}", state_dir.display());
    let store = FileStore::open(state_dir, "")?;
    let (pin, below) = match store.below(&name) {
        Err(error) if wanted == StoredUse::Listed && is_missing(&error) => return Ok(StoredInputs::default()),
        below => below?,
    };
    let first_bytes = |file: &FileToGet| store.first_bytes(file, MAGIC_BYTES as usize);
    let files = wanted_of(&name, &below, wanted, first_bytes)?;
    Ok(StoredInputs { files, pin: Some(Box::new(pin)) })
}

/// Returns the files that are data, or the one that the name means.
fn wanted_of(
    name: &TreeName,
    below: &GetPlan,
    wanted: StoredUse,
    first_bytes: impl Fn(&FileToGet) -> Result<Vec<u8>, FilesError>,
) -> anyhow::Result<Vec<InputFile>> {
    match wanted {
        StoredUse::Input => data_below(name, below, first_bytes),
        StoredUse::OneFile | StoredUse::OneInput => {
            ensure!(!below.is_directory, "{} is a directory: name a file", name.path);
            let compression = |file| match wanted {
                StoredUse::OneInput => first_bytes(file).map(|bytes| compression_of(&bytes)),
                _ => Ok(None),
            };
            let files = below.files.iter();
            files.map(|file| Ok(input_of(name, below, file, compression(file)?))).collect()
        }
        StoredUse::Listed => Ok(below.files.iter().map(|file| input_of(name, below, file, None)).collect()),
    }
}

/// Returns the files that are data, as inputs.
fn data_below(
    name: &TreeName,
    below: &GetPlan,
    first_bytes: impl Fn(&FileToGet) -> Result<Vec<u8>, FilesError>,
) -> anyhow::Result<Vec<InputFile>> {
    let is_data = |file: &&FileToGet| !file.name.split('/').any(|part| never_data(part.as_bytes()));
    let mut files = Vec::new();
    for file in below.files.iter().filter(is_data) {
        files.push(input_of(name, below, file, compression_of(&first_bytes(file)?)));
    }
    Ok(files)
}

fn input_of(
    name: &TreeName,
    below: &GetPlan,
    file: &FileToGet,
    compression: Option<Compression>,
) -> InputFile {
    let whole_name = match file.name.is_empty() {
        true => name.path.to_string(),
        false => format!("{}/{}", name.path, file.name),
    };
    let part =
        |row: &rows::ConcreteRow| StoredPart { concrete: row.concrete, bytes: row.bytes, crc32c: row.crc32c };
    InputFile {
        path: format!("{STORED_PREFIX}{whole_name}@{}", below.version).into(),
        size_bytes: file.bytes,
        mtime_ns: 0,
        compression,
        named: 0,
        object: None,
        stage_file: None,
        stored: Some(StoredContent { parts: file.parts.iter().map(part).collect() }),
        content: None,
        seen: None,
    }
}
