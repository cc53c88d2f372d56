//! Names of logical files.

use ids::FileVersion;
use std::fmt;

/// Longest component of a name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Before a name where paths are possible too.
const PREFIX: &str = "files:";
/// Longest name, in bytes.
pub const PATH_BYTES_MAX: usize = 4095;

/// Reason why a text is no name of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("it has {bytes} bytes; at most {PATH_BYTES_MAX} are allowed")]
    LongPath { bytes: usize },
    #[error("a part of it has {bytes} bytes; at most {NAME_BYTES_MAX} are allowed")]
    LongComponent { bytes: usize },
    #[error("`{0}` cannot be a part of it")]
    Dots(&'static str),
    #[error("it has an empty part")]
    Empty,
    #[error("it has a zero byte")]
    Zero,
    #[error("it is not UTF-8")]
    NotText,
    #[error("a part of it ends like a version (`@` and digits)")]
    LooksLikeVersion,
    /// It would be read as the prefix of names.
    #[error("a part of it begins with `files:`")]
    LooksLikePrefix,
}

/// The name of a logical file or directory: its components; none is the root. Shown without a leading slash.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath {
    components: Vec<String>,
}

/// A name, perhaps at a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeName {
    pub path: TreePath,
    pub version: Option<FileVersion>,
}

/// Checks a component of a name.
pub fn check_component(name: &str) -> Result<(), NameError> {
    match name {
        "" => Err(NameError::Empty),
        "." => Err(NameError::Dots(".")),
        ".." => Err(NameError::Dots("..")),
        _ if name.len() > NAME_BYTES_MAX => Err(NameError::LongComponent { bytes: name.len() }),
        _ if name.contains('\0') => Err(NameError::Zero),
        _ if split_version(name).1.is_some() => Err(NameError::LooksLikeVersion),
        _ if name.starts_with(PREFIX) => Err(NameError::LooksLikePrefix),
        _ => Ok(()),
    }
}

/// Splits `NAME@DIGITS`.
fn split_version(text: &str) -> (&str, Option<FileVersion>) {
    let split = text
        .rsplit_once('@')
        .filter(|(_, digits)| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    match split.and_then(|(name, digits)| Some((name, digits.parse().ok()?))) {
        Some((name, version)) => (name, Some(FileVersion(version))),
        None => (text, None),
    }
}

impl TreePath {
    /// Parses `a/b/c`, with or without slashes at the ends.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.len() > PATH_BYTES_MAX {
            return Err(NameError::LongPath { bytes: text.len() });
        }
        let inner = text.strip_prefix('/').unwrap_or(text);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        if inner.is_empty() {
            return Ok(Self::default());
        }
        let components: Vec<String> = inner.split('/').map(str::to_string).collect();
        components.iter().try_for_each(|component| check_component(component))?;
        Ok(Self { components })
    }

    pub fn components(&self) -> &[String] {
        &self.components
    }

    pub fn is_root(&self) -> bool {
        self.components.is_empty()
    }

    /// Returns the name of an entry of this directory.
    pub fn child(&self, name: &str) -> Result<Self, NameError> {
        check_component(name)?;
        let mut components = self.components.clone();
        components.push(name.to_string());
        let child = Self { components };
        match child.to_string().len() {
            bytes if bytes > PATH_BYTES_MAX => Err(NameError::LongPath { bytes }),
            _ => Ok(child),
        }
    }

    /// Returns the last component; none for the root.
    pub fn last(&self) -> Option<&str> {
        self.components.last().map(String::as_str)
    }

    /// Returns whether this is `other`, or lies in it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.components.starts_with(&other.components)
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_root() {
            true => f.write_str("/"),
            false => f.write_str(&self.components.join("/")),
        }
    }
}

impl TreeName {
    /// Parses `[files:]NAME[@VERSION]`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let text = text.strip_prefix(PREFIX).unwrap_or(text);
        let (path, version) = split_version(text);
        Ok(Self { path: TreePath::parse(path)?, version })
    }
}

impl TreeName {
    /// Returns the end of a sentence that says that there is no such file.
    pub fn advice(&self) -> &'static str {
        match self.version {
            Some(_) => " any more, or there never was: `put --keep-versions N` keeps older versions",
            None => "",
        }
    }
}

impl fmt::Display for TreeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(f, "{}@{version}", self.path),
            None => self.path.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NameError, TreeName, TreePath};
    use ids::FileVersion;

    #[test]
    fn names_are_parsed_and_shown() {
        let check = |text: &str, shown: &str, version: Option<i64>| {
            let name = TreeName::parse(text).unwrap();
            assert_eq!((name.path.to_string(), name.version), (shown.to_string(), version.map(FileVersion)));
        };
        check("a/b", "a/b", None);
        check("/a/b/", "a/b", None);
        check("files:a b/\nc@12", "a b/\nc", Some(12));
        check("files:/", "/", None);
        check("a@b", "a@b", None);
        check("", "/", None);
        check("/@7", "/", Some(7));
    }

    #[test]
    fn other_names_are_refused() {
        let check =
            |text: &str, expected: NameError| assert_eq!(TreePath::parse(text), Err(expected), "{text}");
        check("a/../b", NameError::Dots(".."));
        check("./a", NameError::Dots("."));
        check("a//b", NameError::Empty);
        check("a\0", NameError::Zero);
        check("a@1/b", NameError::LooksLikeVersion);
        check("/files:a", NameError::LooksLikePrefix);
        check(&"x".repeat(256), NameError::LongComponent { bytes: 256 });
        check(&"x/".repeat(2048), NameError::LongPath { bytes: 4096 });
        assert!(TreePath::parse(&"x".repeat(255)).is_ok());
        let deep = TreePath::parse(&"x/".repeat(2040)).unwrap();
        assert_eq!(deep.child(&"y".repeat(100)), Err(NameError::LongPath { bytes: 4180 }));
    }
}
