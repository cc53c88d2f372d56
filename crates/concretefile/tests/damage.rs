//! Files of many lengths are read back whole and by ranges; whatever is changed in a file or in its checksums is found.

use concretefile::{BLOCK_BYTES, BlockSums, ConcreteDirectory, ConcreteError, Content, verify};
use ids::{ConcreteId, PutId};
use proptest::prelude::*;
use std::path::PathBuf;
use tempfile::TempDir;

const BLOCK: usize = BLOCK_BYTES as usize;

struct World {
    dir: TempDir,
    files: ConcreteDirectory,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let files = ConcreteDirectory::open(dir.path().join("data")).unwrap();
        Self { dir, files }
    }

    fn write(&self, number: u32, bytes: &[u8], piece_bytes: usize) -> (ConcreteId, Content) {
        let id = ConcreteId::of(PutId(3), number).unwrap();
        let mut writer = self.files.create(id).unwrap();
        bytes.chunks(piece_bytes).for_each(|piece| writer.write(piece).unwrap());
        (id, writer.finish().unwrap())
    }

    fn verify(&self, id: ConcreteId, content: Content) -> Result<(), ConcreteError> {
        self.files.read(id, content).and_then(verify)
    }
}

fn some_bytes(count: usize) -> Vec<u8> {
    (0..count).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn every_length_is_read_back() {
    let world = World::new();
    let lengths = [0, 1, 9, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 7, 40 * BLOCK + 1];
    for (number, length) in (0..).zip(lengths) {
        let bytes = some_bytes(length);
        let (id, content) = world.write(number, &bytes, 10_007);
        assert_eq!(content, Content { bytes: length as u64, crc32c: crc32c::crc32c(&bytes) }, "{length}");
        assert_eq!(std::fs::read(world.files.path(id)).unwrap(), bytes);
        world.verify(id, content).unwrap();
        let mut reader = world.files.read(id, content).unwrap();
        let mut read = Vec::new();
        while read.len() < length {
            let piece = reader.read(read.len() as u64, 100_000).unwrap();
            assert!(!piece.is_empty() && piece.len() <= 100_000);
            read.extend_from_slice(piece);
        }
        assert!(read == bytes && reader.read(length as u64, 1).unwrap().is_empty());
    }
    let files = world.files.files(PutId(3)).unwrap();
    assert_eq!(files.len(), lengths.len());
    files.iter().for_each(|id| world.files.remove(*id).unwrap());
    world.files.remove_empty(PutId(3)).unwrap();
    assert_eq!(std::fs::read_dir(world.dir.path().join("data")).unwrap().count(), 0);
}

proptest! {
    #[test]
    fn ranges_are_those_of_the_bytes(
        length in 0..5 * BLOCK,
        reads in prop::collection::vec((0..6 * BLOCK, 0..4 * BLOCK), 1..20),
    ) {
        let world = World::new();
        let bytes = some_bytes(length);
        let (id, content) = world.write(0, &bytes, 1 << 20);
        let mut reader = world.files.read(id, content).unwrap();
        for (offset, count) in reads {
            let read = reader.read(offset as u64, count).unwrap();
            let rest = &bytes[offset.min(length)..];
            prop_assert!(read.len() <= count && rest.starts_with(read));
            prop_assert_eq!(read.is_empty(), rest.is_empty() || count == 0);
        }
    }
}

/// Changes bytes of a file one after the other; each change is found and undone.
fn each_flip_is_found(world: &World, path: PathBuf, id: ConcreteId, content: Content, step: usize) {
    let good = std::fs::read(&path).unwrap();
    for place in (0..good.len()).step_by(step) {
        let mut bad = good.clone();
        bad[place] ^= 1 << (place % 8);
        std::fs::write(&path, &bad).unwrap();
        let error = world.verify(id, content).unwrap_err();
        assert!(error.damage().is_some(), "byte {place} of {}: {error}", path.display());
    }
    for cut in [good.len() - 1, good.len() / 2, 0] {
        std::fs::write(&path, &good[..cut]).unwrap();
        assert!(world.verify(id, content).unwrap_err().damage().is_some(), "cut to {cut}");
    }
    std::fs::write(&path, [&good[..], b"x"].concat()).unwrap();
    assert!(world.verify(id, content).unwrap_err().damage().is_some(), "a byte more");
    std::fs::remove_file(&path).unwrap();
    assert!(world.verify(id, content).unwrap_err().damage().is_some(), "without the file");
    std::fs::write(&path, good).unwrap();
    world.verify(id, content).unwrap();
}

#[test]
fn damage_of_a_file_is_found() {
    let world = World::new();
    let small = world.write(0, &some_bytes(999), 4096);
    each_flip_is_found(&world, world.files.path(small.0), small.0, small.1, 1);
    let large = world.write(1, &some_bytes(3 * BLOCK + 5), 4096);
    each_flip_is_found(&world, world.files.path(large.0), large.0, large.1, 997);
}

#[test]
fn damage_of_checksums_is_found() {
    let world = World::new();
    let (id, content) = world.write(0, &some_bytes(3 * BLOCK + 5), 4096);
    let beside = PathBuf::from(format!("{}.sums", world.files.path(id).display()));
    each_flip_is_found(&world, beside, id, content, 1);
}

#[test]
fn another_content_is_damage() {
    let world = World::new();
    let bytes = some_bytes(2 * BLOCK);
    let (id, content) = world.write(0, &bytes, 4096);
    let other = Content { crc32c: content.crc32c ^ 1, ..content };
    assert!(world.verify(id, other).unwrap_err().damage().is_some());
    // Blocks that changed places are found by each reader of one of them.
    let path = world.files.path(id);
    std::fs::write(&path, [&bytes[BLOCK..], &bytes[..BLOCK]].concat()).unwrap();
    assert!(world.files.read(id, content).unwrap().read(BLOCK_BYTES + 3, 1).unwrap_err().damage().is_some());
}

#[test]
fn checksums_of_other_versions_are_refused() {
    let content = Content { bytes: 70_000, crc32c: 7 };
    let good = BlockSums::default().encode(content);
    assert!(BlockSums::decode(&good, content).is_err(), "blocks are missing");
    assert!(BlockSums::decode(b"", content).is_err());
}

#[test]
fn dropped_writer_leaves_nothing() {
    let world = World::new();
    let id = ConcreteId::of(PutId(1), 0).unwrap();
    let mut writer = world.files.create(id).unwrap();
    writer.write(b"half").unwrap();
    drop(writer);
    assert!(!world.files.path(id).exists());
    // A leftover file of a process that died is replaced.
    std::fs::write(world.files.path(id), "leftover").unwrap();
    let mut writer = world.files.create(id).unwrap();
    writer.write(b"whole").unwrap();
    world.verify(id, writer.finish().unwrap()).unwrap();
}

#[test]
fn put_is_locked_once() {
    let world = World::new();
    let lock = world.files.lock(PutId(9)).unwrap().unwrap();
    assert!(world.files.lock(PutId(9)).unwrap().is_none());
    drop(lock);
    assert!(world.files.lock(PutId(9)).unwrap().is_some());
    assert_eq!(world.files.puts().unwrap(), [PutId(9)]);
}

#[test]
fn new_file_never_replaces_an_existing_one() {
    let world = World::new();
    let bytes = some_bytes(2 * BLOCK + 5);
    let (id, content) = world.write(0, &bytes, 4096);
    let refused = world.files.create_new(id).err().unwrap();
    assert!(refused.is_existing() && refused.damage().is_none(), "{refused}");
    assert!(world.files.holds(id, content));
    // Checksums that are left over from a removed file do not matter.
    std::fs::remove_file(world.files.path(id)).unwrap();
    assert!(!world.files.holds(id, content));
    let mut writer = world.files.create_new(id).unwrap();
    assert!(world.files.create_new(id).err().unwrap().is_existing());
    writer.write(&bytes[..3 * BLOCK / 2]).unwrap();
    let shorter = writer.finish().unwrap();
    assert!(world.files.holds(id, shorter) && !world.files.holds(id, content));
    // A dropped writer leaves nothing, so that the next one may try.
    let id = ConcreteId::of(PutId(77), 5000).unwrap();
    drop(world.files.create_new(id).unwrap());
    world.files.create_new(id).unwrap().finish().unwrap();
    assert!(world.files.holds(id, Content::default()));
}

#[test]
fn held_file_is_complete_and_the_same() {
    let world = World::new();
    let (id, content) = world.write(0, &some_bytes(2 * BLOCK), 4096);
    assert!(world.files.holds(id, content));
    assert!(!world.files.holds(id, Content { crc32c: content.crc32c ^ 1, ..content }));
    assert!(!world.files.holds(id, Content { bytes: content.bytes - 1, ..content }));
    let path = world.files.path(id);
    let mut bad = std::fs::read(&path).unwrap();
    bad[BLOCK] ^= 1;
    std::fs::write(&path, bad).unwrap();
    assert!(!world.files.holds(id, content));
    let [free, total] = world.files.free_bytes().unwrap();
    assert!(free <= total && total > 0);
}

#[test]
fn sums_combine_to_the_whole() {
    let world = World::new();
    let lengths = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 7 * BLOCK + 99];
    for (number, length) in (0..).zip(lengths) {
        let bytes = some_bytes(length);
        let (id, content) = world.write(number, &bytes, 10_007);
        let reader = world.files.read(id, content).unwrap();
        let blocks: Vec<u32> = bytes.chunks(BLOCK).map(crc32c::crc32c).collect();
        assert_eq!(reader.sums().blocks(), blocks, "{length}");
        assert_eq!(reader.sums().whole(content.bytes), content.crc32c, "{length}");
        if length <= BLOCK {
            assert_eq!(reader.sums(), &BlockSums::of_block(content), "{length}");
        }
        for flipped in 0..blocks.len() {
            let mut wrong = blocks.clone();
            wrong[flipped] ^= 1 << (flipped % 32);
            assert_ne!(BlockSums::new(wrong).whole(content.bytes), content.crc32c, "{length} {flipped}");
        }
    }
}
