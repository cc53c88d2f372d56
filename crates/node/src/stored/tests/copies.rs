//! Local copies that come from other nodes which have, or are still making, copies of their own.

use super::{DISK, Here, file, wait_until};
use crate::stored::job_input::PartsOfCluster;
use crate::stored::passed_on::{PassedCopy, Passing};
use crate::tasks::map::stored_input::{PartOpener as _, StoredReads};
use api::StoredPart;
use api::data_access::SecretText;
use api::stored::cluster::{PlacedPart, SourceOfPart, StoredNode, StoredPage, StoredRange};
use concretefile::{BLOCK_BYTES, BlockSums};
use dataport::{PassedPart as _, Peer};
use ids::{ContentId, JobId, NodeId, PutId};
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, spawn};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A node with a replica, one that makes a copy, and a reader that is sent to the copy.
struct Chain {
    reader: Here,
    middle: Here,
    _origin: Here,
    bytes: Vec<u8>,
    part: StoredPart,
    path: PathBuf,
}

impl Chain {
    fn new() -> Self {
        let (reader, middle, origin) = (Here::open(), Here::open(), Here::open());
        let bytes: Vec<u8> = (0..BLOCK * 5).map(|place| (place / 3) as u8).collect();
        let part = origin.store(&[(file(1, 0), &bytes)]).unwrap()[0];
        let (copy, replica) = (middle.serve(NodeId(2)), origin.serve(NodeId(3)));
        *reader.server.page.lock().unwrap() = page(part, &copy, &replica);
        let path = middle.dir.path().join("copy");
        Self { reader, middle, _origin: origin, bytes, part, path }
    }

    /// Begins the copy in the middle.
    fn begin(&self, sums: &BlockSums) -> Passing {
        let passing = self.middle.files.passed_on.begin(self.part, &self.path, 0).unwrap();
        passing.copy().knows_sums(sums);
        passing
    }

    /// Grows the copy in the middle to this content.
    fn grow(&self, copy: &PassedCopy, bytes: &[u8]) {
        let before = std::fs::metadata(&self.path).map_or(0, |found| found.len() as usize);
        std::fs::write(&self.path, bytes).unwrap();
        copy.has_written(bytes.len() - before);
    }

    /// Copies the part at the reader, in a thread. Its own copy is passed on as it comes.
    fn read(&self) -> (Passing, JoinHandle<Vec<u8>>, Arc<StoredReads>) {
        let passing = self.reader.files.passed_on.begin(self.part, &self.path, 0).unwrap();
        let (copy, part, reads) = (Arc::clone(passing.copy()), self.part, Arc::<StoredReads>::default());
        let files = Arc::clone(&self.reader.files);
        let reads_of_job = Arc::clone(&reads);
        let parts = Arc::new(PartsOfCluster { job: JobId(1), files, reads: reads_of_job, cache: None });
        let reading = spawn(move || {
            let mut all = Vec::new();
            parts.open_for_copy(part, &copy).unwrap().read_to_end(&mut all).unwrap();
            all
        });
        (passing, reading, reads)
    }
}

fn sums(bytes: &[u8]) -> BlockSums {
    BlockSums::new(bytes.chunks(BLOCK).map(crc32c::crc32c).collect())
}

fn page(part: StoredPart, copy: &Peer, replica: &Peer) -> StoredPage {
    let content = ContentId::of(PutId(1), 0).unwrap();
    let (node, data_url, incarnation) = (copy.node, copy.url.clone(), copy.incarnation);
    let source = SourceOfPart { part: part.concrete, node, data_url, incarnation, has_copy: true };
    let stored = StoredNode {
        disk: DISK,
        node: replica.node,
        node_name: "origin".to_string(),
        data_url: replica.url.clone(),
        incarnation: replica.incarnation,
    };
    let grant = SecretText("grant".to_string());
    StoredPage {
        parts: vec![PlacedPart { content, part: 0, file: part, replicas: 1, disks: vec![DISK] }],
        nodes: vec![stored],
        grants: vec![StoredRange { first: part.concrete, last: part.concrete, grant }],
        sources: vec![source],
        ..StoredPage::default()
    }
}

#[test]
fn copy_is_read_while_it_is_made() {
    let chain = Chain::new();
    let passing = chain.begin(&sums(&chain.bytes));
    let (at_reader, reading, reads) = chain.read();
    chain.grow(passing.copy(), &chain.bytes[..4 * BLOCK]);
    wait_until(|| reads.passed_on_bytes.load(Ordering::Relaxed) == 4 * BLOCK_BYTES);
    // The reader could pass them on already.
    let mut next = chain.reader.files.passed_on.open(chain.part).unwrap();
    assert_eq!(*next.sums().unwrap(), sums(&chain.bytes));
    chain.grow(passing.copy(), &chain.bytes);
    assert!(reading.join().unwrap() == chain.bytes);
    drop(at_reader);
    let bytes = [&reads.passed_on_bytes, &reads.elsewhere_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
    assert_eq!(bytes, [chain.part.bytes; 2]);
}

#[test]
fn bad_sources_are_replaced_by_a_replica() {
    let chain = Chain::new();
    let mut wrong = chain.bytes.clone();
    wrong[2 * BLOCK] ^= 1;
    let read = |passed_blocks: u64| {
        chain.reader.server.asked.lock().unwrap().clear();
        let (_at_reader, reading, reads) = chain.read();
        assert!(reading.join().unwrap() == chain.bytes);
        assert_eq!(reads.passed_on_bytes.load(Ordering::Relaxed), passed_blocks * BLOCK_BYTES);
        assert_eq!(reads.elsewhere_bytes.load(Ordering::Relaxed), chain.part.bytes);
        // The server is told which source failed.
        let asked = chain.reader.server.asked.lock().unwrap();
        let failed: Vec<_> =
            asked.iter().map(|question| (question.copies, question.failed.clone())).collect();
        assert_eq!(failed, [(true, vec![]), (true, vec![NodeId(2)])]);
    };
    // It has no copy.
    read(0);
    // It serves two others.
    let passing = chain.begin(&sums(&chain.bytes));
    let others = [(); 2].map(|()| chain.middle.files.passed_on.open(chain.part).unwrap());
    read(0);
    drop(others);
    // A program changed its copy.
    chain.grow(passing.copy(), &wrong);
    read(0);
    drop(passing);
    // It lies, and its blocks fit.
    std::fs::remove_file(&chain.path).unwrap();
    let passing = chain.begin(&sums(&wrong));
    chain.grow(passing.copy(), &wrong);
    read(0);
    drop(passing);
    // It gives up in the middle.
    std::fs::remove_file(&chain.path).unwrap();
    let passing = chain.begin(&sums(&chain.bytes));
    chain.grow(passing.copy(), &chain.bytes[..4 * BLOCK]);
    let (_at_reader, reading, reads) = chain.read();
    wait_until(|| reads.passed_on_bytes.load(Ordering::Relaxed) == 4 * BLOCK_BYTES);
    drop(passing);
    assert!(reading.join().unwrap() == chain.bytes);
    assert_eq!(reads.passed_on_bytes.load(Ordering::Relaxed), 4 * BLOCK_BYTES);
}

#[test]
fn readers_without_copies_use_replicas() {
    let chain = Chain::new();
    let (files, reads) = (Arc::clone(&chain.reader.files), Arc::default());
    let parts = Arc::new(PartsOfCluster { job: JobId(1), files, reads, cache: None });
    let mut all = Vec::new();
    parts.open_part(chain.part, 5).unwrap().read_to_end(&mut all).unwrap();
    assert!(all == chain.bytes[5..]);
    let asked = chain.reader.server.asked.lock().unwrap();
    assert!(asked.iter().all(|question| !question.copies) && asked.len() == 1);
}
