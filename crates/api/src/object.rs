//! Objects of an object store in place of files and directories: paths that are URLs.

use serde::{Deserialize, Serialize};
use std::path::Path;
use utoipa::ToSchema;

/// Properties of an object at submit, besides its size. A reader refuses any other object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectPin {
    /// Entity tag of its content in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Version, from a bucket with versions: this one is read even if there is a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Returns whether a path is the URL of an object or of a prefix of objects: `SCHEME://...`.
pub fn is_object_url(path: &Path) -> bool {
    let Some((scheme, _)) = path.to_str().and_then(|text| text.split_once("://")) else { return false };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|each| each.is_ascii_alphanumeric() || "+-.".contains(each))
}

#[cfg(test)]
mod tests {
    use super::is_object_url;
    use std::path::Path;

    #[test]
    fn urls_are_told_from_paths() {
        let check = |text: &str, expected| assert_eq!(is_object_url(Path::new(text)), expected, "{text}");
        check("s3://bucket/key", true);
        check("gs://bucket", true);
        check("/s3://bucket", false);
        check("a/b://c", false);
        check("s3:/bucket", false);
        check("://x", false);
    }
}
