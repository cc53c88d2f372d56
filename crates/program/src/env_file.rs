//! Files with variables for programs (`--env-file`): one per line, `NAME=VALUE`. No message shows a value.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// More than the kernel allows a program for arguments and environment together.
const FILE_BYTES_MAX: u64 = 2 << 20;

/// Reason why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum EnvFileError {
    #[error("cannot read the environment file {path}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the environment file {path} has more than {FILE_BYTES_MAX} bytes, the limit of a program's environment", path = path.display())]
    TooLarge { path: PathBuf },
    #[error("line {line} of {path} is not NAME=VALUE: a name has no spaces, and does not begin with a digit", path = path.display())]
    NoVariable { path: PathBuf, line: usize },
    #[error("line {line} of {path} is not UTF-8, or has a zero byte", path = path.display())]
    NoText { path: PathBuf, line: usize },
}

/// Reads the variables of a file, in its order. Empty lines and lines that begin with `#` are skipped; a value is the
/// unchanged text after the first `=`.
pub fn read_env_file(path: &Path) -> Result<Vec<(String, String)>, EnvFileError> {
    let unreadable = |source| EnvFileError::Unreadable { path: path.to_path_buf(), source };
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    if read.map_err(unreadable)? as u64 > FILE_BYTES_MAX {
        return Err(EnvFileError::TooLarge { path: path.to_path_buf() });
    }
    let mut variables = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line_number = index + 1;
        let text = std::str::from_utf8(line).ok().filter(|text| !text.contains('\0'));
        let text =
            text.ok_or_else(|| EnvFileError::NoText { path: path.to_path_buf(), line: line_number })?;
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let variable = text.split_once('=').filter(|(name, _)| is_name(name));
        let (name, value) = variable
            .ok_or_else(|| EnvFileError::NoVariable { path: path.to_path_buf(), line: line_number })?;
        variables.push((name.to_string(), value.to_string()));
    }
    Ok(variables)
}

fn is_name(name: &str) -> bool {
    let is_in_name = |c: char| c.is_alphanumeric() || "_.-".contains(c);
    name.chars().all(is_in_name) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{EnvFileError, read_env_file};

    fn read(bytes: &[u8]) -> Result<Vec<(String, String)>, EnvFileError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("env");
        std::fs::write(&path, bytes).unwrap();
        read_env_file(&path)
    }

    #[test]
    fn values_stand_as_they_are_written() {
        let read = read(b"# why\n\nA=1\nB=x=y \"z\" # no comment\r\nC=\nA=2").unwrap();
        let expected = [("A", "1"), ("B", "x=y \"z\" # no comment"), ("C", ""), ("A", "2")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_string(), value.to_string())));
    }

    #[test]
    fn wrong_variable_is_reported_by_line_without_value() {
        for (bytes, line) in [
            (&b"A=1\nhunter2"[..], 2),
            (b"=hunter2", 1),
            (b"A B=hunter2", 1),
            (b"1A=hunter2", 1),
            (b"A=hunter2\xff", 1),
            (b"\nA=hunter2\0", 2),
        ] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line} ")) && !error.contains("hunter2"), "{error}");
        }
        assert!(matches!(read(&vec![b'#'; (2 << 20) + 1]), Err(EnvFileError::TooLarge { .. })));
        let missing = read_env_file(std::path::Path::new("/nothing/here")).unwrap_err();
        assert!(missing.to_string().contains("/nothing/here"));
    }
}
