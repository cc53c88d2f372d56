//! Checks of a MapReduce job from the network, so that later code can trust its numbers. Our front ends derive them
//! correctly; a message may contain anything.

use crate::layout::{
    BLOCK_BYTES, CHUNK_BYTES, CHUNK_BYTES_MIN, COMBINE_WINDOW_BYTES_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MIN,
    IFILES_MAX, MEMORY_BYTES_MIN, RECORD_BYTES_MAX,
};
use api::control::SLOTS_MAX;
use api::layout::BLOCK_BYTES_MIN;
use api::seen::{SEEN_GROUPS_MAX, is_seen_path};
use api::{InputFile, JobKind, JobSpec, Layout, RecordFormat, Segment, Split, is_object_url};
use keys::{KeyEncoder, KeyRulesError};
use std::path::{Component, Path, PathBuf};

/// A reason why a job is impossible. Its sender must change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("a job of one task must be submitted as a batch, not as a MapReduce job")]
    NotMapReduce,
    #[error("the path {path:?} of its {what} is not absolute, or leads through `.` or `..`")]
    Path { what: &'static str, path: PathBuf },
    #[error("{what} is {given}: give {min} to {max}")]
    Number { what: &'static str, given: u64, min: u64, max: u64 },
    #[error("its inputs are more bytes than can be counted")]
    InputBytes,
    #[error("a split reads {length_bytes} bytes at {offset_bytes} of input {file_index}, which do not exist")]
    Segment { file_index: u32, offset_bytes: u64, length_bytes: u64 },
    #[error("its input {path:?} is an intermediate file: only the server may name those of earlier stages")]
    StageFile { path: PathBuf },
    #[error("its input {path:?} is a stored file whose parts do not have its size")]
    TornStoredFile { path: PathBuf },
    #[error(
        "its input {path:?} lies below no path of `seen_by`, or is read as stretches: name it as `seen:PATH`, and let \
         the engine read it"
    )]
    Seen { path: PathBuf },
    #[error("a split has files that different nodes see")]
    MixedSplit,
    #[error("its keys: {0}")]
    Keys(#[from] KeyRulesError),
}

/// Returns an error for a job that none of our front ends would make.
pub fn check(spec: &JobSpec, splits: &[Split]) -> Result<(), SpecError> {
    if !matches!(spec.kind, JobKind::MapReduce(_)) {
        return Err(SpecError::NotMapReduce);
    }
    if !spec.feeds() && !is_object_url(&spec.output) && spec.stored_output.is_none() {
        check_path("output", &spec.output)?;
    }
    if let Some(input) = spec.inputs.iter().find(|input| input.stage_file.is_some()) {
        return Err(SpecError::StageFile { path: input.path.clone() });
    }
    let is_torn = |input: &&InputFile| match &input.stored {
        Some(stored) => stored.bytes() != input.size_bytes,
        // Only a step that has not begun names stored bytes without their parts.
        None => input.content.is_some(),
    };
    if let Some(input) = spec.inputs.iter().find(is_torn) {
        return Err(SpecError::TornStoredFile { path: input.path.clone() });
    }
    check_seen(spec, splits)?;
    let mut files = spec.inputs.iter().filter(|input| input.is_path());
    files.try_for_each(|input| check_path("input", &input.path))?;
    number("slots", u64::from(spec.slots), 1, u64::from(SLOTS_MAX))?;
    number("memory_bytes", spec.memory_bytes, MEMORY_BYTES_MIN, i64::MAX as u64)?;
    // Kept I-files that are reduced again keep their number and size: no chunk is opened for them.
    let opens_chunks = spec.kind.source().is_none();
    check_layout(&spec.layout, spec.memory_bytes, opens_chunks)?;
    check_records(spec)?;
    KeyEncoder::new(&spec.keys)?;
    check_inputs(&spec.inputs, spec.kind.generated().map_or(0, |rows| rows.bytes()))?;
    // Generated rows count with their future bytes.
    match spec.kind.generated() {
        Some(_) => Ok(()),
        None => check_splits(&spec.inputs, splits),
    }
}

/// Checks the inputs that only some nodes see: only these nodes may run the map of a split, which has no other files.
fn check_seen(spec: &JobSpec, splits: &[Split]) -> Result<(), SpecError> {
    number("seen_by", spec.seen_by.len() as u64, 0, SEEN_GROUPS_MAX as u64)?;
    spec.seen_by.iter().try_for_each(|seen| check_path("seen input", &seen.dir))?;
    for (index, input) in spec.inputs.iter().filter_map(|input| Some((input.seen?, input))) {
        let below = spec.seen_by.get(index as usize).filter(|seen| input.path.starts_with(&seen.dir));
        let is_read = spec.formats.input != RecordFormat::Stretches && spec.kind.generated().is_none();
        let is_file = input.object.is_none() && input.stored.is_none() && is_seen_path(&input.path);
        if below.is_none() || !is_read || !is_file {
            return Err(SpecError::Seen { path: input.path.clone() });
        }
    }
    let seen = |segment: &Segment| spec.inputs.get(segment.file_index as usize).and_then(|input| input.seen);
    let is_mixed = |split: &Split| split.segments.windows(2).any(|pair| seen(&pair[0]) != seen(&pair[1]));
    match splits.iter().any(is_mixed) {
        true => Err(SpecError::MixedSplit),
        false => Ok(()),
    }
}

fn check_path(what: &'static str, path: &Path) -> Result<(), SpecError> {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let is_text = path.to_str().is_some_and(|text| !text.contains('\0'));
    match path.is_absolute() && is_text && path.components().all(is_plain) {
        true => Ok(()),
        false => Err(SpecError::Path { what, path: path.to_path_buf() }),
    }
}

fn number(what: &'static str, given: u64, min: u64, max: u64) -> Result<(), SpecError> {
    match (min..=max).contains(&given) {
        true => Ok(()),
        false => Err(SpecError::Number { what, given, min, max }),
    }
}

fn check_layout(layout: &Layout, memory_bytes: u64, opens_chunks: bool) -> Result<(), SpecError> {
    number("layout.ifile_count", u64::from(layout.ifile_count), 1, IFILES_MAX)?;
    number("layout.chunk_bytes", layout.chunk_bytes, CHUNK_BYTES_MIN, CHUNK_BYTES)?;
    number("layout.frame_bytes", layout.frame_bytes, FRAME_BYTES_MIN, FRAME_BYTES_MAX)?;
    number("layout.block_bytes", layout.block_bytes, BLOCK_BYTES_MIN, BLOCK_BYTES)?;
    number("layout.record_bytes_max", layout.record_bytes_max, 1, RECORD_BYTES_MAX)?;
    number("layout.combine_window_bytes", layout.combine_window_bytes, 0, COMBINE_WINDOW_BYTES_MAX)?;
    number("layout.split_bytes", layout.split_bytes, 1, i64::MAX as u64)?;
    let open_bytes = if opens_chunks { u64::from(layout.ifile_count) * layout.chunk_bytes } else { 1 };
    number("layout.chunk_share_bytes", layout.chunk_share_bytes, open_bytes, memory_bytes)?;
    number("layout.sort_share_bytes", layout.sort_share_bytes, 1, memory_bytes - layout.chunk_share_bytes)?;
    let left_bytes = memory_bytes - layout.chunk_share_bytes - layout.sort_share_bytes;
    number("layout.io_share_bytes", layout.io_share_bytes, 1, left_bytes)
}

fn check_records(spec: &JobSpec) -> Result<(), SpecError> {
    let RecordFormat::Fixed { record_bytes, key_bytes } = spec.formats.input else { return Ok(()) };
    let most = spec.layout.record_bytes_max;
    number("formats.input.fixed.record_bytes", u64::from(record_bytes), 1, most)?;
    number("formats.input.fixed.key_bytes", u64::from(key_bytes), 0, u64::from(record_bytes))
}

fn check_inputs(inputs: &[InputFile], made_bytes: u64) -> Result<(), SpecError> {
    let sizes = inputs.iter().map(|input| input.size_bytes);
    let total = sizes.chain([made_bytes]).try_fold(0_u64, u64::checked_add);
    total.filter(|total| i64::try_from(*total).is_ok()).map(drop).ok_or(SpecError::InputBytes)
}

fn check_splits(inputs: &[InputFile], splits: &[Split]) -> Result<(), SpecError> {
    for segment in splits.iter().flat_map(|split| &split.segments) {
        let size_bytes = inputs.get(segment.file_index as usize).map(|input| input.size_bytes);
        let end_bytes = segment.offset_bytes.checked_add(segment.length_bytes);
        let is_there = matches!((size_bytes, end_bytes), (Some(size), Some(end)) if end <= size);
        if !is_there {
            let (offset_bytes, length_bytes) = (segment.offset_bytes, segment.length_bytes);
            return Err(SpecError::Segment { file_index: segment.file_index, offset_bytes, length_bytes });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{SpecError, check};
    use crate::layout::{LayoutRequest, derive};
    use api::{ContentHash, InputFile, JobSpec, PartitionRule, RecordFormat, Segment, Split};

    fn good() -> (JobSpec, Vec<Split>) {
        let mut spec = JobSpec::named("job");
        (spec.output, spec.memory_bytes, spec.slots) = ("/a/out".into(), 64 << 20, 2);
        let request = LayoutRequest { memory_bytes: 64 << 20, slots: 2, input_bytes: 10, combines: true };
        spec.layout = derive(&request).unwrap();
        let (path, compression) = ("/a/in".into(), None);
        let (size_bytes, mtime_ns, named) = (10, 1, 0);
        spec.inputs = vec![InputFile {
            path,
            size_bytes,
            mtime_ns,
            compression,
            named,
            object: None,
            stage_file: None,
            stored: None,
            content: None,
            seen: None,
        }];
        let segments = vec![Segment { file_index: 0, offset_bytes: 4, length_bytes: 6 }];
        (spec, vec![Split { segments }])
    }

    #[test]
    fn derived_settings_are_accepted() {
        for memory_bytes in [64 << 20, 100 << 20, 1 << 30, 12 << 30] {
            for (slots, input_bytes, combines) in [(1, 0, false), (64, 10_000 << 30, true)] {
                let (mut spec, splits) = good();
                spec.layout = derive(&LayoutRequest { memory_bytes, slots, input_bytes, combines }).unwrap();
                (spec.memory_bytes, spec.slots) = (memory_bytes, slots);
                assert_eq!(check(&spec, &splits), Ok(()), "{memory_bytes} {slots}");
            }
        }
    }

    #[test]
    fn impossible_jobs_are_refused_by_name() {
        let refuse = |named: &str, spoil: fn(&mut JobSpec, &mut Vec<Split>)| {
            let (mut spec, mut splits) = good();
            spoil(&mut spec, &mut splits);
            let text = check(&spec, &splits).expect_err(named).to_string();
            assert!(text.contains(named), "{named}: {text}");
        };
        refuse("output", |spec, _| spec.output = "out".into());
        refuse("output", |spec, _| spec.output = "/a/../out".into());
        refuse("output", |spec, _| spec.output = "/a/o\0ut".into());
        refuse("input", |spec, _| spec.inputs[0].path = "in".into());
        refuse("stored file", |spec, _| spec.inputs[0].content = Some(ContentHash([0; 32])));
        refuse("slots", |spec, _| spec.slots = 0);
        refuse("slots", |spec, _| spec.slots = u32::MAX);
        refuse("memory_bytes", |spec, _| spec.memory_bytes = u64::MAX);
        refuse("ifile_count", |spec, _| spec.layout.ifile_count = 0);
        refuse("chunk_bytes", |spec, _| spec.layout.chunk_bytes = 0);
        refuse("frame_bytes", |spec, _| spec.layout.frame_bytes = u64::MAX);
        refuse("block_bytes", |spec, _| spec.layout.block_bytes = 1 << 40);
        refuse("record_bytes_max", |spec, _| spec.layout.record_bytes_max = u64::MAX);
        refuse("chunk_share", |spec, _| spec.layout.chunk_share_bytes = u64::MAX);
        refuse("sort_share", |spec, _| spec.layout.sort_share_bytes = u64::MAX);
        refuse("io_share", |spec, _| spec.layout.io_share_bytes = 0);
        let partitions = |spec: &mut JobSpec, count| {
            spec.keys.partitions = Some(PartitionRule { count, stretches: Vec::new() });
        };
        let (mut spec, splits) = good();
        for count in [0, u32::MAX] {
            partitions(&mut spec, count);
            assert!(matches!(check(&spec, &splits), Err(SpecError::Keys(_))), "{count}");
        }
        refuse("record_bytes", |spec, _| {
            spec.formats.input = RecordFormat::Fixed { record_bytes: 0, key_bytes: 0 };
        });
        refuse("more bytes", |spec, _| spec.inputs[0].size_bytes = u64::MAX);
        refuse("at 5 of input 0", |_, splits| splits[0].segments[0].offset_bytes = 5);
        refuse("of input 7", |_, splits| splits[0].segments[0].file_index = 7);
        refuse("a split", |_, splits| splits[0].segments[0].length_bytes = u64::MAX);
    }
}
