//! Which files a job kept, what was found of each, and what that says of its I-files: `sailfish fsck`. Who reads the files
//! is not decided here: a thread of the same process, or the nodes that have them.

use crate::kept_runs::{KeptSource, kept_source, surviving_runs};
use crate::{NotReducible, ServerError};
use api::DataSum;
use api::fsck::{
    CheckTask, CheckedFile, DAMAGES_PER_FILE_MAX, Damage, DamagedFile, DisagreeingIfile, FINDINGS_MAX,
    FileToCheck, FsckReport, IntactCopy,
};
use api::task::KeptRun;
use ids::{ChunkId, IfileIndex, JobId, NodeId, RunId, Source};
use metastore::{CLUSTER_OWNER, Metastore};
use std::collections::BTreeMap;

/// Longest path, and longest sentence about a damage, that is told.
const TEXT_BYTES_MAX: usize = 4096;

/// A file of a run: whose directory it lies in tells copies of a run apart.
type CopyKey = (RunId, NodeId);

/// The I-files of a job while they are checked.
#[derive(Debug)]
pub struct KeptCheck {
    /// The job that kept them.
    pub source: JobId,
    /// For each process that kept some, with the node that has its directories now.
    pub tasks: Vec<(NodeId, CheckTask)>,
    runs: BTreeMap<RunId, KeptRun>,
    /// None until it is known what is wrong with it.
    copies: BTreeMap<CopyKey, Option<CheckedFile>>,
    /// The nodes that have the directories, by who made them; empty on one machine.
    node_names: BTreeMap<NodeId, String>,
    /// What the maps committed, and what intact runs hold of it.
    sums: BTreeMap<(IfileIndex, ChunkId, Source), (DataSum, DataSum)>,
    ifile_count: u32,
}

/// The files that a job of one machine kept.
///
/// An error where there is no such job, it kept nothing, or nodes of a cluster have it.
pub async fn check_here(store: &Metastore, job: JobId) -> Result<KeptCheck, ServerError> {
    let kept = kept_source(store, job).await?;
    let source = kept.row.job;
    if kept.row.owner == CLUSTER_OWNER {
        return Err(NotReducible::OfCluster { job: source }.into());
    }
    let made_by = NodeId(0);
    let mut check = KeptCheck::of(store, &kept).await?;
    let mut task = CheckTask { source, made_by, dirs: kept.row.disk_dirs, files: Vec::new() };
    for run in check.runs.values() {
        task.files.push(FileToCheck { run: *run, has_other_copy: false });
        check.copies.insert((run.run, made_by), None);
    }
    check.tasks.push((made_by, task));
    Ok(check)
}

impl KeptCheck {
    /// Of which no file is known yet.
    async fn of(store: &Metastore, kept: &KeptSource) -> Result<Self, ServerError> {
        let source = kept.row.job;
        let runs = surviving_runs(store, source).await?;
        let mut sums: BTreeMap<_, (DataSum, DataSum)> = BTreeMap::new();
        for (map_task, commits) in store.winning_commits(source).await? {
            for (attempt, commit) in commits {
                let key = (commit.ifile, commit.chunk, Source { map_task, attempt });
                sums.entry(key).or_default().0.add(&commit.sum);
            }
        }
        Ok(Self {
            source,
            tasks: Vec::new(),
            runs: runs.into_iter().map(|run| (run.run, run)).collect(),
            copies: BTreeMap::new(),
            node_names: BTreeMap::new(),
            sums,
            ifile_count: kept.spec.layout.ifile_count,
        })
    }

    /// Bytes of all files that are read.
    pub fn total_bytes(&self) -> u64 {
        self.tasks.iter().flat_map(|(_, task)| &task.files).map(|file| file.run.stored_bytes).sum()
    }

    /// Whether there is a word about each file.
    pub fn is_complete(&self) -> bool {
        self.copies.values().all(Option::is_some)
    }

    /// Takes what was found of a file in the directories of a process. The first word about a file counts; one that
    /// nobody asked for is passed over.
    pub fn found(&mut self, made_by: NodeId, mut checked: CheckedFile) {
        let key = (checked.run, made_by);
        let Some(run) = self.runs.get(&checked.run) else { return };
        let is_asked_for = self.copies.get(&key).is_some_and(Option::is_none);
        let is_bounded = checked.path.as_os_str().len() <= TEXT_BYTES_MAX;
        if !is_asked_for || !is_bounded {
            return;
        }
        let books = std::mem::take(&mut checked.books);
        // Of a run that lies twice the first intact copy tells what it holds: the others have the same bytes, or are damaged.
        let mut others = self.copies.range((checked.run, NodeId(0))..=(checked.run, NodeId(u32::MAX)));
        let is_told = others.any(|(_, other)| other.as_ref().is_some_and(is_whole));
        if is_whole(&checked) && !is_told {
            for book in books.iter().filter(|book| book.ifile == run.ifile) {
                if let Some((_, held)) = self.sums.get_mut(&(book.ifile, book.chunk, book.source)) {
                    held.add(&book.sum);
                }
            }
        }
        checked.damages.truncate(DAMAGES_PER_FILE_MAX);
        for damage in &mut checked.damages {
            let cut = damage.why.floor_char_boundary(TEXT_BYTES_MAX);
            damage.why.truncate(cut);
        }
        checked.content_hash.truncate(2 * size_of::<u128>());
        self.copies.insert(key, Some(checked));
    }

    /// What is known by now.
    pub fn report(mut self) -> FsckReport {
        self.compare_copies();
        let files: Vec<&CheckedFile> = self.copies.values().flatten().collect();
        let (blocks, bytes) =
            (files.iter().map(|file| file.blocks).sum(), files.iter().map(|file| file.bytes).sum());
        let mut damaged = self.damaged();
        let mut disagreeing = self.disagreeing();
        let (damaged_count, disagreeing_count) = (damaged.len() as u64, disagreeing.len() as u64);
        let mut lost: Vec<RunId> =
            damaged.iter().filter(|file| file.intact.is_none()).map(|file| file.run).collect();
        lost.dedup();
        damaged.truncate(FINDINGS_MAX);
        disagreeing.truncate(FINDINGS_MAX);
        let runs = self.runs.len() as u64;
        FsckReport {
            job: self.source,
            runs,
            replicas: self.replica_count(),
            blocks,
            bytes,
            damaged,
            damaged_count,
            lost_runs: lost.len() as u64,
            ifiles: self.ifile_count.into(),
            disagreeing,
            disagreeing_count,
        }
    }

    fn replica_count(&self) -> u64 {
        let mut with_files: Vec<RunId> = self.copies.keys().map(|(run, _)| *run).collect();
        with_files.dedup();
        (self.copies.len() - with_files.len()) as u64
    }

    /// Copies that are whole, and yet not the same bytes: of these the run that was made first is believed.
    fn compare_copies(&mut self) {
        let mut hashes: BTreeMap<RunId, String> = BTreeMap::new();
        let is_compared = |checked: &CheckedFile| is_whole(checked) && !checked.content_hash.is_empty();
        for (run, made_by) in self.copies.keys() {
            let checked = self.copies[&(*run, *made_by)].as_ref().filter(|checked| is_compared(checked));
            let Some(checked) = checked else { continue };
            if *made_by == run.node() || !hashes.contains_key(run) {
                hashes.insert(*run, checked.content_hash.clone());
            }
        }
        for ((run, _), checked) in &mut self.copies {
            let (Some(checked), Some(hash)) = (checked, hashes.get(run)) else { continue };
            if is_compared(checked) && checked.content_hash != *hash {
                let why = "it is whole and has other bytes than the run of which it is a replica".to_string();
                checked.damages.push(Damage { why, ..Damage::default() });
                checked.damage_count += 1;
            }
        }
    }

    fn damaged(&self) -> Vec<DamagedFile> {
        let mut damaged = Vec::new();
        for run in self.runs.values() {
            let copies = self.copies.range((run.run, NodeId(0))..=(run.run, NodeId(u32::MAX)));
            let known = copies.filter_map(|((_, made_by), checked)| Some((*made_by, checked.as_ref()?)));
            let known: Vec<(NodeId, &CheckedFile)> = known.collect();
            let intact = known.iter().find(|(_, checked)| is_whole(checked)).map(|(made_by, checked)| {
                IntactCopy { node: self.node_names.get(made_by).cloned(), path: checked.path.clone() }
            });
            let of = |is_replica, node, path, damages, damage_count| DamagedFile {
                run: run.run,
                ifile: run.ifile,
                is_replica,
                node,
                path,
                damages,
                damage_count,
                intact: intact.clone(),
            };
            for (made_by, checked) in known.iter().filter(|(_, checked)| !is_whole(checked)) {
                damaged.push(of(
                    *made_by != run.run.node(),
                    self.node_names.get(made_by).cloned(),
                    Some(checked.path.clone()),
                    checked.damages.clone(),
                    checked.damage_count,
                ));
            }
            if known.is_empty() {
                let why = "it is in none of the directories that are kept".to_string();
                damaged.push(of(false, None, None, vec![Damage { why, ..Damage::default() }], 1));
            }
        }
        damaged
    }

    fn disagreeing(&self) -> Vec<DisagreeingIfile> {
        let mut rows: BTreeMap<IfileIndex, DisagreeingIfile> = BTreeMap::new();
        for ((ifile, chunk, source), (committed, held)) in
            self.sums.iter().filter(|(_, (committed, held))| committed != held)
        {
            let first = format!(
                "{source} committed {} records to {chunk}, of which intact runs hold {}",
                committed.records, held.records
            );
            let (ifile, zero) = (*ifile, DataSum::default());
            rows.entry(ifile).or_insert(DisagreeingIfile { ifile, committed: zero, held: zero, first });
        }
        for ((ifile, ..), (committed, held)) in &self.sums {
            if let Some(row) = rows.get_mut(ifile) {
                row.committed.add(committed);
                row.held.add(held);
            }
        }
        rows.into_values().collect()
    }
}

fn is_whole(checked: &CheckedFile) -> bool {
    checked.damage_count == 0
}
