//! Environment of programs of Hadoop Streaming, like that of its local runner: every property of the job, followed by
//! the properties that the task itself sets, under their new and old names.

use crate::job_data::AttemptData;
use api::{Split, Streaming, is_object_url};
use ids::AttemptKey;
use std::path::Path;

/// Input or part of an attempt.
#[derive(Clone, Copy)]
pub(crate) enum TaskPlace<'a> {
    Map(&'a Split),
    /// The number of the part.
    Reduce(u32),
}

/// Properties that Hadoop sets by itself and that scripts read.
const CONSTANT: &[(&str, &str)] = &[
    ("mapreduce_framework_name", "local"),
    ("mapreduce_job_output_key_class", "org.apache.hadoop.io.Text"),
    ("mapreduce_job_output_value_class", "org.apache.hadoop.io.Text"),
    ("mapreduce_map_output_key_class", "org.apache.hadoop.io.Text"),
    ("mapreduce_map_output_value_class", "org.apache.hadoop.io.Text"),
];

/// Returns the variables of an attempt; later ones override earlier ones of the same name.
pub(crate) fn variables(
    job: &AttemptData,
    streaming: &Streaming,
    attempt: AttemptKey,
    place: TaskPlace<'_>,
    work_dir: &Path,
) -> Vec<(String, String)> {
    let spec = &job.run.spec;
    let mut all: Vec<(String, String)> = Vec::new();
    let mut set = |names: &[&str], value: &str| {
        all.extend(names.iter().map(|name| (name.to_string(), value.to_string())));
    };
    CONSTANT.iter().for_each(|(name, value)| set(&[name], value));
    for (name, value) in &streaming.properties {
        set(&[&variable_name(name)], value);
    }
    let (is_map, partition) = match place {
        TaskPlace::Map(_) => (true, attempt.task.task.0),
        TaskPlace::Reduce(part) => (false, part),
    };
    let job_number = format!("sailfish_{:04}", attempt.task.job.0);
    let task = format!("{job_number}_{}_{partition:06}", if is_map { 'm' } else { 'r' });
    let attempt_id = format!("attempt_{task}_{}", attempt.attempt.0);
    let output = as_hadoop_has_it(&spec.output);
    set(&["mapreduce_job_name"], &spec.name);
    set(&["mapreduce_job_id", "mapred_job_id"], &format!("job_{job_number}"));
    set(&["mapreduce_task_id", "mapred_tip_id"], &format!("task_{task}"));
    set(&["mapreduce_task_attempt_id", "mapred_task_id"], &attempt_id);
    set(&["mapreduce_task_partition", "mapred_task_partition"], &partition.to_string());
    set(&["mapreduce_task_ismap", "mapred_task_is_map"], if is_map { "true" } else { "false" });
    set(&["mapreduce_output_fileoutputformat_outputdir"], &output);
    // The directory does not exist: a script that writes side files beside the output fails with an error.
    let side_files = format!("{output}/_temporary/0/_temporary/{attempt_id}");
    set(&["mapreduce_task_output_dir", "mapred_work_output_dir"], &side_files);
    set(&["mapreduce_cluster_local_dir", "mapred_local_dir"], &work_dir.to_string_lossy());
    if let Ok(user) = std::env::var("USER") {
        set(&["mapreduce_job_user_name", "user_name"], &user);
    }
    set(&["TMPDIR"], &std::env::temp_dir().to_string_lossy());
    // The splits of a streaming job are in one file each.
    if let TaskPlace::Map(split) = place
        && let Some(segment) = split.segments.first()
        && let Some(input) = spec.inputs.get(segment.file_index as usize)
    {
        let path = as_hadoop_has_it(&input.path);
        set(&["mapreduce_map_input_file", "map_input_file"], &path);
        set(&["mapreduce_map_input_start", "map_input_start"], &segment.offset_bytes.to_string());
        set(&["mapreduce_map_input_length", "map_input_length"], &segment.length_bytes.to_string());
    }
    all
}

/// Returns a path with its scheme.
fn as_hadoop_has_it(path: &Path) -> String {
    let scheme = if is_object_url(path) { "" } else { "file:" };
    format!("{scheme}{}", path.display())
}

/// Returns the variable name of a property: `_` for each character that is no ASCII letter or digit.
fn variable_name(property: &str) -> String {
    property.chars().map(|each| if each.is_ascii_alphanumeric() { each } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::variable_name;

    #[test]
    fn names_hold_letters_and_digits() {
        assert_eq!(variable_name("mapreduce.job.end-notification.url"), "mapreduce_job_end_notification_url");
        assert_eq!(variable_name("naïve.1"), "na_ve_1");
    }
}
