//! Tests of the tree of files.

use crate::{EndedPut, FileChange, FileFacts, FileQuestion, Metastore, RetirePins};
use api::stored::MakingJob;
use ids::{ConcreteId, ContentId, DirectoryId, FileVersion, JobId, PutId};
use rows::{
    ConcreteRow, FileCommitRow, FileGroups, FileItem, FileNameRow, FilePutRow, FileSpace, PutFileRow,
};

const MACHINE: FileSpace = FileSpace::Machine;

pub(super) fn row(facts: &FileFacts, directory: DirectoryId, name: &str, item: FileItem) -> FileNameRow {
    FileNameRow {
        directory,
        name: name.to_string(),
        since: facts.version,
        until: None,
        item,
        user: "ann".to_string(),
        bytes: 5,
        parts: 1,
        created_ns: 9,
        keep_versions: 1,
        expires_ns: None,
        groups: FileGroups::default(),
        hashed: None,
    }
}

pub(super) fn commit(facts: &FileFacts, path: &str) -> FileCommitRow {
    FileCommitRow {
        version: facts.version,
        user: "ann".to_string(),
        verb: "put".to_string(),
        path: path.to_string(),
        files: 1,
        bytes: 5,
        created_ns: 9,
        job: None,
    }
}

fn part(content: ContentId) -> ConcreteRow {
    ConcreteRow { concrete: ConcreteId(content.0), content, part: 0, bytes: 5, crc32c: 7 }
}

pub(super) fn nothing() -> Box<dyn Iterator<Item = (FileNameRow, Vec<ConcreteRow>)>> {
    Box::new(std::iter::empty())
}

/// Puts a file of one part under a name of the root.
async fn put(store: &Metastore, name: &'static str) -> (FileVersion, ContentId) {
    let mut content = ContentId(0);
    let question = FileQuestion::default();
    let made = store.change_files(&question, |facts| {
        content = ContentId::of(facts.put, 0).unwrap();
        let new = row(&facts, DirectoryId(0), name, FileItem::File(content));
        let ends = vec![(DirectoryId(0), name.to_string())];
        let more = Box::new(std::iter::once((new, vec![part(content)])));
        let commit = commit(&facts, name);
        Ok::<_, ()>(Some(FileChange {
            commit,
            ends,
            begins: Vec::new(),
            owned: Vec::new(),
            more,
            ended_put: None,
        }))
    });
    let version = made.await.unwrap().unwrap().unwrap();
    (version, content)
}

pub(crate) async fn files_have_names_and_versions(store: &Metastore) {
    assert_eq!(store.file_version().await.unwrap(), FileVersion(0));
    // Names are in the order of their bytes, whatever the locale of the database.
    for name in ["b", "ä", "B", "a b", "c"] {
        put(store, name).await;
    }
    let (second, content) = put(store, "b").await;
    let all = store.file_entries(MACHINE, DirectoryId(0), None, "", 10).await.unwrap();
    let names: Vec<&str> = all.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["B", "a b", "b", "c", "ä"]);
    let page = store.file_entries(MACHINE, DirectoryId(0), None, "a b", 2).await.unwrap();
    assert_eq!(page, all[2..4]);
    let before = FileVersion(second.0 - 1);
    let path = ["b".to_string()];
    let (now, then) = (
        store.found_names(MACHINE, &path, None).await.unwrap().rows.remove(0),
        store.found_names(MACHINE, &path, Some(before)).await.unwrap().rows.remove(0),
    );
    assert_eq!((now.since, now.until, now.item), (second, None, FileItem::File(content)));
    assert_eq!((then.since, then.until), (FileVersion(1), Some(second)));
    assert_eq!(store.concrete_files(content).await.unwrap(), [part(content)]);
    let between = store.concrete_files_between(DirectoryId(0), None, ["a b", "b"]).await.unwrap();
    assert_eq!(between.len(), 2);
    let commits = store.file_commits(MACHINE, "b", 10).await.unwrap();
    assert_eq!(commits.iter().map(|commit| commit.version).collect::<Vec<_>>(), [second, FileVersion(1)]);
    // A decision that refuses, or changes nothing, writes nothing.
    let question = FileQuestion { paths: vec![&path], subtree: true, ..FileQuestion::default() };
    let refused = store.change_files(&question, |facts| {
        assert_eq!((facts.found[0].rows.len(), facts.found[0].has_entries), (1, false));
        Err::<Option<FileChange<'_>>, _>("no")
    });
    assert_eq!(refused.await.unwrap(), Err("no"));
    let unchanged = store.change_files(&question, |_| Ok::<_, ()>(None));
    assert_eq!(unchanged.await.unwrap(), Ok(None));
    assert_eq!(store.file_version().await.unwrap(), second);
}

pub(crate) async fn old_versions_go_unless_they_are_read(store: &Metastore) {
    let (first, old) = put(store, "a").await;
    let (_, new) = put(store, "a").await;
    let pins = RetirePins { versions: vec![first] };
    assert_eq!(store.retire_file_names(MACHINE, &pins).await.unwrap().names, 0);
    assert_eq!(store.retire_file_names(MACHINE, &RetirePins::default()).await.unwrap().names, 1);
    let path = ["a".to_string()];
    assert!(store.found_names(MACHINE, &path, Some(first)).await.unwrap().rows.is_empty());
    assert_eq!(store.removed_concrete_files(10).await.unwrap(), [ConcreteId(old.0)]);
    store.forget_removed_files(&[ConcreteId(old.0)]).await.unwrap();
    assert_eq!(store.removed_concrete_files(10).await.unwrap(), []);
    assert_eq!(store.concrete_files(new).await.unwrap().len(), 1);
    // A directory goes with everything below it, a thousand names at a time.
    let question = FileQuestion::default();
    let made = store.change_files(&question, |facts| {
        let directory = DirectoryId::of(facts.put, 0).unwrap();
        let top = row(&facts, DirectoryId(0), "d", FileItem::Directory(directory));
        let (put, inner) = (facts.put, facts.clone());
        let more = (0..1500).map(move |number| {
            let content = ContentId::of(put, number).unwrap();
            (row(&inner, directory, &number.to_string(), FileItem::File(content)), vec![part(content)])
        });
        let commit = commit(&facts, "d");
        let (ends, more) = (Vec::new(), Box::new(more));
        Ok::<_, ()>(Some(FileChange {
            commit,
            ends,
            begins: vec![top],
            owned: Vec::new(),
            more,
            ended_put: None,
        }))
    });
    let made = made.await.unwrap().unwrap().unwrap();
    let path = ["d".to_string()];
    assert!(store.found_names(MACHINE, &path, None).await.unwrap().has_entries);
    let question = FileQuestion { paths: vec![&path], subtree: true, ..FileQuestion::default() };
    let removed = store.change_files(&question, |facts| {
        assert_eq!(facts.subtree.len(), 1500);
        let (commit, ends) = (commit(&facts, "d"), vec![(DirectoryId(0), "d".to_string())]);
        Ok::<_, ()>(Some(FileChange {
            commit,
            ends,
            begins: Vec::new(),
            owned: Vec::new(),
            more: nothing(),
            ended_put: None,
        }))
    });
    removed.await.unwrap().unwrap().unwrap();
    let step = store.retire_file_names(MACHINE, &RetirePins::default()).await.unwrap();
    assert_eq!((step.names, step.more), (1000, true));
    // Nobody reads a directory of which only a part is left.
    assert!(store.found_names(MACHINE, &path, Some(made)).await.unwrap().rows.is_empty());
    assert_eq!(store.retire_file_names(MACHINE, &RetirePins::default()).await.unwrap().names, 501);
    assert_eq!(store.removed_concrete_files(2000).await.unwrap().len(), 1500);
}

pub(crate) async fn puts_are_remembered_until_they_end(store: &Metastore) {
    let id = store.reserve_put_id().await.unwrap();
    let new = FilePutRow {
        put: id,
        user: "ann".to_string(),
        path: "a".to_string(),
        source: "/in".to_string(),
        created_ns: 3,
    };
    store.begin_put(&new).await.unwrap();
    assert_eq!(store.file_puts().await.unwrap(), [new]);
    let file = |number: u32, name: &str| {
        let content = ContentId::of(id, number).unwrap();
        let row =
            PutFileRow { name: name.to_string(), content, parts: 1, bytes: 5, modified_ns: 4, hashed: None };
        (row, vec![part(content)])
    };
    let (used, unused) = (file(0, "used"), file(1, "unused"));
    store.record_put_files(id, &[used.clone(), unused.clone()]).await.unwrap();
    assert_eq!(store.put_files(id).await.unwrap(), [unused.0.clone(), used.0.clone()]);
    assert_eq!(store.concrete_files_of_put(id).await.unwrap().len(), 2);
    assert_eq!(store.concrete_files_of_put(PutId(id.0 + 1)).await.unwrap(), []);
    let question = FileQuestion::default();
    let job = MakingJob { job: JobId(17), name: "counts".to_string() };
    let ended = store.change_files(&question, |facts| {
        let begins = vec![row(&facts, DirectoryId(0), "a", FileItem::File(used.0.content))];
        let commit = FileCommitRow { job: Some(job.clone()), ..commit(&facts, "a") };
        Ok::<_, ()>(Some(FileChange {
            commit,
            ends: Vec::new(),
            begins,
            owned: Vec::new(),
            more: nothing(),
            ended_put: Some(EndedPut::Machine(id)),
        }))
    });
    ended.await.unwrap().unwrap().unwrap();
    assert_eq!(
        (store.file_puts().await.unwrap(), store.put_files(id).await.unwrap()),
        (Vec::new(), Vec::new())
    );
    assert_eq!(store.removed_concrete_files(10).await.unwrap(), [ConcreteId(unused.0.content.0)]);
    // The job that made the file is found by its put, wherever its name goes.
    let made = store.commit_of_job_put(used.0.content.put()).await.unwrap().unwrap();
    assert_eq!((made.job.as_ref(), made.path.as_str()), (Some(&job), "a"));
    assert_eq!(store.file_commits(MACHINE, "a", 1).await.unwrap(), [made]);
    assert_eq!(store.commit_of_job_put(PutId(id.0 + 1)).await.unwrap(), None);
    // A put that is given up leaves its files to be removed.
    let id = store.reserve_put_id().await.unwrap();
    let content = ContentId::of(id, 0).unwrap();
    let given_up =
        PutFileRow { name: "x".to_string(), content, parts: 1, bytes: 5, modified_ns: 4, hashed: None };
    store.record_put_files(id, &[(given_up, vec![part(content)])]).await.unwrap();
    store.abandon_put(id).await.unwrap();
    assert_eq!(store.removed_concrete_files(10).await.unwrap().len(), 2);
}
