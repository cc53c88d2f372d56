//! Publication of an output as a unit, and its removal.
//!
//! ```text
//!   OUT/_sailfish-OWNER-jobN/.part-00003.attempt-1    record of an upload (written before its first byte)
//!   OUT/_sailfish-OWNER-jobN/commit                   the output is decided: its uploads are completed
//!   OUT/part-00003 ...                                appear one by one, whole, once it is decided
//!   OUT/_report.json, OUT/_SUCCESS                    in this order, last
//! ```
//! An object store has no rename, but a multipart upload is invisible until a process that knows its id and the tags of
//! its pieces completes it: the record has both. So parts are uploaded while a job runs, and a commit only completes
//! them. Every step of it may be repeated, by another node or by the next process. A process that finds the record
//! `commit` after a crash continues from there; without it nothing was ever visible. Objects are marked with the name
//! of their record, which distinguishes a part of this job from any other object of that name.
//!
//! Publication is not atomic here, unlike in a directory. A reader that does not wait for `_SUCCESS` may see some parts
//! of an output that is being published. If an output is replaced, the older one is removed while the new one appears;
//! its `_SUCCESS` is removed first.

use crate::error::ObjectError;
use crate::listing::{Listed, list};
use crate::record::{CommitRecord, UploadRecord, WholeUpload};
use crate::store::{delete, get, put, store, wait};
use crate::url::ObjectUrl;
use api::ReportedParts;
use api::task::Part;
use faults::{CrashPoint, crash_point};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::multipart::PartId;
use object_store::{Attribute, Attributes, GetOptions};
use std::collections::BTreeSet;

/// Prefix of the name of each staging prefix, which is never data, and of nothing else that we make or remove.
const MARK: &str = "_sailfish-";
const COMMIT_NAME: &str = "commit";
const REPORT_NAME: &str = "_report.json";
const SUCCESS_NAME: &str = "_SUCCESS";
/// Metadata of a part: the name of the record of its upload, with that of the staging prefix.
const ATTRIBUTE: &str = "sailfish-upload";
/// Maximum parallel requests of a commit or a cleanup.
const REQUESTS_AT_ONCE: usize = 16;
/// Maximum objects of an output and of a staging prefix. A part has a number of five digits, and a few attempts.
const OBJECTS_MAX: usize = 1_000_000;

/// An output to be published.
#[derive(Clone, Debug)]
pub struct Publication {
    pub staging: ObjectUrl,
    pub parts: Vec<Part>,
    /// The bytes of `_report.json`.
    pub report: Vec<u8>,
    pub overwrite: bool,
}

/// Returns the staging prefix of a job whose output is a prefix. The name must be unique to the job, worldwide.
pub fn staging_of(output: &ObjectUrl, unique_name: &str) -> Result<ObjectUrl, ObjectError> {
    output.join(&format!("{MARK}{unique_name}"))
}

/// Returns the output of a staging prefix.
pub(crate) fn output_of(staging: &ObjectUrl) -> Result<ObjectUrl, ObjectError> {
    match staging.split() {
        Some((output, name)) if name.starts_with(MARK) => Ok(output),
        _ => Err(ObjectError::BadUrl {
            url: staging.to_string(),
            reason: "it is not a staging prefix of sailfish",
        }),
    }
}

pub(crate) fn attribute_of(record_url: &ObjectUrl) -> Attributes {
    Attributes::from_iter([(Attribute::Metadata(ATTRIBUTE.into()), mark_of(record_url))])
}

/// Returns the last two parts of its key.
fn mark_of(record_url: &ObjectUrl) -> String {
    match record_url.split() {
        Some((staging, name)) => format!("{}/{name}", staging.split().map_or("", |(_, last)| last)),
        None => String::new(),
    }
}

/// Returns whether an output has anything but the staging of jobs.
pub fn is_taken(output: &ObjectUrl) -> Result<bool, ObjectError> {
    let output = output.clone();
    wait(async move { Ok(!published(&output).await?.is_empty()) })
}

/// Returns the report of an output, if there is one.
pub fn report_of(output: &ObjectUrl) -> Result<Option<Vec<u8>>, ObjectError> {
    let report = output.join(REPORT_NAME)?;
    wait(async move { Ok(get(report).await?.map(|bytes| bytes.to_vec())) })
}

/// Refuses an output with objects that its own report does not list.
pub fn check_replaceable(output: &ObjectUrl) -> Result<(), ObjectError> {
    let output = output.clone();
    wait(async move {
        let published = published(&output).await?;
        let report = match published.is_empty() {
            true => return Ok(()),
            false => get(output.join(REPORT_NAME)?).await?,
        };
        let report = report.and_then(|bytes| serde_json::from_slice::<ReportedParts>(&bytes).ok());
        let of_parts = report.iter().flat_map(|report| &report.parts).map(|part| part.name.as_str());
        let of_each = [REPORT_NAME, SUCCESS_NAME].into_iter().filter(|_| report.is_some());
        let listed: BTreeSet<&str> = of_parts.chain(of_each).collect();
        let names = published.iter().map(|url| url.below(&output).unwrap_or_default());
        match names.into_iter().find(|name| !listed.contains(name)) {
            None => Ok(()),
            Some(name) => Err(ObjectError::NotOurs { url: output.clone(), key: name.to_string() }),
        }
    })
}

/// Checks, before a job runs for hours, that this process may write parts there; leaves nothing behind.
pub fn check_writable(output: &ObjectUrl) -> Result<(), ObjectError> {
    let object = output.join("part-00000")?;
    wait(async move {
        let failed = |error| ObjectError::of_store("write", &object, &error);
        let store = store(&object)?;
        let upload = store.create_multipart(object.location()).await.map_err(failed)?;
        store.abort_multipart(object.location(), &upload).await.map_err(failed)
    })
}

/// Lists the objects of an output, without the staging of jobs.
async fn published(output: &ObjectUrl) -> Result<Vec<ObjectUrl>, ObjectError> {
    let listed = list(output.clone(), OBJECTS_MAX, |_| true).await?;
    let is_staging = |url: &ObjectUrl| url.below(output).is_some_and(|name| name.starts_with(MARK));
    Ok(listed.into_iter().map(|listed: Listed| listed.url).filter(|url| !is_staging(url)).collect())
}

/// Returns whether a commit of this job was decided, and must be completed or undone.
pub fn is_decided(staging: &ObjectUrl) -> Result<bool, ObjectError> {
    let commit = staging.join(COMMIT_NAME)?;
    wait(async move { Ok(get(commit).await?.is_some()) })
}

/// Publishes an output; returns true if it replaced an older one. Any process may repeat it, until the staging prefix
/// is discarded. `is_cancelled` is checked a last time before the decision.
pub fn publish(publication: Publication, is_cancelled: &dyn Fn() -> bool) -> Result<bool, ObjectError> {
    let Publication { staging, parts, report, overwrite } = publication;
    let output = output_of(&staging)?;
    let commit_url = staging.join(COMMIT_NAME)?;
    let uploads = wait(records_of(staging.clone(), parts.clone()))?;
    let mut replaced = false;
    if !is_decided(&staging)? {
        replaced = is_taken(&output)?;
        if replaced && !overwrite {
            return Err(ObjectError::Appeared { url: output });
        }
        check_replaceable(&output)?;
    }
    if is_cancelled() {
        return Err(ObjectError::Cancelled);
    }
    crash_point(CrashPoint::CommitBeforePartRename);
    wait(put(commit_url.clone(), CommitRecord::of_report(&report).to_bytes()))?;
    crash_point(CrashPoint::CommitAfterPartRename);
    if overwrite {
        wait(delete(output.join(SUCCESS_NAME)?))?;
    }
    wait(complete_all(output.clone(), uploads))?;
    if overwrite {
        wait(remove_older(output.clone(), parts))?;
    }
    wait(put(output.join(REPORT_NAME)?, report))?;
    crash_point(CrashPoint::CommitReportWritten);
    if !is_decided(&staging)? {
        // The job was abandoned meanwhile and all of it was removed.
        return Err(ObjectError::Cancelled);
    }
    crash_point(CrashPoint::CommitBeforeSync);
    wait(put(output.join(SUCCESS_NAME)?, Vec::new()))?;
    crash_point(CrashPoint::CommitAfterSync);
    Ok(replaced)
}

/// An upload to be completed.
struct Ready {
    record_url: ObjectUrl,
    upload: String,
    name: String,
    whole: WholeUpload,
}

async fn records_of(staging: ObjectUrl, parts: Vec<Part>) -> Result<Vec<Ready>, ObjectError> {
    let read = |part: Part| {
        let staging = staging.clone();
        async move {
            let record_url = staging.join(&part.attempt_name)?;
            let damaged = |what| ObjectError::Damaged { url: record_url.clone(), what };
            let bytes = get(record_url.clone()).await?.ok_or_else(|| damaged("the record is missing"))?;
            let record = UploadRecord::parse(&record_url, &bytes)?;
            let whole = record.whole.ok_or_else(|| damaged("the upload is not complete"))?;
            if whole.bytes != part.bytes || record.name != part.name {
                return Err(damaged("it belongs to another part than the result says"));
            }
            Ok(Ready { record_url, upload: record.upload, name: record.name, whole })
        }
    };
    stream::iter(parts).map(read).buffered(REQUESTS_AT_ONCE).try_collect().await
}

async fn complete_all(output: ObjectUrl, uploads: Vec<Ready>) -> Result<(), ObjectError> {
    let complete = |ready: Ready| {
        let output = output.clone();
        async move {
            let object = output.join(&ready.name)?;
            let pieces = ready.whole.tags.into_iter().map(|content_id| PartId { content_id }).collect();
            let store = store(&object)?;
            match store.complete_multipart(object.location(), &ready.upload, pieces).await {
                Ok(_) => Ok(()),
                // An earlier attempt of the commit got this far.
                Err(_) if comes_from(&object, &ready.record_url).await? => Ok(()),
                Err(error) => Err(ObjectError::of_store("complete", &object, &error)),
            }
        }
    };
    stream::iter(uploads).map(complete).buffer_unordered(REQUESTS_AT_ONCE).try_collect().await
}

/// Returns whether an object was made by the upload of a record.
async fn comes_from(object: &ObjectUrl, record_url: &ObjectUrl) -> Result<bool, ObjectError> {
    let options = GetOptions { head: true, ..GetOptions::default() };
    let found = match store(object)?.get_opts(object.location(), options).await {
        Err(object_store::Error::NotFound { .. }) => return Ok(false),
        found => found.map_err(|error| ObjectError::of_store("look at", object, &error))?,
    };
    let mark = found.attributes.get(&Attribute::Metadata(ATTRIBUTE.into()));
    Ok(mark.is_some_and(|mark| **mark == *mark_of(record_url)))
}

/// Removes the parts of an older output that the new one does not have. Other new objects are not ours.
async fn remove_older(output: ObjectUrl, parts: Vec<Part>) -> Result<(), ObjectError> {
    let names = parts.iter().map(|part| part.name.as_str()).chain([REPORT_NAME]);
    let new: BTreeSet<&str> = names.collect();
    let older = published(&output).await?.into_iter();
    let is_older_part = |name: &str| is_part_name(name) && !new.contains(name);
    let older = older.filter(|url| url.below(&output).is_some_and(is_older_part));
    stream::iter(older).map(delete).buffer_unordered(REQUESTS_AT_ONCE).try_collect().await
}

/// Returns whether a name is that of a part: `part-00003`, with or without the extension of a codec.
fn is_part_name(name: &str) -> bool {
    let number = name.strip_prefix("part-").map(|rest| rest.split('.').next().unwrap_or_default());
    number.is_some_and(|number| number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit()))
        && !name.contains('/')
}

/// Removes all remains of a job: its uploads, its records, and the visible part of an output that was decided but not
/// published. A published output stays.
pub fn discard(staging: &ObjectUrl) -> Result<(), ObjectError> {
    let (staging, output) = (staging.clone(), output_of(staging)?);
    wait(async move {
        let commit_url = staging.join(COMMIT_NAME)?;
        let records = list(staging.clone(), OBJECTS_MAX, |_| true).await?;
        let commit = match get(commit_url.clone()).await? {
            Some(bytes) => Some(CommitRecord::parse(&commit_url, &bytes)?),
            None => None,
        };
        let published = match commit {
            Some(commit) => is_published(&output, commit).await?,
            None => false,
        };
        let fate = match (commit.is_some(), published) {
            (false, _) => Fate::Invisible,
            (true, false) => Fate::TakeBack,
            (true, true) => Fate::Keep,
        };
        let uploads = records.into_iter().map(|record| record.url).filter(|url| *url != commit_url);
        let discards = uploads.map(|url| discard_upload(output.clone(), url, fate));
        stream::iter(discards).buffer_unordered(REQUESTS_AT_ONCE).try_collect::<()>().await?;
        if let (Some(commit), Fate::TakeBack) = (commit, fate) {
            let report = output.join(REPORT_NAME)?;
            if get(report.clone()).await?.is_some_and(|bytes| CommitRecord::of_report(&bytes) == commit) {
                delete(report).await?;
            }
        }
        match commit {
            Some(_) => delete(commit_url).await,
            None => Ok(()),
        }
    })
}

/// Returns whether `_SUCCESS` exists and belongs to the decided output: the older one is removed before any new object
/// appears.
async fn is_published(output: &ObjectUrl, commit: CommitRecord) -> Result<bool, ObjectError> {
    if get(output.join(SUCCESS_NAME)?).await?.is_none() {
        return Ok(false);
    }
    let report = get(output.join(REPORT_NAME)?).await?;
    Ok(report.is_some_and(|bytes| CommitRecord::of_report(&bytes) == commit))
}

/// State of the objects of a job's uploads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// No object was made.
    Invisible,
    TakeBack,
    Keep,
}

async fn discard_upload(output: ObjectUrl, record_url: ObjectUrl, fate: Fate) -> Result<(), ObjectError> {
    let Some(bytes) = get(record_url.clone()).await? else { return Ok(()) };
    let record = UploadRecord::parse(&record_url, &bytes)?;
    let object = output.join(&record.name)?;
    let was_completed = fate != Fate::Invisible && comes_from(&object, &record_url).await?;
    if !was_completed {
        match store(&object)?.abort_multipart(object.location(), &record.upload).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(ObjectError::of_store("take back", &object, &error)),
        }
    } else if fate == Fate::TakeBack {
        delete(object).await?;
    }
    delete(record_url).await
}

#[cfg(test)]
mod tests {
    use super::{is_part_name, mark_of, output_of, staging_of};
    use crate::ObjectUrl;

    #[test]
    fn parts_are_told_from_other_objects() {
        for name in ["part-00000", "part-00017.gz", "part-123456.zst"] {
            assert!(is_part_name(name), "{name}");
        }
        for name in ["part-", "part-0000", "part-00000/x", "part-0000x", "parts", "_SUCCESS", "a/part-00000"]
        {
            assert!(!is_part_name(name), "{name}");
        }
    }

    #[test]
    fn a_staging_prefix_lies_in_its_output() {
        let check = |output: &str, staging: &str| {
            let output = ObjectUrl::parse(output).unwrap();
            let made = staging_of(&output, "owner-job7").unwrap();
            assert_eq!(made.to_string(), staging);
            assert_eq!(output_of(&made).unwrap(), output);
            assert_eq!(mark_of(&made.join(".part-0").unwrap()), "_sailfish-owner-job7/.part-0");
        };
        check("s3://b/out", "s3://b/out/_sailfish-owner-job7");
        check("s3://b", "s3://b/_sailfish-owner-job7");
        assert!(output_of(&ObjectUrl::parse("s3://b/out").unwrap()).is_err());
    }
}
