//! Decoding of stored records to the user's key and value.

use api::KeyRules;

const PARTITION_BYTES: usize = 4;
/// Groups of seven bits in a 64-bit length.
const LENGTH_BYTES_MAX: usize = 10;

/// Decoder of keys that a [`crate::KeyEncoder`] encoded.
#[derive(Clone, Copy, Debug)]
pub struct KeyDecoder {
    has_order: bool,
    has_partitions: bool,
}

impl KeyDecoder {
    /// Makes a decoder for an encoder of the same rules.
    pub fn new(rules: &KeyRules) -> KeyDecoder {
        KeyDecoder { has_order: !rules.order.is_empty(), has_partitions: rules.partitions.is_some() }
    }

    /// Returns whether keys and values are stored unchanged, so that no decoding is needed.
    pub fn is_plain(&self) -> bool {
        !self.has_order && !self.has_partitions
    }

    /// Returns the key and the value of the user. None if no encoder of these rules made them.
    #[inline]
    pub fn decode<'a>(&self, stored_key: &'a [u8], stored_value: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        if self.has_order {
            let (length, rest) = split_length(stored_value)?;
            return rest.split_at_checked(length);
        }
        let skipped = if self.has_partitions { PARTITION_BYTES } else { 0 };
        Some((stored_key.get(skipped..)?, stored_value))
    }
}

#[inline]
fn split_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut length = 0u64;
    for (index, byte) in bytes.iter().take(LENGTH_BYTES_MAX).enumerate() {
        length |= u64::from(byte & 0x7f).checked_shl(7 * index as u32)?;
        if byte & 0x80 == 0 {
            return Some((usize::try_from(length).ok()?, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::KeyDecoder;

    #[test]
    fn bytes_of_no_encoder_are_refused() {
        let ordered = KeyDecoder { has_order: true, has_partitions: false };
        assert_eq!(ordered.decode(b"", b"\x01kv"), Some((&b"k"[..], &b"v"[..])));
        for stored_value in [&b""[..], b"\x02k", b"\x80", &[0xff; 12]] {
            assert_eq!(ordered.decode(b"", stored_value), None, "{stored_value:?}");
        }
        let parted = KeyDecoder { has_order: false, has_partitions: true };
        assert_eq!(parted.decode(b"\0\0\0\x01k", b"v"), Some((&b"k"[..], &b"v"[..])));
        assert_eq!(parted.decode(b"\0\0\0", b"v"), None);
    }
}
