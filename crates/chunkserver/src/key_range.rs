//! A range of partition keys.

/// Keys with `lower` <= key < `upper`; None: no bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyRange<'a> {
    pub lower: Option<&'a [u8]>,
    pub upper: Option<&'a [u8]>,
}
