//! Paths in Hadoop's notation: with a scheme, in lists, with alternatives in braces.

use crate::error::StreamingError;
use api::STORED_PREFIX;
use std::path::Path;

/// Prefixes of the URLs of objects; the second is Hadoop's.
const OBJECT_SCHEMES: [&str; 2] = ["s3://", "s3a://"];
/// Maximum number of alternatives in braces of one pattern; more are a mistake.
const ALTERNATIVES_MAX: usize = 10_000;

/// Returns an input or an output: a path of this machine, or the unchanged URL of objects.
pub(crate) fn data(option: &str, text: &str) -> Result<String, StreamingError> {
    let is_object = OBJECT_SCHEMES.iter().any(|scheme| text.starts_with(scheme));
    if is_object { Ok(text.to_string()) } else { local(option, text) }
}

/// Returns a path of this machine. A leading `file:` is dropped; any other scheme is refused by name.
pub(crate) fn local(option: &str, text: &str) -> Result<String, StreamingError> {
    let Some((scheme, rest)) = text.split_once(':') else { return Ok(text.to_string()) };
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|each| each.is_ascii_alphanumeric() || "+-.".contains(each));
    if !is_scheme || !rest.starts_with('/') {
        return Ok(text.to_string());
    }
    if scheme != "file" {
        let what = format!("{option} {text}: the file system {scheme}:");
        return Err(StreamingError::not_supported(what, "files of this machine are read and written"));
    }
    let slashes = rest.len() - rest.trim_start_matches('/').len();
    match slashes {
        2 => {
            Err(StreamingError::bad_value(option, text, "a file: path has one or three slashes, file:///DIR"))
        }
        _ => Ok(format!("/{}", &rest[slashes..])),
    }
}

/// Splits a list into paths. A comma within braces separates alternatives, not paths.
pub(crate) fn list(option: &str, text: &str) -> Result<Vec<String>, StreamingError> {
    let mut paths = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    let end = text.len();
    for (at, character) in text.char_indices().chain([(end, ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 || at == end => {
                let path = &text[start..at];
                if path.is_empty() {
                    return Err(StreamingError::bad_value(option, text, "a path in the list is empty"));
                }
                paths.push(path.to_string());
                start = at + 1;
            }
            _ => {}
        }
    }
    Ok(paths)
}

/// Expands the braces of a pattern.
pub(crate) fn alternatives(option: &str, pattern: &str) -> Result<Vec<String>, StreamingError> {
    let mut done = Vec::new();
    let mut pending = vec![pattern.to_string()];
    while let Some(text) = pending.pop() {
        let Some((open, close)) = innermost_braces(&text) else {
            // Nested braces can give the same text several times.
            if !done.contains(&text) {
                done.push(text);
            }
            continue;
        };
        if done.len() + pending.len() > ALTERNATIVES_MAX {
            return Err(StreamingError::bad_value(option, pattern, "it has too many alternatives in braces"));
        }
        let (before, after) = (&text[..open], &text[close + 1..]);
        // The last brace is expanded first, so that the results keep the order of the text.
        pending.extend(text[open + 1..close].rsplit(',').map(|each| format!("{before}{each}{after}")));
    }
    Ok(done)
}

fn innermost_braces(text: &str) -> Option<(usize, usize)> {
    let close = text.find('}')?;
    let open = text[..close].rfind('{')?;
    Some((open, close))
}

/// Parses a file to ship: its path, or the name of a stored file, and its name in the work directory.
pub(crate) fn shipped(option: &str, text: &str) -> Result<(String, String), StreamingError> {
    let (path, alias) = match text.rsplit_once('#') {
        Some((path, alias)) => (path, Some(alias)),
        None => (text, None),
    };
    let path = if path.starts_with(STORED_PREFIX) { path.to_string() } else { local(option, path)? };
    let own_name = api::name_beside(Path::new(&path)).and_then(|name| name.to_str());
    let name = alias.or(own_name).unwrap_or_default();
    if name.is_empty() || name.contains('/') || matches!(name, "." | "..") {
        let expected =
            "the name in the work directory must be one word without slashes, as in data.txt#words";
        return Err(StreamingError::bad_value(option, text, expected));
    }
    let name = name.to_string();
    Ok((path, name))
}

/// Normalizes a path: without `.` parts and doubled slashes, so that two spellings compare equal.
pub(crate) fn plain(path: &str) -> String {
    let root = if path.starts_with('/') { "/" } else { "" };
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{alternatives, data, list, local, plain, shipped};

    #[test]
    fn schemes_are_dropped_or_refused() {
        let check = |text: &str, expected: &str| assert_eq!(local("-input", text).unwrap(), expected);
        check("a/b", "a/b");
        check("file:///a/b", "/a/b");
        check("file:/a/b", "/a/b");
        check("a:b", "a:b");
        for text in ["hdfs://host/a", "s3a://bucket/a", "file://host/a"] {
            let error = local("-input", text).unwrap_err().to_string();
            assert!(error.contains("-input"), "{error}");
        }
        assert_eq!(data("-input", "s3a://bucket/a").unwrap(), "s3a://bucket/a");
        assert_eq!(data("-input", "file:///a").unwrap(), "/a");
        assert!(data("-input", "hdfs://host/a").is_err());
    }

    #[test]
    fn lists_and_alternatives_are_parted() {
        assert_eq!(list("-input", "a,b{c,d},e").unwrap(), ["a", "b{c,d}", "e"]);
        assert!(list("-input", "a,,b").is_err());
        assert_eq!(alternatives("-input", "x{a,b{1,2}}y").unwrap(), ["xay", "xb1y", "xb2y"]);
        assert_eq!(alternatives("-input", "p{a,b}").unwrap(), ["pa", "pb"]);
        assert_eq!(alternatives("-input", "plain}").unwrap(), ["plain}"]);
    }

    #[test]
    fn shipped_files_have_names() {
        let check = |text: &str, path: &str, name: &str| {
            assert_eq!(shipped("-files", text).unwrap(), (path.to_string(), name.to_string()));
        };
        check("scripts/a.py", "scripts/a.py", "a.py");
        check("file:///d/a.py#b", "/d/a.py", "b");
        check("dir/", "dir/", "dir");
        check("files:bin/a.py@3", "files:bin/a.py@3", "a.py");
        check("files:/bin/a.py#b", "files:/bin/a.py", "b");
        assert!(shipped("-files", "a#b/c").is_err());
        assert!(shipped("-files", "a#").is_err());
        assert_eq!(plain("./a//b/./c"), "a/b/c");
        assert_eq!(plain("/a"), "/a");
    }
}
