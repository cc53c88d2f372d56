//! The numbers of the parts of a put. The plan counts from 0; the server gives the numbers of the store in windows, each
//! with the right to write them, so that a right need not last as long as the put.

use crate::connection::Connection;
use api::stored::cluster::{NumberStored, StoredPut, StoredRange};
use filestore::FilesError;
use ids::{ConcreteId, ITEMS_MAX};
use std::sync::{Mutex, PoisonError};

/// Most numbers of a window, and bytes that are written under them.
const WINDOW_NUMBERS_MAX: u32 = 4096;
const WINDOW_BYTES: u64 = 64 << 30;
const WINDOW_NUMBERS_MIN: u32 = 16;

/// Numbers of the plan from `planned` on, with their numbers in the store.
#[derive(Clone, Debug)]
struct Window {
    planned: u32,
    count: u32,
    first: u32,
    range: StoredRange,
}

/// A part with its number in the store.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub id: ConcreteId,
    /// The right to write it.
    pub range: StoredRange,
    /// The window of its number: parts of one window travel under one right.
    pub window: usize,
}

/// The numbers of a put.
pub(crate) struct Numbers {
    of: StoredPut,
    window: u32,
    /// Numbers that the plan needs; a stream needs more and more.
    planned: Option<u32>,
    windows: Mutex<Vec<Window>>,
}

/// Returns the numbers of a window for parts of this average length.
fn window_of(numbers: u32, bytes: u64) -> u32 {
    let average = (bytes / u64::from(numbers.max(1))).max(1);
    let fitting = u32::try_from(WINDOW_BYTES / average).unwrap_or(u32::MAX);
    fitting.clamp(WINDOW_NUMBERS_MIN, WINDOW_NUMBERS_MAX)
}

impl Numbers {
    /// Creates the numbers of a plan with so many parts and bytes.
    pub fn of_plan(of: StoredPut, numbers: u32, bytes: u64) -> Self {
        let window = window_of(numbers, bytes);
        Self { of, window, planned: Some(numbers), windows: Mutex::default() }
    }

    /// Creates the numbers of a stream.
    pub fn of_stream(of: StoredPut) -> Self {
        Self { of, window: WINDOW_NUMBERS_MIN, planned: None, windows: Mutex::default() }
    }

    /// Returns the number in the store of a number of the plan.
    pub fn number(&self, connection: &Connection, planned: u32) -> Result<Numbered, FilesError> {
        // Other threads wait meanwhile: they most likely need the same window.
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(numbered) = find(&windows, self.of, planned) {
                return Ok(numbered);
            }
            let next = windows.last().map_or(0, |last| last.planned + last.count);
            let left = self.planned.map_or(u32::MAX, |all| all.saturating_sub(next)).max(1);
            let count = self.window.min(left);
            if next > planned || next.saturating_add(count) > ITEMS_MAX {
                return Err(filetransfer::TransferError::TooMany.into());
            }
            let number = NumberStored { of: self.of, count };
            let given = connection.ask(async |client| client.number_stored(&number).await)?;
            windows.push(Window { planned: next, count, first: given.first, range: given.range });
        }
    }
}

fn find(windows: &[Window], of: StoredPut, planned: u32) -> Option<Numbered> {
    let behind = windows.partition_point(|window| window.planned <= planned);
    let index = behind.checked_sub(1)?;
    let window = &windows[index];
    let within = planned - window.planned;
    if within >= window.count {
        return None;
    }
    let id = ConcreteId::of(of.put, window.first.checked_add(within)?)?;
    Some(Numbered { id, range: window.range.clone(), window: index })
}

#[cfg(test)]
mod tests {
    use super::{WINDOW_NUMBERS_MAX, WINDOW_NUMBERS_MIN, Window, find, window_of};
    use api::data_access::SecretText;
    use api::stored::cluster::{StoredPut, StoredRange};
    use ids::{ConcreteId, PutId};

    #[test]
    fn numbers_of_the_plan_skip_lost_answers() {
        let of = StoredPut { put: PutId(7), session: 1 };
        let window = |planned, count, first| Window {
            planned,
            count,
            first,
            range: StoredRange {
                first: ConcreteId(0),
                last: ConcreteId(0),
                grant: SecretText(String::new()),
            },
        };
        // The answer to a request for four numbers was lost.
        let windows = [window(0, 4, 10), window(4, 4, 18)];
        let check = |planned, expected: Option<(u32, usize)>| {
            let found = find(&windows, of, planned);
            let found = found.map(|numbered| (numbered.id, numbered.window));
            let id = |number| ConcreteId::of(PutId(7), number);
            assert_eq!(found, expected.and_then(|(number, window)| Some((id(number)?, window))));
        };
        check(0, Some((10, 0)));
        check(3, Some((13, 0)));
        check(4, Some((18, 1)));
        check(7, Some((21, 1)));
        check(8, None);
        assert!(find(&[], of, 0).is_none());
    }

    #[test]
    fn windows_hold_limited_bytes() {
        assert_eq!(window_of(20_000, 20_000 * 4096), WINDOW_NUMBERS_MAX);
        assert_eq!(window_of(1000, 1000 * (128 << 20)), 512);
        assert_eq!(window_of(2, 2 << 40), WINDOW_NUMBERS_MIN);
        assert_eq!(window_of(0, 0), WINDOW_NUMBERS_MAX);
    }
}
