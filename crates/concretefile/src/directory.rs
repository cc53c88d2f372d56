//! The directory of the concrete files of a disk: `PUT/NUMBER DIV 4096/NUMBER`, in hexadecimal. The files of a put lie
//! together, so that they are found and removed together.

use crate::Content;
use crate::error::{ConcreteDamage, ConcreteError};
use crate::reader::{ConcreteReader, verify};
use crate::sums::{BLOCK_BYTES, Summing};
use crate::writer::{ConcreteWriter, write_beside};
use faults::{IoCall, io_call};
use ids::{ConcreteId, PutId};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Files of one put in one directory.
const FILES_PER_DIRECTORY: u32 = 4096;
/// Files that are synced one by one.
const SYNCED_ONE_BY_ONE_MAX: usize = 64;
/// Bytes that are read at once of a file that is taken over.
const ADOPTED_PIECE_BYTES: usize = 1 << 20;
/// Suffix of a file with checksums.
const SUMS_SUFFIX: &str = ".sums";
/// The lock of the process that puts files; it lies beside the directories of the put.
const LOCK_NAME: &str = "lock";

pub(crate) fn sums_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(SUMS_SUFFIX);
    PathBuf::from(name)
}

/// The directory of concrete files on a disk.
#[derive(Clone, Debug)]
pub struct ConcreteDirectory {
    root: PathBuf,
}

/// Proof that the process of a put lives; the kernel ends it with the process.
#[derive(Debug)]
pub struct PutLock {
    _file: File,
}

impl ConcreteDirectory {
    /// Opens the directory, and creates it, for this user only, if it is missing.
    pub fn open(root: PathBuf) -> Result<Self, ConcreteError> {
        make_private(&root).map_err(ConcreteError::io("create", &root))?;
        Ok(Self { root })
    }

    fn of_put(&self, put: PutId) -> PathBuf {
        self.root.join(format!("{:x}", put.0))
    }

    /// Returns the path of a file.
    pub fn path(&self, file: ConcreteId) -> PathBuf {
        let number = file.number();
        let within = format!("{:x}/{number:x}", number / FILES_PER_DIRECTORY);
        self.of_put(file.put()).join(within)
    }

    /// Creates a file. A leftover file of the same id is replaced.
    pub fn create(&self, file: ConcreteId) -> Result<ConcreteWriter, ConcreteError> {
        let path = self.path(file);
        let created = ConcreteWriter::create(path.clone()).or_else(|error| {
            match error.kind() {
                ErrorKind::NotFound => make_private(path.parent().unwrap_or(&self.root))?,
                ErrorKind::AlreadyExists => remove_both(&path)?,
                _ => return Err(error),
            }
            ConcreteWriter::create(path.clone())
        });
        created.map_err(ConcreteError::io("create", &path))
    }

    /// Creates a file that must not exist. If it does, the error is of kind `AlreadyExists`, and the file stays.
    pub fn create_new(&self, file: ConcreteId) -> Result<ConcreteWriter, ConcreteError> {
        let path = self.path(file);
        let created = ConcreteWriter::create(path.clone()).or_else(|error| match error.kind() {
            ErrorKind::NotFound => {
                make_private(path.parent().unwrap_or(&self.root))?;
                ConcreteWriter::create(path.clone())
            }
            _ => Err(error),
        });
        created.map_err(ConcreteError::io("create", &path))
    }

    /// Returns whether a file is complete and has this content. All of it is read.
    pub fn holds(&self, file: ConcreteId, content: Content) -> bool {
        self.read(file, content).and_then(verify).is_ok()
    }

    /// Returns the free bytes of the file system, as far as this user may write them, and all of its bytes.
    pub fn free_bytes(&self) -> Result<[u64; 2], ConcreteError> {
        let asked = rustix::fs::statvfs(&self.root).map_err(std::io::Error::from);
        let stat = asked.map_err(ConcreteError::io("examine", &self.root))?;
        Ok([stat.f_bavail, stat.f_blocks].map(|blocks| blocks.saturating_mul(stat.f_frsize)))
    }

    /// Takes a file of the same file system over as a concrete file: verifies its content, and moves it here.
    pub fn adopt(&self, path: &Path, file: ConcreteId, expected: Content) -> Result<(), ConcreteError> {
        let opened = File::open(path).map_err(ConcreteError::io("open", path))?;
        let mut summing = Summing::default();
        let mut buffer = vec![0; ADOPTED_PIECE_BYTES];
        loop {
            let read = (&opened).read(&mut buffer).map_err(ConcreteError::io("read", path))?;
            if read == 0 {
                break;
            }
            summing.add(&buffer[..read]);
        }
        let (content, blocks) = summing.finish();
        if content != expected {
            let damage = match content.bytes == expected.bytes {
                true => ConcreteDamage::Whole { expected: expected.crc32c, computed: content.crc32c },
                false => ConcreteDamage::Length { present: content.bytes, expected: expected.bytes },
            };
            return Err(ConcreteError::damaged(path, damage));
        }
        let target = self.path(file);
        let move_here = || {
            make_private(target.parent().unwrap_or(&self.root))?;
            io_call(IoCall::Rename, &target)?;
            std::fs::rename(path, &target)
        };
        move_here().map_err(ConcreteError::io("move", path))?;
        match content.bytes > BLOCK_BYTES {
            true => write_beside(&sums_path(&target), &blocks.encode(content)),
            false => Ok(()),
        }
    }

    /// Opens a file of an expected content.
    pub fn read(&self, file: ConcreteId, content: Content) -> Result<ConcreteReader, ConcreteError> {
        ConcreteReader::open(self.path(file), content)
    }

    /// Removes a file; a missing one is removed already. Empty directories stay until their put is swept.
    pub fn remove(&self, file: ConcreteId) -> Result<(), ConcreteError> {
        let path = self.path(file);
        remove_both(&path).map_err(ConcreteError::io("remove", &path))
    }

    /// Puts files on disk, with their names. Many files are synced with everything else of their file system, in one
    /// call; a few one by one, so that they do not wait for the writes of others.
    pub fn sync(&self, files: &[ConcreteId]) -> Result<(), ConcreteError> {
        if files.len() > SYNCED_ONE_BY_ONE_MAX {
            let sync_all = || {
                io_call(IoCall::Sync, &self.root)?;
                Ok(rustix::fs::syncfs(File::open(&self.root)?)?)
            };
            return sync_all().map_err(ConcreteError::io("sync", &self.root));
        }
        // With the directories above, which may be new too.
        let mut dirs: BTreeSet<PathBuf> = self.root.ancestors().take(3).map(Path::to_path_buf).collect();
        for file in files {
            let path = self.path(*file);
            sync_one(&path)?;
            let beside = sums_path(&path);
            if beside.exists() {
                sync_one(&beside)?;
            }
            dirs.extend(path.ancestors().skip(1).take(2).map(Path::to_path_buf));
        }
        dirs.iter().try_for_each(|dir| sync_one(dir))
    }

    /// Creates the directory of a put, and locks it for this process. None if another process holds it.
    pub fn lock(&self, put: PutId) -> Result<Option<PutLock>, ConcreteError> {
        let dir = self.of_put(put);
        make_private(&dir).map_err(ConcreteError::io("create", &dir))?;
        let path = dir.join(LOCK_NAME);
        let open = || {
            io_call(IoCall::Create, &path)?;
            File::options().create(true).truncate(false).write(true).open(&path)
        };
        let file = open().map_err(ConcreteError::io("create", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(PutLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(ConcreteError::Io { action: "lock", path, source }),
        }
    }

    /// Returns the puts that have a directory.
    pub fn puts(&self) -> Result<Vec<PutId>, ConcreteError> {
        let entries = std::fs::read_dir(&self.root).map_err(ConcreteError::io("list", &self.root))?;
        let mut puts = Vec::new();
        for entry in entries {
            let name = entry.map_err(ConcreteError::io("list", &self.root))?.file_name();
            puts.extend(name.to_str().and_then(number_of).map(PutId));
        }
        Ok(puts)
    }

    /// Returns the files of a put.
    pub fn files(&self, put: PutId) -> Result<Vec<ConcreteId>, ConcreteError> {
        let dir = self.of_put(put);
        let mut files = Vec::new();
        for shelf in list(&dir)? {
            if shelf.file_name().is_some_and(|name| name == LOCK_NAME) {
                continue;
            }
            let names = list(&shelf)?.into_iter();
            let numbers = names.filter_map(|path| number_of(path.file_name()?.to_str()?));
            files.extend(numbers.filter_map(|number| ConcreteId::of(put, u32::try_from(number).ok()?)));
        }
        Ok(files)
    }

    /// Removes the directories of a put that hold no file any more, and the put's own directory with the last of them.
    pub fn remove_empty(&self, put: PutId) -> Result<(), ConcreteError> {
        let dir = self.of_put(put);
        let shelves = list(&dir)?.into_iter().filter(|path| !path.ends_with(LOCK_NAME));
        let mut is_empty = true;
        for shelf in shelves {
            is_empty &= std::fs::remove_dir(&shelf).is_ok();
        }
        if is_empty {
            let _ = std::fs::remove_file(dir.join(LOCK_NAME));
            // A file that came in between keeps it.
            let _ = std::fs::remove_dir(&dir);
        }
        Ok(())
    }
}

fn sync_one(path: &Path) -> Result<(), ConcreteError> {
    let sync = || {
        io_call(IoCall::Sync, path)?;
        File::open(path)?.sync_all()
    };
    sync().map_err(ConcreteError::io("sync", path))
}

fn number_of(name: &str) -> Option<i64> {
    i64::from_str_radix(name, 16).ok().filter(|number| *number >= 0)
}

/// Returns the entries of a directory; none if it does not exist.
fn list(dir: &Path) -> Result<Vec<PathBuf>, ConcreteError> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(ConcreteError::io("list", dir))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>();
    paths.map_err(ConcreteError::io("list", dir))
}

fn make_private(dir: &Path) -> std::io::Result<()> {
    io_call(IoCall::Create, dir)?;
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn remove_both(path: &Path) -> std::io::Result<()> {
    for each in [path, &sums_path(path)] {
        match std::fs::remove_file(each) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
