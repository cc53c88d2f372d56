//! Records of a staging prefix: one per upload, and one for the decision to publish. They are text, with a version in
//! the first line, and in the last line a checksum of the lines before it.
//!
//! ```text
//!   sailfish-upload 1            sailfish-commit 1
//!   name part-00003              report 1f3a9c01 20480
//!   upload 2~hV...               crc32c 5a6b7c8d
//!   bytes 8388717
//!   tag "9b2c..."
//!   tag "77ab..."
//!   crc32c 1a2b3c4d
//! ```

use crate::error::ObjectError;
use crate::url::ObjectUrl;
use std::str::Lines;

const UPLOAD_TITLE: &str = "sailfish-upload 1";
const COMMIT_TITLE: &str = "sailfish-commit 1";

/// An upload in progress, or ready to be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UploadRecord {
    /// Final name of the part.
    pub name: String,
    pub upload: String,
    /// None while the upload is in progress.
    pub whole: Option<WholeUpload>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WholeUpload {
    pub bytes: u64,
    /// Tags of the pieces from the store's answers, one per piece.
    pub tags: Vec<String>,
}

/// The decision to publish: from here on any process that finds it completes the output, or removes all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitRecord {
    pub report_crc32c: u32,
    pub report_bytes: u64,
}

impl CommitRecord {
    pub fn of_report(report: &[u8]) -> Self {
        Self { report_crc32c: crc32c::crc32c(report), report_bytes: report.len() as u64 }
    }

    pub fn to_bytes(self) -> Vec<u8> {
        sealed(format!("{COMMIT_TITLE}\nreport {:08x} {}\n", self.report_crc32c, self.report_bytes))
    }

    pub fn parse(url: &ObjectUrl, bytes: &[u8]) -> Result<Self, ObjectError> {
        let damaged = || ObjectError::Damaged { url: url.clone(), what: "a line has the wrong form" };
        let mut lines = opened(url, bytes, COMMIT_TITLE)?;
        let line = field(&mut lines, "report").ok_or_else(damaged)?;
        let (crc, length) = line.split_once(' ').ok_or_else(damaged)?;
        Ok(Self {
            report_crc32c: u32::from_str_radix(crc, 16).map_err(|_| damaged())?,
            report_bytes: length.parse().map_err(|_| damaged())?,
        })
    }
}

impl UploadRecord {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{UPLOAD_TITLE}\nname {}\nupload {}\n", self.name, self.upload);
        if let Some(whole) = &self.whole {
            text.push_str(&format!("bytes {}\n", whole.bytes));
            whole.tags.iter().for_each(|tag| text.push_str(&format!("tag {tag}\n")));
        }
        sealed(text)
    }

    pub fn parse(url: &ObjectUrl, bytes: &[u8]) -> Result<Self, ObjectError> {
        let damaged = || ObjectError::Damaged { url: url.clone(), what: "a line has the wrong form" };
        let mut lines = opened(url, bytes, UPLOAD_TITLE)?;
        let name = field(&mut lines, "name").ok_or_else(damaged)?.to_string();
        let upload = field(&mut lines, "upload").ok_or_else(damaged)?.to_string();
        let whole = match field(&mut lines, "bytes") {
            None => None,
            Some(bytes) => {
                let bytes = bytes.parse().map_err(|_| damaged())?;
                let tags: Option<Vec<String>> =
                    lines.map(|line| line.strip_prefix("tag ").map(str::to_string)).collect();
                Some(WholeUpload { bytes, tags: tags.ok_or_else(damaged)? })
            }
        };
        Ok(Self { name, upload, whole })
    }
}

fn sealed(mut text: String) -> Vec<u8> {
    let crc = crc32c::crc32c(text.as_bytes());
    text.push_str(&format!("crc32c {crc:08x}\n"));
    text.into_bytes()
}

/// Returns the lines between the title and the checksum.
fn opened<'a>(url: &ObjectUrl, bytes: &'a [u8], title: &str) -> Result<Lines<'a>, ObjectError> {
    let damaged = |what| ObjectError::Damaged { url: url.clone(), what };
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
    let body_bytes = text.trim_end_matches('\n').rfind('\n').ok_or_else(|| damaged("it is too short"))? + 1;
    let (body, last) = text.split_at(body_bytes);
    if last != format!("crc32c {:08x}\n", crc32c::crc32c(body.as_bytes())) {
        return Err(damaged("its checksum differs"));
    }
    let mut lines = body.lines();
    match lines.next() == Some(title) {
        true => Ok(lines),
        false => Err(damaged("it has another kind or version")),
    }
}

fn field<'a>(lines: &mut Lines<'a>, name: &str) -> Option<&'a str> {
    lines.next()?.strip_prefix(name)?.strip_prefix(' ')
}

#[cfg(test)]
mod tests {
    use super::{CommitRecord, UploadRecord, WholeUpload};
    use crate::ObjectUrl;

    fn url() -> ObjectUrl {
        ObjectUrl::parse("s3://b/k").unwrap()
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let whole = WholeUpload { bytes: 7, tags: vec!["\"a b\"".to_string(), "c".to_string()] };
        for whole in [None, Some(WholeUpload { bytes: 0, tags: Vec::new() }), Some(whole)] {
            let record =
                UploadRecord { name: "part-00003.gz".to_string(), upload: "2~x y".to_string(), whole };
            assert_eq!(UploadRecord::parse(&url(), &record.to_bytes()).unwrap(), record);
        }
        let record = CommitRecord::of_report(b"{}");
        assert_eq!(CommitRecord::parse(&url(), &record.to_bytes()).unwrap(), record);
    }

    #[test]
    fn any_changed_byte_is_found() {
        let whole = Some(WholeUpload { bytes: 7, tags: vec!["t".to_string()] });
        let bytes = UploadRecord { name: "n".to_string(), upload: "u".to_string(), whole }.to_bytes();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let error = UploadRecord::parse(&url(), &changed).unwrap_err().to_string();
            assert!(error.contains("s3://b/k is damaged"), "{error}");
            assert!(UploadRecord::parse(&url(), &bytes[..at]).is_err());
        }
        let commit = CommitRecord::of_report(b"").to_bytes();
        assert!(UploadRecord::parse(&url(), &commit).is_err());
    }
}
