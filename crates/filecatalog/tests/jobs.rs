//! Stored inputs of jobs: only files that exist, with their own parts, for a user who may read them.

use api::data_access::SecretText;
use api::stored::cluster::{
    BeginStored, CommitOutput, CommitStored, CommitsOfStored, FAILED_SOURCES_MAX, FindStored, ListStored,
    MakerOfParts, NumberStored, OutputPartStored, PartsOfJob, PlaceOutput, PlaceStored, RecordStored,
    RecordedFile, RecordedPart, StoredChange, StoredDiskNews, StoredGroup, StoredNews,
};
use api::stored::{MakingJob, PINNED_FILES_MAX};
use api::task::RunTask;
use api::{InputFile, JobSpec, PinnedFile, StoredContent, StoredPart};
use filecatalog::{Asker, Catalog, CatalogError, JobInputs, RepairPace, ReplicaNodes, ReportingNode};
use filetree::{Changer, TreeError};
use ids::{ConcreteId, ContentId, DiskId, JobId, NodeId};
use metastore::{Change, Metastore, Role};

fn asker(user: &str) -> Asker {
    Asker { user: user.to_string(), changer: Changer::User(user.to_string()), bytes_max: None }
}

/// Makes a node with a disk known. Returns the disk.
async fn join(catalog: &Catalog) -> DiskId {
    join_as(catalog, 1, "r").await
}

async fn join_as(catalog: &Catalog, number: u32, rack: &str) -> DiskId {
    let news = StoredNews {
        disks: vec![StoredDiskNews {
            uuid: format!("disk {number}"),
            secret: SecretText("secret".to_string()),
            is_empty: true,
            total_bytes: 1 << 30,
            free_bytes: 1 << 30,
            room_bytes: 1 << 30,
            takes_files: true,
        }],
        ..StoredNews::default()
    };
    let (node, name) = (NodeId(number), format!("n{number}"));
    let from = ReportingNode { node, name, rack: rack.to_string() };
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
        hashed: None,
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
        stored: Some(StoredContent { parts: parts.to_vec() }),
        ..InputFile::default()
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
    let ask = PartsOfJob { parts: vec![a.concrete, b.concrete], ..PartsOfJob::default() };
    let page = catalog.places_of_job(JobId(4), NodeId(1), &ask).await.unwrap();
    assert_eq!(page.parts.iter().map(|part| part.file).collect::<Vec<_>>(), [a]);
    assert_eq!((page.nodes.len(), page.grants[0].first, page.grants[0].last), (1, a.concrete, a.concrete));
    assert_eq!(catalog.places_of_job(JobId(5), NodeId(1), &ask).await.unwrap().parts, []);
    check_programs(&catalog, a, b).await;
}

/// The same for files that programs open: `d/a` and `b` with their parts.
async fn check_programs(catalog: &Catalog, a: StoredPart, b: StoredPart) {
    let pinned = |path: &str, part| PinnedFile {
        path: path.into(),
        stored: StoredContent { parts: vec![part] },
        ..PinnedFile::default()
    };
    let of_task = |pinned| {
        let task = RunTask { pinned, ..RunTask::default() };
        JobSpec::of_one_task("a job".to_string(), task)
    };
    let check = async |user: &str, spec: JobSpec| catalog.check_inputs(&asker(user), &[&spec]).await;
    for good in [
        JobSpec { pinned: vec![pinned("files:b@2", b)], ..JobSpec::named("a job") },
        of_task(vec![pinned("files:b@2", b)]),
    ] {
        assert!(matches!(check("bob", good.clone()).await, Err(CatalogError::ContentsOfOther { .. })));
        let checked = check("ann", good).await.unwrap();
        // Steps that read them run there; splits of maps do not name them.
        let nodes = ReplicaNodes::from([(b.concrete, vec![NodeId(1)])]);
        assert_eq!(catalog.nodes_of_inputs(&checked).await.unwrap(), nodes);
        catalog.begins(JobId(6), &checked);
        let ask = PartsOfJob { parts: vec![a.concrete, b.concrete], ..PartsOfJob::default() };
        let page = catalog.places_of_job(JobId(6), NodeId(1), &ask).await.unwrap();
        assert_eq!(page.parts.iter().map(|part| part.file).collect::<Vec<_>>(), [b]);
    }
    for (path, part) in [("files:b@2", a), ("files:b", b), ("files:d@2", b)] {
        let refused = check("ann", of_task(vec![pinned(path, part)])).await;
        assert!(matches!(refused, Err(CatalogError::JobInput { .. })), "{path}: {refused:?}");
    }
    let many = check("ann", of_task(vec![pinned("files:b@2", b); PINNED_FILES_MAX + 1])).await;
    assert!(matches!(many, Err(CatalogError::Limit { .. })), "{many:?}");
}

#[tokio::test]
async fn copies_have_sources_in_a_tree() {
    let state = tempfile::tempdir().unwrap();
    let store = Metastore::open(state.path()).await.unwrap();
    let catalog =
        Catalog::open(store, Box::new(|_| "signed".to_string()), RepairPace::default()).await.unwrap();
    let disk = join(&catalog).await;
    for node in 2..=5 {
        join_as(&catalog, node, if node < 5 { "r" } else { "other" }).await;
    }
    let part = put(&catalog, disk, "a").await;
    let inputs = catalog.check_inputs(&asker("ann"), &[&spec("files:a@1", &[part], 5)]).await.unwrap();
    catalog.begins(JobId(4), &inputs);
    let ask = async |job: i64, node: u32, copies: bool, failed: &[u32]| {
        let failed = failed.iter().copied().map(NodeId).collect();
        let ask = PartsOfJob { parts: vec![part.concrete], copies, failed };
        let page = catalog.places_of_job(JobId(job), NodeId(node), &ask).await.unwrap();
        page.sources.first().map(|source| (source.node.0, source.has_copy))
    };
    // Those who read a part in place, and jobs that do not have it, are in no tree.
    assert_eq!((ask(4, 2, false, &[]).await, ask(5, 2, true, &[]).await), (None, None));
    assert_eq!(ask(4, 2, true, &[]).await, Some((1, false)));
    // The replica keeps its other place for its rack.
    assert_eq!(ask(4, 5, true, &[]).await, Some((2, true)));
    assert_eq!(ask(4, 3, true, &[]).await, Some((1, false)));
    assert_eq!(ask(4, 3, true, &[1]).await, Some((2, true)));
    assert_eq!(ask(4, 4, true, &[]).await, Some((3, true)));
    // A node without a disk in reach reads replicas.
    assert_eq!(ask(4, 9, true, &[]).await, None);
    let many = PartsOfJob { failed: vec![NodeId(1); FAILED_SOURCES_MAX + 1], ..PartsOfJob::default() };
    let refused = catalog.places_of_job(JobId(4), NodeId(2), &many).await;
    assert!(matches!(refused, Err(CatalogError::Limit { .. })), "{refused:?}");
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

/// Stores the output of a job of ann's, of one part. Returns the part.
async fn store_output(catalog: &Catalog, disk: DiskId, job: JobId) -> StoredPart {
    let spec = JobSpec { output: "files:made".into(), ..JobSpec::named("counts") };
    let of = catalog.begin_output(&asker("ann"), &spec).await.unwrap().of;
    let place = PlaceOutput { of, bytes: 5, ..PlaceOutput::default() };
    let concrete = catalog.place_output(job, &place).await.unwrap().range.unwrap().first;
    let file = StoredPart { concrete, bytes: 5, crc32c: 7 };
    let stored = Some(RecordedPart { file, disks: vec![disk] });
    let parts = vec![OutputPartStored { name: "part-00000".to_string(), stored }];
    catalog.commit_output(job, &CommitOutput { of, parts }).await.unwrap();
    file
}

#[tokio::test]
async fn jobs_without_stored_files_are_not_remembered() {
    let state = tempfile::tempdir().unwrap();
    let store = Metastore::open(state.path()).await.unwrap();
    let pace = RepairPace::default();
    let catalog = Catalog::open(store, Box::new(|_| "signed".to_string()), pace).await.unwrap();
    let plain = JobSpec::named("plain");
    // The port keeps the inputs of a job unless they are these.
    assert_eq!(catalog.check_inputs(&asker("ann"), &[&plain]).await.unwrap(), JobInputs::default());
}

#[tokio::test]
async fn lost_files_name_the_job_of_theirs() {
    let state = tempfile::tempdir().unwrap();
    let open = async || {
        let store = Metastore::open(state.path()).await.unwrap();
        Catalog::open(store, Box::new(|_| "signed".to_string()), RepairPace::default()).await.unwrap()
    };
    let catalog = open().await;
    let disk = join(&catalog).await;
    let part = store_output(&catalog, disk, JobId(17)).await;
    put(&catalog, disk, "other").await;
    let (ann, job) = (asker("ann"), MakingJob { job: JobId(17), name: "counts".to_string() });
    let found = async |catalog: &Catalog, path: &str| {
        let find = FindStored { path: path.to_string(), maker: true, ..FindStored::default() };
        catalog.find(&ann, &find).await.unwrap().job
    };
    assert_eq!([found(&catalog, "made").await, found(&catalog, "other").await], [Some(job.clone()), None]);
    let commits = CommitsOfStored { path: String::new(), limit: 9 };
    let commits = catalog.commits(&ann, &commits).await.unwrap().commits;
    assert_eq!(commits.into_iter().map(|commit| commit.job).collect::<Vec<_>>(), [None, Some(job.clone())]);
    let inputs = catalog.check_inputs(&ann, &[&spec("files:made@1", &[part], 5)]).await.unwrap();
    let makers = async |catalog: &Catalog| {
        catalog.begins(JobId(4), &inputs);
        let ask = PartsOfJob { parts: vec![part.concrete], ..PartsOfJob::default() };
        catalog.places_of_job(JobId(4), NodeId(1), &ask).await.unwrap().makers
    };
    assert_eq!(makers(&catalog).await, [], "its node is there");
    // A restarted server has not heard from its nodes.
    let named = [MakerOfParts { put: part.concrete.put(), job: job.clone() }];
    assert_eq!(makers(&open().await).await, named);
    // On a private server the job that reads is not known to be one of ann's.
    let private = open().await.kept_private();
    assert_eq!((makers(&private).await, found(&private, "made").await), (Vec::new(), Some(job)));
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

/// Returns the refusal of a user who lists a directory with rights to its contents; None if the user may.
async fn refusal(catalog: &Catalog, user: &str, name: &str) -> Option<String> {
    let find = FindStored { path: name.to_string(), ..FindStored::default() };
    let entry = catalog.find(&asker("ann"), &find).await.unwrap().entry.unwrap();
    let list = ListStored {
        directory: entry.directory,
        only: Some(entry.name),
        limit: 1,
        parts: true,
        ..ListStored::default()
    };
    catalog.list(&asker(user), &list).await.err().map(|error| {
        assert!(error.is_forbidden(), "{error}");
        error.to_string()
    })
}

#[tokio::test]
async fn groups_open_contents_until_they_are_left() {
    let state = tempfile::tempdir().unwrap();
    let store = Metastore::open(state.path()).await.unwrap();
    let user = |name: &str| Change::UserAdded { name: name.to_string(), role: Role::User, now_ns: 1 };
    store.apply(&[user("ann"), user("bob")]).await.unwrap();
    let catalog =
        Catalog::open(store, Box::new(|_| "signed".to_string()), RepairPace::default()).await.unwrap();
    let disk = join(&catalog).await;
    let part = put(&catalog, disk, "d/in/a").await;
    let job = spec("files:d/in/a@1", &[part], 5);
    let may_read = async |expected: bool| {
        assert_eq!(refusal(&catalog, "bob", "d/in/a").await.is_none(), expected);
        assert_eq!(catalog.check_inputs(&asker("bob"), &[&job]).await.is_ok(), expected);
    };
    let chmod = async |asker: &Asker, path: &str, [read, write]: [StoredGroup; 2], recursive: bool| {
        let path = path.to_string();
        catalog.change(asker, &StoredChange::SetGroups { path, read, write, recursive }).await
    };
    let team = || StoredGroup::Group("team".to_string());
    let kept = || StoredGroup::Kept;

    may_read(false).await;
    let ann = asker("ann");
    let unknown = chmod(&ann, "d", [team(), kept()], false).await;
    assert!(matches!(unknown, Err(CatalogError::Tree(TreeError::NoSuchGroup(_)))), "{unknown:?}");
    catalog.create_group("team").await.unwrap();
    catalog.add_to_group("team", "bob").await.unwrap();
    let of_other = chmod(&asker("bob"), "d", [team(), kept()], false).await;
    assert!(of_other.is_err_and(|error| error.is_forbidden()));
    // The group of a directory above counts, for each kept version.
    chmod(&ann, "d", [team(), kept()], false).await.unwrap();
    may_read(true).await;
    assert_eq!(catalog.groups(&asker("bob")).await.unwrap().groups.len(), 1);
    assert_eq!(catalog.groups(&ann).await.unwrap().groups, []);
    catalog.remove_from_group("team", "bob").await.unwrap();
    may_read(false).await;
    catalog.add_to_group("team", "bob").await.unwrap();
    // A nearer one replaces it.
    catalog.create_group("few").await.unwrap();
    let few = StoredGroup::Group("few".to_string());
    chmod(&ann, "d/in", [few, kept()], false).await.unwrap();
    may_read(false).await;
    chmod(&ann, "d", [team(), kept()], true).await.unwrap();
    may_read(true).await;
    // Writers change names; readers do not.
    let remove = StoredChange::Remove { path: "d/in/a".to_string(), recursive: false };
    assert!(catalog.change(&asker("bob"), &remove).await.is_err_and(|error| error.is_forbidden()));
    chmod(&ann, "d", [StoredGroup::Inherited, team()], false).await.unwrap();
    may_read(true).await;
    // A group that was deleted opens nothing, and its name stays taken.
    catalog.delete_group("team").await.unwrap();
    may_read(false).await;
    assert!(matches!(catalog.create_group("team").await, Err(CatalogError::Group(_))));
    chmod(&ann, "d", [kept(), StoredGroup::Inherited], false).await.unwrap();
    catalog.create_group("team").await.unwrap();
    catalog.add_to_group("team", "bob").await.unwrap();
    chmod(&ann, "d", [kept(), team()], false).await.unwrap();
    catalog.change(&asker("bob"), &remove).await.unwrap();
    give_to_bob(&catalog, "d").await;
}

/// Gives a directory with everything below it another owner, as only an administrator may.
async fn give_to_bob(catalog: &Catalog, name: &str) {
    let admin = Asker { user: "root".to_string(), changer: Changer::Anybody, bytes_max: None };
    let ann = asker("ann");
    let chown = |path: &str| StoredChange::SetOwner {
        path: path.to_string(),
        user: "bob".to_string(),
        recursive: true,
    };
    assert!(catalog.change(&ann, &chown(name)).await.is_err_and(|error| error.is_forbidden()));
    catalog.change(&admin, &chown(name)).await.unwrap();
    for name in ["d", "d/in"] {
        let find = FindStored { path: name.to_string(), ..FindStored::default() };
        assert_eq!(catalog.find(&asker("ann"), &find).await.unwrap().entry.unwrap().user, "bob");
    }
}
