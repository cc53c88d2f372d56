//! A mount of the files of a machine, where this machine lets us.

use filemount::{Audience, MountPoint, mount};
use filestore::{FileStore, PutOptions, PutSource};
use filetransfer::{Links, RecordEnds, Watch};
use filetree::TreePath;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

const LARGE_BYTES: usize = 40 << 20;

struct World {
    dir: tempfile::TempDir,
    store: Arc<FileStore>,
    source: PathBuf,
    point: MountPoint,
    ended: std::sync::mpsc::Receiver<Result<(), filemount::MountError>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.point.unmount().unwrap();
        self.ended.recv().unwrap().unwrap();
    }
}

impl World {
    /// Returns None where nothing can be mounted.
    fn new() -> Option<World> {
        let dir = tempfile::tempdir().unwrap();
        let (source, at) = (dir.path().join("source"), dir.path().join("mounted"));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&at).unwrap();
        let store = Arc::new(FileStore::open(&dir.path().join("state"), "tester").unwrap());
        let point = MountPoint::check(&at).unwrap();
        let (sender, ended) = sync_channel(2);
        match mount(store.clone(), &point, Audience::Owner, sender) {
            Ok(()) => Some(World { dir, store, source, point, ended }),
            Err(error) => {
                println!("NOT RUN: mounts: {error}");
                None
            }
        }
    }

    fn put(&self, path: &Path, name: &str) {
        self.put_in_parts(path, name, path.is_file().then_some(3));
    }

    fn put_in_parts(&self, path: &Path, name: &str, parts: Option<u32>) {
        let options = PutOptions {
            parts,
            records: RecordEnds::Bytes,
            hash_by: None,
            links: Links::Refused,
            skip_unsuitable: false,
            keep_versions: 2,
            ttl: None,
            replicas: None,
            threads: 2,
        };
        let name = TreePath::parse(name).unwrap();
        let put = self.store.put(PutSource::Path(path), &name, &options, &Watch::default(), &mut |_| ());
        put.unwrap();
    }

    fn at(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }
}

fn numbers(bytes: usize) -> Vec<u8> {
    (0..bytes / 8).flat_map(|number| (number * 7919).to_le_bytes()).collect()
}

#[test]
fn mounted_files_are_those_of_the_store() {
    let Some(world) = World::new() else { return };
    let large = numbers(LARGE_BYTES);
    fs::write(world.source.join("large"), &large).unwrap();
    fs::write(world.source.join("new\nline"), "x").unwrap();
    fs::write(world.source.join("y".repeat(255)), "").unwrap();
    fs::create_dir(world.source.join("many")).unwrap();
    for number in 0..2500 {
        fs::write(world.source.join(format!("many/{number}")), format!("{number}")).unwrap();
    }
    world.put(&world.source, "data");
    world.put(&world.source.join("large"), "data/large");
    assert!(fs::read(world.at("data/large")).unwrap() == large);
    assert_eq!(fs::read(world.at("data/new\nline")).unwrap(), b"x");
    assert_eq!(fs::metadata(world.at("data").join("y".repeat(255))).unwrap().len(), 0);
    assert_eq!(fs::read_dir(world.at("data/many")).unwrap().count(), 2500);
    assert_eq!(fs::read(world.at("data/many/2499")).unwrap(), b"2499");
    let file = File::open(world.at("data/large")).unwrap();
    for offset in [LARGE_BYTES - 10, 0, 20_000_003, 13 << 20, 5] {
        let mut bytes = vec![0; 10];
        file.read_exact_at(&mut bytes, offset as u64).unwrap();
        assert_eq!(bytes, large[offset..offset + 10], "at {offset}");
    }
    assert_eq!(fs::write(world.at("data/other"), "").unwrap_err().raw_os_error(), Some(30));
    assert_eq!(fs::metadata(world.at("none")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn open_files_keep_their_content() {
    let Some(world) = World::new() else { return };
    let path = world.source.join("file");
    let older = numbers(3 << 20);
    fs::write(&path, &older).unwrap();
    world.put(&path, "file");
    let mut open = File::open(world.at("file")).unwrap();
    fs::write(&path, "newer").unwrap();
    world.put(&path, "file");
    // A path is looked up again after a second at the latest.
    while fs::metadata(world.at("file")).unwrap().size() != 5 {
        std::thread::yield_now();
    }
    assert_eq!(fs::read(world.at("file")).unwrap(), b"newer");
    let mut read = Vec::new();
    open.read_to_end(&mut read).unwrap();
    assert!(read == older);
    assert!(fs::read(world.at(".versions/1/file")).unwrap() == older);
    assert_eq!(fs::read(world.at(".versions/2/file")).unwrap(), b"newer");
    let names = |dir: &str| -> Vec<String> {
        let entries = fs::read_dir(world.at(dir)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(
        (names(""), names(".versions")),
        (vec![".versions".into(), "file".into()], vec!["1".into(), "2".into()])
    );
    assert!(!world.at(".versions/3").exists() && !world.at(".versions/01").exists());
}

/// The only file of more than a MiB below a directory.
fn disk_file(dir: &Path) -> PathBuf {
    let below = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let large = |path: &PathBuf| path.is_file() && path.metadata().unwrap().len() > 1 << 20;
    let paths: Vec<PathBuf> = below.collect();
    let found = paths.iter().find(|path| large(path)).cloned();
    found.or_else(|| paths.iter().filter(|path| path.is_dir()).map(|dir| disk_file(dir)).next()).unwrap()
}

#[test]
fn kernel_reads_verified_files_itself() {
    let Some(world) = World::new() else { return };
    let path = world.source.join("file");
    let expected = numbers(5 << 20);
    fs::write(&path, &expected).unwrap();
    world.put_in_parts(&path, "file", None);
    let number = || fs::metadata(world.at("file")).unwrap().ino();
    let first = number();
    // A part of it is not enough, and neither is a file that was only opened.
    let file = File::open(world.at("file")).unwrap();
    file.read_exact_at(&mut [0; 1000], 4 << 20).unwrap();
    drop(file);
    assert_eq!(number(), first);
    let opened = File::open(world.at("file")).unwrap();
    assert!(fs::read(world.at("file")).unwrap() == expected);
    if !rustix::process::geteuid().is_root() {
        println!("NOT RUN: the kernel reads files itself only where root mounts them");
        return;
    }
    while number() == first {
        std::thread::yield_now();
    }
    let mut of_kernel = File::open(world.at("file")).unwrap();
    let mut read = Vec::new();
    of_kernel.read_to_end(&mut read).unwrap();
    assert!(read == expected);
    // An older handle goes on as it was.
    let mut read = vec![0; 1000];
    opened.read_exact_at(&mut read, 77).unwrap();
    assert!(read == expected[77..1077]);
    drop(of_kernel);
    // Somebody writes to the disk file: its bytes are not believed any more.
    let damaged = disk_file(&world.dir.path().join("state/files/data"));
    File::options().write(true).open(&damaged).unwrap().write_all_at(b"x", 3 << 20).unwrap();
    let again = fs::read(world.at("file"));
    assert_eq!(again.map(|bytes| bytes.len()).unwrap_err().raw_os_error(), Some(5));
}
