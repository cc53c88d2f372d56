//! Keys and other bytes in tables: text is readable, other bytes are unambiguous.

use std::fmt::Write;

/// Maximum number of characters of a cell.
const CELL_CHARACTERS_MAX: usize = 200;
/// Maximum number of characters of a sentence on its own line.
const SENTENCE_CHARACTERS_MAX: usize = 1000;

/// Formats a key for a table: text unchanged, `\t \n \r \\` and `\xNN` for other bytes, cut with `…` if it is longer
/// than `bytes_max`.
pub fn key(bytes: &[u8], bytes_max: usize) -> String {
    let shown = &bytes[..bytes.len().min(bytes_max)];
    let mut text = String::with_capacity(shown.len() + 3);
    for piece in shown.utf8_chunks() {
        piece.valid().chars().for_each(|character| push_escaped(&mut text, character));
        // A character that the cut divides is no damage.
        let cut_here = shown.len() < bytes.len() && shown.ends_with(piece.invalid());
        if !cut_here {
            piece.invalid().iter().for_each(|byte| push_byte(&mut text, *byte));
        }
    }
    if shown.len() < bytes.len() {
        text.push('…');
    }
    text
}

/// Formats bytes of unknown kind for a table: printable text unchanged, others as `x'0a1b'`.
pub fn blob(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.chars().all(|each| !each.is_control()) => cell(text),
        _ => cell(&format!("x'{}'", hex::encode(bytes))),
    }
}

/// Formats text for a cell of a table: control characters escaped, cut with `…` if it is long.
pub fn cell(text: &str) -> String {
    printable(text, CELL_CHARACTERS_MAX)
}

/// Does the same for a sentence below a table.
pub fn sentence(text: &str) -> String {
    printable(text, SENTENCE_CHARACTERS_MAX)
}

fn printable(text: &str, characters_max: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(characters_max));
    for (position, character) in text.chars().enumerate() {
        if position == characters_max {
            shown.push('…');
            break;
        }
        match character {
            '\\' => shown.push('\\'),
            other => push_escaped(&mut shown, other),
        }
    }
    shown
}

fn push_escaped(text: &mut String, character: char) {
    match character {
        '\\' => text.push_str("\\\\"),
        '\t' => text.push_str("\\t"),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        other if other.is_control() => {
            let mut buffer = [0; 4];
            other.encode_utf8(&mut buffer).bytes().for_each(|byte| push_byte(text, byte));
        }
        other => text.push(other),
    }
}

fn push_byte(text: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::{blob, cell, key};

    #[test]
    fn keys_are_unambiguous() {
        let check = |given: &[u8], expected: &str| assert_eq!(key(given, 40), expected);
        check(b"", "");
        check(b"plain key", "plain key");
        check("größe".as_bytes(), "größe");
        check(b"a\tb\n\x00\x7f\xff\\", "a\\tb\\n\\x00\\x7f\\xff\\\\");
        check(&[b'k'; 40], &"k".repeat(40));
        check(&[b'k'; 41], &format!("{}…", "k".repeat(40)));
        let cut_within_a_character = format!("{}öxyz", "k".repeat(39));
        check(cut_within_a_character.as_bytes(), &format!("{}…", "k".repeat(39)));
    }

    #[test]
    fn cells_stay_on_their_line() {
        assert_eq!(cell("a\nb\\c"), "a\\nb\\c");
        assert_eq!(cell(&"x".repeat(300)).chars().count(), 201);
        assert_eq!((blob(b"word").as_str(), blob(b"\x0a\xff").as_str()), ("word", "x'0aff'"));
        assert_eq!(blob(b""), "x''");
    }
}
