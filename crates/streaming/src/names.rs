//! Renamed properties: the old name and the current one.

/// (old, new). From Hadoop's table of deprecated properties, as far as a streaming job may set or read them, and
/// the names of the old Java interface that mean the same.
const RENAMED: &[(&str, &str)] = &[
    ("fs.default.name", "fs.defaultFS"),
    ("io.sort.factor", "mapreduce.task.io.sort.factor"),
    ("io.sort.mb", "mapreduce.task.io.sort.mb"),
    ("job.end.notification.url", "mapreduce.job.end-notification.url"),
    ("job.local.dir", "mapreduce.job.local.dir"),
    ("key.value.separator.in.input.line", KEY_VALUE_SEPARATOR),
    ("map.input.file", "mapreduce.map.input.file"),
    ("map.input.length", "mapreduce.map.input.length"),
    ("map.input.start", "mapreduce.map.input.start"),
    ("map.output.key.field.separator", KEY_FIELD_SEPARATOR),
    ("map.output.key.value.fields.spec", "mapreduce.fieldsel.map.output.key.value.fields.spec"),
    ("mapred.cache.archives", "mapreduce.job.cache.archives"),
    ("mapred.cache.files", "mapreduce.job.cache.files"),
    ("mapred.combiner.class", "mapreduce.job.combine.class"),
    ("mapred.compress.map.output", "mapreduce.map.output.compress"),
    ("mapred.data.field.separator", "mapreduce.fieldsel.data.field.separator"),
    ("mapred.input.dir", INPUT_DIR),
    ("mapred.input.dir.recursive", "mapreduce.input.fileinputformat.input.dir.recursive"),
    ("mapred.input.format.class", "mapreduce.job.inputformat.class"),
    ("mapred.input.pathFilter.class", "mapreduce.input.pathFilter.class"),
    ("mapred.job.id", "mapreduce.job.id"),
    ("mapred.job.map.memory.mb", "mapreduce.map.memory.mb"),
    ("mapred.job.name", JOB_NAME),
    ("mapred.job.priority", "mapreduce.job.priority"),
    ("mapred.job.queue.name", "mapreduce.job.queuename"),
    ("mapred.job.reduce.memory.mb", "mapreduce.reduce.memory.mb"),
    ("mapred.job.reuse.jvm.num.tasks", "mapreduce.job.jvm.numtasks"),
    ("mapred.job.tracker", "mapreduce.jobtracker.address"),
    ("mapred.line.input.format.linespermap", LINES_PER_MAP),
    ("mapred.linerecordreader.maxlength", "mapreduce.input.linerecordreader.line.maxlength"),
    ("mapred.local.dir", "mapreduce.cluster.local.dir"),
    ("mapred.map.max.attempts", "mapreduce.map.maxattempts"),
    ("mapred.map.output.compression.codec", "mapreduce.map.output.compress.codec"),
    ("mapred.map.task.debug.script", "mapreduce.map.debug.script"),
    ("mapred.map.tasks", "mapreduce.job.maps"),
    ("mapred.map.tasks.speculative.execution", "mapreduce.map.speculative"),
    ("mapred.mapoutput.key.class", "mapreduce.map.output.key.class"),
    ("mapred.mapoutput.value.class", "mapreduce.map.output.value.class"),
    ("mapred.mapper.class", "mapreduce.job.map.class"),
    ("mapred.max.map.failures.percent", "mapreduce.map.failures.maxpercent"),
    ("mapred.max.reduce.failures.percent", "mapreduce.reduce.failures.maxpercent"),
    ("mapred.max.split.size", "mapreduce.input.fileinputformat.split.maxsize"),
    ("mapred.min.split.size", "mapreduce.input.fileinputformat.split.minsize"),
    ("mapred.output.compress", COMPRESS),
    ("mapred.output.compression.codec", COMPRESS_CODEC),
    ("mapred.output.compression.type", "mapreduce.output.fileoutputformat.compress.type"),
    ("mapred.output.dir", OUTPUT_DIR),
    ("mapred.output.format.class", "mapreduce.job.outputformat.class"),
    ("mapred.output.key.class", "mapreduce.job.output.key.class"),
    ("mapred.output.key.comparator.class", COMPARATOR_CLASS),
    ("mapred.output.value.class", "mapreduce.job.output.value.class"),
    ("mapred.output.value.groupfn.class", "mapreduce.job.output.group.comparator.class"),
    ("mapred.partitioner.class", PARTITIONER_CLASS),
    ("mapred.reduce.max.attempts", "mapreduce.reduce.maxattempts"),
    ("mapred.reduce.task.debug.script", "mapreduce.reduce.debug.script"),
    ("mapred.reduce.tasks", REDUCES),
    ("mapred.reduce.tasks.speculative.execution", "mapreduce.reduce.speculative"),
    ("mapred.reducer.class", "mapreduce.job.reduce.class"),
    ("mapred.skip.map.max.skip.records", "mapreduce.map.skip.maxrecords"),
    ("mapred.skip.on", "mapreduce.job.skiprecords"),
    ("mapred.skip.reduce.max.skip.groups", "mapreduce.reduce.skip.maxgroups"),
    ("mapred.task.id", "mapreduce.task.attempt.id"),
    ("mapred.task.is.map", "mapreduce.task.ismap"),
    ("mapred.task.partition", "mapreduce.task.partition"),
    ("mapred.task.timeout", "mapreduce.task.timeout"),
    ("mapred.text.key.comparator.options", COMPARATOR_OPTIONS),
    ("mapred.text.key.partitioner.options", PARTITIONER_OPTIONS),
    ("mapred.textoutputformat.separator", OUTPUT_SEPARATOR),
    ("mapred.tip.id", "mapreduce.task.id"),
    ("mapred.work.output.dir", "mapreduce.task.output.dir"),
    ("mapred.working.dir", "mapreduce.job.working.dir"),
    ("mapreduce.combine.class", "mapreduce.job.combine.class"),
    ("mapreduce.inputformat.class", "mapreduce.job.inputformat.class"),
    ("mapreduce.map.class", "mapreduce.job.map.class"),
    ("mapreduce.outputformat.class", "mapreduce.job.outputformat.class"),
    ("mapreduce.partitioner.class", PARTITIONER_CLASS),
    ("mapreduce.reduce.class", "mapreduce.job.reduce.class"),
    ("mapreduce.textoutputformat.separator", OUTPUT_SEPARATOR),
    ("reduce.output.key.value.fields.spec", "mapreduce.fieldsel.reduce.output.key.value.fields.spec"),
    ("user.name", "mapreduce.job.user.name"),
];

pub(crate) const COMPARATOR_CLASS: &str = "mapreduce.job.output.key.comparator.class";
pub(crate) const COMPARATOR_OPTIONS: &str = "mapreduce.partition.keycomparator.options";
pub(crate) const COMPRESS: &str = "mapreduce.output.fileoutputformat.compress";
pub(crate) const COMPRESS_CODEC: &str = "mapreduce.output.fileoutputformat.compress.codec";
pub(crate) const INPUT_DIR: &str = "mapreduce.input.fileinputformat.inputdir";
pub(crate) const JOB_NAME: &str = "mapreduce.job.name";
pub(crate) const KEY_FIELD_SEPARATOR: &str = "mapreduce.map.output.key.field.separator";
pub(crate) const KEY_FIELDS_FOR_PARTITION: &str = "num.key.fields.for.partition";
pub(crate) const KEY_VALUE_SEPARATOR: &str = "mapreduce.input.keyvaluelinerecordreader.key.value.separator";
pub(crate) const LINES_PER_MAP: &str = "mapreduce.input.lineinputformat.linespermap";
pub(crate) const OUTPUT_DIR: &str = "mapreduce.output.fileoutputformat.outputdir";
pub(crate) const OUTPUT_SEPARATOR: &str = "mapreduce.output.textoutputformat.separator";
pub(crate) const PARTITIONER_CLASS: &str = "mapreduce.job.partitioner.class";
pub(crate) const PARTITIONER_OPTIONS: &str = "mapreduce.partition.keypartitioner.options";
pub(crate) const REDUCES: &str = "mapreduce.job.reduces";
pub(crate) const ADD_ENVIRONMENT: &str = "stream.addenvironment";
pub(crate) const EXIT_IS_FAILURE: &str = "stream.non.zero.exit.is.failure";
pub(crate) const IGNORE_KEY: &str = "stream.map.input.ignoreKey";
pub(crate) const MAP_INPUT_SEPARATOR: &str = "stream.map.input.field.separator";
pub(crate) const MAP_OUTPUT_SEPARATOR: &str = "stream.map.output.field.separator";
pub(crate) const MAP_OUTPUT_KEY_FIELDS: &str = "stream.num.map.output.key.fields";
pub(crate) const REDUCE_INPUT_SEPARATOR: &str = "stream.reduce.input.field.separator";
pub(crate) const REDUCE_OUTPUT_SEPARATOR: &str = "stream.reduce.output.field.separator";
pub(crate) const REDUCE_OUTPUT_KEY_FIELDS: &str = "stream.num.reduce.output.key.fields";
pub(crate) const TRUNCATE_LIMIT: &str = "stream.jobconf.truncate.limit";

/// Returns the current name for a name as written.
pub(crate) fn new_name(written: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == written).map_or(written, |(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use super::{RENAMED, new_name};

    #[test]
    fn names_map_once() {
        assert_eq!(new_name("mapred.reduce.tasks"), "mapreduce.job.reduces");
        assert_eq!(new_name("mapreduce.job.reduces"), "mapreduce.job.reduces");
        assert_eq!(new_name("my.own"), "my.own");
        for (index, (old, new)) in RENAMED.iter().enumerate() {
            assert!(!RENAMED[..index].iter().any(|(each, _)| each == old), "{old} stands twice");
            assert_eq!(new_name(new), *new, "{old} has a new name that is old");
        }
    }
}
