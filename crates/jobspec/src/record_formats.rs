//! The options for the conversion between bytes and records: `--input-format`, `--output-format`, `--separator`,
//! `--key-fields`, `--compress`.

use anyhow::{Context, bail, ensure};
use api::{Compression, Exchange, FieldSplit, Formats, Function, OutputFormat, PartExtension, RecordFormat};

/// Format options as written on the command line or in a job file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    pub input_format: Option<String>,
    pub output_format: Option<String>,
    pub exchange: Option<String>,
    pub separator: Option<String>,
    pub key_fields: Option<u32>,
    pub compress: Option<String>,
    pub part_extension: Option<String>,
    pub omit_empty_parts: bool,
}

/// The functions of a job, as far as they affect the formats.
#[derive(Clone, Copy, Debug)]
pub struct Functions<'a> {
    pub mapper: Option<&'a Function>,
    pub combiner: Option<&'a Function>,
    pub reducer: Option<&'a Function>,
    pub map_only: bool,
}

impl Functions<'_> {
    fn any_program(&self) -> bool {
        [self.mapper, self.combiner, self.reducer].into_iter().flatten().any(is_program)
    }

    /// Returns whether a program writes the output.
    fn program_is_last(&self) -> bool {
        (if self.map_only { self.mapper } else { self.reducer }).is_some_and(is_program)
    }
}

fn is_program(function: &Function) -> bool {
    matches!(function, Function::Command { .. })
}

/// Checks the options and makes the formats of a job. Errors name the option.
pub fn formats(options: &FormatOptions, functions: Functions<'_>) -> anyhow::Result<Formats> {
    let input = match &options.input_format {
        Some(text) => input_format(text).with_context(|| format!("--input-format {text:?}"))?,
        None => RecordFormat::TEXT,
    };
    let FieldSplit { separator, key_fields } = field_split(options.separator.as_deref(), options.key_fields)?;
    let exchange = exchange(options.exchange.as_deref(), input)?;
    check_separator(&separator, input, exchange, functions)?;
    let in_fixed = matches!(input, RecordFormat::Fixed { .. });
    if options.key_fields.is_some() && in_fixed && !functions.any_program() {
        bail!(
            "--key-fields has no meaning for records of fixed length: write --input-format \
               fixed:RECORD_BYTES:KEY_BYTES"
        );
    }
    let map_output = FieldSplit { separator: separator.clone(), key_fields };
    let lines =
        |terminator| OutputFormat::Lines { separator: separator.clone(), terminator, always_separate: false };
    let output = match options.output_format.as_deref() {
        None | Some("lines") => lines(b'\n'),
        Some("nul") => lines(0),
        Some("raw") => OutputFormat::Raw,
        Some("discard") => OutputFormat::Discard,
        Some(other) => bail!("--output-format {other:?} is not known: choose lines, nul, raw or discard"),
    };
    // Printed lines are parsed only if they must end differently.
    let ends_otherwise =
        matches!(output, OutputFormat::Lines { terminator, .. } if terminator != exchange.terminator());
    let reduce_output = (ends_otherwise && functions.program_is_last()).then(|| map_output.clone());
    let output_codec = options.compress.as_deref().map(output_codec).transpose()?;
    if output == OutputFormat::Discard && output_codec.is_some() {
        bail!("--compress has no meaning with --output-format discard: leave one of them out");
    }
    let part_extension = options.part_extension.clone().map(PartExtension::try_from).transpose();
    let part_extension = part_extension.context("--part-extension")?;
    Ok(Formats {
        input,
        map_output,
        reduce_input_separator: separator,
        reduce_output,
        output,
        output_codec,
        part_extension,
        omit_empty_parts: options.omit_empty_parts,
        combiner_key_fields: None,
        exchange,
    })
}

fn field_split(separator: Option<&str>, key_fields: Option<u32>) -> anyhow::Result<FieldSplit> {
    let separator = match separator {
        Some(text) => unescape(text).with_context(|| format!("--separator {text:?}"))?,
        None => FieldSplit::default().separator,
    };
    let key_fields = key_fields.unwrap_or(1);
    ensure!(key_fields > 0, "--key-fields 0: a key has at least one field");
    Ok(FieldSplit { separator, key_fields })
}

/// Checks the options for the keys of records outside of jobs, and returns the division of lines into key and value.
/// Errors name the option.
pub fn keys_of_records(
    records: RecordFormat,
    separator: Option<&str>,
    key_fields: Option<u32>,
) -> anyhow::Result<FieldSplit> {
    if key_fields.is_some() && matches!(records, RecordFormat::Fixed { .. }) {
        bail!(
            "--key-fields has no meaning for records of fixed length: write --records fixed:RECORD_BYTES:KEY_BYTES"
        );
    }
    let split = field_split(separator, key_fields)?;
    let functions = Functions { mapper: None, combiner: None, reducer: None, map_only: false };
    check_separator(&split.separator, records, Exchange::Lines, functions)?;
    Ok(split)
}

/// Returns the exchange with programs; by default its records end like those of the input.
fn exchange(text: Option<&str>, input: RecordFormat) -> anyhow::Result<Exchange> {
    let is_nul = input == RecordFormat::Lines { terminator: 0 };
    match text {
        None if is_nul => Ok(Exchange::Nul),
        None | Some("lines") => Ok(Exchange::Lines),
        Some("nul") => {
            ensure!(
                is_nul,
                "--exchange nul needs --input-format nul: programs would read other records than they print"
            );
            Ok(Exchange::Nul)
        }
        Some("frames") => Ok(Exchange::Frames),
        Some(other) => bail!("--exchange {other:?} is not known: choose lines, nul or frames"),
    }
}

fn input_format(text: &str) -> anyhow::Result<RecordFormat> {
    match text {
        "lines" => return Ok(RecordFormat::TEXT),
        "nul" => return Ok(RecordFormat::Lines { terminator: 0 }),
        "stretches" => return Ok(RecordFormat::Stretches),
        _ => {}
    }
    let Some(sizes) = text.strip_prefix("fixed:") else {
        bail!(
            "is not known: choose lines, nul, fixed:RECORD_BYTES[:KEY_BYTES], as in fixed:100:10, or stretches"
        );
    };
    let number = |text: &str| {
        text.parse::<u32>().with_context(|| format!("{text:?} is not a number of bytes, as in fixed:100:10"))
    };
    let (record_bytes, key_bytes) = match sizes.split_once(':') {
        Some((record, key)) => (number(record)?, number(key)?),
        None => (number(sizes)?, number(sizes)?),
    };
    ensure!(record_bytes > 0, "a record has at least one byte");
    ensure!(
        (1..=record_bytes).contains(&key_bytes),
        "a key has at least one byte and at most the {record_bytes} of its record"
    );
    Ok(RecordFormat::Fixed { record_bytes, key_bytes })
}

fn output_codec(text: &str) -> anyhow::Result<Compression> {
    Ok(match text {
        "gzip" => Compression::Gzip,
        "zstd" => Compression::Zstd,
        "bzip2" => Compression::Bzip2,
        "xz" => Compression::Xz,
        other => bail!("--compress {other:?} is not known: choose gzip, zstd, bzip2 or xz"),
    })
}

/// Returns an error for a separator that no line can contain.
fn check_separator(
    separator: &[u8],
    input: RecordFormat,
    exchange: Exchange,
    functions: Functions<'_>,
) -> anyhow::Result<()> {
    ensure!(!separator.is_empty(), "--separator is empty: give one or more bytes, as in --separator ,");
    let terminator = match input {
        RecordFormat::Lines { terminator } => Some(terminator),
        RecordFormat::Stretches => Some(b'\n'),
        RecordFormat::Fixed { .. } => None,
    };
    ensure!(
        !terminator.is_some_and(|terminator| separator.contains(&terminator)),
        "--separator holds the byte that ends each record, so it cannot separate a key from its value"
    );
    ensure!(
        !(separator.contains(&b'\n') && exchange != Exchange::Nul && functions.any_program()),
        "--separator holds a line end, but the programs of this job read and write lines"
    );
    Ok(())
}

/// Replaces the escapes `\t`, `\0`, `\n`, `\\` and `\xNN` of a text by bytes.
fn unescape(text: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(backslash) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..backslash]);
        let escape = &rest[backslash + 1..];
        let (byte, length) = match escape.as_bytes().first() {
            Some(b't') => (b'\t', 1),
            Some(b'n') => (b'\n', 1),
            Some(b'0') => (0, 1),
            Some(b'\\') => (b'\\', 1),
            Some(b'x') => {
                let digits = escape.get(1..3).filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
                let digits = digits.context("two hexadecimal digits must follow \\x")?;
                (u8::from_str_radix(digits, 16).context("two hexadecimal digits must follow \\x")?, 3)
            }
            _ => bail!("t, n, 0, \\ or xNN must follow a backslash"),
        };
        bytes.push(byte);
        rest = &escape[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{FormatOptions, Functions, formats, unescape};
    use api::{Compression, Exchange, FieldSplit, Formats, Function, OutputFormat, RecordFormat};

    const BUILTINS: Functions<'_> =
        Functions { mapper: None, combiner: None, reducer: None, map_only: false };

    fn options(input: &str, output: &str, separator: &str) -> FormatOptions {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_string());
        FormatOptions {
            input_format: given(input),
            output_format: given(output),
            separator: given(separator),
            ..FormatOptions::default()
        }
    }

    #[test]
    fn options_become_formats() {
        assert_eq!(formats(&options("", "", ""), BUILTINS).unwrap(), Formats::default());
        assert_eq!(formats(&options("lines", "lines", "\\t"), BUILTINS).unwrap(), Formats::default());
        let input = |text: &str| formats(&options(text, "", ""), BUILTINS).unwrap().input;
        assert_eq!(input("stretches"), RecordFormat::Stretches);
        assert_eq!(input("nul"), RecordFormat::Lines { terminator: 0 });
        assert_eq!(input("fixed:100:10"), RecordFormat::TERA);
        assert_eq!(input("fixed:8"), RecordFormat::Fixed { record_bytes: 8, key_bytes: 8 });
        let given = FormatOptions {
            key_fields: Some(2),
            compress: Some("bzip2".to_string()),
            part_extension: Some(".txt".to_string()),
            ..options("", "nul", "::")
        };
        let made = formats(&given, BUILTINS).unwrap();
        assert_eq!(made.part_name(7), "part-00007.txt.bz2");
        let split = FieldSplit { separator: b"::".to_vec(), key_fields: 2 };
        assert_eq!((&made.map_output, made.reduce_input_separator.as_slice()), (&split, &b"::"[..]));
        assert_eq!((made.output_codec, &made.reduce_output), (Some(Compression::Bzip2), &None));
        let output = OutputFormat::Lines { separator: b"::".to_vec(), terminator: 0, always_separate: false };
        assert_eq!(made.output, output);
        let cat = Function::parse("cat").unwrap();
        let program = Functions { reducer: Some(&cat), ..BUILTINS };
        assert_eq!(formats(&given, program).unwrap().reduce_output, Some(split));
        assert_eq!(formats(&options("", "raw", ""), program).unwrap().reduce_output, None);
    }

    fn check_refused(given: FormatOptions, functions: Functions<'_>, expected: &str) {
        let error = format!("{:#}", formats(&given, functions).unwrap_err());
        assert!(error.contains(expected), "expected {expected:?}, got {error:?}");
    }

    #[test]
    fn bad_formats_are_refused() {
        for (text, expected) in [
            ("text", "choose lines, nul, fixed"),
            ("fixed", "choose lines, nul, fixed"),
            ("fixed:", "not a number of bytes"),
            ("fixed:1e3", "not a number of bytes"),
            ("fixed:0", "at least one byte"),
            ("fixed:10:0", "at most the 10"),
            ("fixed:10:11", "at most the 10"),
            ("fixed:10:1:2", "not a number of bytes"),
        ] {
            check_refused(options(text, "", ""), BUILTINS, expected);
            check_refused(options(text, "", ""), BUILTINS, "--input-format");
        }
        check_refused(options("", "csv", ""), BUILTINS, "choose lines, nul, raw or discard");
        check_refused(options("", "", "\\q"), BUILTINS, "--separator");
        check_refused(options("", "", "a\\n"), BUILTINS, "ends each record");
        check_refused(options("nul", "", "\\0"), BUILTINS, "ends each record");
        let empty = FormatOptions { separator: Some(String::new()), ..FormatOptions::default() };
        check_refused(empty, BUILTINS, "--separator is empty");
        let cat = Function::parse("cat").unwrap();
        let program = Functions { mapper: Some(&cat), ..BUILTINS };
        let exchange = |how: &str, given| FormatOptions { exchange: Some(how.to_string()), ..given };
        check_refused(exchange("lines", options("nul", "", "\\n")), program, "line end");
        assert_eq!(formats(&options("nul", "", "\\n"), program).unwrap().exchange, Exchange::Nul);
        check_refused(exchange("nul", options("", "", "")), program, "needs --input-format nul");
        check_refused(exchange("pigeons", options("", "", "")), program, "choose lines, nul or frames");
        let fields = |key_fields, input: &str| FormatOptions {
            key_fields: Some(key_fields),
            ..options(input, "", "")
        };
        check_refused(fields(0, ""), BUILTINS, "at least one field");
        check_refused(fields(2, "fixed:10"), BUILTINS, "has no meaning");
        assert!(formats(&fields(2, "fixed:10"), program).is_ok());
        let compress = |text: &str, output: &str| FormatOptions {
            compress: Some(text.to_string()),
            ..options("", output, "")
        };
        check_refused(compress("lz4", ""), BUILTINS, "gzip, zstd, bzip2 or xz");
        check_refused(compress("gzip", "discard"), BUILTINS, "has no meaning");
        for text in ["", ".", "parquet", "./x", "..", ".a.b", ".a b", ".12345678901234567"] {
            let part_extension = Some(text.to_string());
            let given = FormatOptions { part_extension, ..FormatOptions::default() };
            check_refused(given, BUILTINS, "--part-extension: an extension is a dot");
        }
    }

    #[test]
    fn escapes_stand_for_bytes() {
        let check = |text: &str, expected: &[u8]| assert_eq!(unescape(text).unwrap(), expected, "{text}");
        check("", b"");
        check(", ", b", ");
        check("\\t", b"\t");
        check("a\\0\\\\b\\x1f\\xFF", b"a\0\\b\x1f\xff");
        check("ä", "ä".as_bytes());
        for bad in ["\\", "\\x", "\\x1", "\\xg0", "\\x1ä", "\\z", "\\ä"] {
            assert!(unescape(bad).is_err(), "{bad}");
        }
    }
}
