//! Hadoop Streaming jobs: their options in terms of other jobs, and their specific ones.

use crate::options::{FunctionText, JobOptions, replication_mode};
use crate::plan::Plan;
use ::streaming::{PartitionChoice, StreamingJob};
use anyhow::{Context, anyhow, bail};
use api::{
    Codec, FieldPlace, FileLink, Function, InputFile, JobSpec, KeyRules, KeyStretch, PartitionRule,
    Partitioning, Split, is_object_url, is_stored_output,
};
use rustix::fs::Access;
use std::path::{Path, PathBuf};

/// Bytes of input per partition, if the user leaves their number to us.
const BYTES_PER_PARTITION: u64 = 32 << 20;
const PARTITIONS_MAX: u64 = 64;
/// Returns the equivalent options of a run, together with the options that only streaming has. The caller
/// sets `in_cluster`.
pub fn options(mut job: StreamingJob, start_dir: PathBuf) -> anyhow::Result<JobOptions> {
    for link in &mut job.streaming.links {
        link.path = shipped(link, &start_dir)?;
    }
    let as_hadoop_has_it = |path: &String| match is_object_url(Path::new(path)) {
        true => path.clone(),
        false => format!("file:{}", start_dir.join(path).display()),
    };
    let inputs: Vec<String> = job.inputs.iter().map(as_hadoop_has_it).collect();
    job.streaming.properties.push(("mapreduce.input.fileinputformat.inputdir".to_string(), inputs.join(",")));
    let codec = match job.own.codec.as_deref() {
        None => None,
        Some("none") => Some(Codec::None),
        Some("lz4") => Some(Codec::Lz4),
        Some("zstd") => Some(Codec::Zstd),
        Some(other) => bail!("--codec {other} is not known: choose lz4, zstd or none"),
    };
    let replication = job.own.replication.as_deref();
    let mode = |word| replication_mode(word).map_err(|error| anyhow!("--replication {word}: {error}"));
    let replication = replication.map(mode).transpose()?;
    let function = |function: &Option<Function>| {
        let text = function.as_ref().map(Function::display);
        text.map(|text| FunctionText { text, dir: start_dir.clone() })
    };
    Ok(JobOptions {
        name: job.name.clone(),
        input: job.inputs.clone(),
        mapper: function(&job.mapper),
        combiner: function(&job.combiner),
        reducer: function(&job.reducer),
        output: Some(PathBuf::from(&job.output)),
        memory: job.own.memory.clone(),
        slots: job.own.slots,
        state: job.own.state.as_ref().map(PathBuf::from),
        disk: job.own.disk.clone(),
        env: job.env.clone(),
        codec,
        replication,
        map_only: job.map_only,
        overwrite: job.own.overwrite,
        keep_ifiles: job.own.keep_ifiles.then_some(true),
        no_sync: job.own.no_sync,
        json: job.own.json,
        start_dir,
        streaming: Some(Box::new(job)),
        ..JobOptions::default()
    })
}

/// Returns the absolute path of a file or directory to ship; the name of a stored file stays as it is.
fn shipped(link: &FileLink, start_dir: &Path) -> anyhow::Result<PathBuf> {
    if is_stored_output(&link.path) {
        return Ok(link.path.clone());
    }
    let shown = link.path.display();
    let path = start_dir.join(&link.path);
    std::fs::metadata(&path).with_context(|| format!("-file {shown}"))?;
    rustix::fs::access(&path, Access::READ_OK).with_context(|| format!("-file {shown}: cannot read"))?;
    std::path::absolute(&path).with_context(|| format!("-file {shown}"))
}

/// Returns whether a program is in the work directory under this name.
pub fn ships(job: Option<&StreamingJob>, program: &str) -> bool {
    job.is_some_and(|job| job.streaming.links.iter().any(|link| link.name == program))
}

/// Returns the splits of a streaming job. Each is in one file, because its mappers ask for the file.
fn splits(job: &StreamingJob, inputs: &[InputFile], planned: Vec<Split>) -> anyhow::Result<Vec<Split>> {
    if let Some(lines) = job.lines_per_map {
        return mapper::plan_lines(inputs, lines).context("-inputformat NLineInputFormat");
    }
    let mut splits = Vec::new();
    for split in planned {
        let of_files = split.segments.chunk_by(|left, right| left.file_index == right.file_index);
        splits.extend(of_files.map(|segments| Split { segments: segments.to_vec() }));
    }
    Ok(splits)
}

/// Completes the plan of a streaming job with its specific options. Returns other plans unchanged.
pub fn complete(job: Option<&StreamingJob>, mut plan: Plan) -> anyhow::Result<Plan> {
    if let Some(job) = job {
        plan.splits = splits(job, &plan.spec.inputs, plan.splits)?;
        apply(job, &mut plan.spec)?;
    }
    Ok(plan)
}

fn apply(job: &StreamingJob, spec: &mut JobSpec) -> anyhow::Result<()> {
    spec.formats = job.formats.clone();
    spec.keys = job.keys.clone();
    spec.streaming = Some(job.streaming.clone());
    let input_bytes: u64 = spec.inputs.iter().map(|input| input.size_bytes).sum();
    let by_bytes = |stretches| {
        let count = (input_bytes / BYTES_PER_PARTITION).clamp(1, PARTITIONS_MAX) as u32;
        Some(PartitionRule { count, stretches })
    };
    let combined = fields_of_combiner(spec);
    match &job.partitions {
        // Hadoop has one reducer here: keys that the combiner merges must stay in one partition.
        PartitionChoice::Engine => {
            if let Some(fields) = combined.filter(|fields| !part_by(&spec.keys, *fields)) {
                spec.keys.separator.clone_from(&spec.formats.map_output.separator);
                spec.keys.partitions = by_bytes(vec![first_fields(fields)]);
            }
        }
        PartitionChoice::Exactly(_) => {}
        PartitionChoice::ByBytes { stretches } => spec.keys.partitions = by_bytes(stretches.clone()),
    }
    if spec.keys.partitions.is_some() {
        spec.partitioning = Partitioning::Partitions;
    }
    spec.formats.combiner_key_fields = combined.filter(|fields| part_by(&spec.keys, *fields));
    keys::KeyEncoder::new(&spec.keys).context("the order and the partitions of keys")?;
    Ok(())
}

/// Returns the number of key fields that a combiner program must return unchanged, if it returns fewer than it gets. It
/// may change the others, as mrjob jobs with sorted values do.
fn fields_of_combiner(spec: &JobSpec) -> Option<u32> {
    let is_program = matches!(spec.combiner, Some(Function::Command { .. }));
    let (given, taken) = (&spec.formats.map_output, spec.formats.reduce_output.as_ref()?);
    let parts = [&taken.separator, &spec.keys.separator];
    let is_one = parts.iter().all(|separator| separator.is_empty() || **separator == given.separator);
    (is_program && is_one && taken.key_fields < given.key_fields).then_some(taken.key_fields)
}

fn first_fields(count: u32) -> KeyStretch {
    KeyStretch { end: Some(FieldPlace { field: count, character: 0 }), ..KeyStretch::WHOLE }
}

/// Returns whether the partition of a key depends only on this many leading fields.
fn part_by(keys: &KeyRules, fields: u32) -> bool {
    let is_within = |stretch: &KeyStretch| stretch.end.is_some_and(|end| end.field <= fields);
    let steps = keys.order.iter().take(keys.group_steps as usize);
    match &keys.partitions {
        Some(rule) => rule.count == 1 || (!rule.stretches.is_empty() && rule.stretches.iter().all(is_within)),
        None => keys.group_steps > 0 && steps.map(|step| &step.stretch).all(is_within),
    }
}

#[cfg(test)]
mod tests {
    use super::{ships, splits};
    use ::streaming::{Request, StreamingJob};
    use api::{Segment, Split};

    fn job(text: &str) -> StreamingJob {
        let words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
        match ::streaming::parse(&words).unwrap() {
            Request::Job(job) => *job,
            Request::Help => panic!("no help was asked for"),
        }
    }

    #[test]
    fn splits_lie_in_one_file() {
        let segment = |file_index, offset_bytes| Segment { file_index, offset_bytes, length_bytes: 5 };
        let planned = vec![
            Split { segments: vec![segment(0, 0), segment(1, 0), segment(1, 5)] },
            Split { segments: vec![segment(1, 10)] },
        ];
        let got = splits(&job("-input i -output o -mapper cat"), &[], planned).unwrap();
        let sizes: Vec<usize> = got.iter().map(|split| split.segments.len()).collect();
        assert_eq!(sizes, [1, 2, 1]);
    }

    #[test]
    fn shipped_programs_are_known_by_name() {
        let job = job("-input i -output o -mapper m.py -files a/m.py,b#c");
        assert!(ships(Some(&job), "m.py") && ships(Some(&job), "c") && !ships(Some(&job), "b"));
        assert!(!ships(None, "m.py"));
    }
}
