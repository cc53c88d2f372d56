//! A mapper that waits in the middle of its input, so that a job has one map that is not over.

/// Line of the input behind which the mapper waits.
pub const LAST_WORDS: &str = "the last words\n";

/// Text of a program that hands on what it reads, and behind [`LAST_WORDS`] waits until there is a file `HERE/go`. It goes by what it reads
/// because only jobs of Hadoop Streaming are told which file that is from.
pub const LAST_WORDS_MAPPER: &str = r#"#!/bin/sh
export LC_ALL=C
exec awk '{ print } $0 == "the last words" { fflush(); while ((getline line < "HERE/go") < 0) system("sleep 0.05") }'
"#;
