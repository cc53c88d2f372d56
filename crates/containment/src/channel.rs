//! A socket between two of our processes that carries whole messages, with file descriptors.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};
use std::fs::File;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Longer messages travel in a file in memory: the kernel bounds the length of a packet.
const PACKET_BYTES_MAX: usize = 32 << 10;
/// Largest message: the kernel bounds arguments and environment far below.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Most file descriptors of a message.
const DESCRIPTORS_MAX: usize = 6;
/// First byte of a packet.
const HERE: u8 = 0;
/// The message is in the file that comes first among the descriptors.
const IN_FILE: u8 = 1;

/// One end of a socket.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// A received message with its descriptors.
pub(crate) struct Received<T> {
    pub message: T,
    pub descriptors: Vec<OwnedFd>,
}

impl Channel {
    /// Makes both ends.
    pub fn pair() -> std::io::Result<(Self, Self)> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(one), Self(other)))
    }

    pub fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    pub fn as_descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sends a message. Error: the other end is closed, or a failure of the system.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let mut packet = vec![HERE];
        packet = postcard::to_extend(message, packet).map_err(std::io::Error::other)?;
        if packet.len() <= PACKET_BYTES_MAX {
            return self.send_packet(&packet, descriptors);
        }
        let mut file = File::from(memfd_create("sailfish-message", MemfdFlags::CLOEXEC)?);
        file.write_all(&packet[1..])?;
        file.rewind()?;
        let with_file: Vec<BorrowedFd<'_>> =
            [file.as_fd()].into_iter().chain(descriptors.iter().copied()).collect();
        self.send_packet(&[IN_FILE], &with_file)
    }

    fn send_packet(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(std::io::Error::other("too many file descriptors for a message"));
        }
        loop {
            match sendmsg(&self.0, &[IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => return Ok(other.map(|_| ())?),
            }
        }
    }

    /// Receives a message. None: the other end is closed.
    pub fn receive<T: DeserializeOwned>(&self) -> std::io::Result<Option<Received<T>>> {
        let mut packet = [0; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let length = loop {
            let mut into = [IoSliceMut::new(&mut packet)];
            match recvmsg(&self.0, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received.bytes,
                Err(Errno::INTR) => {}
                // The other process was killed with messages of ours unread.
                Err(Errno::CONNRESET) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        let mut descriptors = Vec::new();
        for each in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = each {
                descriptors.extend(received);
            }
        }
        let in_file;
        let bytes = match packet[..length].split_first() {
            None => return Ok(None),
            Some((&IN_FILE, _)) if !descriptors.is_empty() => {
                in_file = read_file(descriptors.remove(0))?;
                &in_file[..]
            }
            Some((_, bytes)) => bytes,
        };
        let message = postcard::from_bytes(bytes)
            .map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))?;
        Ok(Some(Received { message, descriptors }))
    }

    /// Receives a message that comes within `patience`. Error of kind [`ErrorKind::TimedOut`]: there was none.
    pub fn receive_within<T: DeserializeOwned>(
        &self,
        patience: Duration,
    ) -> std::io::Result<Option<Received<T>>> {
        match is_ready_within(self.0.as_fd(), patience)? {
            true => self.receive(),
            false => Err(ErrorKind::TimedOut.into()),
        }
    }
}

fn read_file(file: OwnedFd) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(file).take(MESSAGE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns whether a descriptor has something to read, or its other end is closed, before the time is over.
pub(crate) fn is_ready_within(descriptor: BorrowedFd<'_>, patience: Duration) -> std::io::Result<bool> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        match poll(&mut watched, Some(&timeout)) {
            Err(Errno::INTR) => {}
            Ok(count) => return Ok(count > 0),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Channel, PACKET_BYTES_MAX, is_ready_within};
    use rustix::pipe::pipe;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn messages_of_any_length_carry_descriptors() {
        let (one, other) = Channel::pair().unwrap();
        for length in [0, 1, PACKET_BYTES_MAX - 10, PACKET_BYTES_MAX, 3 << 20] {
            let (reader, writer) = pipe().unwrap();
            let message = vec![7_u8; length];
            one.send(&message, &[writer.as_fd()]).unwrap();
            drop(writer);
            let received = other.receive::<Vec<u8>>().unwrap().unwrap();
            assert_eq!((received.message, received.descriptors.len()), (message, 1));
            assert!(!is_ready_within(reader.as_fd(), Duration::ZERO).unwrap(), "{length}");
            drop(received.descriptors);
            assert!(is_ready_within(reader.as_fd(), Duration::ZERO).unwrap(), "{length}");
        }
    }

    #[test]
    fn closed_end_is_the_end_of_messages() {
        let (one, other) = Channel::pair().unwrap();
        one.send(&1_u8, &[]).unwrap();
        drop(one);
        assert_eq!(other.receive::<u8>().unwrap().unwrap().message, 1);
        assert!(other.receive::<u8>().unwrap().is_none());
        assert!(other.send(&1_u8, &[]).is_err());
    }
}
