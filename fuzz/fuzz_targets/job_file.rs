//! Fuzzes the TOML job file.
//!
//! Invariants:
//! - no text makes the parser panic, run out of stack or take long;
//! - the line of an error lies within the text, so that an editor can go there, and the message is not empty;
//! - an accepted job file, written out again key by key, is accepted as the same job file;
//! - paths that were made absolute stay as they are.

#![no_main]

use api::{Codec, JobFile};
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
    let written = write(&file);
    assert_eq!(JobFile::parse(&written).as_ref(), Ok(&file), "written as:\n{written}");
    file.resolve_paths(Path::new("/jobs"));
    let resolved = file.clone();
    file.resolve_paths(Path::new("/elsewhere"));
    assert_eq!(file, resolved);
}

/// The job file in the plainest TOML: each value on a line, each string quoted.
fn write(file: &JobFile) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            writeln!(text, "{name} = {value}").expect("a String takes all");
        }
    };
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().and_then(|path| path.to_str()).map(quoted);
    let list = |list: &Option<Vec<String>>| {
        let each = list.as_ref()?.iter().map(|each| quoted(each));
        Some(format!("[{}]", each.collect::<Vec<_>>().join(", ")))
    };
    line("name", file.name.as_deref().map(quoted));
    line("input", list(&file.input));
    line("mapper", file.mapper.as_deref().map(quoted));
    line("combiner", file.combiner.as_deref().map(quoted));
    line("reducer", file.reducer.as_deref().map(quoted));
    line("output", path(&file.output));
    line("memory", file.memory.as_deref().map(quoted));
    line("slots", file.slots.map(|slots| slots.to_string()));
    line("state", path(&file.state));
    line("disk", list(&file.disk));
    line("file", list(&file.file));
    line("env", file.env.as_deref().map(written_env));
    line("codec", file.codec.map(codec_name));
    for (name, flag) in [
        ("total_order", file.total_order),
        ("map_only", file.map_only),
        ("overwrite", file.overwrite),
        ("keep_ifiles", file.keep_ifiles),
        ("no_sync", file.no_sync),
        ("json", file.json),
    ] {
        line(name, flag.map(|flag| flag.to_string()));
    }
    text
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

fn codec_name(codec: Codec) -> String {
    let name = match codec {
        Codec::None => "none",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
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
