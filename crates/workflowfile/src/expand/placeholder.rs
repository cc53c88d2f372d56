//! Texts with placeholders: `{name}`.

/// A piece of a text. `$` before a brace is of the shell, so `${name}` is plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    /// `{name}`: its name.
    Placeholder(&'a str),
    /// `{{name}}`: its name.
    Doubled(&'a str),
}

/// Returns the pieces of a text, in order. A brace that is of neither form is plain text.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut plain, mut place) = (0, 0);
    while let Some(brace) = text[place..].find('{').map(|brace| place + brace) {
        let is_of_shell = text[..brace].ends_with('$');
        let (piece, length) = match (name_between(&text[brace..], "{{", "}}"), is_of_shell) {
            (Some(name), _) => (Piece::Doubled(name), name.len() + 4),
            (None, true) => (Piece::Text(""), 0),
            (None, false) => match name_between(&text[brace..], "{", "}") {
                Some(name) => (Piece::Placeholder(name), name.len() + 2),
                None => (Piece::Text(""), 0),
            },
        };
        if length == 0 {
            place = brace + 1;
            continue;
        }
        if plain < brace {
            pieces.push(Piece::Text(&text[plain..brace]));
        }
        pieces.push(piece);
        place = brace + length;
        plain = place;
    }
    if plain < text.len() {
        pieces.push(Piece::Text(&text[plain..]));
    }
    pieces
}

/// Returns whether a text may be the name of a placeholder.
pub fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|each| each.is_ascii_alphanumeric() || each == '_')
}

fn name_between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let inside = text.strip_prefix(open)?;
    let (name, _) = inside.split_once('}')?;
    (is_name(name) && inside[name.len()..].starts_with(close)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::Piece::{Doubled, Placeholder, Text};
    use super::pieces;

    #[test]
    fn shell_and_awk_stay_plain() {
        let plain = [
            "awk '{print $1}'",
            "echo ${k} ${k:-3} a{b,c} {1..3}",
            "f() { k; }",
            "{",
            "}{",
            "{{",
            "${",
            "{k",
            "{ k }",
            "{{ k }}",
            "x{3}",
            "é{é}",
        ];
        for text in plain {
            assert_eq!(pieces(text), [Text(text)]);
        }
        assert_eq!(pieces(""), []);
    }

    #[test]
    fn names_in_braces_are_found() {
        assert_eq!(pieces("a{k}{_m2}é"), [Text("a"), Placeholder("k"), Placeholder("_m2"), Text("é")]);
        assert_eq!(pieces("{{k}}{{k}"), [Doubled("k"), Text("{"), Placeholder("k")]);
        assert_eq!(pieces("{{{k}}}"), [Text("{"), Doubled("k"), Text("}")]);
        assert_eq!(pieces("${{k}}"), [Text("$"), Doubled("k")]);
    }
}
