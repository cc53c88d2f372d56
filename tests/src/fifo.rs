//! Named pipes by which a user's program and a test tell each other where they are.

use crate::WAIT_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A named pipe that a test holds open at both ends, so that neither side waits for the other to open it and a
/// program that dies leaves it whole. A program says `echo here > PIPE`, or waits with `read line < PIPE`.
pub struct Fifo {
    path: PathBuf,
    file: File,
    /// Read but not yet given out.
    pending: Vec<u8>,
}

impl Fifo {
    /// Makes the pipe at `path`, where nothing may be.
    pub fn new(path: PathBuf) -> Fifo {
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a temporary directory takes a pipe");
        let file = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("our own pipe opens");
        Fifo { path, file: File::from(file), pending: Vec::new() }
    }

    /// Returns the path of the pipe.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as text, for a command line.
    pub fn text(&self) -> &str {
        self.path.to_str().expect("a sandbox has a plain path")
    }

    /// The next line a program wrote, without its end. Fails the test after [`WAIT_MAX`].
    pub fn read_line(&mut self) -> String {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return String::from_utf8_lossy(&line[..end]).into_owned();
            }
            let limit = Timespec::try_from(WAIT_MAX).expect("minutes fit");
            let mut waiting = [PollFd::new(&self.file, PollFlags::IN)];
            let ready = poll(&mut waiting, Some(&limit)).expect("a pipe can be waited for");
            assert!(ready > 0, "nobody wrote a line to {} in {WAIT_MAX:?}", self.path.display());
            let mut block = [0; 4096];
            let read = self.file.read(&mut block).expect("our own pipe is readable");
            self.pending.extend_from_slice(&block[..read]);
        }
    }

    /// Gives one waiting program a line; may be called before it waits.
    pub fn write_line(&mut self, line: &str) {
        self.file.write_all(format!("{line}\n").as_bytes()).expect("our own pipe takes a line");
    }
}
