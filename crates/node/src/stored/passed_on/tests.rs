use super::{PassedCopies, Passing};
use api::StoredPart;
use concretefile::{BLOCK_BYTES, BlockSums};
use dataport::{PassError, PassedPart as _};
use ids::ConcreteId;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::spawn;
use std::time::Duration;
use tempfile::TempDir;

const BLOCK: usize = BLOCK_BYTES as usize;
const LONG: Duration = Duration::from_secs(1000);
/// Bytes before the part in its file.
const BEFORE: &[u8] = b"the part before";

/// A copy in the making, of two blocks and a half.
struct Making {
    copies: Arc<PassedCopies>,
    bytes: Vec<u8>,
    part: StoredPart,
    path: PathBuf,
    file: File,
    _dir: TempDir,
}

impl Making {
    fn new(patience: Duration) -> Self {
        let bytes: Vec<u8> = (0..BLOCK * 5 / 2).map(|place| (place / 7) as u8).collect();
        let (bytes_count, crc32c) = (bytes.len() as u64, crc32c::crc32c(&bytes));
        let part = StoredPart { concrete: ConcreteId(7), bytes: bytes_count, crc32c };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copy");
        let mut file = File::create(&path).unwrap();
        file.write_all(BEFORE).unwrap();
        let copies = Arc::new(PassedCopies::patient_for(patience));
        Self { copies, bytes, part, path, file, _dir: dir }
    }

    fn begin(&self) -> Passing {
        self.copies.begin(self.part, &self.path, BEFORE.len() as u64).unwrap()
    }

    fn sums(&self) -> BlockSums {
        BlockSums::new(self.bytes.chunks(BLOCK).map(crc32c::crc32c).collect())
    }

    fn write(&mut self, passing: &Passing, from: usize, to: usize) {
        self.file.write_all(&self.bytes[from..to]).unwrap();
        passing.copy().has_written(to - from);
    }
}

#[test]
fn blocks_pass_while_others_come() {
    let mut making = Making::new(LONG);
    let passing = making.begin();
    let mut reader = making.copies.open(making.part).unwrap();
    let (sums, bytes) = (making.sums(), making.bytes.clone());
    let reading = spawn(move || (reader.sums().cloned().unwrap(), reader));
    passing.copy().knows_sums(&sums);
    let (known, mut reader) = reading.join().unwrap();
    assert_eq!(known, sums);
    // Half a block is not verified.
    making.write(&passing, 0, BLOCK + BLOCK / 2);
    assert_eq!(reader.read(0, usize::MAX).unwrap(), &bytes[..BLOCK]);
    let reading = spawn(move || (reader.read(BLOCK_BYTES, usize::MAX).unwrap().to_vec(), reader));
    making.write(&passing, BLOCK + BLOCK / 2, 2 * BLOCK);
    let (second, mut reader) = reading.join().unwrap();
    assert_eq!(second, &bytes[BLOCK..2 * BLOCK]);
    making.write(&passing, 2 * BLOCK, bytes.len());
    assert_eq!(reader.read(2 * BLOCK_BYTES, usize::MAX).unwrap(), &bytes[2 * BLOCK..]);
    assert_eq!(reader.read(0, 2 * BLOCK + 5).unwrap(), &bytes[..2 * BLOCK]);
    assert!(reader.read(making.part.bytes, BLOCK).unwrap().is_empty());
}

#[test]
fn copy_has_two_readers_at_most() {
    let making = Making::new(LONG);
    let refused = |part| making.copies.open(part).err().unwrap().to_string();
    assert!(refused(making.part).contains("there is no copy"));
    let passing = making.begin();
    let other = StoredPart { crc32c: making.part.crc32c ^ 1, ..making.part };
    assert!(refused(other).contains("there is no copy"));
    let readers = [making.copies.open(making.part).unwrap(), making.copies.open(making.part).unwrap()];
    assert!(matches!(making.copies.open(making.part), Err(PassError::Busy(ConcreteId(7)))));
    drop(readers);
    let reader = making.copies.open(making.part).unwrap();
    // The copy is removed.
    drop(passing);
    assert!(refused(making.part).contains("there is no copy"));
    drop(reader);
}

#[test]
fn readers_of_a_dead_copy_do_not_wait() {
    let mut making = Making::new(LONG);
    let passing = making.begin();
    let [mut first, mut second] = [(); 2].map(|()| making.copies.open(making.part).unwrap());
    let waiting = spawn(move || first.sums().cloned());
    passing.copy().knows_sums(&making.sums());
    assert!(waiting.join().unwrap().is_ok());
    second.sums().unwrap();
    let waiting = spawn(move || second.read(0, BLOCK).map(<[u8]>::to_vec));
    drop(passing);
    assert!(matches!(waiting.join().unwrap(), Err(PassError::GivenUp(_))));
    // A later copy is another one.
    let passing = making.begin();
    passing.copy().knows_sums(&making.sums());
    making.write(&passing, 0, BLOCK);
    let mut reader = making.copies.open(making.part).unwrap();
    reader.sums().unwrap();
    assert!(reader.read(0, BLOCK).is_ok());
    let impatient = Making::new(Duration::ZERO);
    let _passing = impatient.begin();
    let stalled = impatient.copies.open(impatient.part).unwrap().sums().cloned();
    assert!(matches!(stalled, Err(PassError::Stalled { .. })), "{stalled:?}");
}

#[test]
fn changed_copies_are_not_passed_on() {
    let mut making = Making::new(LONG);
    let passing = making.begin();
    passing.copy().knows_sums(&making.sums());
    making.write(&passing, 0, making.bytes.len());
    let open = || {
        let mut reader = making.copies.open(making.part).unwrap();
        reader.sums().unwrap();
        reader
    };
    making.file.write_all_at(b"!", (BEFORE.len() + BLOCK) as u64).unwrap();
    assert!(open().read(0, BLOCK).is_ok());
    let changed = open().read(0, usize::MAX).map(<[u8]>::to_vec);
    assert!(matches!(changed, Err(PassError::Changed { block: 1, .. })), "{changed:?}");
    // A program puts a link in its place.
    std::fs::rename(&making.path, making.path.with_extension("moved")).unwrap();
    symlink(making.path.with_extension("moved"), &making.path).unwrap();
    let replaced = open().read(0, BLOCK).map(<[u8]>::to_vec);
    assert!(matches!(replaced, Err(PassError::Io { .. })), "{replaced:?}");
}
