//! Random commands on a store and on a model, a map from whole names to contents: the trees are equal after each
//! command, refused commands change nothing, names whose time is over go before the next command, and the disk has what
//! the names need and no more.

use filestore::{FileStore, FilesError, PutOptions, PutSource, TreeChange};
use filetransfer::{Links, RecordEnds, Target, Watch};
use filetree::{Parents, Recursion, TreeError, TreeName, TreePath};
use ids::FileVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// The model: directories have no content.
type Model = BTreeMap<String, Option<String>>;

const STEPS: usize = 120;
/// A time to live that is over at once.
const SHORT: Duration = Duration::from_nanos(1);

fn options(keep_versions: u32) -> PutOptions {
    PutOptions {
        parts: Some(2),
        records: RecordEnds::Bytes,
        hash_by: None,
        links: Links::Refused,
        skip_unsuitable: false,
        keep_versions,
        ttl: None,
        replicas: None,
        threads: 2,
    }
}

fn path(name: &str) -> TreePath {
    TreePath::parse(name).unwrap()
}

/// Reads a whole tree with `list` and `cat`.
fn tree(store: &FileStore, at: Option<FileVersion>) -> Model {
    tree_and_expiring(store, at).0
}

/// Reads a whole tree, and the names that have a time to live.
fn tree_and_expiring(store: &FileStore, at: Option<FileVersion>) -> (Model, BTreeSet<String>) {
    let mut entries = Vec::new();
    let root = TreeName { path: TreePath::default(), version: at };
    store
        .walk(&root, &mut |entry| {
            entries.push(entry);
            Ok(())
        })
        .unwrap();
    let (mut model, mut expiring) = (Model::new(), BTreeSet::new());
    for entry in entries {
        if entry.row.as_ref().unwrap().expires_ns.is_some() {
            expiring.insert(entry.name.clone());
        }
        let is_file = matches!(entry.row.as_ref().unwrap().item, rows::FileItem::File(_));
        let content = is_file.then(|| {
            let mut bytes = Vec::new();
            store.cat(&TreeName { path: path(&entry.name), version: at }, 0, u64::MAX, &mut bytes).unwrap();
            String::from_utf8(bytes).unwrap()
        });
        model.insert(entry.name, content);
    }
    (model, expiring)
}

/// Times to live in the model: names whose time is over before the next command, and names that stay for an hour.
#[derive(Clone, Debug, Default)]
struct Lives {
    over: BTreeSet<String>,
    long: BTreeSet<String>,
}

impl Lives {
    fn all(&self) -> BTreeSet<String> {
        self.over.union(&self.long).cloned().collect()
    }

    /// Removes names whose time is over, with everything below them.
    fn expire(&mut self, model: &mut Model) {
        for name in std::mem::take(&mut self.over) {
            self.forget(&name);
            model.retain(|each, _| !is_at_or_below(each, &name));
        }
    }

    fn forget(&mut self, name: &str) {
        self.over.retain(|each| !is_at_or_below(each, name));
        self.long.retain(|each| !is_at_or_below(each, name));
    }

    /// Follows a put that was done.
    fn put(&mut self, name: &str, ttl: Option<Duration>) {
        self.forget(name);
        match ttl {
            Some(SHORT) => drop(self.over.insert(name.to_string())),
            Some(_) => drop(self.long.insert(name.to_string())),
            None => {}
        }
    }

    /// Follows a change that was done: times move with their names, and are not copied.
    fn change(&mut self, change: &TreeChange) {
        match change {
            TreeChange::MakeDirectory { .. } | TreeChange::SetGroups { .. } | TreeChange::SetOwner { .. } => {
            }
            TreeChange::Remove { path, .. } => self.forget(&path.to_string()),
            TreeChange::Copy { to, .. } => self.forget(&to.to_string()),
            TreeChange::Rename { from, to } if from == to => {}
            TreeChange::Rename { from, to } => {
                let (from, to) = (from.to_string(), to.to_string());
                let moved: Vec<String> =
                    self.long.iter().filter(|name| is_at_or_below(name, &from)).cloned().collect();
                self.forget(&from);
                self.forget(&to);
                self.long.extend(moved.into_iter().map(|name| format!("{to}{}", &name[from.len()..])));
            }
        }
    }
}

fn is_at_or_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(above, _)| above)
}

fn below<'a>(model: &'a Model, name: &str) -> Vec<(&'a String, &'a Option<String>)> {
    let prefix = format!("{name}/");
    model.iter().filter(|(each, _)| each.starts_with(&prefix)).collect()
}

fn is_directory(model: &Model, name: &str) -> bool {
    name.is_empty() || model.get(name) == Some(&None)
}

/// Adds the directories above a name; false if a file is in the way.
fn make_above(model: &mut Model, name: &str) -> bool {
    let mut missing = Vec::new();
    let mut above = parent(name);
    while !above.is_empty() {
        match model.get(above) {
            Some(Some(_)) => return false,
            Some(None) => {}
            None => missing.push(above.to_string()),
        }
        above = parent(above);
    }
    model.extend(missing.into_iter().map(|name| (name, None)));
    true
}

/// Does a command on the model; false if it is refused.
fn model_put(model: &mut Model, name: &str, files: &Model, is_directory_put: bool) -> bool {
    if is_directory_put == matches!(model.get(name), Some(Some(_))) && model.contains_key(name) {
        return false;
    }
    if !make_above(model, name) {
        return false;
    }
    let old: Vec<String> = below(model, name).into_iter().map(|(name, _)| name.clone()).collect();
    old.iter().for_each(|name| drop(model.remove(name)));
    for (each, content) in files {
        let whole = if each.is_empty() { name.to_string() } else { format!("{name}/{each}") };
        model.insert(whole, content.clone());
    }
    true
}

fn model_change(model: &mut Model, change: &TreeChange) -> bool {
    match change {
        TreeChange::MakeDirectory { path, parents } => {
            let name = path.to_string();
            match (model.get(&name), parents) {
                (Some(None), Parents::Made) => return true,
                (Some(_), _) => return false,
                (None, Parents::Required) if !is_directory(model, parent(&name)) => return false,
                _ => {}
            }
            let made = make_above(model, &name);
            if made {
                model.insert(name, None);
            }
            made
        }
        TreeChange::Remove { path, recursive } => {
            let name = path.to_string();
            let entries: Vec<String> =
                below(model, &name).into_iter().map(|(name, _)| name.clone()).collect();
            if !model.contains_key(&name) || *recursive == Recursion::No && !entries.is_empty() {
                return false;
            }
            entries.iter().chain([&name]).for_each(|name| drop(model.remove(name)));
            true
        }
        TreeChange::Rename { from, to } | TreeChange::Copy { from, to } => {
            let (from, to) = (from.to_string(), to.to_string());
            let moves = matches!(change, TreeChange::Rename { .. });
            let into_itself = to.starts_with(&format!("{from}/"));
            if into_itself || !model.contains_key(&from) {
                return false;
            }
            if from == to {
                return moves || !is_directory(model, &from);
            }
            let both_files = matches!((&model[&from], model.get(&to)), (Some(_), Some(Some(_))));
            if !is_directory(model, parent(&to)) || model.contains_key(&to) && !both_files {
                return false;
            }
            let entries: Vec<(String, Option<String>)> = below(model, &from)
                .into_iter()
                .map(|(name, content)| (name.clone(), content.clone()))
                .collect();
            let top = model[&from].clone();
            for (name, content) in entries {
                model.insert(format!("{to}{}", &name[from.len()..]), content);
                if moves {
                    model.remove(&name);
                }
            }
            model.insert(to, top);
            if moves {
                model.remove(&from);
            }
            true
        }
        // One machine has no users.
        TreeChange::SetGroups { .. } | TreeChange::SetOwner { .. } => false,
    }
}

fn random_name(random: &mut fastrand::Rng) -> String {
    let depth = random.usize(1..4);
    (0..depth).map(|_| random.choice(["a", "b c", "ö"]).unwrap()).collect::<Vec<_>>().join("/")
}

fn random_change(random: &mut fastrand::Rng) -> TreeChange {
    let (one, other) = (path(&random_name(random)), path(&random_name(random)));
    match random.u8(0..4) {
        0 => {
            let parents = if random.bool() { Parents::Made } else { Parents::Required };
            TreeChange::MakeDirectory { path: one, parents }
        }
        1 => {
            let recursive = if random.bool() { Recursion::Yes } else { Recursion::No };
            TreeChange::Remove { path: one, recursive }
        }
        2 => TreeChange::Rename { from: one, to: other },
        _ => TreeChange::Copy { from: one, to: other },
    }
}

/// Writes a random source. Returns its files by name; the name of a single file is empty.
fn random_source(random: &mut fastrand::Rng, dir: &Path) -> Model {
    let _ = std::fs::remove_dir_all(dir);
    let _ = std::fs::remove_file(dir);
    let text = |random: &mut fastrand::Rng| "x".repeat(random.usize(0..5)) + &random.u32(..).to_string();
    let mut model = Model::new();
    if random.bool() {
        model.insert(String::new(), Some(text(random)));
        std::fs::write(dir, model[""].as_ref().unwrap()).unwrap();
        return model;
    }
    std::fs::create_dir(dir).unwrap();
    model.insert(String::new(), None);
    for name in ["a", "d/b c", "d/e/f"] {
        if random.bool() {
            assert!(make_above(&mut model, name));
            model.insert(name.to_string(), Some(text(random)));
        }
    }
    for (name, content) in model.iter().filter(|(name, _)| !name.is_empty()) {
        match content {
            None => std::fs::create_dir_all(dir.join(name)).unwrap(),
            Some(text) => {
                std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
                std::fs::write(dir.join(name), text).unwrap();
            }
        }
    }
    model
}

fn is_refusal(error: &FilesError) -> bool {
    matches!(error, FilesError::Tree(_))
}

fn random_commands(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(&dir.path().join("state"), "ann").unwrap();
    let source = dir.path().join("source");
    let (mut model, mut lives) = (Model::new(), Lives::default());
    // Where older versions are kept, their files are left in the end.
    let versions_max = 1 + (seed % 2) as u32;
    for step in 0..STEPS {
        lives.expire(&mut model);
        let before = (model.clone(), lives.clone());
        let (accepted, done) = if random.u8(0..3) == 0 {
            let name = random_name(&mut random);
            let files = random_source(&mut random, &source);
            let accepted = model_put(&mut model, &name, &files, files[""].is_none());
            let ttl = random.choice([None, None, Some(SHORT), Some(Duration::from_secs(3600))]).unwrap();
            lives.put(&name, ttl);
            let put = store.put(
                PutSource::Path(&source),
                &path(&name),
                &PutOptions { ttl, ..options(random.u32(1..=versions_max)) },
                &Watch::default(),
                &mut |_| {},
            );
            (accepted, put.map(drop))
        } else {
            let change = random_change(&mut random);
            let accepted = model_change(&mut model, &change);
            lives.change(&change);
            (accepted, store.change(&change).map(drop))
        };
        match &done {
            Ok(()) => assert!(accepted, "seed {seed}, step {step}: it was not refused"),
            Err(error) => {
                assert!(!accepted && is_refusal(error), "seed {seed}, step {step}: {error}");
                (model, lives) = before;
            }
        }
        let expected = (model.clone(), lives.all());
        assert_eq!(tree_and_expiring(&store, None), expected, "seed {seed}, step {step}");
    }
    let checked = store.check(&TreeName::default()).unwrap();
    assert_eq!(checked.problems, [], "seed {seed}");
    lives.expire(&mut model);
    if versions_max > 1 {
        return;
    }
    for name in model.keys().filter(|name| !name.contains('/')) {
        store.change(&TreeChange::Remove { path: path(name), recursive: Recursion::Yes }).unwrap();
    }
    assert_eq!(walk_files(&dir.path().join("state/files/data")), 0, "seed {seed}");
}

fn walk_files(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => walk_files(&entry.path()),
            false => usize::from(entry.file_name() != "lock"),
        })
        .sum()
}

#[test]
fn tree_is_that_of_the_model() {
    (0..12).for_each(random_commands);
}

#[test]
fn older_versions_stay_while_they_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(&dir.path().join("state"), "ann").unwrap();
    let source = dir.path().join("source");
    let put = |text: &str, keep: u32| {
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("f"), text).unwrap();
        let name = path("d");
        let put = PutSource::Path(&source);
        store.put(put, &name, &options(keep), &Watch::default(), &mut |_| {}).unwrap().version
    };
    let read = |version| {
        let name = TreeName { path: path("d/f"), version: Some(version) };
        let mut bytes = Vec::new();
        store.cat(&name, 0, u64::MAX, &mut bytes).map(|()| String::from_utf8(bytes).unwrap())
    };
    let versions = [put("one", 3), put("two", 3), put("three", 3), put("four", 3)];
    assert!(matches!(read(versions[0]), Err(FilesError::Missing(_))));
    for (version, text) in versions.iter().zip(["", "two", "three", "four"]).skip(1) {
        assert_eq!(read(*version).unwrap(), text);
    }
    assert!(matches!(read(FileVersion(99)), Err(FilesError::NoSuchVersion(_))));
    // A reader keeps its version, however many come after it.
    let pin = store.pin(Some(versions[1])).unwrap();
    put("five", 1);
    assert_eq!(read(versions[1]).unwrap(), "two");
    drop(pin);
    put("six", 1);
    assert!(matches!(read(versions[1]), Err(FilesError::Missing(_))));
    assert_eq!(walk_files(&dir.path().join("state/files/data")), 2, "the two parts of the last version");
    let commits = store.versions(&path("d"), 10).unwrap();
    assert_eq!(commits.len(), 6);
    assert!(commits.iter().all(|commit| commit.verb == "put" && commit.path == "d" && commit.files == 1));
}

#[test]
fn get_returns_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(&dir.path().join("state"), "ann").unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("deep/er")).unwrap();
    let bytes: Vec<u8> =
        (0..3_000_000_u32).map(|place| (place.wrapping_mul(747_796_405) >> 11) as u8).collect();
    std::fs::write(source.join("large"), &bytes).unwrap();
    std::fs::write(source.join("deep/empty"), "").unwrap();
    std::fs::write(source.join("deep/er/small"), "small").unwrap();
    let options = PutOptions { parts: Some(7), ..options(1) };
    store.put(PutSource::Path(&source), &path("d"), &options, &Watch::default(), &mut |_| {}).unwrap();
    let name = TreeName { path: path("d"), version: None };
    let target = Target { path: dir.path().join("out"), overwrite: false };
    let got = store.get(&name, &target, 3, &Watch::default()).unwrap();
    assert_eq!(got, [3, 3_000_005]);
    assert!(std::fs::read(target.path.join("large")).unwrap() == bytes);
    assert_eq!(std::fs::read(target.path.join("deep/er/small")).unwrap(), b"small");
    assert_eq!(std::fs::read(target.path.join("deep/empty")).unwrap(), b"");
    let large = TreeName { path: path("d/large"), version: None };
    for (offset, count) in
        [(0, 0), (0, 1), (428_571, 2), (1_000_000, 1_500_000), (2_999_999, 9), (3_000_000, 1)]
    {
        let mut read = Vec::new();
        store.cat(&large, offset, count, &mut read).unwrap();
        let end = (offset + count).min(3_000_000) as usize;
        assert!(read == bytes[offset as usize..end], "{count} bytes from {offset}");
    }
    // Nothing is replaced, and nothing is left beside it.
    assert!(store.get(&name, &target, 3, &Watch::default()).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    assert!(matches!(
        store.change(&TreeChange::Rename { from: path("d"), to: path("d/x") }),
        Err(FilesError::Tree(TreeError::IntoItself { .. }))
    ));
}

#[test]
fn names_go_when_their_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let open = |user| FileStore::open(&state, user).unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("f"), "text").unwrap();
    let put = |store: &FileStore, name: &str, keep_versions, ttl| {
        let options = PutOptions { ttl, ..options(keep_versions) };
        store.put(PutSource::Path(&source), &path(name), &options, &Watch::default(), &mut |_| {})
    };
    let store = open("ann");
    for wrong in [Duration::ZERO, Duration::MAX] {
        let refused = put(&store, "a", 1, Some(wrong)).unwrap_err();
        assert!(matches!(refused, FilesError::Ttl(_)) && refused.is_of_the_user(), "{refused}");
    }
    put(&store, "above/goes", 1, Some(SHORT)).unwrap();
    // A reader keeps its version.
    let pin = store.pin(None).unwrap();
    let other = open("bob");
    assert_eq!(tree(&other, None).keys().collect::<Vec<_>>(), ["above"]);
    assert_eq!(tree(&other, Some(pin.version)).len(), 3);
    let last = other.versions(&path("above"), 1).unwrap().remove(0);
    assert_eq!((last.verb.as_str(), last.path.as_str()), ("expire", "above/goes"));
    // The user of the change is the owner, whoever found it.
    assert_eq!((last.user.as_str(), last.files), ("ann", 0));
    drop(pin);
    // Older versions stay as they do after `rm`: one less than the name keeps.
    let older = put(&store, "kept", 2, None).unwrap().version;
    let last = put(&store, "kept", 2, Some(SHORT)).unwrap().version;
    let store = open("ann");
    assert_eq!(tree(&store, None).keys().collect::<Vec<_>>(), ["above"]);
    let has = |version| tree(&store, Some(version)).contains_key("kept/f");
    assert_eq!([has(older), has(last)], [false, true]);
    // A name below an older version of a directory goes with that.
    put(&store, "old", 2, None).unwrap();
    let version = put(&store, "old/below", 1, Some(Duration::from_secs(1))).unwrap().version;
    put(&store, "old", 2, None).unwrap();
    while rows_of(&store, "old/below", version).is_some_and(|row| row.expires_ns.is_some()) {
        drop(open("ann"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(rows_of(&store, "old/below", version).is_some());
    assert_eq!(store.versions(&path("old/below"), 10).unwrap().len(), 1, "it did not expire");
}

fn rows_of(store: &FileStore, name: &str, version: FileVersion) -> Option<rows::FileNameRow> {
    store.entry(&TreeName { path: path(name), version: Some(version) }).unwrap().row
}
