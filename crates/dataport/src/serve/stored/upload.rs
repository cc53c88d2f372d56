//! Parts that arrive from a connection and go to a disk.

use crate::serve::body_reader::{BodyError, BodyReader};
use crate::serve::port::Refusal;
use crate::serve::stored::Admitted;
use crate::serve::stored::services::PartReceiver;
use crate::wire::stored::{
    GATHERED_BYTES, PARTS_PER_REQUEST_MAX, STORED_PIECE_BYTES_MAX, UPLOAD_END, concrete_of,
};
use bytes::Bytes;
use concretefile::Content;
use ids::{ConcreteId, DiskId};
use ifile::{FormatError, Problem};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use trust::FileRight;

/// Maximum number of lots of pieces that wait for the disk.
const LOTS_MAX: usize = 4;
/// Maximum number of pieces that are passed to the disk together, however small they are.
const PIECES_PER_LOT_MAX: usize = 4096;

/// Message to the writing thread. Without the last one nothing is kept, however much has arrived.
enum Piece {
    Begin(ConcreteId),
    Bytes(Bytes),
    End(Content),
    Complete,
}

/// The reason why no more is passed on.
enum Broken {
    Refused(Refusal),
    /// The writing thread has ended early, and reports the reason itself.
    Stopped,
}

impl<R: Into<Refusal>> From<R> for Broken {
    fn from(refusal: R) -> Self {
        Self::Refused(refusal.into())
    }
}

/// Receives parts on a disk. When it returns, all are synced, or the receiver was dropped.
pub(crate) async fn receive(
    admitted: Admitted,
    disk: DiskId,
    bytes: u64,
    body: &mut BodyReader,
    permit: OwnedSemaphorePermit,
) -> Result<(), Refusal> {
    let (sender, lots) = channel(LOTS_MAX);
    let files = Arc::clone(&admitted.files);
    // The thread keeps the permit: a broken-off request is done when its files are removed.
    let writing = tokio::task::spawn_blocking(move || {
        let written = files.receive(disk, bytes).map_err(Refusal::from).and_then(|to| write(to, lots));
        drop(permit);
        written
    });
    let mut upload = Upload {
        admitted: &admitted,
        body,
        bytes_left: bytes,
        parts: BTreeSet::new(),
        lots: sender,
        lot: Vec::new(),
        lot_bytes: 0,
    };
    let sent = upload.all().await;
    drop(upload);
    let written = writing.await.map_err(|_| Refusal::Thread)?;
    match sent {
        Ok(()) | Err(Broken::Stopped) => written,
        Err(Broken::Refused(refusal)) => Err(refusal),
    }
}

/// An upload that is being read.
struct Upload<'a> {
    admitted: &'a Admitted,
    body: &'a mut BodyReader,
    /// Bytes that were announced and have not arrived.
    bytes_left: u64,
    parts: BTreeSet<ConcreteId>,
    lots: Sender<Vec<Piece>>,
    /// Pieces that were not passed to the writing thread yet.
    lot: Vec<Piece>,
    lot_bytes: usize,
}

impl Upload<'_> {
    async fn all(&mut self) -> Result<(), Broken> {
        loop {
            let mut number = [0; 8];
            self.body.fill(&mut number).await?;
            match u64::from_le_bytes(number) {
                UPLOAD_END => break,
                number => self.part(concrete_of(number)?).await?,
            }
        }
        if !self.body.is_at_end().await? {
            return Err(Refusal::Contradiction("bytes after the end of an upload").into());
        }
        self.put(Piece::Complete).await?;
        self.pass_on().await
    }

    async fn part(&mut self, part: ConcreteId) -> Result<(), Broken> {
        self.admitted.check(part, FileRight::Write)?;
        if !self.parts.insert(part) {
            return Err(Refusal::Contradiction("a part comes twice").into());
        }
        if self.parts.len() > PARTS_PER_REQUEST_MAX as usize {
            return Err(BodyError::TooLong.into());
        }
        self.put(Piece::Begin(part)).await?;
        let mut bytes = 0;
        loop {
            let length = self.number().await?;
            if length == 0 {
                break;
            }
            if length > STORED_PIECE_BYTES_MAX {
                let what = "the length of a piece";
                return Err(FormatError::at(bytes, Problem::Field { what, value: length.into() }).into());
            }
            self.bytes_left = self.bytes_left.checked_sub(length.into()).ok_or(BodyError::TooLong)?;
            bytes += u64::from(length);
            let mut left = length as usize;
            while left > 0 {
                let some = self.body.some(left).await?;
                left -= some.len();
                self.put(Piece::Bytes(some)).await?;
            }
        }
        let mut stated = [0; 8];
        self.body.fill(&mut stated).await?;
        if u64::from_le_bytes(stated) != bytes {
            return Err(Refusal::Contradiction("a part has another length than stated").into());
        }
        let crc32c = self.number().await?;
        self.put(Piece::End(Content { bytes, crc32c })).await
    }

    async fn number(&mut self) -> Result<u32, BodyError> {
        let mut number = [0; 4];
        self.body.fill(&mut number).await?;
        Ok(u32::from_le_bytes(number))
    }

    async fn put(&mut self, piece: Piece) -> Result<(), Broken> {
        if let Piece::Bytes(bytes) = &piece {
            self.lot_bytes += bytes.len();
        }
        self.lot.push(piece);
        if self.lot_bytes < GATHERED_BYTES && self.lot.len() < PIECES_PER_LOT_MAX {
            return Ok(());
        }
        self.pass_on().await
    }

    async fn pass_on(&mut self) -> Result<(), Broken> {
        self.lot_bytes = 0;
        self.lots.send(std::mem::take(&mut self.lot)).await.map_err(|_| Broken::Stopped)
    }
}

fn write(mut to: Box<dyn PartReceiver>, mut lots: Receiver<Vec<Piece>>) -> Result<(), Refusal> {
    while let Some(lot) = lots.blocking_recv() {
        for piece in lot {
            match piece {
                Piece::Begin(part) => to.begin(part)?,
                Piece::Bytes(bytes) => to.write(&bytes)?,
                Piece::End(content) => to.end(content)?,
                Piece::Complete => return Ok(to.sync()?),
            }
        }
    }
    // The side that broke it off knows the reason.
    Err(Refusal::Contradiction("no end"))
}
