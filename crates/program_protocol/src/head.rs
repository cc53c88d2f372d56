//! The head of a frame: the length of its payload as u32, its kind, three zeros.

/// Length of a frame's head.
pub const FRAME_HEAD_BYTES: usize = 8;

/// Kind of a frame. The value is part of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// To the program: its task, as JSON.
    Job = b'J',
    /// To the program: the position of records in the input, and the records.
    Records = b'R',
    /// To the program: sorted pairs in groups.
    Groups = b'G',
    /// To the program: the end of the input. From it: the end of the output.
    End = b'E',
    /// From the program: pairs.
    Pairs = b'P',
    /// From the program: pairs of keys with tails.
    TailedPairs = b'T',
    /// From the program: bytes of the output part.
    Output = b'O',
    /// From the program: the reason why it cannot continue, as JSON.
    Failure = b'X',
}

impl FrameKind {
    /// Kinds of frames that a program may write.
    pub const FROM_PROGRAM: [FrameKind; 5] =
        [Self::Pairs, Self::TailedPairs, Self::Output, Self::End, Self::Failure];
}

/// Makes the head of a frame with this many bytes of payload; None if a frame cannot have so many.
pub fn head(kind: FrameKind, payload_bytes: usize) -> Option<[u8; FRAME_HEAD_BYTES]> {
    let [l0, l1, l2, l3] = u32::try_from(payload_bytes).ok()?.to_le_bytes();
    Some([l0, l1, l2, l3, kind as u8, 0, 0, 0])
}

/// Parses the kind and payload length of a frame from a program; None if these bytes are no head.
pub(crate) fn decode(head: [u8; FRAME_HEAD_BYTES]) -> Option<(FrameKind, u32)> {
    let [l0, l1, l2, l3, kind, rest @ ..] = head;
    let found = FrameKind::FROM_PROGRAM.into_iter().find(|known| *known as u8 == kind && rest == [0; 3])?;
    Some((found, u32::from_le_bytes([l0, l1, l2, l3])))
}
