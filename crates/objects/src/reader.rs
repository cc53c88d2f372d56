//! Reading a stretch of a pinned object front to back.
//!
//! ```text
//!   object   ......|current window| ahead | ahead |..........|planned end ... small windows ...|
//! ```
//! Windows up to the planned end are asked for ahead of their use. What a reader wants beyond, to finish its last
//! record, comes in small ones.

use crate::error::ObjectError;
use crate::store::{Pending, begin, store, wait};
use crate::url::ObjectUrl;
use api::ObjectPin;
use bytes::{Buf, Bytes};
use object_store::{GetOptions, GetRange, GetResult};
use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;

/// Windows that are under way besides the one that is being used.
const WINDOWS_AHEAD: usize = 2;
const WINDOW_BYTES_MIN: u64 = 64 << 10;
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Bytes of a window beyond the planned end.
const OVERHANG_BYTES: u64 = 64 << 10;

/// An object that was pinned, open at an offset.
pub struct ObjectReader {
    source: Source,
    /// Offset of the next window that is asked for.
    next_offset: u64,
    planned_end: u64,
    window_bytes: u64,
    ahead: VecDeque<Pending<Bytes>>,
    current: Bytes,
}

/// The object and what it must still be.
#[derive(Clone)]
struct Source {
    url: ObjectUrl,
    size_bytes: u64,
    pin: ObjectPin,
}

impl ObjectReader {
    /// Opens an object. Of `planned`, the start is where reading begins, and up to the end it is read ahead.
    /// `buffer_bytes` is the memory that it may use, where it can do with so little.
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
        // Its memory goes before more is asked for.
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
    /// Its errors hold an [`ObjectError`].
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.current.is_empty() && !buffer.is_empty() {
            self.next_window()?;
        }
        let count = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Checks that an object is still what was pinned, without its bytes.
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
        // It was there when it was pinned.
        ObjectError::Missing { url } => ObjectError::Changed { url },
        error => error,
    }
}

/// The answer to whoever wants a range of an object, or with None only what the store says of it. It is what was pinned.
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
    // Not every server knows the condition.
    let same_tag = match (&answer.meta.e_tag, &pin.etag) {
        (Some(now), Some(pinned)) => now == pinned,
        _ => true,
    };
    match answer.meta.size == *size_bytes && same_tag {
        true => Ok(answer),
        false => Err(ObjectError::Changed { url: url.clone() }),
    }
}

/// A window is whole.
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
