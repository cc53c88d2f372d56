//! Texts with placeholders: `{name}`.

/// A piece of a text. `$` before a brace is of the shell, so `${name}` is plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    /// `{name}`: its name.
    Placeholder(&'a str),
    /// `{{name}}`: its name.
    Doubled(&'a str),
    /// `{input}` and the like, as Snakemake has them: the text between the braces.
    OfSnakemake(&'a str),
    /// The same in two pairs of braces.
    DoubledOfSnakemake(&'a str),
}

/// Names of Snakemake's placeholders for files and wildcards.
const OF_SNAKEMAKE: [&str; 5] = ["input", "inputs", "output", "outputs", "wildcards"];

/// Returns the pieces of a text, in order. A brace that is of neither form is plain text.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut plain, mut place) = (0, 0);
    while let Some(brace) = text[place..].find('{').map(|brace| place + brace) {
        let is_of_shell = text[..brace].ends_with('$');
        let Some((piece, length)) = piece_at(&text[brace..], is_of_shell) else {
            place = brace + 1;
            continue;
        };
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

/// Returns the piece that begins with the brace at the start of a text, and its length; None if it is plain text.
fn piece_at(text: &str, is_of_shell: bool) -> Option<(Piece<'_>, usize)> {
    if let Some(name) = name_between(text, "{{", "}}") {
        return Some((Piece::Doubled(name), name.len() + 4));
    }
    if let Some(inside) = between(text, "{{", "}}").filter(|inside| is_of_snakemake(inside)) {
        return Some((Piece::DoubledOfSnakemake(inside), inside.len() + 4));
    }
    if is_of_shell {
        return None;
    }
    if let Some(name) = name_between(text, "{", "}") {
        return Some((Piece::Placeholder(name), name.len() + 2));
    }
    let inside = between(text, "{", "}").filter(|inside| is_of_snakemake(inside))?;
    Some((Piece::OfSnakemake(inside), inside.len() + 2))
}

/// Returns whether the text between two braces is a placeholder of Snakemake: `input`, `input.fa`, `output[0]`,
/// `wildcards.sample`.
pub fn is_of_snakemake(inside: &str) -> bool {
    let end = inside.find(['.', '[']).unwrap_or(inside.len());
    let (word, rest) = inside.split_at(end);
    let is_rest = match rest.chars().next() {
        None => word != "wildcards",
        Some('.') => is_name(&rest[1..]),
        Some(_) => rest.len() > 2 && rest.ends_with(']') && !rest.contains(char::is_whitespace),
    };
    is_rest && OF_SNAKEMAKE.contains(&word)
}

/// Returns whether a text may have a placeholder of Snakemake.
pub fn may_be_of_snakemake(text: &str) -> bool {
    text.contains("{input") || text.contains("{output") || text.contains("{wildcards")
}

/// Returns whether a text may be the name of a placeholder.
pub fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|each| each.is_ascii_alphanumeric() || each == '_')
}

fn name_between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    between(text, open, close).filter(|name| is_name(name))
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let inside = text.strip_prefix(open)?;
    let (name, _) = inside.split_once('}')?;
    inside[name.len()..].starts_with(close).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::Piece::{Doubled, DoubledOfSnakemake, OfSnakemake, Placeholder, Text};
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
            "${input.fa}",
            "{input,output}",
            "{input.}",
            "{input[0}",
            "{inputs }",
            "{print.x}",
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

    #[test]
    fn placeholders_of_snakemake_are_found() {
        for inside in ["input.fa", "input[0]", "inputs.x", "output[fa]", "wildcards.sample"] {
            assert_eq!(pieces(&format!("a {{{inside}}}")), [Text("a "), OfSnakemake(inside)]);
            assert_eq!(pieces(&format!("{{{{{inside}}}}}b")), [DoubledOfSnakemake(inside), Text("b")]);
        }
        assert_eq!(pieces("{input}"), [Placeholder("input")]);
    }
}
