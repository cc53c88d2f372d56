//! The kept files of a job, the findings for each, and the verdict on its I-files: `sailfish fsck`. A thread of the
//! same process reads the files, or the nodes that have them.

use api::DataSum;
use api::fsck::{
    CheckTask, CheckedFile, DAMAGES_PER_FILE_MAX, Damage, DamagedFile, DisagreeingIfile, FINDINGS_MAX,
    FileToCheck, FsckReport, IntactCopy,
};
use api::kept::KeptPlace;
use api::task::KeptRun;
use ids::{ChunkId, DiskIndex, IfileIndex, JobId, NodeId, RunId, Source};
use rows::{ReplicaRow, ReplicaState, WinningCommits};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Longest path, and longest description of a damage, that is reported, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 4096;

/// A file of a run: the maker of its directory distinguishes the copies of a run.
type CopyKey = (RunId, NodeId);

/// The I-files of a job during a check.
#[derive(Debug)]
pub struct KeptCheck {
    /// The job that kept the I-files.
    pub source: JobId,
    /// One task for each process that kept some, with the node that has its directories now.
    pub tasks: Vec<(NodeId, CheckTask)>,
    runs: BTreeMap<RunId, KeptRun>,
    /// Result for each file; None until it is known.
    copies: BTreeMap<CopyKey, Option<CheckedFile>>,
    /// Names of the nodes that have the files now; empty on one machine.
    node_names: BTreeMap<CopyKey, String>,
    /// For each source and chunk: the sum that the maps committed, and the sum that intact runs hold.
    sums: BTreeMap<(IfileIndex, ChunkId, Source), (DataSum, DataSum)>,
    ifile_count: u32,
}

impl KeptCheck {
    /// Plans the check for files on nodes: for each run its own file, unless a replica is promoted, and every other
    /// replica that was kept.
    pub fn lies_on_nodes(&mut self, places: &[KeptPlace], replicas: &BTreeMap<RunId, Vec<ReplicaRow>>) {
        let (mut tasks, mut names) = (BTreeMap::<Home, CheckTask>::new(), BTreeMap::new());
        for place in places {
            names.insert(place.node, place.node_name.clone());
            let (source, made_by) = (self.source, place.made_by);
            let new = || CheckTask { source, made_by, dirs: Vec::new(), files: Vec::new() };
            let task = tasks.entry((made_by, place.node)).or_insert_with(new);
            let disk = usize::from(place.dir.disk.0);
            task.dirs.resize(task.dirs.len().max(disk + 1), PathBuf::new());
            task.dirs[disk].clone_from(&place.dir.path);
        }
        for run in self.runs.values() {
            let rows = replicas.get(&run.run).map(Vec::as_slice).unwrap_or_default();
            let is_gone = rows.iter().any(|row| row.state == ReplicaState::Promoted);
            let own = (!is_gone).then(|| own_home(&tasks, run)).flatten();
            let there = rows.iter().filter(|row| row.state != ReplicaState::Lost);
            let there = there.filter_map(|row| replica_home(&tasks, row));
            let homes: Vec<(Home, DiskIndex)> = own.into_iter().chain(there).collect();
            for (home, disk) in &homes {
                let run = KeptRun { disk: *disk, ..*run };
                if let Some(task) = tasks.get_mut(home) {
                    task.files.push(FileToCheck { run, has_other_copy: homes.len() > 1 });
                    let (made_by, node) = *home;
                    self.copies.insert((run.run, made_by), None);
                    self.node_names.extend(names.get(&node).map(|name| ((run.run, made_by), name.clone())));
                }
            }
        }
        let with_files = tasks.into_iter().filter(|(_, task)| !task.files.is_empty());
        self.tasks = with_files.map(|((_, node), task)| (node, task)).collect();
    }
}

/// The process that made directories, and the node that has them now.
type Home = (NodeId, NodeId);

/// Returns the locations of a process's kept directories: one, unless its disks went to several nodes.
fn homes_of(tasks: &BTreeMap<Home, CheckTask>, made_by: NodeId) -> impl Iterator<Item = (&Home, &CheckTask)> {
    tasks.range((made_by, NodeId(0))..=(made_by, NodeId(u32::MAX)))
}

/// Returns the location of a run's own file; None if its disk is not there.
fn own_home(tasks: &BTreeMap<Home, CheckTask>, run: &KeptRun) -> Option<(Home, DiskIndex)> {
    let has_disk =
        |dirs: &[PathBuf]| dirs.get(usize::from(run.disk.0)).is_some_and(|dir| !dir.as_os_str().is_empty());
    let (home, _) = homes_of(tasks, run.run.node()).find(|(_, task)| has_disk(&task.dirs))?;
    Some((*home, run.disk))
}

/// Returns the location of a replica. Its disk is not recorded: the first disk that is there stands for all.
fn replica_home(tasks: &BTreeMap<Home, CheckTask>, replica: &ReplicaRow) -> Option<(Home, DiskIndex)> {
    let (home, task) = homes_of(tasks, replica.node).next()?;
    let disk = task.dirs.iter().position(|dir| !dir.as_os_str().is_empty())?;
    Some((*home, DiskIndex(disk as u16)))
}

impl KeptCheck {
    /// Creates the check of a job's kept I-files, without the locations of the files.
    pub fn new(source: JobId, runs: Vec<KeptRun>, commits: WinningCommits, ifile_count: u32) -> Self {
        let mut sums: BTreeMap<_, (DataSum, DataSum)> = BTreeMap::new();
        for (map_task, commits) in commits {
            for (attempt, commit) in commits {
                let key = (commit.ifile, commit.chunk, Source { map_task, attempt });
                sums.entry(key).or_default().0.add(&commit.sum);
            }
        }
        Self {
            source,
            tasks: Vec::new(),
            runs: runs.into_iter().map(|run| (run.run, run)).collect(),
            copies: BTreeMap::new(),
            node_names: BTreeMap::new(),
            sums,
            ifile_count,
        }
    }

    /// Plans the check for files in these directories of this machine.
    pub fn lies_here(&mut self, dirs: Vec<PathBuf>) {
        let (source, made_by) = (self.source, NodeId(0));
        let mut task = CheckTask { source, made_by, dirs, files: Vec::new() };
        for run in self.runs.values() {
            task.files.push(FileToCheck { run: *run, has_other_copy: false });
            self.copies.insert((run.run, made_by), None);
        }
        self.tasks.push((made_by, task));
    }

    /// Returns the total bytes of all files that are read.
    pub fn total_bytes(&self) -> u64 {
        self.tasks.iter().flat_map(|(_, task)| &task.files).map(|file| file.run.stored_bytes).sum()
    }

    /// Returns whether there is a result for each file.
    pub fn is_complete(&self) -> bool {
        self.copies.values().all(Option::is_some)
    }

    /// Takes the result for a file in the directories of a process. The first result for a file counts; a result that
    /// was not asked for is ignored.
    pub fn found(&mut self, made_by: NodeId, mut checked: CheckedFile) {
        let key = (checked.run, made_by);
        let Some(run) = self.runs.get(&checked.run) else { return };
        let is_asked_for = self.copies.get(&key).is_some_and(Option::is_none);
        if !is_asked_for {
            return;
        }
        if checked.path.as_os_str().len() > TEXT_BYTES_MAX {
            checked.path = PathBuf::new();
        }
        let books = std::mem::take(&mut checked.books);
        // If a run has several copies, the first intact copy counts for the sums: the others have the same bytes, or
        // are damaged.
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

    /// Reports all findings so far.
    pub fn report(&mut self) -> FsckReport {
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

    /// Compares intact copies of a run. If their bytes differ, the copy that was made first is trusted.
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
                let why = "it is intact, but its bytes differ from the run that it replicates".to_string();
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
            let intact =
                known.iter().find(|(_, checked)| is_whole(checked)).map(|(made_by, checked)| IntactCopy {
                    node: self.node_names.get(&(run.run, *made_by)).cloned(),
                    path: checked.path.clone(),
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
                    self.node_names.get(&(run.run, *made_by)).cloned(),
                    Some(checked.path.clone()),
                    checked.damages.clone(),
                    checked.damage_count,
                ));
            }
            if known.is_empty() {
                let why = "it is in none of the kept directories".to_string();
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

#[cfg(test)]
mod tests {
    use super::KeptCheck;
    use api::DataSum;
    use api::fsck::{CheckedFile, Damage, FileToCheck};
    use api::kept::{KeptDir, KeptPlace};
    use api::task::{KeptRun, SourceAudit};
    use ids::{AttemptNumber, ChunkId, DiskIndex, IfileIndex, JobId, NodeId, RunId, Source, TaskIndex};
    use rows::{ReplicaRow, ReplicaState};
    use std::collections::BTreeMap;

    const SOURCE: Source = Source { map_task: TaskIndex(0), attempt: AttemptNumber(0) };
    const CHUNK: ChunkId = ChunkId(5);
    const IFILE: IfileIndex = IfileIndex(0);

    fn sum() -> DataSum {
        DataSum { records: 3, bytes: 30, hash_sum: 7 }
    }

    fn run() -> RunId {
        RunId::on(NodeId(1), 0)
    }

    /// Returns a check of one run of node 1, whose replica on node 2 is in this state.
    fn check(state: ReplicaState) -> KeptCheck {
        let (disk, stored_bytes) = (DiskIndex(0), 100);
        let kept = KeptRun {
            run: run(),
            adopted: None,
            ifile: IFILE,
            disk,
            records: 3,
            record_bytes: 30,
            stored_bytes,
            has_copy: false,
        };
        let mut check = KeptCheck {
            source: JobId(4),
            tasks: Vec::new(),
            runs: BTreeMap::from([(run(), kept)]),
            copies: BTreeMap::new(),
            node_names: BTreeMap::new(),
            sums: BTreeMap::from([((IFILE, CHUNK, SOURCE), (sum(), DataSum::default()))]),
            ifile_count: 1,
        };
        let place = |node: u32, disk: u16| {
            let path = format!("/{node}/{disk}").into();
            let dir =
                KeptDir { job: JobId(4), incarnation: "x".into(), disk: DiskIndex(disk), path, bytes: 0 };
            KeptPlace {
                made_by: NodeId(node),
                node: NodeId(node + 10),
                node_name: format!("node-{node}"),
                dir,
            }
        };
        let chunks = vec![CHUNK];
        let row = ReplicaRow {
            run: run(),
            node: NodeId(2),
            state,
            chunks,
            bytes: 100,
            single_ns: 0,
            sending_ns: 0,
        };
        check.lies_on_nodes(&[place(1, 0), place(2, 1)], &BTreeMap::from([(run(), vec![row])]));
        check
    }

    fn found(hash: &str, why: Option<&str>) -> CheckedFile {
        let damages: Vec<Damage> =
            why.map(|why| Damage { why: why.into(), ..Damage::default() }).into_iter().collect();
        let book = SourceAudit { ifile: IFILE, chunk: CHUNK, source: SOURCE, sum: sum() };
        let (damage_count, content_hash) = (damages.len() as u64, hash.to_string());
        CheckedFile {
            run: run(),
            damages,
            damage_count,
            content_hash,
            books: vec![book],
            ..CheckedFile::default()
        }
    }

    #[test]
    fn each_copy_is_read_where_it_is_kept() {
        let homes = |state| {
            let check = check(state);
            let tasks = check.tasks.iter();
            let files = |files: &[FileToCheck]| {
                files.iter().map(|file| (file.run.disk.0, file.has_other_copy)).collect()
            };
            tasks
                .map(|(node, task)| (node.0, task.made_by.0, files(&task.files)))
                .collect::<Vec<(u32, u32, Vec<_>)>>()
        };
        let own = |other| (11, 1, vec![(0, other)]);
        let replica = |other| (12, 2, vec![(1, other)]);
        assert_eq!(homes(ReplicaState::Complete), [own(true), replica(true)]);
        // The file of a lost run is not looked for.
        assert_eq!(homes(ReplicaState::Promoted), [replica(false)]);
        assert_eq!(homes(ReplicaState::Lost), [own(false)]);
    }

    #[test]
    fn run_on_two_nodes_counts_once() {
        let mut check = check(ReplicaState::Complete);
        check.found(NodeId(1), found("a", None));
        assert!(!check.is_complete());
        check.found(NodeId(2), found("a", None));
        // A repeated result, and one that was not asked for.
        check.found(NodeId(2), found("b", Some("bad")));
        check.found(NodeId(3), found("b", Some("bad")));
        assert!(check.is_complete());
        let report = check.report();
        assert!(report.is_whole(), "{report:?}");
        assert_eq!((report.runs, report.replicas), (1, 1));
    }

    #[test]
    fn a_replica_of_other_bytes_is_damaged() {
        let mut check = check(ReplicaState::Complete);
        check.found(NodeId(2), found("b", None));
        check.found(NodeId(1), found("a", None));
        let report = check.report();
        let [file] = &report.damaged[..] else { panic!("{report:?}") };
        assert!(file.is_replica && file.damages[0].why.contains("bytes differ"), "{file:?}");
        assert_eq!(file.intact.as_ref().and_then(|copy| copy.node.as_deref()), Some("node-1"));
        assert_eq!((report.lost_runs, report.disagreeing_count), (0, 0));
    }

    #[test]
    fn run_damaged_everywhere_is_lost() {
        let mut check = check(ReplicaState::Complete);
        check.found(NodeId(1), found("", Some("bad")));
        check.found(NodeId(2), found("", Some("bad too")));
        let report = check.report();
        assert_eq!((report.damaged_count, report.lost_runs, report.disagreeing_count), (2, 1, 1));
        assert_eq!(
            (report.disagreeing[0].committed, report.disagreeing[0].held),
            (sum(), DataSum::default())
        );
    }
}
