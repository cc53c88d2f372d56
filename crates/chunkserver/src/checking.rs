//! Verification of kept run files of an earlier job, from the first byte to the last, against the store.

use crate::adopting::{check_identity, kept_path};
use crate::disks::DiskFile;
use crate::error::ChunkServerError;
use api::DataSum;
use api::fsck::{CheckTask, CheckedFile, DAMAGES_PER_FILE_MAX, Damage, FileToCheck};
use api::task::SourceAudit;
use ids::{ChunkId, Source};
use ifile::verify::{Met, content_hash, find_damage};
use ifile::{FormatError, ReadAt, RunFile};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

/// Progress of a running check.
#[derive(Debug, Default)]
pub struct Checking {
    /// Set to stop the check.
    pub stop: AtomicBool,
    /// Bytes of files read so far.
    pub read_bytes: AtomicU64,
}

impl Checking {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Counts more bytes read; returns whether to continue.
    fn has_read(&self, bytes: u64) -> bool {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        !self.stops()
    }
}

/// Checks the files of a task with this many threads, at least one, and reports each file when it is done, in any
/// order: header, footer, key index, source table, identity with the run in the store, every block and record, order,
/// sums. Files are never changed. Each thread uses memory for a block and the index of its file.
///
/// After a stop, unfinished files are not reported. Fails if no thread can be started.
pub fn check_kept(
    task: &CheckTask,
    threads: usize,
    checking: &Checking,
    tell: impl FnMut(CheckedFile),
) -> Result<(), ChunkServerError> {
    let threads = threads.clamp(1, task.files.len().max(1));
    let next = AtomicUsize::new(0);
    let (sender, results) = sync_channel(threads);
    std::thread::scope(|scope| {
        let mut started = Ok(());
        for index in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            let work = move || {
                while let Some(file) = task.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let checked = check_file(task, file, checking);
                    if checking.stops() || sender.send(checked).is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new().name(format!("checker-{index}"));
            match thread.spawn_scoped(scope, work) {
                Err(error) if index == 0 => started = Err(ChunkServerError::Thread(error)),
                // With fewer threads it takes longer.
                Err(_) | Ok(_) => {}
            }
        }
        drop(sender);
        results.into_iter().for_each(tell);
        started
    })
}

fn check_file(task: &CheckTask, file: &FileToCheck, checking: &Checking) -> CheckedFile {
    let path = kept_path(&task.dirs, &file.run);
    let mut checked = CheckedFile { run: file.run.run, path, ..CheckedFile::default() };
    let opened = match DiskFile::open(&checked.path) {
        Ok(opened) => opened,
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::NotFound => "the file is missing".to_string(),
                _ => format!("the file cannot be opened: {error}"),
            };
            add(&mut checked, Damage { why, ..Damage::default() });
            return checked;
        }
    };
    checked.bytes = opened.size_bytes().unwrap_or(0);
    check_blocks(task, file, &opened, checking, &mut checked);
    if file.has_other_copy {
        match content_hash(&opened, |_| !checking.stops()) {
            Ok(hash) => checked.content_hash = format!("{hash:032x}"),
            Err(error) => {
                checked.books.clear();
                add(&mut checked, damage(None, &error));
            }
        }
    }
    checked
}

fn check_blocks(
    task: &CheckTask,
    file: &FileToCheck,
    opened: &DiskFile,
    checking: &Checking,
    checked: &mut CheckedFile,
) {
    let run = match RunFile::open(opened) {
        Ok(run) => run,
        // Without its index the block boundaries are unknown.
        Err(error) => return add(checked, damage(None, &error)),
    };
    if let Err(error) = check_identity(task.source, &file.run, &run) {
        let why = format!("it is not the file that was kept: {}", error.problem);
        add(checked, Damage { why, ..Damage::default() });
    }
    find_damage(opened, &run, |met| match met {
        Met::Block(entry) => {
            checked.blocks += 1;
            checking.has_read(entry.stored_bytes.into())
        }
        Met::DamagedBlock(block, error) => {
            add(checked, damage(Some(block), &error));
            !checking.stops()
        }
        Met::Sums(error) => {
            add(checked, damage(None, &error));
            true
        }
    });
    if checked.damage_count == 0 {
        checked.books = books(&run);
    }
}

/// Returns the sum that each source of a run put into each chunk.
fn books(run: &RunFile) -> Vec<SourceAudit> {
    let mut sums: BTreeMap<(ChunkId, Source), DataSum> = BTreeMap::new();
    for row in &run.sources {
        sums.entry((row.chunk, row.source)).or_default().add(&row.sum);
    }
    let ifile = run.identity.ifile;
    let book = |((chunk, source), sum)| SourceAudit { ifile, chunk, source, sum };
    sums.into_iter().map(book).collect()
}

fn damage(block: Option<u64>, error: &FormatError) -> Damage {
    let why = match std::error::Error::source(error) {
        Some(source) => format!("{}: {source}", error.problem),
        None => error.problem.to_string(),
    };
    Damage { block, offset_bytes: Some(error.offset), why }
}

/// Remembers the first damaged blocks and counts all.
fn add(checked: &mut CheckedFile, damage: Damage) {
    checked.damage_count += 1;
    if checked.damages.len() < DAMAGES_PER_FILE_MAX {
        checked.damages.push(damage);
    }
}
