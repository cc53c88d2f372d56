//! The scrub: verifies all files of a disk in the background, in the order of their numbers, so that damage is found
//! while other replicas are intact. The server names the files and their contents. After each file the scrub rests three
//! times as long as it read.

use crate::stored::disk_orders::content_of;
use crate::stored::disks::StoredDisk;
use crate::stored::files::StoredFiles;
use crate::stored::marked::{MarkedLine, read_line, write_line};
use api::StoredPart;
use ids::ConcreteId;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rest, as a multiple of the time of reading.
const REST_FACTOR: u32 = 3;
/// Pause before the server is asked again, and between looks at the clock.
const PAUSE: Duration = Duration::from_secs(10);
/// Time after which the server usually knows of a removal.
const REMOVAL_TOLD_AFTER: Duration = Duration::from_secs(3);
/// Least time between two passes.
const PASS_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Time after which the position is written.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// The position of a scrub, which survives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScrubPosition {
    /// Start of the pass, seconds since 1970.
    pub started: u64,
    /// The last verified file; None at the start.
    pub after: Option<ConcreteId>,
    pub is_complete: bool,
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl ScrubPosition {
    fn start() -> Self {
        Self { started: now_seconds(), after: None, is_complete: false }
    }

    fn text(&self) -> String {
        let after = self.after.map_or(-1, |file| file.0);
        let state = if self.is_complete { "complete" } else { "running" };
        format!("started {} after {after} {state}", self.started)
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [_, started, _, after, state] = words[..] else { return None };
        let after: i64 = after.parse().ok()?;
        let position = Self {
            started: started.parse().ok()?,
            after: (after >= 0).then_some(ConcreteId(after)),
            is_complete: state == "complete",
        };
        (position.text() == text).then_some(position)
    }

    /// Reads the position of a disk. Without one the pass begins again.
    pub(super) fn load(disk: &StoredDisk) -> Self {
        let read = match read_line(&disk.scrub_path()) {
            Ok(MarkedLine::Intact(line)) => Self::parse(&line),
            _ => None,
        };
        // A clock that was set back must not delay the next pass.
        read.filter(|position| position.started <= now_seconds()).unwrap_or_else(Self::start)
    }

    pub(super) fn save(&self, disk: &StoredDisk) {
        if let Err(error) = write_line(&disk.scrub_path(), &self.text()) {
            tracing::debug!(%error, "cannot write the position of the scrub");
        }
    }

    /// Returns the time until the next pass.
    fn until_next(&self, every: Duration) -> Duration {
        every.saturating_sub(Duration::from_secs(now_seconds().saturating_sub(self.started)))
    }
}

/// Verifies the files of a disk, again and again, until the end.
pub(crate) fn scrub(files: &StoredFiles, disk: &Arc<StoredDisk>) {
    let mut position = ScrubPosition::load(disk);
    let mut saved = Instant::now();
    while !files.ending.has_ended() {
        if position.is_complete {
            let until_next = position.until_next(files.settings.scrub_every);
            if !until_next.is_zero() {
                files.ending.rest(until_next.min(PAUSE));
                continue;
            }
            files.ending.rest(PASS_PAUSE_MIN);
            position = ScrubPosition::start();
        }
        // A failed disk would lose everything, and the server learns of the failure from the probes.
        if disk.number().is_none() || !disk.is_there() || !scrub_page(files, disk, &mut position) {
            files.ending.rest(PAUSE);
            continue;
        }
        if position.is_complete || saved.elapsed() >= SAVE_EVERY {
            position.save(disk);
            saved = Instant::now();
        }
    }
    position.save(disk);
}

/// Returns whether the server still has a row for a file. It may have ordered the removal since it named the file, and
/// not know yet that the file is gone.
fn is_still_wanted(files: &StoredFiles, disk: &StoredDisk, part: StoredPart) -> bool {
    files.ending.rest(REMOVAL_TOLD_AFTER);
    let before = part.concrete.0.checked_sub(1).filter(|before| *before >= 0).map(ConcreteId);
    let listed = files.server.parts_on(disk.uuid(), before);
    listed.is_ok_and(|listed| listed.parts.first() == Some(&part))
}

/// Verifies the next files that the server names. Returns false if it does not answer.
pub(super) fn scrub_page(files: &StoredFiles, disk: &Arc<StoredDisk>, position: &mut ScrubPosition) -> bool {
    let listed = match files.server.parts_on(disk.uuid(), position.after) {
        Ok(listed) => listed,
        Err(error) => {
            tracing::debug!(%error, "cannot ask for the files of a disk");
            return false;
        }
    };
    // A page that does not go on would be read for ever.
    let next = listed.parts.last().map(|part| part.concrete);
    if next.is_none_or(|next| position.after.is_some_and(|after| next <= after)) {
        position.is_complete = true;
        return true;
    }
    for part in listed.parts {
        if files.ending.has_ended() {
            return true;
        }
        let began = Instant::now();
        if let Some(reason) = disk.verify(part.concrete, content_of(part))
            && is_still_wanted(files, disk, part)
        {
            files.lose(disk, part.concrete, reason);
        }
        position.after = position.after.max(Some(part.concrete));
        files.ending.rest(began.elapsed() * REST_FACTOR);
    }
    true
}
