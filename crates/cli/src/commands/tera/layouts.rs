//! Checks of the layout of input rows, for errors and notes: a wrong file is the most common mistake.

use crate::show::terminal::tell;
use anyhow::{Context, bail};
use api::InputFile;
use std::io::Read;
use tera::{ROW_BYTES, RowKind, RowLayout};

/// Number of rows that are checked at the start of each file.
const ROWS_LOOKED_AT: usize = 64;
/// Bytes of an ascii row whose line end has lost its CR.
const BARE_LINE_BYTES: usize = ROW_BYTES - 1;

/// Checks the first rows of each plain file. Fails for rows of another layout than requested, and for files that end
/// within a row; warns on standard error if no layout was requested and the rows match none.
pub fn check(inputs: &[InputFile], wanted: Option<RowLayout>) -> anyhow::Result<()> {
    let mut seen: Option<(RowLayout, &InputFile)> = None;
    let mut noted = false;
    for input in inputs.iter().filter(|input| input.compression.is_none() && input.size_bytes > 0) {
        let path = input.path.display();
        let start = start_of(input).with_context(|| format!("cannot read input {path}"))?;
        let left_bytes = input.size_bytes % ROW_BYTES as u64;
        if left_bytes != 0 {
            let rows = input.size_bytes / ROW_BYTES as u64;
            bail!(
                "input {path} ends with a partial record: it has {} bytes, and {left_bytes} are left after {rows} \
                 rows of {ROW_BYTES}{}",
                input.size_bytes,
                hint(&start)
            );
        }
        let found = RowKind::recognise(&start);
        match (wanted, found) {
            (Some(wanted), found) if found != Some(wanted) => {
                let looks = found.map_or("like no known layout".to_string(), |found| found.to_string());
                bail!("the rows of input {path} are not {wanted}: they look {looks}{}", hint(&start));
            }
            (None, None) if !noted => {
                noted = true;
                tell(&format!(
                    "sailfish: note: the rows of input {path} match no layout of the sort benchmark; \
                     each is read as {ROW_BYTES} bytes with a key of {} bytes{}",
                    tera::KEY_BYTES,
                    hint(&start)
                ));
            }
            _ => {}
        }
        match (seen, found) {
            (Some((before, of)), Some(now)) if before != now && !noted => {
                noted = true;
                let of = of.path.display();
                tell(&format!("sailfish: note: the rows of {of} look {before}, those of {path} look {now}"));
            }
            (None, Some(now)) => seen = Some((now, input)),
            _ => {}
        }
    }
    Ok(())
}

fn start_of(input: &InputFile) -> std::io::Result<Vec<u8>> {
    let mut start = Vec::new();
    mapper::input::open(input)?.take((ROWS_LOOKED_AT * ROW_BYTES) as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Returns a guess why bytes are not rows, for the end of a message; empty if there is none.
fn hint(start: &[u8]) -> &'static str {
    let ends_line = |bytes: usize| start.get(bytes - 1) == Some(&b'\n');
    if ends_line(BARE_LINE_BYTES) {
        return "; its lines have 99 bytes: ascii rows end with CR LF, and here the CR is lost";
    }
    let text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    match start.iter().all(text) && !ends_line(ROW_BYTES) {
        true => "; it looks like text: `sailfish run --total-order` sorts lines",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use api::InputFile;
    use tera::{RowGenerator, RowKind, RowLayout};

    fn verdict(bytes: &[u8], wanted: Option<RowLayout>) -> Result<(), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let input = InputFile {
            path: file.path().to_path_buf(),
            size_bytes: bytes.len() as u64,
            mtime_ns: 0,
            compression: None,
            named: 0,
            object: None,
            stage_file: None,
            stored: None,
            content: None,
            seen: None,
        };
        check(&[input], wanted).map_err(|error| error.to_string())
    }

    fn refused(bytes: &[u8], wanted: Option<RowLayout>, text: &str) {
        let error = verdict(bytes, wanted).unwrap_err();
        assert!(error.contains(text), "{error}");
    }

    #[test]
    fn wrong_rows_are_named() {
        let mut rows = vec![0; 1000];
        RowGenerator::new(RowKind::uniform(RowLayout::Ascii), 0).fill(&mut rows);
        verdict(&rows, None).unwrap();
        verdict(&rows, Some(RowLayout::Ascii)).unwrap();
        verdict(b"", Some(RowLayout::Ascii)).unwrap();
        refused(&rows, Some(RowLayout::Modern), "are not modern: they look ascii");
        refused(&rows[..950], None, "950 bytes, and 50 are left after 9 rows of 100");
        let unix: Vec<u8> = rows.iter().copied().filter(|byte| *byte != b'\r').collect();
        refused(&unix, None, "the CR is lost");
        verdict(&[0; 300], None).unwrap();
        refused(&[0; 300], Some(RowLayout::Legacy), "look like no known layout");
        refused(b"some text\n", None, "it looks like text");
    }
}
