//! The URL of an object, or of all objects below a prefix.

use crate::error::ObjectError;
use object_store::path::Path as Key;
use std::fmt;
use std::path::Path;

/// Schemes of S3; the second is Hadoop's.
const SCHEMES: [&str; 2] = ["s3", "s3a"];

/// URL `s3://BUCKET/KEY`. The key is used as written, without decoding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectUrl {
    bucket: String,
    key: Key,
}

impl ObjectUrl {
    /// Parses a URL. A trailing slash is ignored.
    pub fn parse(text: &str) -> Result<Self, ObjectError> {
        let bad = |reason| ObjectError::BadUrl { url: text.to_string(), reason };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        if !SCHEMES.contains(&scheme) {
            return Err(ObjectError::Scheme { url: text.to_string(), scheme: scheme.to_string() });
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty()
            || !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        {
            return Err(bad("after s3:// comes the name of a bucket, of letters, digits, dots and dashes"));
        }
        let key = key.strip_suffix('/').unwrap_or(key);
        // The library would strip other slashes at the ends, and mean another object.
        let whole = !key.starts_with('/') && !key.ends_with('/');
        let key = Key::parse(key).ok().filter(|_| whole);
        let key =
            key.ok_or_else(|| bad("its key has an empty part, a part . or .., or a control character"))?;
        Ok(Self { bucket: bucket.to_string(), key })
    }

    /// Parses the URL in a path of a job ([`api::is_object_url`]).
    pub fn from_path(path: &Path) -> Result<Self, ObjectError> {
        Self::parse(&path.to_string_lossy())
    }

    /// Returns the URL of a name below this one; the name has one or several parts.
    pub fn join(&self, name: &str) -> Result<Self, ObjectError> {
        Self::parse(&format!("{self}/{name}"))
    }

    /// Returns the parent URL, and the last part of the key; None if the key is empty.
    pub fn split(&self) -> Option<(Self, &str)> {
        let (above, name) = match self.key.as_ref().rsplit_once('/') {
            Some((above, name)) => (Key::parse(above).ok()?, name),
            None if self.key.as_ref().is_empty() => return None,
            None => (Key::default(), self.key.as_ref()),
        };
        Some((Self { bucket: self.bucket.clone(), key: above }, name))
    }

    /// Returns whether it equals the other or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.bucket == other.bucket && self.below(other).is_some()
    }

    /// Returns the rest of the key below a prefix; empty if both are equal.
    pub fn below(&self, prefix: &Self) -> Option<&str> {
        let (key, prefix) = (self.key.as_ref(), prefix.key.as_ref());
        match key.strip_prefix(prefix)? {
            "" => Some(""),
            rest if prefix.is_empty() => Some(rest),
            rest => rest.strip_prefix('/'),
        }
    }

    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the key, without a slash at either end; empty for the whole bucket.
    pub fn key(&self) -> &str {
        self.key.as_ref()
    }

    pub(crate) fn location(&self) -> &Key {
        &self.key
    }

    pub(crate) fn with_location(&self, key: Key) -> Self {
        Self { bucket: self.bucket.clone(), key }
    }
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.key.as_ref().is_empty() { Ok(()) } else { write!(f, "/{}", self.key) }
    }
}

#[cfg(test)]
mod tests {
    use super::ObjectUrl;

    fn url(text: &str) -> ObjectUrl {
        ObjectUrl::parse(text).unwrap()
    }

    #[test]
    fn urls_are_read_and_printed() {
        let check = |text: &str, printed: &str| assert_eq!(url(text).to_string(), printed);
        check("s3://b", "s3://b");
        check("s3://b/", "s3://b");
        check("s3a://b.c-d/x/y/", "s3://b.c-d/x/y");
        check("s3://b/a b%20*", "s3://b/a b%20*");
    }

    #[test]
    fn bad_urls_are_named() {
        let check = |text: &str, word: &str| {
            let error = ObjectUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(word), "{error}");
        };
        check("s3:///key", "bucket");
        check("s3://b c/key", "bucket");
        check("s3://b//key", "empty part");
        check("s3://b/key//", "empty part");
        check("s3://b/a/../c", "..");
        check("gs://b/key", "gs:");
        check("file:///x", "the path of a local file");
    }

    #[test]
    fn parts_are_taken_off_and_put_on() {
        let (above, name) = url("s3://b/x/y").split().map(|(above, name)| (above, name.to_string())).unwrap();
        assert_eq!((above.to_string().as_str(), name.as_str()), ("s3://b/x", "y"));
        assert_eq!(above.split().unwrap().0.to_string(), "s3://b");
        assert!(url("s3://b").split().is_none());
        assert_eq!(url("s3://b").join("a/c").unwrap().to_string(), "s3://b/a/c");
        let below = |left: &str, right: &str| url(left).below(&url(right)).map(str::to_string);
        assert_eq!(below("s3://b/x/y/z", "s3://b/x").as_deref(), Some("y/z"));
        assert_eq!(below("s3://b/x", "s3://b").as_deref(), Some("x"));
        assert_eq!(below("s3://b/xy", "s3://b/x"), None);
        assert!(url("s3://b/x").is_within(&url("s3://b/x")) && !url("s3://c/x").is_within(&url("s3://b/x")));
    }
}
