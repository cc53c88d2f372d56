//! Fuzzes the TOML job file.
//!
//! Invariants:
//! - no text makes the parser panic, run out of stack or take long;
//! - the line of an error lies within the text, so that an editor can go there, and the message is not empty;
//! - an accepted job file, written out again key by key, is accepted as the same job file;
//! - paths that were made absolute stay as they are.

#![no_main]

use api::{Codec, JobFile, KeyOrder, Notice, Replication};
use libfuzzer_sys::fuzz_target;
use std::fmt::Write;
use std::path::Path;

fuzz_target!(|text: &str| check(text));

fn check(text: &str) {
    let mut file = match JobFile::parse(text) {
        Ok(file) => file,
        Err(error) => {
            let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
            assert!((1..=lines).contains(&error.line), "line {} of {lines}", error.line);
            assert!(!error.message.is_empty());
            return;
        }
    };
    forget_lines(&mut file);
    let mut written = String::new();
    write(&mut written, &file, "");
    let mut again = JobFile::parse(&written);
    again.iter_mut().for_each(forget_lines);
    assert_eq!(again.as_ref(), Ok(&file), "written as:\n{written}");
    file.resolve_paths(Path::new("/jobs"));
    let resolved = file.clone();
    file.resolve_paths(Path::new("/elsewhere"));
    assert_eq!(file, resolved);
}

/// The lines of stages are those of one text, and the other text has others.
fn forget_lines(file: &mut JobFile) {
    file.line = 0;
    file.stage.iter_mut().flatten().for_each(forget_lines);
}

/// The job file in the plainest TOML: each value on a line, each string quoted, each stage below a heading. `parents`
/// is the heading of its stages without the last name.
fn write(text: &mut String, file: &JobFile, parents: &str) {
    for (key, value) in written_keys(file) {
        if let Some(value) = value {
            writeln!(text, "{key} = {value}").expect("a String takes all");
        }
    }
    match file.stage.as_deref() {
        None => {}
        Some([]) => text.push_str("stage = []\n"),
        Some(stages) => {
            for stage in stages {
                writeln!(text, "[[{parents}stage]]").expect("a String takes all");
                write(text, stage, &format!("{parents}stage."));
            }
        }
    }
}

/// Each key with its value in TOML. The pattern below names each field, so that a new key does not compile before it
/// has a row here.
fn written_keys(file: &JobFile) -> Vec<(&'static str, Option<String>)> {
    macro_rules! keys {
        ($($key:ident => $written:ident,)*) => {{
            let JobFile { $($key,)* stage: _, line: _ } = file;
            vec![$((stringify!($key), $key.as_ref().map(|value| $written(value)))),*]
        }};
    }
    keys! {
        name => quoted,
        input => written_list,
        mapper => quoted,
        combiner => quoted,
        reducer => quoted,
        output => written_path,
        memory => quoted,
        slots => plain,
        state => written_path,
        disk => written_list,
        file => written_list,
        env => written_env,
        env_file => written_path,
        network => plain,
        limit => written_list,
        codec => codec_name,
        input_format => quoted,
        output_format => quoted,
        exchange => quoted,
        separator => quoted,
        key_fields => plain,
        compress => quoted,
        part_extension => quoted,
        omit_empty_parts => plain,
        order => order_name,
        reverse => plain,
        sort_keys => quoted,
        partitions => plain,
        partition_fields => quoted,
        key_tails => plain,
        total_order => plain,
        map_only => plain,
        overwrite => plain,
        keep_ifiles => plain,
        keep_for => quoted,
        max_regenerations => plain,
        no_sync => plain,
        unread => notice_name,
        empty_input => notice_name,
        speculation => plain,
        replicas => plain,
        elastic => plain,
        replication => replication_name,
        json => plain,
        from => written_list,
    }
}

fn plain<T: ToString>(value: &T) -> String {
    value.to_string()
}

/// Paths of a job file come from its text, so they are UTF-8.
fn written_path(path: &Path) -> String {
    quoted(path.to_str().expect("a path that was a string"))
}

fn written_list(list: &[String]) -> String {
    let each = list.iter().map(|each| quoted(each));
    format!("[{}]", each.collect::<Vec<_>>().join(", "))
}

/// A list where it can be one: it alone may name a variable twice, and a table alone may have `=` in a name.
fn written_env(pairs: &[(String, String)]) -> String {
    if pairs.iter().any(|(name, _)| name.contains('=')) {
        let pairs = pairs.iter().map(|(name, value)| format!("{} = {}", quoted(name), quoted(value)));
        return format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "));
    }
    let pairs = pairs.iter().map(|(name, value)| quoted(&format!("{name}={value}")));
    format!("[{}]", pairs.collect::<Vec<_>>().join(", "))
}

fn codec_name(codec: &Codec) -> String {
    let name = match codec {
        Codec::None => "none",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    };
    quoted(name)
}

fn order_name(order: &KeyOrder) -> String {
    let name = match order {
        KeyOrder::Bytes => "bytes",
        KeyOrder::Numeric => "numeric",
    };
    quoted(name)
}

fn notice_name(notice: &Notice) -> String {
    quoted(match notice {
        Notice::Tell => "tell",
        Notice::Fail => "fail",
    })
}

fn replication_name(replication: &Replication) -> String {
    let name = match replication {
        Replication::None => "none",
        Replication::Rack => "rack",
        Replication::Selective => "selective",
        Replication::Sync => "sync",
        Replication::Auto => "auto",
    };
    quoted(name)
}

/// A basic string of TOML, with everything escaped that is not plain ASCII.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            ' '..='~' => quoted.push(character),
            _ => write!(quoted, "\\U{:08X}", u32::from(character)).expect("a String takes all"),
        }
    }
    quoted.push('"');
    quoted
}
