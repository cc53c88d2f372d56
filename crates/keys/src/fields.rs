//! Positions of the fields of a key, and the stretches of them.
//!
//! The rules are those of Hadoop's KeyFieldHelper, which follow `sort -k`: a character is a byte, a place counts from
//! the start of its field and may lie beyond its end. Hadoop miscounts if a separator has several bytes; here the
//! fields are as written.

use api::KeyStretch;
use memchr::memchr;
use memchr::memmem::find;

/// The starts of the first fields of a key; the buffer is reused for the next key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    starts: Vec<usize>,
}

/// Returns the number of fields of a key that must be found to place a stretch.
pub(crate) fn fields_needed(stretch: &KeyStretch) -> usize {
    let end = stretch.end.map_or(0, |end| end.field);
    // The start of the next field gives the end of a field.
    match (stretch.start.field, end) {
        (1, 0) => 0,
        (start, end) => start.max(end) as usize + 1,
    }
}

impl Fields {
    /// Finds the starts of the first `count_max` fields, or of all fields if there are fewer. A key has at least one.
    #[inline]
    pub(crate) fn scan(&mut self, key: &[u8], separator: &[u8], count_max: usize) {
        self.starts.clear();
        self.starts.push(0);
        let mut start = 0;
        while self.starts.len() < count_max {
            let found = match separator {
                [byte] => memchr(*byte, &key[start..]),
                several => find(&key[start..], several),
            };
            let Some(offset) = found else { return };
            start += offset + separator.len();
            self.starts.push(start);
        }
    }

    /// Returns the bytes of a stretch of the scanned key; None if it starts beyond the end of the key.
    #[inline]
    pub(crate) fn stretch<'k>(
        &self,
        key: &'k [u8],
        separator_bytes: usize,
        stretch: &KeyStretch,
    ) -> Option<&'k [u8]> {
        let field_start = self.starts.get(stretch.start.field as usize - 1)?;
        let start = field_start + stretch.start.character as usize - 1;
        if start >= key.len() {
            return None;
        }
        let end = match stretch.end {
            Some(end) if self.starts.len() >= end.field as usize => {
                let place = match end.character {
                    0 => match self.starts.get(end.field as usize) {
                        Some(next) => next - separator_bytes,
                        None => key.len(),
                    },
                    character => self.starts[end.field as usize - 1] + character as usize,
                };
                place.min(key.len())
            }
            _ => key.len(),
        };
        Some(&key[start..end.max(start)])
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, fields_needed};
    use crate::parse_stretch;

    fn check(key: &str, separator: &str, stretch: &str, expected: Option<&str>) {
        let stretch_read = parse_stretch(stretch).unwrap();
        let mut fields = Fields::default();
        fields.scan(key.as_bytes(), separator.as_bytes(), fields_needed(&stretch_read));
        let got = fields.stretch(key.as_bytes(), separator.len(), &stretch_read);
        assert_eq!(got.map(|bytes| std::str::from_utf8(bytes).unwrap()), expected, "{key:?} {stretch}");
    }

    #[test]
    fn stretches_are_those_of_hadoop() {
        check("a\tbc\td", "\t", "1", Some("a\tbc\td"));
        check("a\tbc\td", "\t", "1,1", Some("a"));
        check("a\tbc\td", "\t", "2", Some("bc\td"));
        check("a\tbc\td", "\t", "2,2", Some("bc"));
        check("a\tbc\td", "\t", "2,3", Some("bc\td"));
        check("a\tbc\td", "\t", "3,3", Some("d"));
        check("a\tbc\td", "\t", "4,4", None);
        check("a\tbc\td", "\t", "2,9", Some("bc\td"));
        check("a\tbc\td", "\t", "2.2,2.2", Some("c"));
        check("a\tbc\td", "\t", "1.1,2.1", Some("a\tb"));
        // A place may lie beyond the end of its field.
        check("a\tbc\td", "\t", "1.3,1.4", Some("bc"));
        check("a\tbc\td", "\t", "2.3,3", Some("\td"));
        check("a\tbc\td", "\t", "3.2", None);
        check("a\tbc\td", "\t", "2,2.9", Some("bc\td"));
        check("a\tbc\td", "\t", "3,1", Some(""));
        check("a\t\td", "\t", "2,2", Some(""));
        check("a\t", "\t", "2,2", None);
        check("", "\t", "1", None);
        check("", "\t", "1,1", None);
        check("a::b:c::d", "::", "2,2", Some("b:c"));
        check("a::b:c::d", "::", "3", Some("d"));
    }
}
