//! Tests of names whose time is over.

use super::{CLUSTER, begin, nothing, row};
use crate::suite::files::commit;
use crate::{ExpiredName, FileChange, FileFacts, FileQuestion, Metastore};
use ids::{ContentId, DirectoryId, FileVersion};
use rows::{ClusterPutRow, FileItem, FileNameRow, FileSpace};

/// Makes and ends names of the root and of directories, in one change.
async fn change(
    store: &Metastore,
    space: FileSpace,
    ends: &[(DirectoryId, &str)],
    begins: impl FnOnce(&FileFacts) -> Vec<FileNameRow>,
) -> FileVersion {
    let question = FileQuestion { space, ..FileQuestion::default() };
    let made = store.change_files(&question, |facts| {
        let ends = ends.iter().map(|(directory, name)| (*directory, (*name).to_string())).collect();
        let (commit, begins) = (commit(&facts, "x"), begins(&facts));
        Ok::<_, ()>(Some(FileChange {
            commit,
            ends,
            begins,
            owned: Vec::new(),
            more: nothing(),
            ended_put: None,
        }))
    });
    made.await.unwrap().unwrap().unwrap()
}

fn expiring(facts: &FileFacts, directory: DirectoryId, name: &str, expires_ns: Option<u64>) -> FileNameRow {
    let content = ContentId::of(facts.put, 0).unwrap();
    FileNameRow { expires_ns, ..row(facts, directory, name, FileItem::File(content)) }
}

async fn expired(store: &Metastore, space: FileSpace, now_ns: u64) -> Vec<ExpiredName> {
    store.expired_file_names(space, now_ns, 10).await.unwrap()
}

pub(super) async fn expired_names_are_found_with_paths(store: &Metastore) {
    let (root, mut below) = (CLUSTER.root(), DirectoryId(0));
    change(store, CLUSTER, &[], |facts| {
        below = DirectoryId::of(facts.put, 1).unwrap();
        vec![
            row(facts, root, "top", FileItem::Directory(below)),
            expiring(facts, below, "late", Some(30)),
            expiring(facts, below, "soon", Some(20)),
            expiring(facts, root, "stays", None),
        ]
    })
    .await;
    change(store, FileSpace::Machine, &[], |facts| {
        vec![expiring(facts, FileSpace::Machine.root(), "of the machine", Some(20))]
    })
    .await;
    assert_eq!(expired(store, CLUSTER, 19).await, []);
    let found = expired(store, CLUSTER, 30).await;
    let path = |name: &str| Some(vec!["top".to_string(), name.to_string()]);
    assert_eq!(found.iter().map(|name| name.path.clone()).collect::<Vec<_>>(), [path("soon"), path("late")]);
    assert_eq!(found[0].row.expires_ns, Some(20));
    assert_eq!(store.expired_file_names(CLUSTER, 30, 1).await.unwrap(), found[..1]);
    let of_machine = expired(store, FileSpace::Machine, 20).await;
    assert_eq!(of_machine.len(), 1);
    assert_eq!(of_machine[0].path, Some(vec!["of the machine".to_string()]));
    // An ended name is not found; one below an ended directory has no path, and can be left alone.
    change(store, CLUSTER, &[(below, "soon")], |_| Vec::new()).await;
    let found = expired(store, CLUSTER, 30).await;
    assert_eq!((found.len(), found[0].path.clone()), (1, path("late")));
    change(store, CLUSTER, &[(root, "top")], |_| Vec::new()).await;
    let found = expired(store, CLUSTER, 30).await;
    assert_eq!((found.len(), found[0].path.clone()), (1, None));
    store.forget_file_expiry(&[found[0].row.clone()]).await.unwrap();
    assert_eq!(expired(store, CLUSTER, u64::MAX).await, []);
    assert_eq!(expired(store, FileSpace::Machine, 20).await, of_machine);
    // A put remembers its time to live.
    let new = ClusterPutRow {
        put: store.reserve_put_id().await.unwrap(),
        ttl_ns: Some(7),
        ..ClusterPutRow::default()
    };
    store.begin_cluster_put(&new).await.unwrap();
    assert_eq!(store.cluster_put(new.put).await.unwrap(), Some(new));
    assert_eq!(begin(store).await.ttl_ns, None);
}
