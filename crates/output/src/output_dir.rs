//! The files of an output directory. `--overwrite` may replace an output, but no file that anybody else put there.

use api::{ReportedJob, ReportedParts};
use ids::JobId;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::{DirEntry, File};
use std::io::{BufReader, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// File in each output with the figures of the job and the names of its parts.
pub const REPORT_NAME: &str = "_report.json";
/// File in each output that marks it as complete.
pub const SUCCESS_NAME: &str = "_SUCCESS";
/// Limit of a report in bytes; a part takes a few hundred bytes of it.
const REPORT_BYTES_MAX: u64 = 1 << 30;

/// An error: the directory has an entry that no job wrote, so it is not replaced.
#[derive(Debug)]
pub struct ForeignEntry {
    pub path: PathBuf,
    pub entry: OsString,
}

impl fmt::Display for ForeignEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, entry } = self;
        write!(
            formatter,
            "the output {} holds {entry:?}, which no job wrote there: --overwrite replaces only an empty directory, or one with \
             nothing but an output; choose another, or move that away",
            path.display()
        )
    }
}

impl std::error::Error for ForeignEntry {}

/// Returns the job that made an output directory, according to its report; None without a report.
pub fn job_of_output(dir: &Path) -> std::io::Result<Option<JobId>> {
    let report = open_report(dir)?;
    let made = report.and_then(|report| serde_json::from_reader::<_, ReportedJob>(report).ok());
    Ok(made.map(|made| made.job))
}

/// Returns an entry of a directory that no job wrote; None if it is empty, or has only the files that its own report
/// lists.
pub fn foreign_entry(dir: &Path) -> std::io::Result<Option<OsString>> {
    let entries = std::fs::read_dir(dir)?.collect::<std::io::Result<Vec<DirEntry>>>()?;
    if entries.is_empty() {
        return Ok(None);
    }
    // The report is parsed as a stream: only names are held in memory.
    let report =
        open_report(dir)?.and_then(|report| serde_json::from_reader::<_, ReportedParts>(report).ok());
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

/// Removes an output directory, if it has nothing but files that its own report lists. Leaves any other directory as it is.
pub fn remove(dir: &Path) -> std::io::Result<()> {
    if foreign_entry(dir)?.is_some() {
        return Ok(());
    }
    let mut entries = std::fs::read_dir(dir)?.collect::<std::io::Result<Vec<DirEntry>>>()?;
    // Without its report nothing could tell that the rest may be removed.
    entries.sort_by_key(|entry| entry.file_name() == REPORT_NAME);
    for entry in entries {
        std::fs::remove_file(entry.path())?;
    }
    std::fs::remove_dir(dir)
}

/// Returns the bytes of the report of an output; None without a report.
pub fn read_report(dir: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let Some(mut report) = open_report(dir)? else { return Ok(None) };
    let mut bytes = Vec::new();
    report.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Opens the report without following links or waiting for the writer of a pipe.
fn open_report(dir: &Path) -> std::io::Result<Option<impl Read>> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let file = match File::options().read(true).custom_flags(flags).open(dir.join(REPORT_NAME)) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        opened => opened?,
    };
    Ok(Some(BufReader::new(file.take(REPORT_BYTES_MAX))))
}

#[cfg(test)]
mod tests {
    use super::foreign_entry;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_outputs_of_ours_are_replaced() {
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
