use super::{PartitionChoice, Request, StreamingJob, parse};
use api::{Compression, Function, MapperInput, OutputFormat};

/// Words are separated by blanks; `_` stands for a blank within a word.
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(|word| word.replace('_', " ")).collect()
}

fn job(text: &str) -> StreamingJob {
    match parse(&words(&format!("-input in -output out {text}"))) {
        Ok(Request::Job(job)) => *job,
        other => panic!("{text}: {other:?}"),
    }
}

fn error(text: &str) -> String {
    match parse(&words(text)) {
        Err(error) => error.to_string(),
        Ok(request) => panic!("{text}: {request:?}"),
    }
}

fn check_error(text: &str, expected: &[&str]) {
    let error = error(&format!("-input in -output out {text}"));
    for part in expected {
        assert!(error.contains(part), "{text}: no {part:?} in {error}");
    }
}

fn command(words: &[&str]) -> Option<Function> {
    Some(Function::Command { words: words.iter().map(|word| word.to_string()).collect() })
}

#[test]
fn a_plain_job_is_read() {
    let job = job(
        "-mapper scripts/m.py_-x -reducer ./r.sh -file scripts/m.py -files r.sh,d.txt#words -cmdenv A=b=c",
    );
    assert_eq!(job.mapper, command(&["m.py", "-x"]));
    assert_eq!(job.reducer, command(&["r.sh"]));
    let links: Vec<String> =
        job.streaming.links.iter().map(|link| format!("{} {}", link.name, link.path.display())).collect();
    assert_eq!(links, ["m.py scripts/m.py", "r.sh r.sh", "words d.txt"]);
    assert_eq!(job.env, [("A".to_string(), "b=c".to_string())]);
    assert_eq!((job.inputs.as_slice(), job.output.as_str()), (&["in".to_string()][..], "out"));
    assert_eq!((job.map_only, job.partitions, job.lines_per_map), (false, PartitionChoice::Engine, None));
    let lines = OutputFormat::Lines { separator: b"\t".to_vec(), terminator: b'\n', always_separate: true };
    assert_eq!(job.formats.output, lines);
    assert_eq!(job.streaming.mapper_input, MapperInput::Lines);
    assert!(!job.streaming.any_exit_code && job.notes.is_empty());
}

#[test]
fn own_options_are_taken() {
    let job = job("-mapper cat --memory 1G --slots=3 --overwrite --no-sync=false --disk a --disk b --name n");
    assert_eq!((job.own.memory.as_deref(), job.own.slots), (Some("1G"), Some(3)));
    assert_eq!((job.own.overwrite, job.own.no_sync, job.own.disk.len()), (true, false, 2));
    assert_eq!(job.name.as_deref(), Some("n"));
    check_error("-mapper cat --slots x", &["--slots", "whole number"]);
    check_error("-mapper cat --json=maybe", &["--json", "true or false"]);
}

#[test]
fn reduce_tasks_are_counted() {
    let count = |text: &str| match job(text).partitions {
        PartitionChoice::Exactly(rule) => rule.count,
        other => panic!("{other:?}"),
    };
    assert_eq!(count("-mapper cat -reducer cat -numReduceTasks 3"), 3);
    assert_eq!(count("-mapper cat -reducer cat -D mapred.reduce.tasks=2 -numReduceTasks 2"), 2);
    for text in ["-reducer NONE", "-reducer cat -numReduceTasks 0", "-D mapreduce.job.reduces=0"] {
        let job = job(&format!("-mapper cat {text}"));
        assert!(job.map_only && job.reducer.is_none(), "{text}");
    }
    check_error(
        "-mapper cat -numReduceTasks 3 -D mapred.reduce.tasks=2",
        &["-numReduceTasks 3", "mapred.reduce.tasks=2"],
    );
    check_error("-mapper cat -reducer NONE -numReduceTasks 2", &["-reducer NONE", "2 reduce tasks"]);
    check_error("-mapper cat -numReduceTasks many", &["-numReduceTasks", "many"]);
    check_error("-mapper cat -numReduceTasks 60000", &["60000", "50000"]);
}

#[test]
fn combiners_need_a_shuffle_and_a_reducer() {
    assert_eq!(job("-mapper cat -combiner uniq -reducer uniq").combiner, command(&["uniq"]));
    check_error("-mapper cat -combiner uniq -numReduceTasks 0", &["-combiner", "without reduce tasks"]);
    check_error("-mapper cat -combiner uniq -reducer aggregate", &["-combiner", "aggregate"]);
    check_error("-mapper cat -combiner uniq", &["-combiner", "without a reducer"]);
    check_error("-mapper cat -mapper dog", &["-mapper", "twice", "dog"]);
}

#[test]
fn classes_stand_for_functions() {
    let key_value = "-inputformat KeyValueTextInputFormat";
    let job_of = |text: &str| job(&format!("{key_value} {text}"));
    let identity = job_of(
        "-mapper org.apache.hadoop.mapred.lib.IdentityMapper -reducer org.apache.hadoop.mapred.lib.IdentityReducer \
         -D key.value.separator.in.input.line=,",
    );
    assert_eq!((identity.mapper, identity.reducer), (None, None));
    assert_eq!(identity.formats.map_output.separator, b",");
    let aggregate = job("-mapper cat -reducer Aggregate");
    assert_eq!(aggregate.reducer, Some(Function::Builtin { name: "aggregate".into(), argument: None }));
    check_error("-mapper org.apache.hadoop.mapred.lib.IdentityMapper", &["IdentityMapper", "KeyValueText"]);
    check_error("-reducer cat", &["without -mapper"]);
    check_error("-mapper org.apache.hadoop.mapred.lib.RegexMapper", &["RegexMapper", "not supported"]);
    check_error("-mapper cat -inputformat SequenceFileInputFormat", &["-inputformat SequenceFile"]);
    check_error("-mapper cat -partitioner com.example.P", &["-partitioner com.example.P"]);
}

#[test]
fn mappers_read_the_records_of_input_format() {
    let check = |text: &str, expected: MapperInput| {
        assert_eq!(job(&format!("-mapper cat {text}")).streaming.mapper_input, expected, "{text}");
    };
    let tab = || b"\t".to_vec();
    check("-inputformat org.apache.hadoop.mapred.TextInputFormat", MapperInput::Lines);
    check("-D stream.map.input.ignoreKey=false", MapperInput::Numbered { separator: tab() });
    check("-inputformat KeyValueTextInputFormat", MapperInput::Pairs { split: tab(), separator: tab() });
    check(
        "-inputformat KeyValueTextInputFormat -D stream.map.input.ignoreKey=true",
        MapperInput::Values { split: tab() },
    );
    let lines = "-inputformat NLineInputFormat -D mapred.line.input.format.linespermap=7";
    check(lines, MapperInput::Numbered { separator: tab() });
    check(&format!("{lines} -D stream.map.input.ignoreKey=true"), MapperInput::Lines);
    assert_eq!(job(&format!("-mapper cat {lines}")).lines_per_map, Some(7));
    check_error(
        "-mapper cat -inputformat KeyValueTextInputFormat -D key.value.separator.in.input.line=ab",
        &["key.value.separator.in.input.line", "one character"],
    );
}

#[test]
fn separators_and_formats_are_taken() {
    let job = job(
        "-mapper cat -reducer cat -D stream.map.output.field.separator=:: -D stream.num.map.output.key.fields=2 \
         -D stream.reduce.input.field.separator=| -D stream.reduce.output.field.separator=; \
         -D stream.num.reduce.output.key.fields=3 -D mapred.textoutputformat.separator=, \
         -D mapred.output.compress=true \
         -D mapred.output.compression.codec=org.apache.hadoop.io.compress.GzipCodec \
         -D stream.non.zero.exit.is.failure=false -D mapred.job.name=my_job",
    );
    let formats = job.formats;
    assert_eq!((formats.map_output.separator.as_slice(), formats.map_output.key_fields), (&b"::"[..], 2));
    assert_eq!(formats.reduce_input_separator, b"|");
    let reduce_output = formats.reduce_output.unwrap();
    assert_eq!((reduce_output.separator.as_slice(), reduce_output.key_fields), (&b";"[..], 3));
    let lines = OutputFormat::Lines { separator: b",".to_vec(), terminator: b'\n', always_separate: true };
    assert_eq!((formats.output, formats.output_codec), (lines, Some(Compression::Gzip)));
    assert!(job.streaming.any_exit_code);
    assert_eq!(job.name.as_deref(), Some("my job"));
    check_error("-mapper cat -D mapred.output.compress=true", &["without a codec", "GzipCodec"]);
    check_error("-mapper cat -D stream.num.map.output.key.fields=0", &["key.fields", "at least 1"]);
    check_error("-mapper cat -D stream.map.output.field.separator=", &["separator", "at least one"]);
}

#[test]
fn map_only_job_parts_lines_of_its_mapper() {
    let job = job("-mapper cat -numReduceTasks 0 -D stream.map.output.field.separator=,");
    assert_eq!(job.formats.reduce_output.unwrap().separator, b",");
}

#[test]
fn partitions_follow_from_fields_and_order() {
    let fields =
        "-mapper cat -reducer cat -partitioner org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner";
    let comparator =
        "-D mapred.output.key.comparator.class=org.apache.hadoop.mapred.lib.KeyFieldBasedComparator";
    let rules = |text: &str| {
        let job = job(&format!("{fields} {text}"));
        (job.keys, job.partitions)
    };
    let secondary = format!(
        "{comparator} -D mapreduce.partition.keypartitioner.options=-k1,1 -D mapred.text.key.comparator.options=-k1,1_-k2,2nr"
    );
    let (keys, partitions) = rules(&secondary);
    assert_eq!((keys.group_steps, keys.order.len(), partitions), (1, 2, PartitionChoice::Engine));
    assert_eq!(keys.separator, b"\t");
    let (keys, partitions) =
        rules(&format!("{secondary} -numReduceTasks 4 -D map.output.key.field.separator=."));
    assert!(
        matches!(&partitions, PartitionChoice::Exactly(rule) if rule.count == 4 && rule.stretches.len() == 1)
    );
    assert_eq!((keys.group_steps, keys.separator.as_slice()), (0, &b"."[..]));
    assert_eq!(keys.partitions.map(|rule| rule.count), Some(4));
    let (_, partitions) = rules("-D num.key.fields.for.partition=2");
    assert!(
        matches!(partitions, PartitionChoice::ByBytes { stretches } if stretches[0].end.unwrap().field == 2)
    );
    let (_, partitions) = rules("");
    assert_eq!(partitions, PartitionChoice::Engine);
}

#[test]
fn options_without_effect_are_noted() {
    let job = job(
        "-mapper cat -reducer cat -D mapred.text.key.comparator.options=-n -D num.key.fields.for.partition=1",
    );
    assert!(job.keys.order.is_empty());
    assert_eq!(job.notes.len(), 2, "{:?}", job.notes);
}

#[test]
fn inputs_are_lists_of_paths() {
    let job = match parse(&words("-input a,b{1,2} file:///c -input d -output file:/o -mapper cat")) {
        Ok(Request::Job(job)) => job,
        other => panic!("{other:?}"),
    };
    assert_eq!((job.inputs.join(" ").as_str(), job.output.as_str()), ("a b1 b2 /c d", "/o"));
}

#[test]
fn missing_or_wrong_options_are_named() {
    assert!(error("-output out -mapper cat").starts_with("-input is missing"));
    assert!(error("-input in -mapper cat").starts_with("-output is missing"));
    check_error("-mapper cat_|_sort", &["\"|\"", "without a shell"]);
    check_error("-mapper cat -cmdenv A", &["-cmdenv", "NAME=VALUE"]);
    check_error("-mapper cat -io typedbytes", &["-io typedbytes"]);
    check_error("-mapper cat -fs hdfs://host", &["hdfs://host"]);
    check_error("-mapper cat -files a/x,b/x", &["a/x", "\"x\""]);
    check_error("-mapper cat -outputformat SequenceFileOutputFormat", &["SequenceFileOutputFormat"]);
    assert_eq!(parse(&words("-help")), Ok(Request::Help));
}
