//! Reading of a stretch of a pinned object, front to back.
//!
//! ```text
//!   object   ......|current window| ahead | ahead |..........|planned end ... small windows ...|
//! ```
//! Windows up to the planned end are requested ahead of their use. Bytes beyond, which a reader needs to finish its
//! last record, come in small windows.

use crate::error::ObjectError;
use crate::store::{Pending, begin, store, wait};
use crate::url::ObjectUrl;
use api::ObjectPin;
use bytes::{Buf, Bytes};
use object_store::{GetOptions, GetRange, GetResult};
use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;

/// Windows requested ahead, besides the current one.
const WINDOWS_AHEAD: usize = 2;
const WINDOW_BYTES_MIN: u64 = 64 << 10;
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Bytes of a window beyond the planned end.
const OVERHANG_BYTES: u64 = 64 << 10;

/// An open pinned object, at an offset.
pub struct ObjectReader {
    source: Source,
    /// Offset of the next window to request.
    next_offset: u64,
    planned_end: u64,
    window_bytes: u64,
    ahead: VecDeque<Pending<Bytes>>,
    current: Bytes,
}

/// The object and its pinned state.
#[derive(Clone)]
struct Source {
    url: ObjectUrl,
    size_bytes: u64,
    pin: ObjectPin,
}

impl ObjectReader {
    /// Opens an object. Reading begins at the start of `planned` and is ahead up to its end. `buffer_bytes` is the
    /// memory that it may use, if it can work with so little.
    pub fn open(
        url: &ObjectUrl,
        size_bytes: u64,
        pin: &ObjectPin,
        planned: Range<u64>,
        buffer_bytes: usize,
    ) -> Result<Self, ObjectError> {
        let windows = WINDOWS_AHEAD as u64 + 1;
        let mut reader = Self {
            source: Source { url: url.clone(), size_bytes, pin: pin.clone() },
            next_offset: planned.start,
            planned_end: planned.end.min(size_bytes),
            window_bytes: (buffer_bytes as u64 / windows).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX),
            ahead: VecDeque::new(),
            current: Bytes::new(),
        };
        reader.read_ahead()?;
        Ok(reader)
    }

    fn read_ahead(&mut self) -> Result<(), ObjectError> {
        while self.ahead.len() < WINDOWS_AHEAD && self.next_offset < self.planned_end {
            let end = self.planned_end.min(self.next_offset + self.window_bytes);
            self.ask(end)?;
        }
        Ok(())
    }

    fn ask(&mut self, end: u64) -> Result<(), ObjectError> {
        let range = self.next_offset..end;
        self.ahead.push_back(begin(window(self.source.clone(), range))?);
        self.next_offset = end;
        Ok(())
    }

    /// Makes the next window the current one; leaves it empty at the end of the object.
    fn next_window(&mut self) -> Result<(), ObjectError> {
        // Its memory is freed before more is requested.
        self.current = Bytes::new();
        if self.ahead.is_empty() && self.next_offset < self.source.size_bytes {
            let end = match self.next_offset < self.planned_end {
                true => self.planned_end.min(self.next_offset + self.window_bytes),
                false => self.source.size_bytes.min(self.next_offset + OVERHANG_BYTES),
            };
            self.ask(end)?;
        }
        if let Some(window) = self.ahead.pop_front() {
            self.current = window.wait()?;
            self.read_ahead()?;
        }
        Ok(())
    }
}

impl Read for ObjectReader {
    /// Its errors contain an [`ObjectError`].
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.current.is_empty() && !buffer.is_empty() {
            self.next_window()?;
        }
        let count = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Checks that an object still has its pinned state, without reading its bytes.
pub fn check_pinned(url: &ObjectUrl, size_bytes: u64, pin: &ObjectPin) -> Result<(), ObjectError> {
    let source = Source { url: url.clone(), size_bytes, pin: pin.clone() };
    wait(async move { ask_pinned(&source, None).await.map(drop) })
}

async fn window(source: Source, range: Range<u64>) -> Result<Bytes, ObjectError> {
    let answer = ask_pinned(&source, Some(&range)).await?;
    let bytes = answer.bytes().await.map_err(|error| failed(&source.url, &error))?;
    check_answer(&source.url, &range, &bytes)?;
    Ok(bytes)
}

fn failed(url: &ObjectUrl, error: &object_store::Error) -> ObjectError {
    match ObjectError::of_store("read", url, error) {
        // It existed when it was pinned.
        ObjectError::Missing { url } => ObjectError::Changed { url },
        error => error,
    }
}

/// Requests a range of an object, or with None only its metadata. The answer is from the pinned state.
async fn ask_pinned(source: &Source, range: Option<&Range<u64>>) -> Result<GetResult, ObjectError> {
    let Source { url, size_bytes, pin } = source;
    // A weak tag never matches as a condition.
    let if_match = pin.etag.clone().filter(|etag| !etag.starts_with("W/"));
    let version = pin.version.clone();
    let options = GetOptions {
        head: range.is_none(),
        range: range.cloned().map(GetRange::Bounded),
        if_match,
        version,
        ..GetOptions::default()
    };
    let answer = store(url)?.get_opts(url.location(), options).await;
    let answer = answer.map_err(|error| failed(url, &error))?;
    // Not every server supports the condition.
    let same_tag = match (&answer.meta.e_tag, &pin.etag) {
        (Some(now), Some(pinned)) => now == pinned,
        _ => true,
    };
    match answer.meta.size == *size_bytes && same_tag {
        true => Ok(answer),
        false => Err(ObjectError::Changed { url: url.clone() }),
    }
}

/// Checks that a window is complete.
pub(crate) fn check_answer(url: &ObjectUrl, range: &Range<u64>, bytes: &Bytes) -> Result<(), ObjectError> {
    match bytes.len() as u64 == range.end - range.start {
        true => Ok(()),
        false => {
            let (asked, got) = (range.end - range.start, bytes.len());
            let cause = format!("{got} bytes arrived of {asked} requested");
            Err(ObjectError::Failed { url: url.clone(), action: "read", cause })
        }
    }
}
