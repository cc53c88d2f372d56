//! Division of a line into key and value.

use api::FieldSplit;
use memchr::{memchr, memmem};

/// A prepared [`FieldSplit`]: cheap to use for each line, expensive to make.
#[derive(Clone, Debug)]
pub struct FieldSplitter {
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// The first occurrence of this byte divides key and value: the common case.
    FirstByte(u8),
    Fields {
        separator: Box<memmem::Finder<'static>>,
        key_fields: u32,
    },
}

impl FieldSplitter {
    /// Prepares a split. An empty separator, which submit refuses, never divides a line.
    pub fn new(split: &FieldSplit) -> Self {
        let form = match (split.separator.as_slice(), split.key_fields) {
            ([byte], 0 | 1) => Form::FirstByte(*byte),
            (separator, key_fields) => {
                let separator = Box::new(memmem::Finder::new(separator).into_owned());
                Form::Fields { separator, key_fields: key_fields.max(1) }
            }
        };
        Self { form }
    }

    /// Returns key and value of a line without its end. A line with too few separators is a key.
    #[inline]
    pub fn split<'a>(&self, line: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        match &self.form {
            Form::FirstByte(byte) => match memchr(*byte, line) {
                Some(place) => (&line[..place], &line[place + 1..]),
                None => (line, b""),
            },
            Form::Fields { separator, key_fields } => split_fields(separator, *key_fields, line),
        }
    }
}

fn split_fields<'a>(separator: &memmem::Finder<'_>, key_fields: u32, line: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let separator_bytes = separator.needle().len();
    if separator_bytes == 0 {
        return (line, b"");
    }
    let mut field_start = 0;
    for field in 1..=key_fields {
        let Some(place) = separator.find(&line[field_start..]) else {
            break;
        };
        let field_end = field_start + place;
        field_start = field_end + separator_bytes;
        if field == key_fields {
            return (&line[..field_end], &line[field_start..]);
        }
    }
    (line, b"")
}

#[cfg(test)]
mod tests {
    use super::FieldSplitter;
    use api::FieldSplit;

    fn check(separator: &str, key_fields: u32, line: &str, expected: (&str, &str)) {
        let split = FieldSplit { separator: separator.as_bytes().to_vec(), key_fields };
        let (key, value) = FieldSplitter::new(&split).split(line.as_bytes());
        let found = (std::str::from_utf8(key).unwrap(), std::str::from_utf8(value).unwrap());
        assert_eq!(found, expected, "{line:?} by {separator:?}, {key_fields}");
    }

    #[test]
    fn lines_are_parted_behind_the_key_fields() {
        check("\t", 1, "a\tb\tc", ("a", "b\tc"));
        check("\t", 1, "a", ("a", ""));
        check("\t", 1, "\t", ("", ""));
        check("\t", 2, "a\tb\tc", ("a\tb", "c"));
        check("\t", 2, "a\tb", ("a\tb", ""));
        check("\t", 3, "\t\t\t\t", ("\t\t", "\t"));
        check(".", 4, "11.12.1.2.3", ("11.12.1.2", "3"));
        check("::", 1, "a:b::c::d", ("a:b", "c::d"));
        check("::", 2, "a:b::c::d", ("a:b::c", "d"));
        check("::", 1, "a:::b", ("a", ":b"));
        check("::", 2, "a:::b", ("a:::b", ""));
        check("::", 2, "::::", ("::", ""));
        check("ab", 1, "aab", ("a", ""));
        check("::", 1, "", ("", ""));
    }

    #[test]
    fn separator_of_several_bytes_matches_the_model() {
        for number in 0..3_u32.pow(7) {
            let letter = |place: u32| ['a', 'b', ':'][(number / 3_u32.pow(place) % 3) as usize];
            let line: String = (0..7).map(letter).collect();
            for key_fields in 1..4 {
                let fields: Vec<&str> = line.splitn(key_fields as usize + 1, "::").collect();
                let expected = match fields.len() > key_fields as usize {
                    true => (fields[..key_fields as usize].join("::"), fields[key_fields as usize]),
                    false => (line.clone(), ""),
                };
                check("::", key_fields, &line, (&expected.0, expected.1));
            }
        }
    }
}
