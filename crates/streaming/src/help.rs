//! The page that `sailfish streaming --help` prints.

/// The help text: everything that is supported.
pub const HELP: &str = "\
Runs a Hadoop Streaming command line on this machine: put the words after `hadoop jar hadoop-streaming.jar`
after `sailfish streaming`. Scripts run unchanged. Unsupported options are refused by name.

Usage: sailfish streaming [options]

Options of Hadoop, with one dash or two:
  -input PATH...           files, directories, globs, lists with commas; repeatable
  -output DIR              appears whole or not at all
  -mapper CMD              a command (split at blanks, no shell), builtin:NAME, or
                           org.apache.hadoop.mapred.lib.IdentityMapper
  -combiner CMD            a command or builtin:NAME
  -reducer CMD             a command, builtin:NAME, aggregate, NONE, or
                           org.apache.hadoop.mapred.lib.IdentityReducer
  -file PATH...            file or directory put where programs start; repeatable
  -files PATH[#NAME],...   the same, under another name with #
  -cacheFile PATH#NAME     the same
  -numReduceTasks N        exactly N parts, each from one reducer; 0: map only; default: chosen from the data
  -partitioner CLASS       HashPartitioner, KeyFieldBasedPartitioner
  -inputformat CLASS       TextInputFormat, KeyValueTextInputFormat, NLineInputFormat
  -outputformat CLASS      TextOutputFormat, NullOutputFormat
  -cmdenv NAME=VALUE       environment of programs; repeatable
  -D NAME=VALUE            property; also -DNAME=VALUE, -jobconf NAME=VALUE; repeatable
  -lazyOutput              leave out parts without records
  -io text, -fs file:///, -jt local, -verbose, -debug      accepted, without effect

Supported properties, by new or old name:
  mapreduce.job.reduces, mapreduce.job.name
  mapreduce.job.partitioner.class, mapreduce.partition.keypartitioner.options, num.key.fields.for.partition
  mapreduce.job.output.key.comparator.class (KeyFieldBasedComparator), mapreduce.partition.keycomparator.options
  mapreduce.map.output.key.field.separator
  stream.map.input.field.separator, stream.map.input.ignoreKey
  stream.map.output.field.separator, stream.num.map.output.key.fields
  stream.reduce.input.field.separator
  stream.reduce.output.field.separator, stream.num.reduce.output.key.fields
  stream.non.zero.exit.is.failure, stream.addenvironment, stream.jobconf.truncate.limit
  mapreduce.input.keyvaluelinerecordreader.key.value.separator
  mapreduce.input.lineinputformat.linespermap
  mapreduce.output.textoutputformat.separator
  mapreduce.output.fileoutputformat.compress, .compress.codec (GzipCodec, BZip2Codec, ZStandardCodec)
Properties that only tune Hadoop are accepted. Programs find every property in their environment, with _ for
each character that is no letter or digit.

Options of Sailfish, with two dashes, as for `sailfish run`:
  --memory SIZE  --slots N  --state DIR  --disk DIR  --codec lz4|zstd|none  --name NAME
  --overwrite  --no-sync  --keep-ifiles  --json  --server URL  --token-file FILE  --ca FILE  --proxy URL
  --replication none|rack|selective|auto|sync

Example:
  sailfish streaming -input logs -output hits -mapper map.py -reducer 'python3 reduce.py' \\
      -file map.py -file reduce.py -numReduceTasks 4

What differs from Hadoop: docs/streaming.md
";
