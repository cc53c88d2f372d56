//! Outputs of jobs as stored files: a put that begins with the submit of its job, and ends with its commit.

mod makers;
pub(crate) mod open;

use crate::asked::now_ns;
use crate::error::limited;
use crate::nodes::placement::{Place, choose};
use crate::{Asker, Catalog, CatalogError};
use api::stored::cluster::{
    BeginStored, CommitOutput, CommitStored, CommittedStored, NumberStored, OutputPartStored, PlaceOutput,
    PlacedOutput, RecordStored, RecordedFile, RecordedPart, STORED_PAGE_MAX, StoredPut,
};
use api::{JobSpec, STORED_PREFIX, StoredOutput};
use filetree::Changer;
use ids::{ContentId, JobId};
use open::{JOB_SOURCE, OpenOutput};
use rows::ClusterPutRow;
use std::collections::BTreeMap;
use std::time::Instant;

/// Maximum number of parts of an output, which is that of the tasks of a stage.
const PARTS_MAX: usize = 1 << 20;

impl Catalog {
    /// Begins the put of a job that is being submitted. It ends by itself if the job is never submitted, fails or is
    /// cancelled. The name of the output is one that [`api::is_stored_output`] accepts.
    pub async fn begin_output(&self, asker: &Asker, spec: &JobSpec) -> Result<StoredOutput, CatalogError> {
        let text = spec.output.to_string_lossy();
        let begin = BeginStored {
            path: text.strip_prefix(STORED_PREFIX).unwrap_or(&text).to_string(),
            source: format!("{JOB_SOURCE}{:032x}", fastrand::u128(..)),
            // Parts with an extension of their own, such as `.parquet`, are whole files.
            is_directory: spec.formats.part_extension.is_some(),
            replicas: spec.output_replicas,
            keep_versions: 1,
            ttl_seconds: None,
            user: asker.user.clone(),
        };
        let begun = self.begin_put(asker, &begin).await?;
        let output = StoredOutput {
            of: begun.of,
            replicas: begun.replicas,
            is_directory: begin.is_directory,
            by_administrator: asker.changer == Changer::Anybody,
            bytes_max: asker.bytes_max,
        };
        let (put, begun) = (begun.of.put, Instant::now());
        let open = OpenOutput { job: None, name: spec.name.clone(), output, begun };
        self.state().outputs.puts.insert(put, open);
        Ok(output)
    }

    /// Notes the job of an output.
    pub fn output_has_job(&self, of: StoredPut, job: JobId) {
        if let Some(open) = self.state().outputs.puts.get_mut(&of.put) {
            open.job = Some(job);
        }
    }

    /// Gives up an output whose job was not submitted; the housekeeping removes its put.
    pub fn give_up_output(&self, of: StoredPut) {
        let mut state = self.state();
        if state.outputs.puts.get(&of.put).is_some_and(|open| open.job.is_none()) {
            state.outputs.puts.remove(&of.put);
        }
    }

    /// Returns the output of a job, its put and the rights of its submitter.
    async fn output_of(
        &self,
        job: JobId,
        of: StoredPut,
    ) -> Result<(ClusterPutRow, StoredOutput, Asker), CatalogError> {
        let open = self.state().outputs.puts.get(&of.put).cloned();
        let open = open.filter(|open| open.job.is_none_or(|own| own == job) && open.output.of == of);
        let output = open.ok_or(CatalogError::SessionOver(of.put))?.output;
        let row = self.store.cluster_put(of.put).await?;
        let row = row.filter(|row| row.session == of.session).ok_or(CatalogError::SessionOver(of.put))?;
        let changer = match output.by_administrator {
            true => Changer::Anybody,
            false => Changer::User(row.user.clone()),
        };
        let asker = Asker { user: row.user.clone(), changer, bytes_max: output.bytes_max };
        Ok((row, output, asker))
    }

    /// Reserves a number for a part of an output, and chooses disks for its missing replicas. Fails if no disk has room
    /// for a part that has no disk yet.
    pub async fn place_output(&self, job: JobId, ask: &PlaceOutput) -> Result<PlacedOutput, CatalogError> {
        let (row, _, asker) = self.output_of(job, ask.of).await?;
        // Nobody knows the length of a part that begins here. Another try for the same bytes was counted.
        let is_first = ask.is_numbered && ask.avoid.is_empty() && ask.have.len() <= 1;
        self.check_quota(&asker, &row.user, if is_first { ask.bytes } else { 0 }).await?;
        let range = match ask.is_numbered {
            true => None,
            false => Some(self.number(&asker, &NumberStored { of: ask.of, count: 1 }).await?.range),
        };
        if is_first {
            self.will_travel(&row, ask.bytes);
        }
        let mut state = self.state();
        let now = Instant::now();
        let all = state.disks.candidates(now);
        let is_usable = |disk| !ask.avoid.contains(&disk) && !ask.have.contains(&disk);
        let usable: Vec<_> = all.iter().filter(|each| is_usable(each.disk)).cloned().collect();
        let held = state.disks.live_among(&ask.have, now);
        let held: Vec<Place> =
            held.into_iter().map(|each| Place { node: each.node, rack: each.rack }).collect();
        let missing = (row.replicas as usize).saturating_sub(ask.have.len());
        // Replicas are placed at the end of a part.
        let count = if ask.is_numbered || ask.have.is_empty() { missing } else { 0 };
        let chosen = choose(&usable, &held, count, ask.bytes, fastrand::f64);
        if chosen.is_empty() && ask.have.is_empty() {
            return Err(self.no_place(&state, ask.bytes));
        }
        chosen.iter().for_each(|disk| state.disks.will_hold(*disk, ask.bytes));
        let disks = chosen.iter().filter_map(|disk| state.disks.node_of(*disk, now)).collect();
        Ok(PlacedOutput { range, disks })
    }

    /// Makes the parts of an output visible under its name, as one version. A repeated request gets the same version.
    /// Fails if no node with a replica of some part can be reached.
    pub async fn commit_output(
        &self,
        job: JobId,
        commit: &CommitOutput,
    ) -> Result<CommittedStored, CatalogError> {
        limited("the number of parts", commit.parts.len(), PARTS_MAX)?;
        let (row, output, asker) = self.output_of(job, commit.of).await?;
        self.output_has_job(commit.of, job);
        if row.version.is_none() {
            self.check_reach(&commit.parts)?;
            self.record_output(&asker, &row, output, commit).await?;
        }
        self.commit(&asker, &CommitStored { of: commit.of, empty_directories: Vec::new() }).await
    }

    fn check_reach(&self, parts: &[OutputPartStored]) -> Result<(), CatalogError> {
        let state = self.state();
        let now = Instant::now();
        let is_lost = |part: &&OutputPartStored| {
            let stored = part.stored.as_ref();
            // A node that is being drained still has what it has.
            stored.is_some_and(|stored| state.disks.nodes_of(stored.disks.iter().copied(), now).is_empty())
        };
        match parts.iter().find(is_lost) {
            Some(part) => Err(CatalogError::OutputPartLost { part: part.name.clone() }),
            None => Ok(()),
        }
    }

    /// Records the files of an output that are not recorded yet.
    async fn record_output(
        &self,
        asker: &Asker,
        row: &ClusterPutRow,
        output: StoredOutput,
        commit: &CommitOutput,
    ) -> Result<(), CatalogError> {
        let files: Vec<(String, Vec<RecordedPart>)> = match output.is_directory {
            true => {
                let parts = commit.parts.iter();
                parts.map(|part| (part.name.clone(), part.stored.clone().into_iter().collect())).collect()
            }
            false => {
                let parts = commit.parts.iter().filter_map(|part| part.stored.clone()).collect();
                vec![(String::new(), parts)]
            }
        };
        let known = self.known_of_output(row).await?;
        let is_known = |(name, parts): &(String, Vec<RecordedPart>)| {
            let of_parts = parts.iter().map(|part| part.file.concrete);
            known.get(name).is_some_and(|known| known.iter().copied().eq(of_parts))
        };
        let missing: Vec<_> = files.into_iter().filter(|file| !is_known(file)).collect();
        for some in missing.chunks(STORED_PAGE_MAX as usize) {
            let replaced = some.iter().map(|(name, _)| name.clone()).filter(|name| known.contains_key(name));
            let forgotten: Vec<String> = replaced.collect();
            if !forgotten.is_empty() {
                self.record(asker, &RecordStored { of: commit.of, files: Vec::new(), forgotten }).await?;
            }
            let mut files = Vec::with_capacity(some.len());
            for (name, parts) in some {
                files.push(self.file_of_output(asker, commit.of, name, parts).await?);
            }
            self.record(asker, &RecordStored { of: commit.of, files, forgotten: Vec::new() }).await?;
        }
        Ok(())
    }

    /// Returns the concrete files of the files that an earlier attempt of the commit recorded, by name.
    async fn known_of_output(
        &self,
        row: &ClusterPutRow,
    ) -> Result<BTreeMap<String, Vec<ids::ConcreteId>>, CatalogError> {
        let mut known = BTreeMap::new();
        let mut after: Option<String> = None;
        loop {
            let files = self.store.cluster_put_files(row.put, after.as_deref(), STORED_PAGE_MAX).await?;
            let Some(last) = files.last() else { return Ok(known) };
            after = Some(last.row.name.clone());
            let parts = |file: &rows::PutFile| file.parts.iter().map(|part| part.concrete).collect();
            known.extend(files.iter().map(|file| (file.row.name.clone(), parts(file))));
        }
    }

    async fn file_of_output(
        &self,
        asker: &Asker,
        of: StoredPut,
        name: &str,
        parts: &[RecordedPart],
    ) -> Result<RecordedFile, CatalogError> {
        let number = match parts.first() {
            Some(first) => first.file.concrete.number(),
            // An empty file has a number of its own.
            None => self.number(asker, &NumberStored { of, count: 1 }).await?.first,
        };
        let content = ContentId::of(of.put, number).ok_or(CatalogError::TooMany)?;
        let bytes = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.file.bytes));
        Ok(RecordedFile {
            name: name.to_string(),
            content,
            bytes,
            modified_ns: now_ns(),
            parts: parts.to_vec(),
            hashed: None,
        })
    }
}
