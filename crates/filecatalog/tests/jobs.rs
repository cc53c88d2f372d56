//! Stored inputs of jobs: only files that exist, with their own parts, for a user who may read them.

use api::data_access::SecretText;
use api::stored::cluster::{
    BeginStored, CommitStored, NumberStored, PartsOfJob, PlaceStored, RecordStored, RecordedFile,
    RecordedPart, StoredDiskNews, StoredNews,
};
use api::{InputFile, JobSpec, StoredContent, StoredPart};
use filecatalog::{Asker, Catalog, CatalogError, RepairPace, ReplicaNodes, ReportingNode};
use filetree::Changer;
use ids::{ConcreteId, ContentId, DiskId, JobId, NodeId};
use metastore::Metastore;

fn asker(user: &str) -> Asker {
    Asker { user: user.to_string(), changer: Changer::User(user.to_string()), bytes_max: None }
}

/// Makes a node with a disk known. Returns the disk.
async fn join(catalog: &Catalog) -> DiskId {
    let news = StoredNews {
        disks: vec![StoredDiskNews {
            uuid: "a disk".to_string(),
            secret: SecretText("secret".to_string()),
            is_empty: true,
            total_bytes: 1 << 30,
            free_bytes: 1 << 30,
            room_bytes: 1 << 30,
            takes_files: true,
        }],
        ..StoredNews::default()
    };
    let from = ReportingNode { node: NodeId(1), name: "n1".to_string(), rack: "r".to_string() };
    catalog.news(&from, news).await.unwrap().disks[0].unwrap()
}

/// Puts a file of one part under a name, and returns the part.
async fn put(catalog: &Catalog, disk: DiskId, name: &str) -> StoredPart {
    let ann = asker("ann");
    let begin = BeginStored { path: name.to_string(), keep_versions: 1, ..BeginStored::default() };
    let of = catalog.begin(&ann, &begin).await.unwrap().of;
    let first = catalog.number(&ann, &NumberStored { of, count: 1 }).await.unwrap().first;
    let concrete = ConcreteId::of(of.put, first).unwrap();
    let part = StoredPart { concrete, bytes: 5, crc32c: 7 };
    let file = RecordedFile {
        name: String::new(),
        content: ContentId::of(of.put, first).unwrap(),
        bytes: 5,
        modified_ns: 1,
        parts: vec![RecordedPart { file: part, disks: vec![disk] }],
    };
    let record = RecordStored { of, files: vec![file], forgotten: Vec::new() };
    catalog.record(&ann, &record).await.unwrap();
    catalog.commit(&ann, &CommitStored { of, empty_directories: Vec::new() }).await.unwrap().version.unwrap();
    part
}

fn spec(path: &str, parts: &[StoredPart], size_bytes: u64) -> JobSpec {
    let input = InputFile {
        path: path.into(),
        size_bytes,
        mtime_ns: 0,
        compression: None,
        named: 0,
        object: None,
        stage_file: None,
        stored: Some(StoredContent { parts: parts.to_vec() }),
    };
    JobSpec { inputs: vec![input], ..JobSpec::named("a job") }
}

#[tokio::test]
async fn jobs_read_only_what_their_user_may() {
    let state = tempfile::tempdir().unwrap();
    let store = Metastore::open(state.path()).await.unwrap();
    let pace = RepairPace::default();
    let catalog = Catalog::open(store, Box::new(|_| "signed".to_string()), pace).await.unwrap();
    let disk = join(&catalog).await;
    let (a, b) = (put(&catalog, disk, "d/a").await, put(&catalog, disk, "b").await);
    let check = async |user: &str, spec: JobSpec| catalog.check_inputs(&asker(user), &[&spec]).await;
    let good = check("ann", spec("files:d/a@1", &[a], 5)).await.unwrap();
    assert!(matches!(
        check("bob", spec("files:d/a@1", &[a], 5)).await,
        Err(CatalogError::ContentsOfOther { .. })
    ));
    for (path, parts, size) in [
        ("files:d/a@1", vec![b], 5),
        ("files:d/a@1", vec![a, b], 10),
        ("files:d/a@1", vec![], 5),
        ("files:d/a@1", vec![a], 6),
        ("files:d/a", vec![a], 5),
        ("files:d@1", vec![a], 5),
    ] {
        let refused = check("ann", spec(path, &parts, size)).await;
        assert!(matches!(refused, Err(CatalogError::JobInput { .. })), "{path} {parts:?}: {refused:?}");
    }
    assert!(matches!(check("ann", spec("files:d/a@9", &[a], 5)).await, Err(CatalogError::NoSuchVersion(_))));
    assert!(matches!(check("ann", spec("files:x@1", &[a], 5)).await, Err(CatalogError::Missing(_))));
    assert!(matches!(check("ann", spec("/etc/passwd", &[a], 5)).await, Err(CatalogError::JobInput { .. })));
    // Nodes get rights for the parts of the job, and for no others.
    catalog.begins(JobId(4), &good);
    let ask = PartsOfJob { parts: vec![a.concrete, b.concrete] };
    let page = catalog.places_of_job(JobId(4), &ask).await.unwrap();
    assert_eq!(page.parts.iter().map(|part| part.file).collect::<Vec<_>>(), [a]);
    assert_eq!((page.nodes.len(), page.grants[0].first, page.grants[0].last), (1, a.concrete, a.concrete));
    assert_eq!(catalog.places_of_job(JobId(5), &ask).await.unwrap().parts, []);
}

#[tokio::test]
async fn places_of_inputs_are_told_again() {
    let state = tempfile::tempdir().unwrap();
    let open = async || {
        let store = Metastore::open(state.path()).await.unwrap();
        Catalog::open(store, Box::new(|_| "signed".to_string()), RepairPace::default()).await.unwrap()
    };
    let catalog = open().await;
    let disk = join(&catalog).await;
    let a = put(&catalog, disk, "a").await;
    let inputs = catalog.check_inputs(&asker("ann"), &[&spec("files:a@1", &[a], 5)]).await.unwrap();
    let places = ReplicaNodes::from([(a.concrete, vec![NodeId(1)])]);
    assert_eq!(catalog.nodes_of_inputs(&inputs).await.unwrap(), places);
    catalog.begins(JobId(4), &inputs);
    assert_eq!(catalog.moved_inputs().await.unwrap(), [(JobId(4), places.clone())]);
    assert_eq!(catalog.moved_inputs().await.unwrap(), []);
    // A restarted server has not heard from its nodes.
    let catalog = open().await;
    catalog.begins(JobId(4), &inputs);
    catalog.begins(JobId(5), &inputs);
    assert_eq!(catalog.moved_inputs().await.unwrap(), []);
    catalog.has_read(JobId(5));
    assert_eq!(join(&catalog).await, disk);
    assert_eq!(catalog.moved_inputs().await.unwrap(), [(JobId(4), places)]);
}

#[tokio::test]
async fn quota_ends_a_put_in_the_middle() {
    let state = tempfile::tempdir().unwrap();
    let store = Metastore::open(state.path()).await.unwrap();
    let pace = RepairPace::default();
    let catalog = Catalog::open(store, Box::new(|_| "signed".to_string()), pace).await.unwrap();
    let disk = join(&catalog).await;
    put(&catalog, disk, "a").await;
    let ann = |bytes_max| Asker { bytes_max: Some(bytes_max), ..asker("ann") };
    let begin = BeginStored { path: "b".to_string(), keep_versions: 1, ..BeginStored::default() };
    let of = catalog.begin(&ann(12), &begin).await.unwrap().of;
    let place = async |bytes_max, bytes| {
        catalog.place(&ann(bytes_max), &PlaceStored { of, bytes, avoid: Vec::new() }).await
    };
    place(12, 4).await.unwrap();
    assert!(matches!(place(12, 4).await, Err(CatalogError::OverQuota { stored: 5, bytes_max: 12, .. })));
    // Bytes on their way count until they are given up; those of others do not.
    assert!(place(12, 3).await.is_ok() && place(12, 1).await.is_err());
    catalog.abandon(&ann(12), of).await.unwrap();
    assert!(matches!(catalog.begin(&ann(4), &begin).await, Err(CatalogError::OverQuota { .. })));
    let bob = Asker { bytes_max: Some(4), ..asker("bob") };
    let begin = BeginStored { path: "of-bob".to_string(), ..begin };
    assert!(catalog.begin(&bob, &begin).await.is_ok());
}
