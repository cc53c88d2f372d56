//! Splitting of command lines into words like Hadoop: no shell, and its own quotes.

use crate::error::StreamingError;

/// Words that a shell would interpret if they stand alone outside quotes.
const SHELL_WORDS: &[&str] = &["|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1", "1>&2", ">&2"];

/// Splits a command into words like Hadoop's `PipeMapRed`: blanks separate words; a quote of either kind begins a word
/// and ends it, wherever it stands; a backslash is an ordinary character; empty words are dropped.
///
/// Hadoop passes a `|` to the program as an argument. The author never means that, so it is an error here; in quotes it
/// is an argument.
pub(crate) fn split(option: &str, text: &str) -> Result<Vec<String>, StreamingError> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for character in text.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => {
                quote = None;
                take(&mut words, &mut word);
            }
            (None, '\'' | '"') => {
                take_unquoted(option, &mut words, &mut word)?;
                quote = Some(character);
            }
            (None, ' ') => take_unquoted(option, &mut words, &mut word)?,
            _ => word.push(character),
        }
    }
    if let Some(quote) = quote {
        return Err(StreamingError::bad_value(option, text, format!("the quote {quote} is not closed")));
    }
    take_unquoted(option, &mut words, &mut word)?;
    if words.is_empty() {
        return Err(StreamingError::bad_value(option, text, "the command is empty"));
    }
    Ok(words)
}

fn take(words: &mut Vec<String>, word: &mut String) {
    if !word.is_empty() {
        words.push(std::mem::take(word));
    }
}

fn take_unquoted(option: &str, words: &mut Vec<String>, word: &mut String) -> Result<(), StreamingError> {
    if SHELL_WORDS.contains(&word.as_str()) {
        let possible = format!(
            "commands are run without a shell, as Hadoop runs them; put it into a script and ship that with -file, \
             or write {option} \"sh -c '...'\"; a {word:?} that is an argument needs quotes"
        );
        return Err(StreamingError::not_supported(format!("{word:?} in {option}"), possible));
    }
    take(words, word);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::split;

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(split("-mapper", text).unwrap(), expected, "{text}");
    }

    #[test]
    fn words_are_parted_as_hadoop_does() {
        check("cat", &["cat"]);
        check("  cut  -f 1 ", &["cut", "-f", "1"]);
        check("awk '{print $1, $2}'", &["awk", "{print $1, $2}"]);
        check("grep \"a b\" 'c\"d'", &["grep", "a b", "c\"d"]);
        check("a\"b c\"d", &["a", "b c", "d"]);
        check("x '' y", &["x", "y"]);
        check("sed s/\\t/x/", &["sed", "s/\\t/x/"]);
        check("a\tb", &["a\tb"]);
        check("cut -d '|' -f 2", &["cut", "-d", "|", "-f", "2"]);
        check("sh -c 'a | b'", &["sh", "-c", "a | b"]);
    }

    #[test]
    fn commands_that_need_a_shell_are_refused() {
        let error = |text: &str| split("-mapper", text).unwrap_err().to_string();
        for text in ["cut -f1 | sort", "cat > out", "a && b", "a ; b", "a 2>&1"] {
            assert!(error(text).contains("without a shell"), "{text}: {}", error(text));
        }
        assert!(error("grep 'a").contains("not closed"));
        assert!(error("  ").contains("empty"));
    }
}
