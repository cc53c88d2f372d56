//! Copies of the short pieces of records, inline, because a call of `memcpy` costs more than the copy.

/// Appends a piece to `to`. Panics if `to` lacks the capacity.
#[inline(always)]
pub fn append_piece(to: &mut Vec<u8>, piece: &[u8]) {
    let len = to.len();
    assert!(to.capacity() - len >= piece.len(), "room was set aside");
    // SAFETY: the bytes after the end belong to the vector by the assertion, a shared slice cannot overlap them, and
    // they are written before the length includes them.
    unsafe {
        copy(piece, to.as_mut_ptr().add(len));
        to.set_len(len + piece.len());
    }
}

/// Copies `from` to the memory at `to`.
///
/// # Safety
/// `to` must be valid for writes of `from.len()` bytes that do not overlap `from`.
#[inline(always)]
pub(crate) unsafe fn copy(from: &[u8], to: *mut u8) {
    let (start, len) = (from.as_ptr(), from.len());
    // SAFETY: each arm reads and writes the first and the last bytes of the piece, which together cover exactly the
    // piece.
    unsafe {
        match len {
            0 => {}
            1 => *to = *start,
            2..=3 => copy_ends::<2>(start, to, len),
            4..=7 => copy_ends::<4>(start, to, len),
            8..=15 => copy_ends::<8>(start, to, len),
            16..=31 => copy_ends::<16>(start, to, len),
            _ => std::ptr::copy_nonoverlapping(start, to, len),
        }
    }
}

/// # Safety
/// N <= len <= 2 N, and both ends as for [`copy`].
#[inline(always)]
unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the contract of this function; arrays of bytes have no alignment.
    unsafe {
        let first = *from.cast::<[u8; N]>();
        let last = *from.add(len - N).cast::<[u8; N]>();
        *to.cast::<[u8; N]>() = first;
        *to.add(len - N).cast::<[u8; N]>() = last;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn pieces_of_every_length_are_copied_exactly() {
        let from: Vec<u8> = (1..=100).collect();
        for len in 0..=100 {
            let mut to = vec![0; 102];
            // SAFETY: there are 101 bytes behind the pointer.
            unsafe { super::copy(&from[..len], to.as_mut_ptr().add(1)) };
            assert_eq!(&to[1..=len], &from[..len]);
            assert!(to[0] == 0 && to[len + 1..].iter().all(|byte| *byte == 0), "{len}");
        }
    }

    #[test]
    #[should_panic(expected = "room was set aside")]
    fn a_piece_without_room_is_refused() {
        super::append_piece(&mut Vec::new(), b"piece");
    }

    #[test]
    fn pieces_are_appended() {
        let mut to = Vec::with_capacity(8);
        [&b"ab"[..], b"", b"cde", b"f"].iter().for_each(|piece| super::append_piece(&mut to, piece));
        assert_eq!(to, b"abcdef");
    }
}
