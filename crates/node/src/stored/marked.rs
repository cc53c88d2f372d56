//! Small files of one line, with a version and a checksum in a second line.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use trust::TrustError;

const VERSION: u32 = 1;
/// Maximum bytes of such a file.
const BYTES_MAX: u64 = 4096;

/// The line of a small file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MarkedLine {
    Intact(String),
    Missing,
    Damaged,
}

fn marked(line: &str) -> String {
    format!("{line}\nversion {VERSION} crc32c {:08x}\n", crc32c::crc32c(line.as_bytes()))
}

/// Reads the line of a file.
pub(crate) fn read_line(path: &Path) -> std::io::Result<MarkedLine> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(MarkedLine::Missing),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    Ok(match marked(line) == text {
        true => MarkedLine::Intact(line.to_string()),
        false => MarkedLine::Damaged,
    })
}

/// Writes a file that only its owner may read, whole and synced; replaces a file of that name.
pub(crate) fn write_line(path: &Path, line: &str) -> Result<(), TrustError> {
    trust::write_private(path, &marked(line))
}

#[cfg(test)]
mod tests {
    use super::{MarkedLine, read_line, write_line};

    #[test]
    fn every_flipped_bit_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("name");
        assert_eq!(read_line(&path).unwrap(), MarkedLine::Missing);
        write_line(&path, "a line").unwrap();
        assert_eq!(read_line(&path).unwrap(), MarkedLine::Intact("a line".into()));
        let whole = std::fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, flipped).unwrap();
            assert_eq!(read_line(&path).unwrap(), MarkedLine::Damaged, "bit {bit}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read_line(&path).unwrap(), MarkedLine::Damaged, "{length} bytes");
        }
    }
}
