//! Listing and pinning of objects.

use crate::error::ObjectError;
use crate::reader::check_answer;
use crate::store::{store, wait};
use crate::url::ObjectUrl;
use api::ObjectPin;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::list::PaginatedListOptions;
use object_store::{GetOptions, GetRange};

/// Objects of one listing.
const LISTED_MAX: usize = 1_000_000;
/// Number of objects that are pinned in parallel.
const PINNED_AT_ONCE: usize = 16;

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub url: ObjectUrl,
    pub size_bytes: u64,
}

/// The current state of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub url: ObjectUrl,
    pub size_bytes: u64,
    /// Time of its last change in nanoseconds since 1970.
    pub modified_ns: i64,
    pub pin: ObjectPin,
    pub first_bytes: Vec<u8>,
}

/// Lists the objects below a prefix, like files below a directory, in bytewise order of their keys. Empty objects are
/// omitted: they have no data, and some tools write them in place of directories.
pub fn listed_below(prefix: &ObjectUrl) -> Result<Vec<Listed>, ObjectError> {
    wait(list(prefix.clone(), LISTED_MAX, |size_bytes| size_bytes > 0))
}

pub(crate) async fn list(
    prefix: ObjectUrl,
    objects_max: usize,
    counts: fn(u64) -> bool,
) -> Result<Vec<Listed>, ObjectError> {
    let store = store(&prefix)?;
    let mut found = store.list(Some(prefix.location()));
    let mut listed = Vec::new();
    let failed = |error| match ObjectError::of_store("list", &prefix, &error) {
        // Only a bucket can be missing from a listing.
        ObjectError::Missing { url } => ObjectError::NoBucket { url },
        error => error,
    };
    while let Some(object) = found.try_next().await.map_err(failed)? {
        if !counts(object.size) {
            continue;
        }
        if listed.len() == objects_max {
            return Err(ObjectError::TooMany { url: prefix.clone(), max: objects_max });
        }
        listed.push(Listed { url: prefix.with_location(object.location), size_bytes: object.size });
    }
    listed.sort_by(|left, right| left.url.cmp(&right.url));
    Ok(listed)
}

/// Returns whether there is an object of exactly this name.
pub fn is_object(url: &ObjectUrl) -> Result<bool, ObjectError> {
    let url = url.clone();
    wait(async move {
        // It is the first of all keys that begin with this one.
        let options = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
        let listed = store(&url)?.list_paginated(Some(url.key()), options).await;
        let listed = listed.map_err(|error| ObjectError::of_store("list", &url, &error))?;
        Ok(listed.result.objects.first().is_some_and(|object| object.location == *url.location()))
    })
}

/// Records the current state of each object, and reads its first bytes.
pub fn pin(urls: Vec<ObjectUrl>, first_bytes: u64) -> Result<Vec<Found>, ObjectError> {
    wait(async move {
        let pins = stream::iter(urls).map(|url| pin_one(url, first_bytes));
        pins.buffered(PINNED_AT_ONCE).try_collect().await
    })
}

async fn pin_one(url: ObjectUrl, first_bytes: u64) -> Result<Found, ObjectError> {
    let failed = |error: object_store::Error| ObjectError::of_store("read", &url, &error);
    let store = store(&url)?;
    let range = Some(GetRange::Bounded(0..first_bytes));
    let options = GetOptions { range, ..GetOptions::default() };
    let answer = match store.get_opts(url.location(), options).await.map_err(failed) {
        // An empty object has no such range.
        Err(ObjectError::Changed { .. }) => {
            let options = GetOptions { head: true, ..GetOptions::default() };
            store.get_opts(url.location(), options).await.map_err(failed)?
        }
        answer => answer?,
    };
    let meta = answer.meta.clone();
    let bytes = match meta.size {
        0 => Bytes::new(),
        _ => answer.bytes().await.map_err(failed)?,
    };
    check_answer(&url, &(0..first_bytes.min(meta.size)), &bytes)?;
    Ok(Found {
        size_bytes: meta.size,
        modified_ns: meta.last_modified.timestamp_nanos_opt().unwrap_or_default(),
        pin: ObjectPin { etag: meta.e_tag, version: meta.version },
        first_bytes: bytes.to_vec(),
        url,
    })
}
