//! A catalogue over a store that was restored from an older backup, with a made-up node that has newer files; and names
//! whose time is over.

use api::StoredPart;
use api::data_access::SecretText;
use api::stored::cluster::{
    BeginStored, CommitStored, CommitsOfStored, FindStored, NumberStored, RecordStored, RecordedFile,
    RecordedPart, StoredChange, StoredDiskNews, StoredListing, StoredNews,
};
use filecatalog::{Asker, Catalog, CatalogError, RepairPace, ReportingNode};
use filetree::Changer;
use ids::{ConcreteId, ContentId, DiskId, FileVersion, NodeId, PutId};
use metastore::{FOREIGN_PUT_MAX, Metastore};
use std::path::Path;
use std::time::Duration;

const ANN: &str = "ann";

fn asker() -> Asker {
    Asker { user: ANN.to_string(), changer: Changer::User(ANN.to_string()), bytes_max: None }
}

async fn opened(state: &Path) -> Catalog {
    let store = Metastore::open(state).await.unwrap();
    Catalog::open(store, Box::new(|_| "signed".to_string()), RepairPace::default()).await.unwrap()
}

/// Lets the node report, with an inventory of these files. Returns its disk and the files that it is told to remove.
async fn report(catalog: &Catalog, files: Option<&[ConcreteId]>) -> (DiskId, Vec<ConcreteId>) {
    let listed = files.map(|files| StoredListing {
        uuid: "disk".to_string(),
        first: ConcreteId(0),
        last: ConcreteId(i64::MAX),
        files: files.iter().map(|file| (*file, 5)).collect(),
        is_last: true,
    });
    let news = StoredNews {
        disks: vec![StoredDiskNews {
            uuid: "disk".to_string(),
            secret: SecretText("secret".to_string()),
            is_empty: files.is_none(),
            total_bytes: 1 << 30,
            free_bytes: 1 << 30,
            room_bytes: 1 << 30,
            takes_files: true,
        }],
        listed: listed.into_iter().collect(),
        ..StoredNews::default()
    };
    let from = ReportingNode { node: NodeId(1), name: "n1".to_string(), rack: "r".to_string() };
    let orders = catalog.news(&from, news).await.unwrap();
    let removed = orders.remove.into_iter().flat_map(|removal| removal.files);
    (orders.disks[0].unwrap(), removed.collect())
}

/// Puts a file of one part under a name.
async fn put(catalog: &Catalog, disk: DiskId, name: &str, ttl_seconds: Option<u64>) -> StoredPart {
    let ann = asker();
    let begin =
        BeginStored { path: name.to_string(), keep_versions: 1, ttl_seconds, ..BeginStored::default() };
    let of = catalog.begin(&ann, &begin).await.unwrap().of;
    let first = catalog.number(&ann, &NumberStored { of, count: 1 }).await.unwrap().first;
    let part = StoredPart { concrete: ConcreteId::of(of.put, first).unwrap(), bytes: 5, crc32c: 7 };
    let file = RecordedFile {
        name: String::new(),
        content: ContentId::of(of.put, first).unwrap(),
        bytes: 5,
        modified_ns: 1,
        parts: vec![RecordedPart { file: part, disks: vec![disk] }],
        hashed: None,
    };
    catalog.record(&ann, &RecordStored { of, files: vec![file], forgotten: Vec::new() }).await.unwrap();
    catalog.commit(&ann, &CommitStored { of, empty_directories: Vec::new() }).await.unwrap();
    part
}

fn file(put: i64) -> ConcreteId {
    ConcreteId::of(PutId(put), 0).unwrap()
}

#[tokio::test]
async fn files_newer_than_the_store_stay() {
    let state = tempfile::tempdir().unwrap();
    let catalog = opened(state.path()).await;
    let (disk, _) = report(&catalog, None).await;
    let known = put(&catalog, disk, "known", None).await.concrete;
    let next = known.put().0 + 2;
    // The disk has two files that the store does not know: a later state of it had put them.
    let newer = [file(next + 3), file(next + 9)];
    let all = [known, newer[0], newer[1]];
    assert_eq!(report(&catalog, Some(&all)).await.1, []);
    let fresh = put(&catalog, disk, "fresh", None).await.concrete;
    assert_eq!(fresh.put(), PutId(next + 10));
    // New puts have passed them, and they stay; also after a restart.
    let left = file(next + 11);
    put(&catalog, disk, "more", None).await;
    for _ in 0..2 {
        put(&catalog, disk, "more", None).await;
    }
    drop(catalog);
    let catalog = opened(state.path()).await;
    report(&catalog, Some(&[])).await;
    let mut all = vec![known, newer[0], newer[1], fresh];
    assert_eq!(report(&catalog, Some(&all)).await.1, []);
    // A file of a number that the store gave, and that it does not need, goes.
    all.push(left);
    assert_eq!(report(&catalog, Some(&all)).await.1, [left]);
    // A number that no store reaches is not believed, and its file stays.
    let before = put(&catalog, disk, "before", None).await.concrete.put();
    let huge = file(FOREIGN_PUT_MAX.0 + 1);
    assert_eq!(report(&catalog, Some(&[huge])).await.1, []);
    assert!(put(&catalog, disk, "after", None).await.concrete.put().0 < before.0 + 5);
    assert_eq!(report(&catalog, Some(&[file(FOREIGN_PUT_MAX.0)])).await.1, []);
    assert_eq!(put(&catalog, disk, "last", None).await.concrete.put(), PutId(FOREIGN_PUT_MAX.0 + 1));
}

#[tokio::test]
async fn names_go_when_their_time_is_over() {
    let state = tempfile::tempdir().unwrap();
    let catalog = opened(state.path()).await;
    let (disk, _) = report(&catalog, None).await;
    let entry = async |path: &str| {
        let find = FindStored { path: path.to_string(), ..FindStored::default() };
        catalog.find(&asker(), &find).await.unwrap().entry
    };
    for ttl_seconds in [0, u64::MAX] {
        let begin = BeginStored {
            path: "x".to_string(),
            keep_versions: 1,
            ttl_seconds: Some(ttl_seconds),
            ..BeginStored::default()
        };
        assert!(matches!(catalog.begin(&asker(), &begin).await, Err(CatalogError::Ttl(_))));
    }
    let goes = put(&catalog, disk, "d/goes", Some(1)).await.concrete;
    put(&catalog, disk, "stays", Some(1)).await;
    put(&catalog, disk, "stays", None).await;
    put(&catalog, disk, "moved", Some(3600)).await;
    let expires_ns = entry("moved").await.unwrap().expires_ns;
    assert!(expires_ns.is_some());
    let (from, to) = ("moved".to_string(), "there".to_string());
    catalog.change(&asker(), &StoredChange::Rename { from, to: to.clone() }).await.unwrap();
    catalog.change(&asker(), &StoredChange::Copy { from: to, to: "copy".to_string() }).await.unwrap();
    assert_eq!(entry("there").await.unwrap().expires_ns, expires_ns);
    assert_eq!(entry("copy").await.unwrap().expires_ns, None);
    assert!(entry("d/goes").await.unwrap().expires_ns.is_some());
    let mut removed = Vec::new();
    while !removed.contains(&goes) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        catalog.keep_house().await.unwrap();
        removed.extend(report(&catalog, Some(&[])).await.1);
    }
    assert!(entry("stays").await.is_some() && entry("d").await.is_some());
    let of = CommitsOfStored { path: "d".to_string(), limit: 1 };
    let last = catalog.commits(&asker(), &of).await.unwrap().commits.remove(0);
    assert_eq!((last.verb.as_str(), last.path.as_str(), last.user.as_str()), ("expire", "d/goes", ANN));
    assert!(last.version > FileVersion(0));
}
