//! The three layouts of rows, and how to tell them apart.

use crate::{ROW_BYTES, Row};
use std::fmt;
use std::str::FromStr;

/// How the 100 bytes of a row are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowLayout {
    /// Binary rows as gensort 1.5 makes them: no row number, a payload that does not compress.
    Modern,
    /// Binary rows as gensort 1.1 and Hadoop's TeraGen make them: the same keys, another payload.
    Legacy,
    /// Lines of printable characters that end with CR LF, the same in all versions of gensort (`-a`).
    Ascii,
}

impl RowLayout {
    /// All of them, in the order in which options list them.
    pub const ALL: [RowLayout; 3] = [RowLayout::Modern, RowLayout::Legacy, RowLayout::Ascii];

    /// The word that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            RowLayout::Modern => "modern",
            RowLayout::Legacy => "legacy",
            RowLayout::Ascii => "ascii",
        }
    }
}

impl fmt::Display for RowLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no layout of rows: write modern, legacy or ascii")]
pub struct UnknownLayout {
    /// The word as written.
    pub found: String,
}

impl FromStr for RowLayout {
    type Err = UnknownLayout;

    fn from_str(text: &str) -> Result<RowLayout, UnknownLayout> {
        let named = RowLayout::ALL.into_iter().find(|layout| layout.name() == text);
        named.ok_or_else(|| UnknownLayout { found: text.to_string() })
    }
}

/// A layout, with keys that are uniform or moderately skewed. It decides every byte of a row but for its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKind {
    layout: RowLayout,
    skewed: bool,
}

/// Skewed keys came after the legacy layout, and neither Hadoop nor anyone else defines the two together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("legacy has no skewed rows: choose the layout modern or ascii, or leave out the skew")]
pub struct NoSkewedLegacy;

impl RowKind {
    /// Returns rows with uniform keys.
    pub fn uniform(layout: RowLayout) -> RowKind {
        RowKind { layout, skewed: false }
    }

    /// Returns rows with moderately skewed keys.
    ///
    /// # Errors
    /// The legacy layout has no skewed rows.
    pub fn with_skewed_keys(layout: RowLayout) -> Result<RowKind, NoSkewedLegacy> {
        match layout {
            RowLayout::Legacy => Err(NoSkewedLegacy),
            RowLayout::Modern | RowLayout::Ascii => Ok(RowKind { layout, skewed: true }),
        }
    }

    /// How the bytes are used.
    pub fn layout(self) -> RowLayout {
        self.layout
    }

    /// Whether some beginnings of keys are much more common than others.
    pub fn skewed(self) -> bool {
        self.skewed
    }

    /// The layout that all whole rows in `bytes` seem to have; a part of a row at the end is not looked at.
    /// For texts such as "these rows look ascii": modern rows have no marks, so that any bytes which look
    /// random pass for them. `None` if there is no whole row, if rows differ, or if they are something else.
    pub fn recognise(bytes: &[u8]) -> Option<RowLayout> {
        let (rows, _) = bytes.as_chunks::<ROW_BYTES>();
        let layout = recognise_row(rows.first()?)?;
        rows.iter().all(|row| recognise_row(row) == Some(layout)).then_some(layout)
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.layout.name())?;
        if self.skewed { f.write_str(" skewed") } else { Ok(()) }
    }
}

/// Random bytes have the top bit set in 50 of 100 places, give or take 5: outside these limits they are not random.
const RANDOM_TOP_BITS: std::ops::RangeInclusive<usize> = 20..=80;

fn recognise_row(row: &Row) -> Option<RowLayout> {
    let printable = |byte: &u8| (b' '..=b'~').contains(byte);
    let hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'A'..=b'F');
    let fourfold = |digits: &[u8]| digits.iter().all(hexadecimal) && is_fourfold(digits);
    let ascii = row[..10].iter().all(printable)
        && row[10..12] == *b"  "
        && row[12..44].iter().all(hexadecimal)
        && row[44..46] == *b"  "
        && fourfold(&row[46..98])
        && row[98..] == *b"\r\n";
    if ascii {
        return Some(RowLayout::Ascii);
    }
    let legacy = row[10..12] == [0x00, 0x11]
        && row[12..44].iter().all(hexadecimal)
        && row[44..48] == [0x88, 0x99, 0xaa, 0xbb]
        && fourfold(&row[48..96])
        && row[96..] == [0xcc, 0xdd, 0xee, 0xff];
    if legacy {
        return Some(RowLayout::Legacy);
    }
    let top_bits = row.iter().filter(|byte| **byte >= 0x80).count();
    RANDOM_TOP_BITS.contains(&top_bits).then_some(RowLayout::Modern)
}

/// Whether each group of four bytes is one byte four times.
fn is_fourfold(bytes: &[u8]) -> bool {
    let (groups, _) = bytes.as_chunks::<4>();
    groups.iter().all(|group| *group == [group[0]; 4])
}

#[cfg(test)]
mod tests {
    use super::{NoSkewedLegacy, RowKind, RowLayout};
    use crate::{ROW_BYTES, RowGenerator};

    #[test]
    fn words_and_layouts_are_the_same() {
        for layout in RowLayout::ALL {
            assert_eq!(layout.to_string().parse(), Ok(layout));
        }
        let error = "binary".parse::<RowLayout>().expect_err("no layout");
        assert_eq!(error.to_string(), "\"binary\" is no layout of rows: write modern, legacy or ascii");
    }

    #[test]
    fn only_legacy_refuses_skew() {
        for layout in RowLayout::ALL {
            assert!(!RowKind::uniform(layout).skewed());
            assert_eq!(RowKind::with_skewed_keys(layout).is_ok(), layout != RowLayout::Legacy);
        }
        assert_eq!(RowKind::with_skewed_keys(RowLayout::Legacy), Err(NoSkewedLegacy));
        assert!(NoSkewedLegacy.to_string().starts_with("legacy has no skewed rows"));
        let kind = RowKind::with_skewed_keys(RowLayout::Ascii).expect("ascii may be skewed");
        assert_eq!(kind.to_string(), "ascii skewed");
    }

    fn rows_of(kind: RowKind) -> Vec<u8> {
        let mut rows = vec![0; 1000 * ROW_BYTES];
        RowGenerator::new(kind, 1 << 90).fill(&mut rows);
        rows
    }

    #[test]
    fn generated_rows_are_recognised() {
        let uniform = RowLayout::ALL.map(RowKind::uniform);
        let skewed = RowLayout::ALL.map(RowKind::with_skewed_keys);
        for kind in uniform.into_iter().chain(skewed.into_iter().flatten()) {
            let rows = rows_of(kind);
            assert_eq!(RowKind::recognise(&rows), Some(kind.layout()), "{kind}");
            assert_eq!(RowKind::recognise(&rows[..ROW_BYTES + 7]), Some(kind.layout()), "{kind}");
        }
    }

    #[test]
    fn other_bytes_are_not_recognised() {
        let ascii = rows_of(RowKind::uniform(RowLayout::Ascii));
        let legacy = rows_of(RowKind::uniform(RowLayout::Legacy));
        // What a tool that drops the CR leaves of ASCII rows.
        let shortened: Vec<u8> = ascii.iter().copied().filter(|byte| *byte != b'\r').collect();
        let mixed = [&ascii[..ROW_BYTES], &legacy[..ROW_BYTES]].concat();
        for bytes in [&[], &ascii[..99], &ascii[1..], &legacy[3..], &shortened, &mixed, &[0; 300][..]] {
            assert_eq!(RowKind::recognise(bytes), None);
        }
    }
}
