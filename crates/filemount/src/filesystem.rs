//! The requests of the kernel.

use crate::directories::{Listed, Listing, VERSIONS_NAME, newest_version};
use crate::error::{MountError, errno_of};
use crate::inodes::{InodeKind, InodeName, Inodes, ROOT, ReadBy, Seen, VERSIONS};
use crate::open_files::{OpenFiles, Opening};
use crate::tree::MountedTree;
use filetree::TreeName;
use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, PollEvents, PollFlags,
    PollNotifier, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyXattr, Request,
};
use ids::FileVersion;
use rustix::process::{geteuid, getgid, getuid};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may use a name without a question: another program may change the tree.
const NAMES_KEPT: Duration = Duration::from_secs(1);
/// How long the kernel may use attributes: those of an inode never change.
const ATTRIBUTES_KEPT: Duration = Duration::from_secs(3600);
const NAME_BYTES_MAX: usize = 255;
/// Requests for reading ahead that the kernel sends without waiting.
const BACKGROUND_REQUESTS: u16 = 64;
/// Size of the buffers of programs.
const BLOCK_BYTES: u32 = 128 << 10;
/// Versions that are listed; all others can be named too.
const VERSIONS_LISTED_MAX: u32 = 10_000;
/// Numbers of `.` and `..` in a directory.
const DOTS: u64 = 2;

/// The file system.
pub(crate) struct StoredFilesystem {
    tree: Arc<dyn MountedTree>,
    inodes: Arc<Inodes>,
    files: OpenFiles,
    directories: Mutex<OpenDirectories>,
    mounted_at: SystemTime,
    owner: [u32; 2],
    /// Hears of the end of the mount.
    ended: SyncSender<Result<(), MountError>>,
}

/// A receiver of an entry with the number behind it; None is `.` or `..`. Returns whether it has no room for the entry.
type AddEntry<'a> = &'a mut dyn FnMut(u64, Option<&Listed>) -> Result<bool, Errno>;

#[derive(Default)]
struct OpenDirectories {
    next: u64,
    by_number: HashMap<u64, Arc<Mutex<Listing>>>,
}

impl StoredFilesystem {
    pub fn new(
        tree: Arc<dyn MountedTree>,
        inodes: Arc<Inodes>,
        files: OpenFiles,
        ended: SyncSender<Result<(), MountError>>,
    ) -> Self {
        let owner = [getuid().as_raw(), getgid().as_raw()];
        let (directories, mounted_at) = (Mutex::default(), SystemTime::now());
        Self { tree, inodes, files, directories, mounted_at, owner, ended }
    }

    fn attributes(&self, seen: &Seen) -> FileAttr {
        let bytes = match seen.kind {
            InodeKind::File { bytes, .. } => bytes,
            _ => 0,
        };
        let time = match seen.created_ns {
            0 => self.mounted_at,
            since => UNIX_EPOCH + Duration::from_nanos(since),
        };
        let is_directory = seen.kind.is_directory();
        let [uid, gid] = self.owner;
        FileAttr {
            ino: INodeNo(seen.inode),
            size: bytes,
            blocks: bytes.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: file_type(seen.kind),
            perm: if is_directory { 0o555 } else { 0o444 },
            nlink: if is_directory { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    /// Returns a kind with its reader: verified files of this machine are read by the kernel.
    fn with_reader(&self, kind: InodeKind) -> InodeKind {
        match kind {
            InodeKind::File { content, bytes, .. } if self.files.is_whole(content) => {
                InodeKind::File { content, bytes, reads: ReadBy::Kernel }
            }
            kind => kind,
        }
    }

    fn hold(&self, parent: u64, entry: &Listed) -> Result<Seen, Errno> {
        if entry.kind == InodeKind::Versions {
            return self.inodes.seen(VERSIONS).ok_or(Errno::ENOENT);
        }
        let held = self.inodes.hold(parent, &entry.name, self.with_reader(entry.kind), entry.created_ns);
        held.map_err(|_| Errno::ENFILE)
    }

    /// Finds an entry of a directory; the kernel holds it from now on.
    fn found(&self, parent: u64, name: &OsStr) -> Result<Seen, Errno> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let name = name.to_str().ok_or(Errno::ENOENT)?;
        if parent == ROOT && name == VERSIONS_NAME {
            return self.inodes.seen(VERSIONS).ok_or(Errno::ENOENT);
        }
        if parent == VERSIONS {
            return self.found_version(name);
        }
        let above = self.inodes.name(parent).ok_or(Errno::ESTALE)?;
        let path = above.path.child(name).map_err(|_| Errno::ENOENT)?;
        let name_of_tree = TreeName { path, version: above.at };
        let entry = self.tree.entry(&name_of_tree).map_err(|error| errno_of(&error, name))?;
        let row = entry.row.ok_or(Errno::ENOENT)?;
        let kind = InodeKind::of(&row);
        self.hold(parent, &Listed { name: name.to_string(), kind, created_ns: row.created_ns })
    }

    fn found_version(&self, name: &str) -> Result<Seen, Errno> {
        let number = name.parse().ok().filter(|number: &i64| *number > 0 && number.to_string() == name);
        let version = FileVersion(number.ok_or(Errno::ENOENT)?);
        if newest_version(&*self.tree).map_err(|error| errno_of(&error, name))? < version {
            return Err(Errno::ENOENT);
        }
        let kind = InodeKind::Root(Some(version));
        self.hold(VERSIONS, &Listed { name: name.to_string(), kind, created_ns: 0 })
    }

    /// Opens a file at the version of its inode. If its name has another content now, the kernel looks it up again.
    fn opened(&self, inode: u64, flags: OpenFlags) -> Result<u64, Errno> {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return Err(Errno::EROFS);
        }
        let seen = self.inodes.seen(inode).ok_or(Errno::ESTALE)?;
        let InodeKind::File { content, bytes, reads } = seen.kind else { return Err(Errno::EISDIR) };
        if self.files.is_full() {
            return Err(Errno::ENFILE);
        }
        let InodeName { path, at } = self.inodes.name(inode).ok_or(Errno::ESTALE)?;
        let name = TreeName { path, version: at };
        let shown = name.to_string();
        let file = self.tree.open_file(&name).map_err(|error| match errno_of(&error, &shown) {
            // It was there a moment ago.
            errno if errno.code() == Errno::ENOENT.code() => Errno::ESTALE,
            errno if errno.code() == Errno::EISDIR.code() => Errno::ESTALE,
            errno => errno,
        })?;
        if !InodeKind::of(&file.row).is_same(seen.kind) {
            return Err(Errno::ESTALE);
        }
        let opening = Opening { inode, content, reads, name: shown, bytes };
        Ok(self.files.add(opening, file.reader))
    }

    fn opened_directory(&self, inode: u64) -> Result<u64, Errno> {
        let listing = match inode {
            VERSIONS => Listing::of_versions(&*self.tree, VERSIONS_LISTED_MAX)
                .map_err(|error| errno_of(&error, VERSIONS_NAME))?,
            _ => Listing::of_tree(self.inodes.name(inode).ok_or(Errno::ESTALE)?),
        };
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        directories.next += 1;
        let number = directories.next;
        directories.by_number.insert(number, Arc::new(Mutex::new(listing)));
        Ok(number)
    }

    /// Gives the entries of a directory from a number on to `add`, with the number behind each, until that returns true.
    fn each_entry(
        &self,
        directory: u64,
        handle: FileHandle,
        from: u64,
        add: AddEntry<'_>,
    ) -> Result<(), Errno> {
        let listing = {
            let directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(directories.by_number.get(&handle.0).ok_or(Errno::EBADF)?)
        };
        let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut number = from;
        loop {
            let within = number.checked_sub(DOTS).map(|within| usize::try_from(within).unwrap_or(usize::MAX));
            let entry = match within {
                None => Some(None),
                Some(within) => listing.entry(&*self.tree, within).map_err(|error| {
                    let name = self.inodes.name(directory).map(|name| name.path.to_string());
                    errno_of(&error, &name.unwrap_or_default())
                })?,
            };
            let Some(entry) = entry else { return Ok(()) };
            number += 1;
            if (within.is_none() || entry.is_some()) && add(number, entry.as_ref())? {
                return Ok(());
            }
        }
    }

    fn dots(&self, directory: u64, number: u64) -> (&'static str, u64) {
        match number {
            1 => (".", directory),
            _ => ("..", self.inodes.parent(directory)),
        }
    }
}

fn file_type(kind: InodeKind) -> FileType {
    match kind.is_directory() {
        true => FileType::Directory,
        false => FileType::RegularFile,
    }
}

impl Filesystem for StoredFilesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wished = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // Contents of an inode never change: nothing is to be invalidated.
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
        ];
        for flag in wished {
            // An older kernel does without.
            let _ = config.add_capabilities(flag);
        }
        // Root may let the kernel read files by itself, on file systems that are not stacked themselves.
        if geteuid().is_root()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok()
        {
            self.files.let_kernel_read();
        }
        let _ = config.set_max_background(BACKGROUND_REQUESTS);
        Ok(())
    }

    fn destroy(&mut self) {
        // Nobody waits if mounting failed later.
        let _ = self.ended.try_send(Ok(()));
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.found(parent.0, name) {
            Ok(seen) => {
                let attributes = self.attributes(&seen);
                reply.entry_with_ttls(&ATTRIBUTES_KEPT, &NAMES_KEPT, &attributes, Generation(0));
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        self.inodes.forget(inode.0, lookups);
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.inodes.seen(inode.0) {
            Some(seen) => reply.attr(&ATTRIBUTES_KEPT, &self.attributes(&seen)),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let kept = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
        match self.opened(inode.0, flags) {
            Err(errno) => reply.error(errno),
            Ok(number) => match self.files.backing(number, &|file| reply.open_backing(file)) {
                Some(backing) => {
                    reply.opened_passthrough(FileHandle(number), FopenFlags::FOPEN_NOFLUSH, &backing);
                }
                None => reply.opened(FileHandle(number), kept),
            },
        }
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut reply = Some(reply);
        let mut answer = |bytes: &[u8]| reply.take().into_iter().for_each(|reply| reply.data(bytes));
        let read = self.files.read(handle.0, offset, size, &mut answer);
        if let (Err(errno), Some(reply)) = (read, reply) {
            reply.error(errno);
        }
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
        self.files.close(handle.0);
    }

    fn opendir(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.opened_directory(inode.0) {
            Ok(number) => reply.opened(FileHandle(number), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.each_entry(inode.0, handle, offset, &mut |number, entry| {
            let Some(entry) = entry else {
                let (name, above) = self.dots(inode.0, number);
                return Ok(reply.add(INodeNo(above), number, FileType::Directory, name));
            };
            let known = match entry.kind {
                InodeKind::Versions => VERSIONS,
                kind => self.inodes.number(inode.0, &entry.name, self.with_reader(kind)),
            };
            Ok(reply.add(INodeNo(known), number, file_type(entry.kind), &entry.name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.each_entry(inode.0, handle, offset, &mut |number, entry| {
            let Some(entry) = entry else {
                let (name, above) = self.dots(inode.0, number);
                let seen = Seen { inode: above, kind: InodeKind::Root(None), created_ns: 0 };
                let attributes = self.attributes(&seen);
                // The kernel holds neither of them.
                return Ok(reply.add(
                    INodeNo(above),
                    number,
                    name,
                    &Duration::ZERO,
                    &attributes,
                    Generation(0),
                ));
            };
            let seen = self.hold(inode.0, entry)?;
            let attributes = self.attributes(&seen);
            let node = INodeNo(seen.inode);
            let is_full = reply.add(node, number, &entry.name, &NAMES_KEPT, &attributes, Generation(0));
            if is_full {
                self.inodes.forget(seen.inode, 1);
            }
            Ok(is_full)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        directories.by_number.remove(&handle.0);
        reply.ok();
    }

    /// The room of a cluster says nothing about what can be written here: nothing can.
    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, BLOCK_BYTES, NAME_BYTES_MAX as u32, BLOCK_BYTES);
    }

    // The library logs requests that are not answered here; the kernel asks for these, and does without.

    fn access(&self, _request: &Request, _inode: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _request: &Request, _inode: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _request: &Request, _inode: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn ioctl(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _bytes: &[u8],
        _answer_bytes: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
