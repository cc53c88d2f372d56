//! # What it does
//! Order-preserving encodings of keys, and partitions: from the rules of a user ([`api::KeyRules`]) to stored keys
//! whose bytes compare as the user's keys should, and back.
//!
//! # Where it sits
//! mapper (key, value) -> keys -> iappender; imerger -> keys -> reducer. A plain job skips it.
//!
//! # Invariants
//! Stored keys compare bytewise exactly as the rules order the keys, and are equal if the rules call the keys equal.
//! The encoding of a step is never a prefix of another one of that step, so that encodings of steps can be concatenated
//! and the first few are a partition key. Decoding restores the bytes of the key, whatever its encoding left out. The
//! partition of a key follows from its bytes and the rules alone.
//!
//! # Deliberately absent
//! No comparing: everything after the encoder knows bytes only. No I-files except the one of a partition. No I/O, no
//! clock, no randomness.
//!
//! # How it is tested
//! Property tests against a naive comparator over big decimals in `tests/`; golden rows for the hashes of Hadoop.
//!
//! ```text
//! stored key    [partition, 4 bytes big-endian]  then  the key itself                    without an order
//!                                                or    step 1, step 2, ...               with one
//! stored value  the value                                                                without an order
//!               length of the key (LEB128), the key, the value                           with one
//!
//! bytewise      the bytes, 00 as 00 FF, then 00 01
//! a number      see `number`
//! no such place 00 00, before everything else
//! reversed      all bits of the step inverted
//! ```

mod decode;
mod encode;
mod fields;
mod number;
mod options;
mod partition;

pub use decode::KeyDecoder;
pub use encode::{KeyEncoder, KeyError, KeyRulesError, Stored, groups_by_prefix};
pub use options::{
    OptionsError, leading_steps, order_text, parse_order_options, parse_partition_options, parse_stretch,
    stretches_text,
};
pub use partition::{PARTITIONS_MAX, ifile_of_partition, lower_bound_of_partition};
