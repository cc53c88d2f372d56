//! Listing of the inputs of a job: the arguments become a list of files, each pinned in its current state.

mod gzip;
pub(crate) mod line_splits;
mod seen;
pub(crate) mod source;
pub(crate) mod stored;

use api::{Compression, InputFile, RecordFormat, is_object_url};
use objects::{Found, ObjectError, ObjectUrl};
pub use seen::list_seen;
use source::{Openers, Opening, Source, Warnings};
use std::fs::{DirEntry, File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use walkdir::WalkDir;

/// First bytes of a gzip member.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// First bytes of a zstd frame.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// First bytes of an xz stream.
const XZ_MAGIC: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
/// First bytes of a bzip2 stream; a digit from 1 to 9 follows, then one of the two marks.
const BZIP2_MAGIC: &[u8] = b"BZh";
const BZIP2_BLOCK_MARK: &[u8] = &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
const BZIP2_END_MARK: &[u8] = &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
/// Bytes of memory for reading an object ahead if only its start is needed.
const LOOK_BUFFER_BYTES: usize = 1 << 20;
const GLOB_OPTIONS: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};
const WILDCARDS: [char; 3] = ['*', '?', '['];
/// Number of first bytes that identify the format.
pub const MAGIC_BYTES: u64 = 10;

/// Error of an input that cannot be used. The user is at fault; every variant names the input.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("input {} does not exist", path.display())]
    Missing { path: PathBuf },
    #[error("input {} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("input {} is neither a regular file nor a directory", path.display())]
    NotRegular { path: PathBuf },
    #[error("input directory {} contains itself through the link {}", ancestor.display(), path.display())]
    Loop { path: PathBuf, ancestor: PathBuf },
    #[error("input directory {} lies more than {depth_max} directories deep", path.display())]
    TooDeep { path: PathBuf, depth_max: usize },
    #[error("input directory {} has more than {max} files or directories: name parts of it", path.display())]
    TooMany { path: PathBuf, max: usize },
    #[error("no input matches {pattern:?}")]
    NoMatch { pattern: String },
    #[error("input pattern {pattern:?} is invalid: {source}")]
    Pattern { pattern: String, source: glob::PatternError },
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("the name of input {path:?} is not UTF-8")]
    NotUtf8 { path: PathBuf },
    #[error(
        "input {input} has a partial last record: its {size_bytes} bytes are not a multiple of the record \
         length {record_bytes}"
    )]
    PartialLastRecord { input: String, size_bytes: u64, record_bytes: u32 },
}

/// Returns the name of a file in messages: its path, or `standard input`, whose path means nothing to users.
pub fn name(input: &InputFile) -> String {
    match is_standard_input(&input.path) {
        true => "standard input".to_string(),
        false => input.path.display().to_string(),
    }
}

/// Returns whether a path comes from [`pin_open_file`]: `/proc/PROCESS/fd/NUMBER`.
pub fn is_standard_input(path: &Path) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = path.to_str().unwrap_or_default().split('/').collect();
    matches!(parts[..], ["", "proc", process, "fd", number] if is_number(process) && is_number(number))
}

/// Pins a regular file that this process has open and keeps open until the job is over. Every attempt opens it again,
/// under the name that the process has for it. Error: the file cannot be opened that way, or read.
pub fn pin_open_file(file: BorrowedFd<'_>) -> Result<InputFile, InputError> {
    let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
    let metadata = std::fs::metadata(&path).map_err(|source| unreadable(path.clone(), source))?;
    pin(&path, &metadata)
}

/// Pins a file that is open at its start, for any process that sees its path. Error: it is no regular file, or cannot be
/// read.
pub fn pin_file(path: &Path, file: &File) -> Result<InputFile, InputError> {
    let is_file = file.metadata().map_err(|source| unreadable(path.to_path_buf(), source))?.is_file();
    match (is_file, path.to_str()) {
        (false, _) => Err(InputError::NotRegular { path: path.to_path_buf() }),
        (true, None) => Err(InputError::NotUtf8 { path: path.to_path_buf() }),
        (true, Some(_)) => pin_opened(path, file),
    }
}

/// Returns the error of an input that cannot be opened.
pub fn unopened(path: &Path, source: std::io::Error) -> InputError {
    unreadable(path.to_path_buf(), source)
}

/// Refuses plain files with partial records. Compressed ones show this only when they are read.
pub fn check_whole_records(inputs: &[InputFile], format: RecordFormat) -> Result<(), InputError> {
    let RecordFormat::Fixed { record_bytes, .. } = format else {
        return Ok(());
    };
    let partial = inputs
        .iter()
        .find(|input| input.compression.is_none() && input.size_bytes % u64::from(record_bytes.max(1)) != 0);
    match partial {
        None => Ok(()),
        Some(input) => Err(InputError::PartialLastRecord {
            input: name(input),
            size_bytes: input.size_bytes,
            record_bytes,
        }),
    }
}

/// Lists the files of the arguments, in the order of the arguments. A directory stands for the files below it and a
/// glob for its matches, sorted bytewise by path; names beginning with `_` or `.` are never data unless given
/// explicitly. Links are followed. An empty directory gives no files and no error.
///
/// Each file has the position of its argument in [`InputFile::named`].
///
/// Every file is opened: its first bytes show its compression, and that it can be read at all. So is every object: a
/// URL names one, or all below a prefix, or has the wildcards of a glob in its key.
pub fn list(args: &[String]) -> Result<Vec<InputFile>, InputError> {
    let mut inputs = Vec::new();
    for (named, arg) in args.iter().enumerate() {
        let before = inputs.len();
        add(arg, &mut inputs)?;
        inputs[before..].iter_mut().for_each(|input| input.named = named as u32);
    }
    Ok(inputs)
}

fn add(arg: &str, inputs: &mut Vec<InputFile>) -> Result<(), InputError> {
    if is_object_url(Path::new(arg)) {
        return add_objects(arg, inputs);
    }
    let path = std::path::absolute(arg).and_then(|path| without_parents(&path));
    let path = path.map_err(|source| unreadable(PathBuf::from(arg), source))?;
    match std::fs::metadata(&path) {
        Ok(metadata) => add_path(&path, &metadata, inputs),
        Err(_) if arg.contains(WILDCARDS) => add_glob(arg, &path, inputs),
        Err(source) => Err(unreadable(path, source)),
    }
}

/// Returns the path without `..`: the part before the last one is resolved, as it may contain links. So the path means
/// the same on this machine and on others.
fn without_parents(path: &Path) -> std::io::Result<PathBuf> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let Some(last) = parts.iter().rposition(|part| *part == Component::ParentDir) else {
        return Ok(path.to_path_buf());
    };
    let (before, behind) = parts.split_at(last + 1);
    let mut whole = before.iter().collect::<PathBuf>().canonicalize()?;
    whole.extend(behind);
    Ok(whole)
}

/// Opens the stored bytes of an input from its start, for inspection.
pub fn open(input: &InputFile) -> std::io::Result<impl Read> {
    let opening = Opening {
        object_buffer_bytes: LOOK_BUFFER_BYTES,
        openers: Openers::default(),
        warnings: Warnings::default(),
    };
    Source::open(input, 0..input.size_bytes, &opening)
}

fn unreadable(path: PathBuf, source: std::io::Error) -> InputError {
    match source.kind() {
        std::io::ErrorKind::NotFound => InputError::Missing { path },
        _ => InputError::Unreadable { path, source },
    }
}

/// Returns whether a file or directory of this name is no data, below a directory that is an input.
pub fn never_data(name: &[u8]) -> bool {
    name.starts_with(b"_") || name.starts_with(b".")
}

fn add_objects(arg: &str, inputs: &mut Vec<InputFile>) -> Result<(), InputError> {
    let url = ObjectUrl::parse(arg)?;
    let urls = match url.key().contains(WILDCARDS) {
        true => matching_objects(arg, &url)?,
        false => named_objects(&url, arg.ends_with('/'))?,
    };
    for found in objects::pin(urls, MAGIC_BYTES)? {
        inputs.push(pinned_object(found));
    }
    Ok(())
}

/// Lists the object of this name, or the objects below it.
fn named_objects(url: &ObjectUrl, is_prefix: bool) -> Result<Vec<ObjectUrl>, InputError> {
    let below = objects::listed_below(url)?;
    let is_object = !is_prefix && !url.key().is_empty() && objects::is_object(url)?;
    match (is_object, below.is_empty()) {
        (true, true) => Ok(vec![url.clone()]),
        (true, false) => Err(ObjectError::Ambiguous { url: url.clone() }.into()),
        (false, true) => Err(ObjectError::Missing { url: url.clone() }.into()),
        (false, false) => {
            let is_data = |found: &ObjectUrl| {
                let name = found.below(url).unwrap_or_default();
                !name.split('/').any(|part| never_data(part.as_bytes()))
            };
            Ok(below.into_iter().map(|listed| listed.url).filter(is_data).collect())
        }
    }
}

/// Lists the objects whose keys match; a wildcard never matches a hidden name.
fn matching_objects(arg: &str, url: &ObjectUrl) -> Result<Vec<ObjectUrl>, InputError> {
    let pattern = glob::Pattern::new(url.key())
        .map_err(|source| InputError::Pattern { pattern: arg.to_string(), source })?;
    let written: Vec<&str> = url.key().split('/').collect();
    let literal = written.iter().take_while(|part| !part.contains(WILDCARDS));
    let above = literal.fold(format!("s3://{}", url.bucket()), |above, part| format!("{above}/{part}"));
    let above = ObjectUrl::parse(&above)?;
    let matches = |found: &ObjectUrl| {
        let hidden = |part: &str| never_data(part.as_bytes()) && !written.contains(&part);
        pattern.matches_with(found.key(), GLOB_OPTIONS) && !found.key().split('/').any(hidden)
    };
    let listed = objects::listed_below(&above)?.into_iter().map(|listed| listed.url);
    let matching: Vec<ObjectUrl> = listed.filter(matches).collect();
    match matching.is_empty() {
        true => Err(InputError::NoMatch { pattern: arg.to_string() }),
        false => Ok(matching),
    }
}

fn pinned_object(found: Found) -> InputFile {
    InputFile {
        path: PathBuf::from(found.url.to_string()),
        size_bytes: found.size_bytes,
        mtime_ns: found.modified_ns,
        compression: compression_of(&found.first_bytes),
        named: 0,
        object: Some(found.pin),
        stage_file: None,
        stored: None,
        content: None,
        seen: None,
    }
}

fn add_glob(arg: &str, absolute: &Path, inputs: &mut Vec<InputFile>) -> Result<(), InputError> {
    let pattern = absolute.to_str().ok_or_else(|| InputError::NotUtf8 { path: absolute.to_path_buf() })?;
    let unusable = |source| InputError::Pattern { pattern: arg.to_string(), source };
    glob::Pattern::new(pattern).map_err(unusable)?;
    let parts = pattern.split('/').filter(|part| !part.is_empty());
    let parts: Vec<GlobPart<'_>> = parts.map(GlobPart::parse).collect::<Result<_, _>>().map_err(unusable)?;
    let mut paths = Vec::new();
    add_matches(Path::new("/"), &parts, &mut paths)?;
    if paths.is_empty() {
        return Err(InputError::NoMatch { pattern: arg.to_string() });
    }
    paths.sort_by(|left, right| left.as_os_str().as_bytes().cmp(right.as_os_str().as_bytes()));
    // Several `**` can match it more than once.
    paths.dedup();
    for path in paths {
        let metadata = std::fs::metadata(&path).map_err(|source| unreadable(path.clone(), source))?;
        add_path(&path, &metadata, inputs)?;
    }
    Ok(())
}

/// A part of a pattern, between two slashes.
enum GlobPart<'a> {
    Written(&'a str),
    /// A name; a wildcard does not match a hidden one.
    Wild(glob::Pattern),
    /// `**`: any number of directories.
    Directories,
}

impl<'a> GlobPart<'a> {
    fn parse(part: &'a str) -> Result<Self, glob::PatternError> {
        Ok(match part {
            "**" => Self::Directories,
            part if part.contains(WILDCARDS) => Self::Wild(glob::Pattern::new(part)?),
            part => Self::Written(part),
        })
    }
}

/// Adds the paths below a directory that match the parts of a pattern. The walk of the library ends the process if it
/// meets a name that is not UTF-8.
fn add_matches(dir: &Path, parts: &[GlobPart<'_>], paths: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let Some((part, rest)) = parts.split_first() else {
        paths.push(dir.to_path_buf());
        return Ok(());
    };
    match part {
        GlobPart::Written(name) => {
            let path = dir.join(name);
            // A path that is missing, or not a directory, has no matches.
            if path.symlink_metadata().is_ok() { add_matches(&path, rest, paths) } else { Ok(()) }
        }
        GlobPart::Wild(pattern) => {
            for entry in entries_of(dir)? {
                let (name, path) = (entry.file_name(), entry.path());
                let matches = pattern.matches_with(&name.to_string_lossy(), GLOB_OPTIONS);
                if !matches || never_data(name.as_bytes()) {
                    continue;
                }
                if name.to_str().is_none() {
                    return Err(InputError::NotUtf8 { path });
                }
                if rest.is_empty() || path.is_dir() {
                    add_matches(&path, rest, paths)?;
                }
            }
            Ok(())
        }
        GlobPart::Directories => {
            add_matches(dir, rest, paths)?;
            for entry in entries_of(dir)? {
                // A link could lead in a circle.
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_dir && !never_data(entry.file_name().as_bytes()) {
                    add_matches(&entry.path(), parts, paths)?;
                }
            }
            Ok(())
        }
    }
}

fn entries_of(dir: &Path) -> Result<Vec<DirEntry>, InputError> {
    let listed = std::fs::read_dir(dir).and_then(|entries| entries.collect());
    match listed {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        listed => listed.map_err(|source| unreadable(dir.to_path_buf(), source)),
    }
}

fn add_path(path: &Path, metadata: &Metadata, inputs: &mut Vec<InputFile>) -> Result<(), InputError> {
    if !metadata.is_dir() {
        inputs.push(pin(path, metadata)?);
        return Ok(());
    }
    let walk = WalkDir::new(path).follow_links(true);
    let mut files = Vec::new();
    let is_data = |entry: &walkdir::DirEntry| entry.depth() == 0 || !never_data(entry.file_name().as_bytes());
    for entry in walk.into_iter().filter_entry(is_data) {
        let entry = entry.map_err(|error| walk_error(path, error))?;
        if entry.file_type().is_dir() {
            continue;
        }
        let metadata = entry.metadata().map_err(|error| walk_error(path, error))?;
        files.push(pin(entry.path(), &metadata)?);
    }
    files.sort_by(|left, right| left.path.as_os_str().as_bytes().cmp(right.path.as_os_str().as_bytes()));
    inputs.append(&mut files);
    Ok(())
}

fn walk_error(root: &Path, error: walkdir::Error) -> InputError {
    let path = error.path().unwrap_or(root).to_path_buf();
    if let Some(ancestor) = error.loop_ancestor() {
        return InputError::Loop { path, ancestor: ancestor.to_path_buf() };
    }
    let source = error.into_io_error().unwrap_or_else(|| std::io::ErrorKind::Other.into());
    unreadable(path, source)
}

/// Opens a file and notes its format, size and time. The type is checked before the file is opened: opening
/// a named pipe would wait for a writer.
fn pin(path: &Path, metadata: &Metadata) -> Result<InputFile, InputError> {
    if !metadata.is_file() {
        return Err(InputError::NotRegular { path: path.to_path_buf() });
    }
    if path.to_str().is_none() {
        return Err(InputError::NotUtf8 { path: path.to_path_buf() });
    }
    let file = File::open(path).map_err(|source| unreadable(path.to_path_buf(), source))?;
    pin_opened(path, &file)
}

fn pin_opened(path: &Path, file: &File) -> Result<InputFile, InputError> {
    let unreadable = |source| unreadable(path.to_path_buf(), source);
    let mut first_bytes = Vec::new();
    let mut reader = file;
    reader.by_ref().take(MAGIC_BYTES).read_to_end(&mut first_bytes).map_err(unreadable)?;
    let compression = compression_of(&first_bytes);
    let metadata = file.metadata().map_err(unreadable)?;
    let (size_bytes, mtime_ns) = pinned_facts(&metadata);
    let path = path.to_path_buf();
    Ok(InputFile {
        path,
        size_bytes,
        mtime_ns,
        compression,
        named: 0,
        object: None,
        stage_file: None,
        stored: None,
        content: None,
        seen: None,
    })
}

/// Returns the compression of a file that begins with these bytes.
pub fn compression_of(first_bytes: &[u8]) -> Option<Compression> {
    if first_bytes.starts_with(GZIP_MAGIC) {
        Some(Compression::Gzip)
    } else if first_bytes.starts_with(ZSTD_MAGIC) {
        Some(Compression::Zstd)
    } else if first_bytes.starts_with(XZ_MAGIC) {
        Some(Compression::Xz)
    } else if is_bzip2(first_bytes) {
        Some(Compression::Bzip2)
    } else {
        None
    }
}

/// Returns whether the first bytes are bzip2. A text may begin with `BZh9`, so the following marks are checked
/// too, as far as there are bytes.
fn is_bzip2(first_bytes: &[u8]) -> bool {
    let Some([b'1'..=b'9', rest @ ..]) = first_bytes.strip_prefix(BZIP2_MAGIC) else {
        return false;
    };
    [BZIP2_BLOCK_MARK, BZIP2_END_MARK].iter().any(|mark| rest.starts_with(mark) || mark.starts_with(rest))
}

/// Returns size in bytes and modification time in nanoseconds, which must not change while a job runs.
pub(crate) fn pinned_facts(metadata: &Metadata) -> (u64, i64) {
    let seconds_as_ns = metadata.mtime().saturating_mul(1_000_000_000);
    (metadata.len(), seconds_as_ns.saturating_add(metadata.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::{InputError, list};
    use api::Compression;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn names(root: &Path, args: &[&str]) -> Result<Vec<String>, InputError> {
        let args: Vec<String> = args.iter().map(|arg| root.join(arg).to_str().unwrap().to_string()).collect();
        let inputs = list(&args)?;
        let relative = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().to_string();
        Ok(inputs.iter().map(|input| relative(&input.path)).collect())
    }

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for directory in ["a", "a/b", "a/_temporary", "empty", "only_hidden"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        let files =
            ["a/b/2.txt", "a/b.txt", "a/_SUCCESS", "a/.crc", "a/_temporary/x", "only_hidden/_x", "z.txt"];
        files.iter().for_each(|file| fs::write(root.path().join(file), "text\n").unwrap());
        symlink("../z.txt", root.path().join("a/link.txt")).unwrap();
        root
    }

    #[test]
    fn files_directories_and_globs_are_listed_in_order() {
        let root = tree();
        let check =
            |args: &[&str], expected: &[&str]| assert_eq!(names(root.path(), args).unwrap(), expected);
        check(&["z.txt", "a"], &["z.txt", "a/b.txt", "a/b/2.txt", "a/link.txt"]);
        check(&["a/*.txt"], &["a/b.txt", "a/link.txt"]);
        check(&["a/*"], &["a/b/2.txt", "a/b.txt", "a/link.txt"]);
        check(&["**/2.txt", "z.txt"], &["a/b/2.txt", "z.txt"]);
        check(&["**/**/[0-9].t?t"], &["a/b/2.txt"]);
        check(&["a/../z.txt", "empty/../a/b.*"], &["z.txt", "a/b.txt"]);
        symlink("a/b", root.path().join("to-b")).unwrap();
        check(&["to-b/../b.txt"], &["a/b.txt"]);
        check(&["to-?/*"], &["to-b/2.txt"]);
    }

    #[test]
    fn files_know_by_which_argument_they_came() {
        let root = tree();
        let args = ["empty", "a/*.txt", "z.txt", "a/b", "z.txt"].map(|arg| root.path().join(arg));
        let inputs = list(&args.map(|arg| arg.to_str().unwrap().to_string())).unwrap();
        let named: Vec<u32> = inputs.iter().map(|input| input.named).collect();
        assert_eq!(named, [1, 1, 2, 3, 4]);
    }

    #[test]
    fn names_that_are_written_out_are_data() {
        let root = tree();
        let check =
            |args: &[&str], expected: &[&str]| assert_eq!(names(root.path(), args).unwrap(), expected);
        check(&["a/_SUCCESS"], &["a/_SUCCESS"]);
        check(&["a/_temporary/*"], &["a/_temporary/x"]);
        check(&["empty", "only_hidden"], &[]);
    }

    #[test]
    fn bad_inputs_are_named() {
        let root = tree();
        let error = |args: &[&str]| names(root.path(), args).unwrap_err().to_string();
        assert!(error(&["z.txt", "absent.txt"]).contains("absent.txt does not exist"));
        assert!(error(&["*.csv"]).contains("no input matches"));
        assert!(error(&["a/_t*"]).contains("no input matches"));
        assert!(error(&["[a"]).contains("is invalid"));
        fs::write(root.path().join(OsStr::from_bytes(b"z\xff")), "x").unwrap();
        assert!(error(&["z*"]).contains("is not UTF-8") && error(&["*"]).contains("is not UTF-8"));
        assert!(error(&["q*"]).contains("no input matches"));
        rustix::fs::mkfifoat(rustix::fs::CWD, root.path().join("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert!(error(&["pipe"]).contains("neither a regular file"));
        symlink(".", root.path().join("empty/again")).unwrap();
        assert!(matches!(names(root.path(), &["empty"]), Err(InputError::Loop { .. })));
        symlink("nowhere", root.path().join("broken.txt")).unwrap();
        assert!(error(&["broken.txt"]).contains("broken.txt does not exist"));
    }

    #[test]
    fn formats_are_found_by_content() {
        let root = tempfile::tempdir().unwrap();
        let rows: [(&[u8], Option<Compression>); 15] = [
            (b"", None),
            (b"\x1f", None),
            (b"\x1f\x8b\x08", Some(Compression::Gzip)),
            (b"\x28\xb5\x2f\xfd", Some(Compression::Zstd)),
            (b"text", None),
            (b"BZh91AY&SY rest", Some(Compression::Bzip2)),
            (b"BZh1\x17\x72\x45\x38\x50\x90", Some(Compression::Bzip2)),
            (b"BZh91AY", Some(Compression::Bzip2)),
            (b"BZh9", Some(Compression::Bzip2)),
            (b"BZh", None),
            (b"BZh01AY&SY", None),
            (b"BZh9 is a text", None),
            (b"\xfd7zXZ\0rest", Some(Compression::Xz)),
            (b"\xfd7zXZ", None),
            (b"\xfd7zXZ\x01", None),
        ];
        for (bytes, expected) in rows {
            let path = root.path().join("x.gz");
            fs::write(&path, bytes).unwrap();
            let input = list(&[path.to_str().unwrap().to_string()]).unwrap().remove(0);
            assert_eq!((input.compression, input.size_bytes), (expected, bytes.len() as u64));
            assert!(input.path.is_absolute() && input.mtime_ns > 0);
        }
    }
}
