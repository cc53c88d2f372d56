//! Tests of the files of a cluster: its puts, their sessions, and replicas on disks.

mod expiry;
mod foreign;

use super::files::{commit, nothing, row};
use crate::{
    Change, EndedPut, FileChange, FileQuestion, GroupRefusal, Metastore, Numbered, QueryLimits, Recorded,
    RetirePins, Role,
};
use api::history::Cell;
use api::stored::MakingJob;
use ids::{ConcreteId, ContentId, DirectoryId, DiskId, FileVersion, ITEMS_MAX, JobId, PutId};
use rows::{
    ClusterPutRow, ConcreteRow, FileCommitRow, FileDiskRow, FileGroups, FileItem, FileNameRow, FilePutRow,
    FileSpace, OwnedNameRow, PutFile, PutFileRow, RecordedPutFile, ReplicatedFile,
};

const CLUSTER: FileSpace = FileSpace::Cluster;
const ALL: ConcreteId = ConcreteId(-1);

/// Begins a put of a directory, with ten numbers.
async fn begin(store: &Metastore) -> ClusterPutRow {
    let mut row = ClusterPutRow {
        put: store.reserve_put_id().await.unwrap(),
        session: 1,
        user: "ann".to_string(),
        path: "d".to_string(),
        source: "/in".to_string(),
        is_directory: true,
        replicas: 3,
        keep_versions: 1,
        created_ns: 3,
        heard_ns: 3,
        ..ClusterPutRow::default()
    };
    store.begin_cluster_put(&row).await.unwrap();
    assert_eq!(store.number_cluster_put(row.put, 1, 10, 4).await.unwrap(), Numbered::First(0));
    (row.next_number, row.heard_ns) = (10, 4);
    row
}

/// Returns the concrete file of a number of a put.
fn concrete(put: PutId, number: u32) -> ConcreteId {
    ConcreteId::of(put, number).unwrap()
}

/// Returns a file whose parts have the numbers from `first` on, the first of them on the given disks.
fn recorded(put: PutId, name: &str, first: u32, parts: u32, disks: &[i64]) -> RecordedPutFile {
    let content = ContentId::of(put, first).unwrap();
    let part = |part| {
        let concrete = concrete(put, first + part);
        let disks = disks.iter().map(|disk| DiskId(*disk)).collect();
        (ConcreteRow { concrete, content, part, bytes: 5, crc32c: 7 }, disks)
    };
    let bytes = u64::from(parts) * 5;
    let row = PutFileRow { name: name.to_string(), content, parts, bytes, modified_ns: 4, hashed: None };
    RecordedPutFile { row, parts: (0..parts).map(part).collect() }
}

async fn record(store: &Metastore, put: PutId, session: u32, files: &[RecordedPutFile]) -> Recorded {
    store.record_cluster_files(put, session, 5, files, &[]).await.unwrap()
}

async fn names_of(store: &Metastore, put: PutId) -> Vec<String> {
    let files = store.cluster_put_files(put, None, 100).await.unwrap();
    files.into_iter().map(|file| file.row.name).collect()
}

/// Returns the numbers of the removed files within their puts.
async fn removed(store: &Metastore) -> Vec<u32> {
    let files = store.removed_cluster_files(1000).await.unwrap();
    files.iter().map(|file| file.row.concrete.number()).collect()
}

/// Returns names in the directory of a put, which has its first number.
fn names(put: PutId, files: &[RecordedPutFile]) -> Vec<FileNameRow> {
    let name = |file: &RecordedPutFile| FileNameRow {
        directory: DirectoryId::of(put, 0).unwrap(),
        name: file.row.name.clone(),
        since: FileVersion(0),
        until: None,
        item: FileItem::File(file.row.content),
        user: "ann".to_string(),
        bytes: file.row.bytes,
        parts: file.row.parts,
        created_ns: 9,
        keep_versions: 1,
        expires_ns: None,
        groups: FileGroups::default(),
        hashed: None,
    };
    files.iter().map(name).collect()
}

fn maker() -> MakingJob {
    MakingJob { job: JobId(5), name: "a job".to_string() }
}

/// Makes the directory of a put visible as `name`, instead of one that has the name. None if its session is over.
async fn commit_put(store: &Metastore, put: PutId, session: u32, name: &str) -> Option<FileVersion> {
    let path = [name.to_string()];
    let question =
        FileQuestion { space: CLUSTER, paths: vec![&path], put: Some(put), ..FileQuestion::default() };
    let made = store.change_files(&question, |facts| {
        assert_eq!(facts.put_row.as_ref().map(|row| row.put), Some(put));
        let directory = FileItem::Directory(DirectoryId::of(put, 0).unwrap());
        Ok::<_, ()>(Some(FileChange {
            commit: FileCommitRow { job: Some(maker()), ..commit(&facts, name) },
            ends: facts.found[0].rows.iter().map(|row| (row.directory, row.name.clone())).collect(),
            begins: vec![row(&facts, CLUSTER.root(), name, directory)],
            owned: Vec::new(),
            more: nothing(),
            ended_put: Some(EndedPut::Cluster { put, session, files: 2, bytes: 10, short_files: 1 }),
        }))
    });
    made.await.unwrap().unwrap()
}

/// Puts and commits a directory with one file of two parts. Returns its put.
async fn put_directory(store: &Metastore, name: &str) -> PutId {
    let put = begin(store).await.put;
    let files = [recorded(put, "a", 0, 2, &[1, 2])];
    assert_eq!(record(store, put, 1, &files).await, Recorded::Done);
    assert!(store.name_cluster_files(put, 1, 6, &names(put, &files)).await.unwrap());
    commit_put(store, put, 1, name).await.unwrap();
    put
}

pub(crate) async fn later_sessions_end_earlier_ones(store: &Metastore) {
    let machine = FilePutRow {
        put: store.reserve_put_id().await.unwrap(),
        user: "ann".to_string(),
        path: "a".to_string(),
        source: "/in".to_string(),
        created_ns: 3,
    };
    store.begin_put(&machine).await.unwrap();
    let first = begin(store).await;
    let put = first.put;
    // Puts of the machine and of the cluster do not see each other.
    assert_eq!(store.file_puts().await.unwrap(), std::slice::from_ref(&machine));
    assert_eq!(store.cluster_puts().await.unwrap(), std::slice::from_ref(&first));
    assert_eq!(store.cluster_put(machine.put).await.unwrap(), None);
    assert_eq!(store.resume_cluster_put(machine.put, 9).await.unwrap(), None);
    assert_eq!(record(store, put, 1, &[recorded(put, "a", 0, 1, &[1])]).await, Recorded::Done);
    let second = store.resume_cluster_put(put, 8).await.unwrap().unwrap();
    assert_eq!(second, ClusterPutRow { session: 2, heard_ns: 8, ..first });
    assert_eq!(store.cluster_put(put).await.unwrap(), Some(second));
    // The first session changes nothing any more.
    assert_eq!(store.number_cluster_put(put, 1, 1, 9).await.unwrap(), Numbered::SessionOver);
    let other = [recorded(put, "b", 1, 1, &[1])];
    assert_eq!(record(store, put, 1, &other).await, Recorded::SessionOver);
    assert!(!store.name_cluster_files(put, 1, 9, &names(put, &other)).await.unwrap());
    assert_eq!(commit_put(store, put, 1, "d").await, None);
    assert_eq!(store.file_version().await.unwrap(), FileVersion(0));
    assert_eq!(names_of(store, put).await, ["a"]);
    assert_eq!(store.unname_cluster_put(put, 10).await.unwrap(), 0);
    // The second one finds what is there.
    assert_eq!(record(store, put, 2, &other).await, Recorded::Done);
    assert_eq!(names_of(store, put).await, ["a", "b"]);
}

pub(crate) async fn numbers_of_puts_are_reserved(store: &Metastore) {
    let put = begin(store).await.put;
    assert_eq!(store.next_put_number().await.unwrap(), PutId(put.0 + 1));
    assert_eq!(store.number_cluster_put(put, 1, 5, 9).await.unwrap(), Numbered::First(10));
    assert_eq!(store.number_cluster_put(put, 1, 1, 9).await.unwrap(), Numbered::First(15));
    let row = store.cluster_put(put).await.unwrap().unwrap();
    assert_eq!((row.next_number, row.heard_ns), (16, 9));
    let left = ITEMS_MAX - 16;
    for too_many in [left + 1, u32::MAX] {
        assert_eq!(store.number_cluster_put(put, 1, too_many, 9).await.unwrap(), Numbered::TooMany);
    }
    assert_eq!(store.number_cluster_put(put, 1, left, 9).await.unwrap(), Numbered::First(16));
    assert_eq!(store.number_cluster_put(put, 1, 1, 9).await.unwrap(), Numbered::TooMany);
    assert_eq!(store.number_cluster_put(PutId(put.0 + 1), 1, 1, 9).await.unwrap(), Numbered::SessionOver);
    foreign::numbers_of_disks_are_passed(store).await;
}

pub(crate) async fn recorded_files_are_replaced_and_forgotten(store: &Metastore) {
    let put = begin(store).await.put;
    let files: Vec<RecordedPutFile> =
        (0..).zip(["b", "ä", "B"]).map(|(number, name)| recorded(put, name, number, 1, &[1, 2])).collect();
    // A request that is repeated changes nothing.
    for _ in 0..2 {
        assert_eq!(record(store, put, 1, &files).await, Recorded::Done);
    }
    assert_eq!(names_of(store, put).await, ["B", "b", "ä"]);
    let page = store.cluster_put_files(put, Some("B"), 1).await.unwrap();
    let (row, parts) = (files[0].row.clone(), vec![files[0].parts[0].0]);
    assert_eq!(page, [PutFile { row, parts }]);
    // A file that is known under the name is replaced, and a file whose source is gone is forgotten.
    let new = recorded(put, "b", 3, 2, &[2]);
    let forgotten = ["ä".to_string(), "b".to_string(), "unknown".to_string()];
    let done = store.record_cluster_files(put, 1, 5, &[new.clone(), new.clone()], &forgotten).await;
    assert_eq!(done.unwrap(), Recorded::Done);
    assert_eq!(names_of(store, put).await, ["B", "b"]);
    assert_eq!(removed(store).await, [0, 1]);
    let found = store.cluster_put_files(put, None, 10).await.unwrap();
    assert_eq!(found[1].parts.iter().map(|part| part.concrete.number()).collect::<Vec<_>>(), [3, 4]);
    // Numbers of other files, of removed ones, of others' puts and beyond those given are refused.
    let other = PutId(put.0 + 1);
    let mut foreign = recorded(put, "x", 5, 1, &[1]);
    foreign.parts[0].0.concrete = concrete(other, 0);
    let mut used = recorded(put, "x", 5, 1, &[1]);
    used.parts[0].0.concrete = concrete(put, 3);
    let of_other = recorded(other, "x", 5, 1, &[1]);
    for file in [foreign, used, of_other, files[0].clone(), recorded(put, "x", 10, 1, &[1])] {
        assert_eq!(record(store, put, 1, &[file]).await, Recorded::Conflict);
    }
    assert_eq!(store.cluster_put_files(put, None, 10).await.unwrap(), found);
    // Files have as many replicas as the put wishes.
    let all = store.replicated_files_after(ALL, 10).await.unwrap();
    let disks = |number: u32, disks: &[i64]| (number, 3, disks.iter().map(|disk| DiskId(*disk)).collect());
    let seen: Vec<(u32, u32, Vec<DiskId>)> =
        all.into_iter().map(|file| (file.row.concrete.number(), file.replicas, file.disks)).collect();
    assert_eq!(seen, [disks(2, &[1, 2]), disks(3, &[2]), disks(4, &[2])]);
}

pub(crate) async fn committed_puts_are_remembered_until_forgotten(store: &Metastore) {
    let put = begin(store).await.put;
    let files = [recorded(put, "a", 0, 2, &[1]), recorded(put, "b", 2, 1, &[1])];
    let unnamed = recorded(put, "c", 3, 1, &[1]);
    assert_eq!(record(store, put, 1, &files).await, Recorded::Done);
    assert_eq!(record(store, put, 1, &[unnamed]).await, Recorded::Done);
    // Names are stored in steps, also twice; nobody reaches them, and no file is recorded behind them.
    for part in [&files[..1], &files[..], &files[1..]] {
        assert!(store.name_cluster_files(put, 1, 6, &names(put, part)).await.unwrap());
    }
    assert!(store.cluster_put(put).await.unwrap().unwrap().is_naming);
    assert_eq!(record(store, put, 1, &[recorded(put, "d", 4, 1, &[1])]).await, Recorded::SessionOver);
    let path = ["d".to_string(), "a".to_string()];
    assert!(store.found_names(CLUSTER, &path, None).await.unwrap().rows.is_empty());
    // Another session begins with other names.
    assert!(!store.resume_cluster_put(put, 7).await.unwrap().unwrap().is_naming);
    let unnamed = [store.unname_cluster_put(put, 1).await, store.unname_cluster_put(put, 9).await];
    assert_eq!(unnamed.map(Result::unwrap), [1, 1]);
    assert!(store.name_cluster_files(put, 2, 8, &names(put, &files)).await.unwrap());
    let version = commit_put(store, put, 2, "d").await.unwrap();
    let found = store.found_names(CLUSTER, &path, Some(version)).await.unwrap();
    assert_eq!(found.rows[1].item, FileItem::File(files[0].row.content));
    assert!(store.found_names(FileSpace::Machine, &path, None).await.unwrap().rows.is_empty());
    let directory = DirectoryId::of(put, 0).unwrap();
    assert_eq!(store.file_entries(CLUSTER, directory, None, "", 9).await.unwrap().len(), 2);
    assert_eq!(store.file_entries(FileSpace::Machine, directory, None, "", 9).await.unwrap(), []);
    let commits = store.file_commits(CLUSTER, "d", 9).await.unwrap();
    assert_eq!(commits.iter().map(|commit| commit.job.clone()).collect::<Vec<_>>(), [Some(maker())]);
    assert_eq!(store.commit_of_job_put(put).await.unwrap(), commits.first().cloned());
    assert_eq!(store.file_commits(FileSpace::Machine, "/", 9).await.unwrap(), []);
    for (user, expected) in [("ann", 1), ("", 0)] {
        let commits = store.file_commits_by(CLUSTER, "d", Some(user), 9).await.unwrap();
        assert_eq!(commits.len(), expected, "{user}");
    }
    // The commit is found again, and no other one is made.
    let row = store.cluster_put(put).await.unwrap().unwrap();
    assert_eq!((row.version, row.files, row.bytes, row.short_files), (Some(version), 2, 10, 1));
    assert_eq!(commit_put(store, put, 2, "d").await, None);
    assert_eq!(store.cluster_puts().await.unwrap(), []);
    assert_eq!(store.ended_cluster_puts().await.unwrap(), [row]);
    assert_eq!(store.resume_cluster_put(put, 9).await.unwrap(), None);
    assert_eq!(store.number_cluster_put(put, 2, 1, 9).await.unwrap(), Numbered::SessionOver);
    assert_eq!(store.unname_cluster_put(put, 9).await.unwrap(), 0);
    assert!(!store.abandon_cluster_put(put, 9).await.unwrap());
    // It is forgotten in steps; a recorded file without a name is not needed.
    assert!(store.forget_cluster_put(put, 2).await.unwrap());
    assert!(!store.forget_cluster_put(put, 2).await.unwrap());
    assert_eq!(store.cluster_put(put).await.unwrap(), None);
    assert_eq!(names_of(store, put).await, [""; 0]);
    assert_eq!(removed(store).await, [3]);
    names_get_their_version_in_steps(store).await;
}

async fn names_get_their_version_in_steps(store: &Metastore) {
    let put = begin(store).await.put;
    let files: Vec<RecordedPutFile> =
        (0..3).map(|number| recorded(put, &format!("f{number}"), number, 1, &[1])).collect();
    assert_eq!(record(store, put, 1, &files).await, Recorded::Done);
    assert!(store.name_cluster_files(put, 1, 6, &names(put, &files)).await.unwrap());
    let before = store.stored_bytes_of("ann").await.unwrap();
    let version = commit_put(store, put, 1, "dated").await.unwrap();
    // Its files were counted as those of the put and by their names.
    assert_eq!(store.stored_bytes_of("ann").await.unwrap(), before - 15);
    assert_eq!(store.stored_bytes_of("bob").await.unwrap(), 0);
    let root = DirectoryId::of(put, 0).unwrap();
    let since = async |name: &str| {
        let row = store.file_entry(CLUSTER, root, None, name).await.unwrap().unwrap();
        assert_eq!(store.file_entry(FileSpace::Machine, root, None, name).await.unwrap(), None);
        row.since
    };
    let first = store.date_cluster_names(put, version, None, 2).await.unwrap().unwrap();
    assert_eq!([since("f0").await, since("f1").await, since("f2").await], [version, version, FileVersion(0)]);
    let last = store.date_cluster_names(put, version, Some(&first), 2).await.unwrap().unwrap();
    assert_eq!(store.date_cluster_names(put, version, Some(&last), 2).await.unwrap(), None);
    assert_eq!(since("f2").await, version);
    assert_eq!(store.file_entry(CLUSTER, root, None, "missing").await.unwrap(), None);
}

pub(crate) async fn given_up_puts_go_in_steps(store: &Metastore) {
    let put = begin(store).await.put;
    let files: Vec<RecordedPutFile> =
        (0..5).map(|number| recorded(put, &number.to_string(), number, 1, &[1])).collect();
    assert_eq!(record(store, put, 1, &files).await, Recorded::Done);
    assert!(!store.forget_cluster_put(put, 9).await.unwrap());
    assert!(store.name_cluster_files(put, 1, 6, &names(put, &files[..3])).await.unwrap());
    let mut steps = 0;
    while store.abandon_cluster_put(put, 2).await.unwrap() {
        steps += 1;
        // Its client cannot go on with a half of it.
        assert_eq!(commit_put(store, put, 1, "d").await, None);
    }
    assert_eq!(steps, 3);
    assert_eq!(store.cluster_put(put).await.unwrap(), None);
    assert_eq!(names_of(store, put).await, [""; 0]);
    assert_eq!(removed(store).await, [0, 1, 2, 3, 4]);
    let directory = DirectoryId::of(put, 0).unwrap();
    assert_eq!(store.file_entries(CLUSTER, directory, None, "", 9).await.unwrap(), []);
    // A file goes when no disk has it.
    let all: Vec<ConcreteId> = (0..5).map(|number| concrete(put, number)).collect();
    store.drop_replicas(&[(all[1], DiskId(1)), (all[2], DiskId(1)), (all[3], DiskId(2))]).await.unwrap();
    store.forget_removed_cluster_files(&all).await.unwrap();
    assert_eq!(removed(store).await, [0, 3, 4]);
    // The machine does not remove files of the cluster.
    assert_eq!(store.removed_concrete_files(9).await.unwrap(), []);
    store.drop_replicas(&[(all[0], DiskId(1))]).await.unwrap();
    store.forget_removed_files(&all).await.unwrap();
    assert_eq!(removed(store).await, [0, 3, 4]);
}

/// Puts a file under a name of the machine. Returns the version.
async fn put_on_machine(store: &Metastore, name: &str) -> FileVersion {
    let question = FileQuestion::default();
    let made = store.change_files(&question, |facts| {
        let content = ContentId::of(facts.put, 0).unwrap();
        let new = row(&facts, FileSpace::Machine.root(), name, FileItem::File(content));
        let part = ConcreteRow { concrete: ConcreteId(content.0), content, part: 0, bytes: 5, crc32c: 7 };
        let ends = vec![(FileSpace::Machine.root(), name.to_string())];
        let (commit, more) = (commit(&facts, name), Box::new(std::iter::once((new, vec![part]))));
        Ok::<_, ()>(Some(FileChange {
            commit,
            ends,
            begins: Vec::new(),
            owned: Vec::new(),
            more,
            ended_put: None,
        }))
    });
    made.await.unwrap().unwrap().unwrap()
}

pub(crate) async fn trees_are_retired_apart(store: &Metastore) {
    let first = put_on_machine(store, "d").await;
    put_on_machine(store, "d").await;
    let old = put_directory(store, "d").await;
    let before = store.file_version().await.unwrap();
    let new = put_directory(store, "d").await;
    // Versions that are read in one tree do not matter in the other.
    let pinned = RetirePins { versions: vec![before] };
    assert_eq!(store.retire_file_names(CLUSTER, &pinned).await.unwrap().names, 0);
    let others = RetirePins { versions: vec![first] };
    assert_eq!(store.retire_file_names(CLUSTER, &others).await.unwrap().names, 2);
    let files = store.removed_cluster_files(9).await.unwrap();
    assert_eq!(
        files.iter().map(|file| file.row.concrete).collect::<Vec<_>>(),
        [concrete(old, 0), concrete(old, 1)]
    );
    assert_eq!(files[0].disks, [DiskId(1), DiskId(2)]);
    assert_eq!(store.replicated_files_after(ALL, 9).await.unwrap()[0].row.concrete, concrete(new, 0));
    // The tree of the machine is as it was.
    let path = ["d".to_string()];
    let read = store.found_names(FileSpace::Machine, &path, Some(first)).await.unwrap();
    assert_eq!(read.rows.len(), 1);
    assert_eq!(store.removed_concrete_files(9).await.unwrap(), []);
    assert_eq!(store.retire_file_names(FileSpace::Machine, &pinned).await.unwrap().names, 1);
    assert_eq!(store.removed_concrete_files(9).await.unwrap().len(), 1);
    assert_eq!(store.removed_cluster_files(9).await.unwrap().len(), 2);
    expiry::expired_names_are_found_with_paths(store).await;
}

pub(crate) async fn replicas_are_found_by_their_files(store: &Metastore) {
    put_on_machine(store, "a").await;
    let machine = ConcreteId((store.next_put_number().await.unwrap().0 - 1) << ids::ITEM_BITS);
    let put = put_directory(store, "d").await;
    let files = [concrete(put, 0), concrete(put, 1), concrete(put, 2)];
    // Only files of the cluster that have rows get replicas, each once.
    let new = [files[0], files[0], files[2], machine].map(|file| (file, DiskId(9)));
    store.add_replicas(&new).await.unwrap();
    store.add_replicas(&[]).await.unwrap();
    let content = ContentId::of(put, 0).unwrap();
    let file = |part: u32, disks: &[i64]| ReplicatedFile {
        row: ConcreteRow { concrete: files[part as usize], content, part, bytes: 5, crc32c: 7 },
        replicas: 3,
        is_removed: false,
        disks: disks.iter().map(|disk| DiskId(*disk)).collect(),
    };
    let all = [file(0, &[1, 2, 9]), file(1, &[1, 2])];
    assert_eq!(store.replicated_files_after(ALL, 9).await.unwrap(), all);
    assert_eq!(store.replicated_files_after(ALL, 1).await.unwrap(), all[..1]);
    assert_eq!(store.replicated_files_after(files[0], 9).await.unwrap(), all[1..]);
    assert_eq!(store.replicated_files_after(files[1], 9).await.unwrap(), []);
    assert_eq!(store.replicated_files_between(machine, files[0]).await.unwrap(), all[..1]);
    let mut many: Vec<ConcreteId> = (0..100).rev().map(|number| concrete(put, number)).collect();
    many.extend([machine, files[0]]);
    assert_eq!(store.replicated_files_of(&many).await.unwrap(), all);
    assert_eq!(store.replicated_files_of(&[]).await.unwrap(), []);
    let directory = DirectoryId::of(put, 0).unwrap();
    let of_entries = store.replicated_files_of_entries(directory, None, ["a", "b"]).await.unwrap();
    assert_eq!(of_entries, all);
    let of_none = [
        store.replicated_files_of_entries(directory, None, ["b", "c"]).await.unwrap(),
        store.replicated_files_of_entries(FileSpace::Machine.root(), None, ["", "z"]).await.unwrap(),
    ];
    assert_eq!(of_none, [[], []]);
    assert_eq!(store.replicated_files_on(DiskId(9), ALL, 9).await.unwrap(), [all[0].row]);
    assert_eq!(store.replicated_files_on(DiskId(1), files[0], 9).await.unwrap(), [all[1].row]);
    assert_eq!(store.replicated_files_on(DiskId(1), ALL, 1).await.unwrap(), [all[0].row]);
    let path_in = async |space| store.path_of_content(space, content).await.unwrap();
    assert_eq!(path_in(CLUSTER).await.as_deref(), Some("d/a"));
    assert_eq!(path_in(FileSpace::Machine).await, None);
    store.drop_replicas(&[(files[0], DiskId(9)), (files[1], DiskId(9))]).await.unwrap();
    assert_eq!(store.replicated_files_after(ALL, 9).await.unwrap(), [file(0, &[1, 2]), file(1, &[1, 2])]);
    // A replica of a removed file is stored too, so that it is removed.
    let path = ["d".to_string()];
    let question = FileQuestion { space: CLUSTER, paths: vec![&path], ..FileQuestion::default() };
    let gone = store.change_files(&question, |facts| {
        let (commit, ends) = (commit(&facts, "d"), vec![(CLUSTER.root(), "d".to_string())]);
        Ok::<_, ()>(Some(FileChange {
            commit,
            ends,
            begins: Vec::new(),
            owned: Vec::new(),
            more: nothing(),
            ended_put: None,
        }))
    });
    gone.await.unwrap().unwrap().unwrap();
    store.retire_file_names(CLUSTER, &RetirePins::default()).await.unwrap();
    store.add_replicas(&[(files[1], DiskId(8))]).await.unwrap();
    let removed = ReplicatedFile { is_removed: true, ..file(1, &[1, 2, 8]) };
    assert_eq!(store.removed_cluster_files(9).await.unwrap()[1], removed);
    assert_eq!(store.replicated_files_of(&[files[1]]).await.unwrap(), std::slice::from_ref(&removed));
    assert_eq!(store.replicated_files_between(files[1], files[1]).await.unwrap(), [removed]);
    assert_eq!(store.replicated_files_after(ALL, 9).await.unwrap(), []);
    assert_eq!(store.replicated_files_on(DiskId(8), ALL, 9).await.unwrap(), []);
}

pub(crate) async fn disks_with_files_keep_their_numbers(store: &Metastore) {
    let first = store.add_file_disk("one", "n1", "r1", "hash 1").await.unwrap();
    let second = store.add_file_disk("two", "n1", "r1", "hash 2").await.unwrap();
    assert!(first.0 > 0 && second > first);
    assert_eq!(store.add_file_disk("one", "n2", "r2", "hash 1").await.unwrap(), first);
    // A disk with another secret does not become the known one.
    store.add_file_disk("one", "n2", "r2", "hash 3").await.unwrap_err();
    store.move_file_disk(second, "n3", "r3").await.unwrap();
    let disk = |disk, [uuid, node_name, rack, secret_hash]: [&str; 4]| FileDiskRow {
        disk,
        uuid: uuid.to_string(),
        node_name: node_name.to_string(),
        rack: rack.to_string(),
        secret_hash: secret_hash.to_string(),
    };
    let all = [disk(first, ["one", "n1", "r1", "hash 1"]), disk(second, ["two", "n3", "r3", "hash 2"])];
    assert_eq!(store.file_disks().await.unwrap(), all);
    // Questions in SQL see the tables, and no secret.
    for table in [
        "file_names",
        "concrete_files",
        "concrete_replicas",
        "file_put_files",
        "file_puts",
        "foreign_file_puts",
    ] {
        let answer = store.query(&format!("select * from {table}"), QueryLimits::default()).await.unwrap();
        assert_eq!(answer.rows.len(), 0, "{table}");
    }
    let statement = "select * from file_disks order by disk";
    let answer = store.query(statement, QueryLimits::default()).await.unwrap();
    assert_eq!(answer.rows.len(), 2);
    let hashes =
        answer.rows.iter().flatten().filter(|cell| matches!(cell, Cell::Text(text) if text.contains("hash")));
    assert_eq!(hashes.count(), 0);
}

pub(crate) async fn groups_have_members_and_names_keep_them(store: &Metastore) {
    let user = |name: &str| Change::UserAdded { name: name.to_string(), role: Role::User, now_ns: 1 };
    store.apply(&[user("ann"), user("ben")]).await.unwrap();
    let (team, nobody) = ("team".to_string(), "nobody".to_string());
    store.create_group("team", 5).await.unwrap().unwrap();
    store.create_group("alone", 6).await.unwrap().unwrap();
    assert_eq!(store.create_group("team", 7).await.unwrap(), Err(GroupRefusal::Exists(team.clone())));
    for name in ["ben", "ann", "ben"] {
        store.add_to_group("team", name).await.unwrap().unwrap();
    }
    let added = store.add_to_group("team", "nobody").await.unwrap();
    assert_eq!(added, Err(GroupRefusal::NoSuchUser(nobody.clone())));
    let added = store.add_to_group("nobody", "ann").await.unwrap();
    assert_eq!(added, Err(GroupRefusal::Missing(nobody)));
    let groups = store.user_groups().await.unwrap();
    let groups: Vec<_> =
        groups.iter().map(|row| (&*row.name, row.created_ns, row.members.join(" "))).collect();
    assert_eq!(groups, [("alone", 6, String::new()), ("team", 5, "ann ben".to_string())]);
    assert_eq!(store.groups_of_user("ben").await.unwrap(), [team.clone()].into());

    let put = put_directory(store, "d").await;
    let path = ["d".to_string()];
    let question = FileQuestion {
        space: CLUSTER,
        paths: vec![&path],
        user: Some("ben"),
        groups: vec!["gone", "team"],
        ..FileQuestion::default()
    };
    let groups = FileGroups { read: Some(team.clone()), write: None };
    let changed = store.change_files(&question, |facts| {
        assert_eq!(
            (&facts.groups, &facts.missing_groups),
            (&[team.clone()].into(), &vec!["gone".to_string()])
        );
        let named = |owner: &str, new_owner: &str| OwnedNameRow {
            directory: CLUSTER.root(),
            name: "d".to_string(),
            owner: owner.to_string(),
            new_owner: new_owner.to_string(),
            groups: groups.clone(),
        };
        Ok::<_, ()>(Some(FileChange {
            commit: commit(&facts, "d"),
            ends: Vec::new(),
            begins: Vec::new(),
            // The name belongs to ann, so that the second change is none.
            owned: vec![named("ann", "ben"), named("ann", "cid")],
            more: nothing(),
            ended_put: None,
        }))
    });
    let version = changed.await.unwrap().unwrap();
    let directory = DirectoryId::of(put, 0).unwrap();
    for at in [None, version] {
        let rows = store.rows_to_directory(CLUSTER, directory, at).await.unwrap();
        let rows: Vec<_> = rows.iter().map(|row| (&*row.name, &*row.user, &row.groups)).collect();
        assert_eq!(rows, [("d", "ben", &groups)]);
    }
    assert_eq!(store.rows_to_directory(CLUSTER, directory, Some(FileVersion(0))).await.unwrap(), []);
    assert_eq!(store.rows_to_directory(CLUSTER, CLUSTER.root(), None).await.unwrap(), []);
    delete_named_group(store, team).await;
}

/// Deletes a group that a name has: another one of its name would get the files.
async fn delete_named_group(store: &Metastore, team: String) {
    store.delete_group("team").await.unwrap().unwrap();
    assert_eq!(store.delete_group("team").await.unwrap(), Err(GroupRefusal::Missing(team.clone())));
    assert_eq!(store.create_group("team", 8).await.unwrap(), Err(GroupRefusal::StillNamed(team)));
    assert!(store.groups_of_user("ben").await.unwrap().is_empty());
    let removed = store.remove_from_group("alone", "ben").await.unwrap();
    let (group, user) = ("alone".to_string(), "ben".to_string());
    assert_eq!(removed, Err(GroupRefusal::NotAMember { group, user }));
    store.add_to_group("alone", "ben").await.unwrap().unwrap();
    store.remove_from_group("alone", "ben").await.unwrap().unwrap();
    assert!(store.groups_of_user("ben").await.unwrap().is_empty());
}
