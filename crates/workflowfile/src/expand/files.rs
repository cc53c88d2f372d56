//! Files that match.

use super::error::ExpansionError;
use super::pattern::{Part, may_match};
use super::stored::{StoredEntry, StoredListing, is_of_store};
use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// As a shell does it: `*` matches no slash and no hidden name.
pub const GLOB_OPTIONS: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// A pattern of a name between two slashes.
pub enum NamePattern<'a> {
    Fixed(String),
    Glob(glob::Pattern),
    Wild(Vec<Part<'a>>),
}

impl NamePattern<'_> {
    /// Returns whether a name matches. Wildcards may differ here that must have the same value in the whole path.
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Fixed(fixed) => fixed == name,
            Self::Glob(pattern) => pattern.matches_with(name, GLOB_OPTIONS),
            Self::Wild(parts) => may_match(parts, name),
        }
    }

    /// Returns text with which all names that match begin.
    fn prefix(&self) -> &str {
        match self {
            Self::Fixed(fixed) => fixed,
            Self::Glob(pattern) => glob_prefix(pattern.as_str()),
            Self::Wild(parts) => match parts.first() {
                Some(Part::Text(text)) => text,
                _ => "",
            },
        }
    }
}

/// Returns the text of a glob before its first special character.
pub fn glob_prefix(pattern: &str) -> &str {
    pattern.split(['*', '?', '[']).next().unwrap_or_default()
}

struct Entry {
    /// Shown with replacement characters if it is not UTF-8.
    name: String,
    is_utf8: bool,
    is_dir: bool,
    is_file: bool,
}

/// Directories, each listed once. The walks of libraries end the process at a name that is not UTF-8.
pub struct Disk<'a> {
    pub stored: StoredListing<'a>,
    listings: BTreeMap<String, Rc<Vec<Entry>>>,
}

impl<'a> Disk<'a> {
    pub fn new(stored: StoredListing<'a>) -> Self {
        Self { stored, listings: BTreeMap::new() }
    }

    /// Returns the paths of the files below a directory whose names match one by one, in order.
    pub fn matching(
        &mut self,
        base: &str,
        names: &[NamePattern<'_>],
        pattern: &str,
    ) -> Result<Vec<String>, ExpansionError> {
        let mut found = Vec::new();
        self.walk(base, names, pattern, &mut found)?;
        found.sort();
        Ok(found)
    }

    fn walk(
        &mut self,
        dir: &str,
        names: &[NamePattern<'_>],
        pattern: &str,
        found: &mut Vec<String>,
    ) -> Result<(), ExpansionError> {
        let Some((name, rest)) = names.split_first() else { return Ok(()) };
        if let NamePattern::Fixed(name) = name {
            let path = format!("{dir}/{name}");
            if !rest.is_empty() {
                return self.walk(&path, rest, pattern, found);
            }
            let is_file = match is_of_store(&path) {
                true => self.stored.partitions(&path)?.is_some(),
                false => Path::new(&path).is_file(),
            };
            found.extend(is_file.then_some(path));
            return Ok(());
        }
        let listing = self.listing(dir)?;
        let prefix = name.prefix();
        let first = listing.partition_point(|entry| entry.name.as_str() < prefix);
        let like = listing[first..].iter().take_while(|entry| entry.name.starts_with(prefix));
        for entry in like.filter(|entry| name.matches(&entry.name)) {
            let path = format!("{dir}/{}", entry.name);
            let is_wanted = if rest.is_empty() { entry.is_file } else { entry.is_dir };
            if is_wanted && !entry.is_utf8 {
                let pattern = pattern.to_string();
                return Err(ExpansionError::NotUtf8 { pattern, path: PathBuf::from(path) });
            }
            match rest.is_empty() {
                true if is_wanted => found.push(path),
                false if is_wanted => self.walk(&path, rest, pattern, found)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Lists a directory in order of names. A missing one has no names.
    fn listing(&mut self, dir: &str) -> Result<Rc<Vec<Entry>>, ExpansionError> {
        if let Some(listing) = self.listings.get(dir) {
            return Ok(listing.clone());
        }
        if is_of_store(dir) {
            let entry =
                |StoredEntry { name, is_dir }| Entry { name, is_utf8: true, is_dir, is_file: !is_dir };
            return Ok(Rc::new(self.stored.entries(dir)?.into_iter().map(entry).collect()));
        }
        let path = PathBuf::from(if dir.is_empty() { "/" } else { dir });
        let unlistable = |source| ExpansionError::Unlistable { path: path.clone(), source };
        let mut entries = Vec::new();
        match path.read_dir() {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(unlistable(error)),
            Ok(listed) => {
                for listed in listed {
                    entries.push(entry(&listed.map_err(unlistable)?));
                }
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let listing = Rc::new(entries);
        self.listings.insert(dir.to_string(), listing.clone());
        Ok(listing)
    }
}

fn entry(listed: &DirEntry) -> Entry {
    let name = listed.file_name();
    // A symbolic link counts as the file that it leads to; one that leads nowhere is neither.
    let kind = listed.file_type().ok();
    let kind = match kind.is_some_and(|kind| kind.is_symlink()) {
        true => listed.path().metadata().ok().map(|metadata| metadata.file_type()),
        false => kind,
    };
    Entry {
        name: name.to_string_lossy().into_owned(),
        is_utf8: name.to_str().is_some(),
        is_dir: kind.is_some_and(|kind| kind.is_dir()),
        is_file: kind.is_some_and(|kind| kind.is_file()),
    }
}
