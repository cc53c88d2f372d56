//! Parts that stay on nodes until later stages have read them, and the reads: the work of
//! `crates/node/src/{stage_files,stage_input}.rs`.

use super::data_plane::{Between, DataPlane, ReadError};
use super::node::{Here, READ_TRIES_MAX, Step, Work, environment, unreachable};
use super::plan::{PART_RECORD_BYTES, RecordName};
use super::world::{Planted, Situation};
use api::flow::stage_file_name;
use api::task::{MapTask, Part};
use api::{InputFile, LostFile, LostInput, StageFile, TaskFailure};
use ids::NodeId;
use std::sync::Arc;

/// A map attempt that is still reading its input parts.
pub(crate) struct FetchWork {
    pub task: MapTask,
    inputs: Arc<[InputFile]>,
    next: usize,
    pub records: Vec<RecordName>,
    tries: u32,
}

impl FetchWork {
    pub fn new(task: MapTask, inputs: Arc<[InputFile]>) -> Self {
        Self { task, inputs, next: 0, records: Vec::new(), tries: 0 }
    }
}

fn lost_input(message: &str, file: StageFile, name: &str, nodes: Vec<NodeId>) -> TaskFailure {
    let lost = LostFile::Intermediate(LostInput { file, name: name.to_string(), nodes });
    TaskFailure { lost_file: Some(Box::new(lost)), ..environment(message) }
}

/// Reads the next segment, from the nearer copy if possible, otherwise from the other one.
pub(crate) fn fetch<'a>(plane: &mut DataPlane, here: &Here<'_>, mut work: Box<FetchWork>) -> Step<'a> {
    let Some(segment) = work.task.split.segments.get(work.next).copied() else { return Step::Maps(work) };
    let file = work.inputs.get(segment.file_index as usize).and_then(|input| input.stage_file);
    let place = work.task.places.iter().find(|place| place.file_index == segment.file_index).cloned();
    let Some((file, place)) = file.zip(place) else {
        return Step::ends(Err(environment("the location of an input is unknown")));
    };
    let Some(home) = place.node.or(place.replica) else {
        plane.sometimes.saw(Situation::ReaderWaited);
        return Step::ends(Err(lost_input("a part is being recomputed", file, "", Vec::new())));
    };
    let mut copies = vec![home];
    copies.extend(place.replica.filter(|replica| *replica != home));
    copies.sort_by_key(|node| *node != here.node);
    let (mut found, mut lost) = (None, Vec::new());
    for node in copies {
        match plane.read_part(Between { here: here.node, there: node }, file.job, &place.name) {
            Ok(part) => {
                if Some(node) == place.replica {
                    plane.sometimes.saw(Situation::PartReadFromReplica);
                }
                found = Some(part);
                break;
            }
            Err(ReadError::Unknown | ReadError::Damaged) => lost.push(node),
            Err(ReadError::Unreachable | ReadError::Stale) => {}
        }
    }
    let record_bytes = u64::from(PART_RECORD_BYTES);
    match found {
        Some(part) => {
            let from = (segment.offset_bytes / record_bytes) as usize;
            let to = ((segment.offset_bytes + segment.length_bytes) / record_bytes) as usize;
            work.records.extend(part.iter().take(to).skip(from));
        }
        None if !lost.is_empty() && plane.planted == Some(Planted::LostPartReadAsEmpty) => {}
        None if !lost.is_empty() => {
            return Step::ends(Err(lost_input("a part is gone", file, &place.name, lost)));
        }
        None => {
            work.tries += 1;
            plane.unreached.insert((here.node, home));
            return match work.tries < READ_TRIES_MAX {
                true => Step::GoesOn(Work::Fetch(work)),
                false => Step::ends(Err(unreachable("a node with a part cannot be reached", home))),
            };
        }
    }
    (work.next, work.tries) = (work.next + 1, 0);
    Step::GoesOn(Work::Fetch(work))
}

/// Creates a part of a stage that feeds another: it stays on this node.
pub(crate) fn part_of(here: &Here<'_>, part_index: u32, output: &[RecordName]) -> Part {
    let attempt_name = stage_file_name(here.attempt.task.task, here.attempt.attempt);
    Part {
        name: format!("part-{part_index:05}"),
        attempt_name,
        bytes: output.len() as u64 * u64::from(PART_RECORD_BYTES),
        records: output.len() as u64,
        sha256: None,
        crc32c: checksum(output),
        node: Some(here.node),
        stored: None,
    }
}

/// Computes the checksum of the records in their order (FNV-1a).
fn checksum(output: &[RecordName]) -> u32 {
    let numbers = output.iter().flat_map(|(task, sequence)| [*task, *sequence]);
    let bytes = numbers.flat_map(u32::to_le_bytes);
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
