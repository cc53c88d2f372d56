//! The permitted statements: a single one that begins with a reading keyword and calls only known functions.
//!
//! The text is divided into tokens as the databases do it. A text that they, or this module, would divide differently
//! is refused; no statement needs such a text.

use super::QueryError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    /// An identifier in quotes.
    Quoted(&'a str),
    /// A string or a number.
    Literal,
    Symbol(u8),
}

/// Returns the only statement of a text, without its semicolon.
pub(super) fn single_statement(text: &str, dialect: Dialect) -> Result<&str, QueryError> {
    let mut tokens = Vec::new();
    let mut position = 0;
    let mut end = text.len();
    while let Some((token, start, after)) = next_token(text, position, dialect)? {
        if token == Token::Symbol(b';') {
            end = start;
            if next_token(text, after, dialect)?.is_some() {
                return Err(QueryError::MoreThanOne);
            }
            break;
        }
        tokens.push(token);
        position = after;
    }
    let Some(first) = tokens.first() else { return Err(QueryError::Empty) };
    let keyword = match first {
        Token::Word(word) => word.to_ascii_lowercase(),
        _ => String::new(),
    };
    if !["select", "with", "values", "explain"].contains(&keyword.as_str()) {
        let shown = text.split_whitespace().next().unwrap_or_default().chars().take(40).collect();
        return Err(QueryError::NotReadOnly { keyword: shown });
    }
    if dialect == Dialect::Postgres {
        check_names(&tokens)?;
    }
    Ok(&text[..end])
}

fn not_allowed<T>(what: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::NotAllowed { what: what.into() })
}

/// Returns the token at or after a position with its start and end, or None if only spaces and comments are left.
fn next_token(
    text: &str,
    position: usize,
    dialect: Dialect,
) -> Result<Option<(Token<'_>, usize, usize)>, QueryError> {
    let bytes = text.as_bytes();
    let start = skip_spaces(text, position)?;
    let Some(&first) = bytes.get(start) else { return Ok(None) };
    let token = match first {
        b'\'' => (Token::Literal, end_of_quoted(bytes, start, b'\'')),
        b'"' => {
            let end = end_of_quoted(bytes, start, b'"');
            (Token::Quoted(text.get(start + 1..end - 1).unwrap_or_default()), end)
        }
        b'`' if dialect == Dialect::Sqlite => {
            let end = end_of_quoted(bytes, start, b'`');
            (Token::Quoted(text.get(start + 1..end - 1).unwrap_or_default()), end)
        }
        b'[' if dialect == Dialect::Sqlite => {
            let end = text[start..].find(']').map_or(text.len(), |at| start + at + 1);
            (Token::Quoted(text.get(start + 1..end - 1).unwrap_or_default()), end)
        }
        b'$' if dialect == Dialect::Postgres => return not_allowed("$"),
        b'0'..=b'9' => {
            let more = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'.' || **byte == b'_';
            (Token::Literal, start + bytes[start..].iter().take_while(more).count())
        }
        _ if is_word_start(first) => {
            let more = |byte: &&u8| is_word_start(**byte) || byte.is_ascii_digit() || **byte == b'$';
            let end = start + bytes[start..].iter().take_while(more).count();
            let word = &text[start..end];
            // Strings with escapes, and names in escapes: E'..', U&'..', U&"..".
            let prefix = word.eq_ignore_ascii_case("e") && bytes.get(end) == Some(&b'\'');
            let unicode = word.eq_ignore_ascii_case("u") && bytes.get(end) == Some(&b'&');
            if prefix || unicode {
                return not_allowed(format!("{word} before a quote"));
            }
            (Token::Word(word), end)
        }
        0 => return not_allowed("the character NUL"),
        other => (Token::Symbol(other), start + 1),
    };
    Ok(Some((token.0, start, token.1)))
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn skip_spaces(text: &str, mut position: usize) -> Result<usize, QueryError> {
    loop {
        let rest = &text[position..];
        if let Some(comment) = rest.strip_prefix("--") {
            // PostgreSQL ends it at either character, SQLite at a line feed only.
            let end = comment.find(['\n', '\r']).unwrap_or(comment.len());
            if comment[end..].starts_with('\r') && !comment[end..].starts_with("\r\n") {
                return not_allowed("a carriage return within a comment");
            }
            position += 2 + end;
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let Some(end) = comment.find("*/") else { return not_allowed("a comment without an end") };
            if comment[..end].contains("/*") {
                return not_allowed("a comment within a comment");
            }
            position += 2 + end + 2;
        } else {
            let spaces = rest.bytes().take_while(u8::is_ascii_whitespace).count();
            // Vertical tab: a space for the databases, but not for the standard library.
            let spaces = spaces + rest[spaces..].bytes().take_while(|byte| *byte == 0x0b).count();
            if spaces == 0 {
                return Ok(position);
            }
            position += spaces;
        }
    }
}

/// Returns the position after a quoted text; a doubled quote stands for the quote itself.
fn end_of_quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut position = start + 1;
    while position < bytes.len() {
        if bytes[position] == quote {
            if bytes.get(position + 1) != Some(&quote) {
                return position + 1;
            }
            position += 1;
        }
        position += 1;
    }
    bytes.len().max(start + 2)
}

/// Words before a parenthesis that are not calls.
const BEFORE_PARENTHESIS: &[&str] = &[
    "all",
    "and",
    "any",
    "array",
    "as",
    "between",
    "bit",
    "by",
    "case",
    "char",
    "character",
    "cross",
    "cube",
    "decimal",
    "distinct",
    "else",
    "end",
    "except",
    "exists",
    "explain",
    "fetch",
    "filter",
    "first",
    "float",
    "from",
    "full",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "inner",
    "intersect",
    "interval",
    "is",
    "join",
    "last",
    "lateral",
    "left",
    "like",
    "limit",
    "materialized",
    "natural",
    "not",
    "numeric",
    "offset",
    "on",
    "or",
    "order",
    "outer",
    "over",
    "partition",
    "precision",
    "recursive",
    "right",
    "rollup",
    "row",
    "select",
    "sets",
    "similar",
    "some",
    "then",
    "time",
    "timestamp",
    "union",
    "using",
    "values",
    "varchar",
    "varying",
    "when",
    "where",
    "window",
    "with",
    "within",
];

/// Functions that only read their arguments, and whose result is not much larger than those.
pub(super) const FUNCTIONS: &[&str] = &[
    "abs",
    "age",
    "avg",
    "array_agg",
    "array_length",
    "bit_and",
    "bit_or",
    "bool_and",
    "bool_or",
    "btrim",
    "cardinality",
    "cast",
    "ceil",
    "ceiling",
    "char_length",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "corr",
    "count",
    "cume_dist",
    "date_part",
    "date_trunc",
    "decode",
    "dense_rank",
    "div",
    "encode",
    "every",
    "exp",
    "extract",
    "first_value",
    "floor",
    "generate_series",
    "greatest",
    "initcap",
    "json_array_elements",
    "json_array_length",
    "json_each",
    "json_extract_path",
    "json_extract_path_text",
    "json_typeof",
    "jsonb_array_elements",
    "jsonb_array_length",
    "jsonb_each",
    "jsonb_extract_path",
    "jsonb_extract_path_text",
    "jsonb_object_keys",
    "jsonb_typeof",
    "lag",
    "last_value",
    "lead",
    "least",
    "left",
    "length",
    "ln",
    "log",
    "lower",
    "ltrim",
    "max",
    "min",
    "mod",
    "mode",
    "now",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "overlay",
    "percent_rank",
    "percentile_cont",
    "percentile_disc",
    "position",
    "power",
    "rank",
    "regexp_replace",
    "replace",
    "reverse",
    "right",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "split_part",
    "sqrt",
    "starts_with",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "strpos",
    "substr",
    "substring",
    "sum",
    "to_char",
    "to_hex",
    "to_number",
    "to_timestamp",
    "translate",
    "trim",
    "trunc",
    "unnest",
    "upper",
    "var_pop",
    "var_samp",
    "variance",
    "width_bucket",
];

/// Checks names for PostgreSQL: no system names, and only grammar words or known functions before parentheses.
fn check_names(tokens: &[Token<'_>]) -> Result<(), QueryError> {
    for (index, token) in tokens.iter().enumerate() {
        let (name, quoted) = match token {
            Token::Word(word) => (word.to_ascii_lowercase(), false),
            Token::Quoted(word) => (word.to_ascii_lowercase(), true),
            Token::Literal | Token::Symbol(_) => continue,
        };
        if name.starts_with("pg_") || name == "information_schema" || name == "operator" {
            return not_allowed(name);
        }
        if tokens.get(index + 1) != Some(&Token::Symbol(b'(')) {
            continue;
        }
        let before = index.checked_sub(1).map(|before| tokens[before]);
        let qualified = before == Some(Token::Symbol(b'.'));
        let known = !quoted && !qualified;
        let of_grammar = known && BEFORE_PARENTHESIS.contains(&name.as_str());
        let function = known && FUNCTIONS.contains(&name.as_str());
        let renamed = matches!(before, Some(Token::Word(word)) if word.eq_ignore_ascii_case("as"));
        if !(of_grammar || function || renamed && !qualified || names_columns(tokens, index + 1)) {
            return not_allowed(format!("{name}()"));
        }
    }
    Ok(())
}

/// Returns whether the parenthesis at `open` has the column names of a table of `WITH`: `(a, b) AS (SELECT ...`.
fn names_columns(tokens: &[Token<'_>], open: usize) -> bool {
    let Some(length) = tokens[open..].iter().position(|token| *token == Token::Symbol(b')')) else {
        return false;
    };
    let inside = &tokens[open + 1..open + length];
    let names = inside.iter().enumerate().all(|(index, token)| match index % 2 {
        0 => matches!(token, Token::Word(_) | Token::Quoted(_)),
        _ => *token == Token::Symbol(b','),
    });
    let is = |token: &Token<'_>, words: &[&str]| match token {
        Token::Word(word) => words.contains(&word.to_ascii_lowercase().as_str()),
        _ => false,
    };
    let mut after = tokens[open + length + 1..].iter().filter(|token| !is(token, &["not", "materialized"]));
    names
        && after.next().is_some_and(|token| is(token, &["as"]))
        && after.next() == Some(&Token::Symbol(b'('))
        && after.next().is_some_and(|token| is(token, &["select", "values", "with"]))
}
