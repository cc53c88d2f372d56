//! Outputs of jobs as stored files: a part is written to a disk of this node if one has room, else to another node, and
//! other nodes fetch their replicas from there. The commit of the job makes all parts visible at once.

use crate::link::node_link::NodeLink;
use crate::stored::disks::StoredDisk;
use crate::stored::files::StoredFiles;
use crate::stored::receive::Receiving;
use api::stored::cluster::{
    CommitOutput, OutputPartStored, PlaceOutput, RecordedPart, StoredNode, StoredPut, StoredRange,
};
use api::task::Part;
use api::{Blame, StoredPart, TaskFailure};
use concretefile::Content;
use dataport::{DataClient, PartReceiver, PartsUpload, Peer, Token, with_causes};
use ids::{ConcreteId, DiskId, JobId, NodeId};
use output::{StoredPartFile, StoredParts};
use std::io::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Room that a part asks for at once: nobody knows its length beforehand.
const ROOM_STEP_BYTES: u64 = 32 << 20;
/// Maximum bytes of a part that this node has no room for: another node promises room for all of it at once.
const ELSEWHERE_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of searches for disks of missing replicas; the server adds those that are still missing.
const REPLICA_TRIES_MAX: u32 = 4;

/// The stored output of a job.
pub trait JobOutput: StoredParts {
    /// Makes the parts visible under the name of the output. A later attempt may repeat it.
    fn publish(&self, parts: &[Part], cancelled: &AtomicBool) -> Result<(), TaskFailure>;
}

/// The output of a job in the stored files of its cluster.
#[derive(Clone)]
pub(crate) struct OutputInCluster {
    pub job: JobId,
    pub of: StoredPut,
    pub link: Arc<NodeLink>,
    pub files: Arc<StoredFiles>,
}

impl std::fmt::Debug for OutputInCluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the stored output {} of job {}", self.of.put, self.job)
    }
}

fn other(error: &dyn std::error::Error) -> Error {
    Error::other(with_causes(error))
}

fn peer_of(node: &StoredNode) -> Peer {
    Peer { node: node.node, url: node.data_url.clone(), incarnation: node.incarnation }
}

impl StoredParts for OutputInCluster {
    fn begin(&self) -> std::io::Result<Box<dyn StoredPartFile>> {
        let here = self.files.roomiest(ROOM_STEP_BYTES);
        let have: Vec<DiskId> = here.iter().filter_map(|disk| disk.number()).collect();
        let bytes = if here.is_some() { ROOM_STEP_BYTES } else { ELSEWHERE_BYTES_MAX };
        let ask = PlaceOutput { of: self.of, have, bytes, avoid: Vec::new(), is_numbered: false };
        let placed = self.link.stored_output_places(self.job, &ask).map_err(|error| other(&error))?;
        let range = placed.range.ok_or_else(|| Error::other("the server gave no number for a part"))?;
        let client = self.client(&range)?;
        let file = range.first;
        let target = match (here, placed.disks.first()) {
            (Some(disk), _) => {
                let mut receiving =
                    self.files.receive_on(&disk, ROOM_STEP_BYTES).map_err(|error| other(&error))?;
                PartReceiver::begin(&mut receiving, file).map_err(|error| other(&error))?;
                Target::Here { receiving, disk, left_bytes: ROOM_STEP_BYTES }
            }
            (None, Some(place)) => {
                let mut upload = client.upload_parts(&peer_of(place), place.disk, bytes);
                upload.begin(file).map_err(|error| other(&error))?;
                Target::There { upload, holder: PartHolder { node: place.node, disk: place.disk } }
            }
            (None, None) => return Err(Error::other("no node has room for a part")),
        };
        let content = Content::default();
        Ok(Box::new(OutputPart { output: self.clone(), file, client, target, content }))
    }
}

impl OutputInCluster {
    fn client(&self, range: &StoredRange) -> std::io::Result<DataClient> {
        let token = Token::new(range.grant.0.clone());
        let token = token.ok_or_else(|| Error::other("the server gave a right that is no token"))?;
        Ok(self.files.client(token))
    }

    /// Makes the replicas of a part that a node has synced on this disk. Returns all disks that have it.
    fn replicate(
        &self,
        client: &DataClient,
        part: StoredPart,
        first: PartHolder,
    ) -> std::io::Result<Vec<DiskId>> {
        let (mut have, mut avoid) = (vec![first.disk], Vec::new());
        for _ in 0..REPLICA_TRIES_MAX {
            let (of, bytes) = (self.of, part.bytes);
            let ask = PlaceOutput { of, have: have.clone(), bytes, avoid, is_numbered: true };
            let placed = self.link.stored_output_places(self.job, &ask);
            let disks = placed.map_err(|error| other(&error))?.disks;
            if disks.is_empty() {
                break;
            }
            avoid = ask.avoid;
            for (disk, is_there) in fetched(client, first.node, part, &disks) {
                if is_there { have.push(disk) } else { avoid.push(disk) }
            }
        }
        Ok(have)
    }
}

/// A disk that has a part, and its node.
#[derive(Clone, Copy)]
struct PartHolder {
    node: NodeId,
    disk: DiskId,
}

/// Lets the nodes of disks fetch a part, all at once. Returns whether each has it.
fn fetched(
    client: &DataClient,
    from: NodeId,
    part: StoredPart,
    places: &[StoredNode],
) -> Vec<(DiskId, bool)> {
    let fetch = |place: &StoredNode| match client.ask_to_fetch(&peer_of(place), place.disk, from, &[part]) {
        Ok(()) => true,
        Err(error) => {
            let error = with_causes(&error);
            tracing::debug!(part = %part.concrete, disk = %place.disk, error, "a replica was not made");
            false
        }
    };
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            places.iter().map(|place| (place.disk, scope.spawn(move || fetch(place)))).collect();
        asked.into_iter().map(|(disk, thread)| (disk, thread.join().unwrap_or(false))).collect()
    })
}

impl JobOutput for OutputInCluster {
    fn publish(&self, parts: &[Part], cancelled: &AtomicBool) -> Result<(), TaskFailure> {
        let part = |part: &Part| OutputPartStored { name: part.name.clone(), stored: part.stored.clone() };
        let commit = CommitOutput { of: self.of, parts: parts.iter().map(part).collect() };
        loop {
            if cancelled.load(Ordering::Relaxed) {
                return Err(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"));
            }
            match self.link.commit_stored_output(self.job, &commit) {
                Ok(committed) if committed.version.is_some() => return Ok(()),
                // Names are still being stored.
                Ok(_) => {}
                Err(error) => {
                    let message = format!("cannot store the output: {}", with_causes(&error));
                    return Err(TaskFailure::new(Blame::Environment, message));
                }
            }
        }
    }
}

/// The place to which a part is written.
enum Target {
    /// A disk of this node, with room for so many bytes more.
    Here {
        receiving: Receiving,
        disk: Arc<StoredDisk>,
        left_bytes: u64,
    },
    There {
        upload: PartsUpload,
        holder: PartHolder,
    },
}

/// A part that is being written.
struct OutputPart {
    output: OutputInCluster,
    file: ConcreteId,
    client: DataClient,
    target: Target,
    content: Content,
}

impl StoredPartFile for OutputPart {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.target {
            Target::Here { receiving, disk, left_bytes } => {
                let count = bytes.len() as u64;
                if count > *left_bytes {
                    let step = ROOM_STEP_BYTES.max(count);
                    receiving
                        .add_room(self.output.files.promise_on(disk, step).map_err(|error| other(&error))?);
                    *left_bytes += step;
                }
                *left_bytes -= count;
                receiving.write(bytes).map_err(|error| other(&error))?;
            }
            Target::There { upload, .. } => {
                if self.content.bytes + bytes.len() as u64 > ELSEWHERE_BYTES_MAX {
                    let limit = ELSEWHERE_BYTES_MAX >> 20;
                    return Err(Error::other(format!(
                        "this node has no room for stored files, and another one takes parts of at most {limit} MiB: \
                         make room there, or make smaller parts"
                    )));
                }
                upload.write(bytes).map_err(|error| other(&error))?;
            }
        }
        self.content.bytes += bytes.len() as u64;
        self.content.crc32c = crc32c::crc32c_append(self.content.crc32c, bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> std::io::Result<RecordedPart> {
        let OutputPart { output, file, client, target, content } = *self;
        let holder = match target {
            Target::Here { mut receiving, disk, .. } => {
                receiving.end(content).map_err(|error| other(&error))?;
                receiving.sync().map_err(|error| other(&error))?;
                let gone = || Error::other("the server does not use the disk of a part any more");
                PartHolder { node: output.link.node(), disk: disk.number().ok_or_else(gone)? }
            }
            Target::There { mut upload, holder } => {
                let ended = upload.end().and_then(|_| upload.finish());
                ended.map_err(|error| other(&error))?;
                holder
            }
        };
        let part = StoredPart { concrete: file, bytes: content.bytes, crc32c: content.crc32c };
        let disks = output.replicate(&client, part, holder)?;
        Ok(RecordedPart { file: part, disks })
    }
}
