//! What `--overwrite` may replace: an output, and nothing that anybody else put there.

use serde::Deserialize;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{DirEntry, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// In each output: what the job did, with the names of its parts.
pub const REPORT_NAME: &str = "_report.json";
/// In each output: it is whole.
pub const SUCCESS_NAME: &str = "_SUCCESS";
/// A part takes a few hundred bytes of a report.
const REPORT_BYTES_MAX: u64 = 1 << 30;

/// What a report says of names.
#[derive(Deserialize)]
struct Listed {
    parts: Vec<ListedPart>,
}

#[derive(Deserialize)]
struct ListedPart {
    name: String,
}

/// An entry of a directory that no job of ours wrote there; None where it is empty, or has only what its own report lists.
pub fn foreign_entry(dir: &Path) -> std::io::Result<Option<OsString>> {
    let entries = std::fs::read_dir(dir)?.collect::<std::io::Result<Vec<DirEntry>>>()?;
    if entries.is_empty() {
        return Ok(None);
    }
    let report = read_report(dir)?.and_then(|report| serde_json::from_slice::<Listed>(&report).ok());
    let of_parts = report.map(|report| report.parts.into_iter().map(|part| part.name));
    let listed: Option<HashSet<String>> = of_parts.map(|names| {
        let of_each = [REPORT_NAME, SUCCESS_NAME].map(str::to_string);
        names.chain(of_each).collect()
    });
    for entry in entries {
        let name = entry.file_name();
        let listed = listed.as_ref().zip(name.to_str());
        let is_listed = listed.is_some_and(|(listed, name)| listed.contains(name));
        if !is_listed || !entry.file_type()?.is_file() {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// The report of an output, where it has one. No link is followed, and no writer of a pipe waited for.
pub fn read_report(dir: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let file = match File::options().read(true).custom_flags(flags).open(dir.join(REPORT_NAME)) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        opened => opened?,
    };
    let mut report = Vec::new();
    file.take(REPORT_BYTES_MAX).read_to_end(&mut report)?;
    Ok(Some(report))
}

#[cfg(test)]
mod tests {
    use super::foreign_entry;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_output_is_ours_and_all_else_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let foreign = || foreign_entry(&out).unwrap().map(|name| name.into_string().unwrap());
        let write = |name: &str, text: &str| fs::write(out.join(name), text).unwrap();
        fs::create_dir(&out).unwrap();
        assert_eq!(foreign(), None);
        write("_SUCCESS", "");
        assert_eq!(foreign().as_deref(), Some("_SUCCESS"), "what another engine left");
        write(
            "_report.json",
            "{\"parts\": [{\"name\": \"part-00000\", \"bytes\": 3}, {\"name\": \"part-00001\"}]}",
        );
        write("part-00000", "abc");
        assert_eq!(foreign(), None);
        for (name, make) in [
            ("id_rsa", Box::new(|| write("id_rsa", "")) as Box<dyn Fn()>),
            (".hidden", Box::new(|| write(".hidden", ""))),
            ("part-00002", Box::new(|| write("part-00002", ""))),
            ("directory", Box::new(|| fs::create_dir(out.join("directory")).unwrap())),
            ("part-00001", Box::new(|| symlink("part-00000", out.join("part-00001")).unwrap())),
        ] {
            make();
            assert_eq!(foreign().as_deref(), Some(name));
            let removed = fs::remove_file(out.join(name)).or_else(|_| fs::remove_dir(out.join(name)));
            removed.unwrap();
        }
        assert_eq!(foreign(), None);
        for report in ["", "{}", "{\"parts\": []}", "[1]", "{\"parts\": 7}"] {
            write("_report.json", report);
            assert!(foreign().is_some(), "{report}");
        }
        fs::remove_file(out.join("_report.json")).unwrap();
        symlink("/dev/zero", out.join("_report.json")).unwrap();
        assert!(foreign_entry(&out).is_err(), "a link is no report");
    }
}
