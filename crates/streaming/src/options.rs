//! Parsing of the words of a command line: Hadoop's options have one dash or two, ours have two.

use crate::error::StreamingError;

/// Number of words that follow an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    One,
    /// One or more, up to the next word with a dash.
    Several,
    /// Known to Hadoop, but not supported; the text says what to do.
    Refused(&'static str),
}

/// Hadoop's options: those of the streaming jar and the generic ones.
const OPTIONS: &[(&str, Takes)] = &[
    ("input", Takes::Several),
    ("output", Takes::One),
    ("mapper", Takes::One),
    ("combiner", Takes::One),
    ("reducer", Takes::One),
    ("file", Takes::Several),
    ("files", Takes::One),
    ("cacheFile", Takes::Several),
    ("numReduceTasks", Takes::One),
    ("partitioner", Takes::One),
    ("inputformat", Takes::One),
    ("outputformat", Takes::One),
    ("cmdenv", Takes::One),
    ("jobconf", Takes::One),
    ("D", Takes::One),
    ("io", Takes::One),
    ("fs", Takes::One),
    ("dfs", Takes::One),
    ("jt", Takes::One),
    ("verbose", Takes::Nothing),
    ("debug", Takes::Nothing),
    ("lazyOutput", Takes::Nothing),
    ("help", Takes::Nothing),
    ("info", Takes::Nothing),
    ("h", Takes::Nothing),
    ("background", Takes::Refused("the command waits for the job; put `&` behind it to continue meanwhile")),
    ("inputreader", Takes::Refused("records are lines; turn other input into lines beforehand")),
    ("mapdebug", Takes::Refused("`sailfish show` has the last lines of a failed attempt")),
    ("reducedebug", Takes::Refused("`sailfish show` has the last lines of a failed attempt")),
    ("libjars", Takes::Refused("Java classes are not run; --help lists the supported ones")),
    ("archives", Takes::Refused("unpack the archive and ship its files with -files PATH#NAME")),
    ("cacheArchive", Takes::Refused("unpack the archive and ship its files with -files PATH#NAME")),
    ("conf", Takes::Refused("give the properties of the file with -D NAME=VALUE")),
    ("additionalconfspec", Takes::Refused("give the properties of the file with -D NAME=VALUE")),
    ("tokenCacheFile", Takes::Refused("there is no cluster to log in to")),
];

/// Our own options, with two dashes.
const OWN_OPTIONS: &[(&str, Takes)] = &[
    ("memory", Takes::One),
    ("slots", Takes::One),
    ("state", Takes::One),
    ("server", Takes::One),
    ("token-file", Takes::One),
    ("proxy", Takes::One),
    ("ca", Takes::One),
    ("disk", Takes::One),
    ("codec", Takes::One),
    ("replication", Takes::One),
    ("name", Takes::One),
    ("overwrite", Takes::Nothing),
    ("no-sync", Takes::Nothing),
    ("json", Takes::Nothing),
    ("keep-ifiles", Takes::Nothing),
];

/// An option with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The name without dashes.
    pub name: &'static str,
    pub own: bool,
    pub values: Vec<String>,
}

impl Given {
    /// Returns the option as users write it.
    pub fn shown(&self) -> String {
        format!("{}{}", if self.own { "--" } else { "-" }, self.name)
    }
}

/// Reads the words in order.
pub(crate) fn read(words: &[String]) -> Result<Vec<Given>, StreamingError> {
    let mut given = Vec::new();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        if let Some((name, takes, value)) = own_option(word) {
            let values = match (takes, value) {
                (_, Some(value)) => vec![value.to_string()],
                (Takes::Nothing, None) => Vec::new(),
                (_, None) => vec![value_of(word, &mut rest)?],
            };
            given.push(Given { name, own: true, values });
            continue;
        }
        if let Some(property) = joined_property(word) {
            given.push(Given { name: "D", own: false, values: vec![property.to_string()] });
            continue;
        }
        let (name, takes) = hadoop_option(word).ok_or_else(|| unknown(word))?;
        let mut values = Vec::new();
        match takes {
            Takes::Nothing => {}
            Takes::Refused(advice) => {
                return Err(StreamingError::not_supported(format!("-{name}"), advice));
            }
            Takes::One => values.push(value_of(word, &mut rest)?),
            Takes::Several => {
                values.push(value_of(word, &mut rest)?);
                while let Some(value) = rest.next_if(|next| !next.starts_with('-')) {
                    values.push(value.clone());
                }
            }
        }
        given.push(Given { name, own: false, values });
    }
    Ok(given)
}

fn without_dashes(word: &str) -> Option<&str> {
    word.strip_prefix("--").or_else(|| word.strip_prefix('-')).filter(|name| !name.is_empty())
}

fn hadoop_option(word: &str) -> Option<(&'static str, Takes)> {
    let name = without_dashes(word)?;
    OPTIONS.iter().find(|(known, _)| *known == name).copied()
}

/// Parses one of our options, with its value after `=` if there is one.
fn own_option(word: &str) -> Option<(&'static str, Takes, Option<&str>)> {
    let text = word.strip_prefix("--")?;
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    OWN_OPTIONS.iter().find(|(known, _)| *known == name).map(|(known, takes)| (*known, *takes, value))
}

/// Parses `-Dname=value` in one word.
fn joined_property(word: &str) -> Option<&str> {
    let property = word.strip_prefix("-D").filter(|rest| rest.contains('='))?;
    Some(property)
}

fn value_of<'a>(
    option: &str,
    rest: &mut std::iter::Peekable<impl Iterator<Item = &'a String>>,
) -> Result<String, StreamingError> {
    let is_option = |word: &&String| hadoop_option(word).is_some() || own_option(word).is_some();
    match rest.next_if(|next| !is_option(next)) {
        Some(value) => Ok(value.clone()),
        None => Err(StreamingError::MissingValue { option: option.to_string() }),
    }
}

fn unknown(word: &str) -> StreamingError {
    let Some(name) = without_dashes(word) else {
        return StreamingError::StrayWord { word: word.to_string() };
    };
    let lower = name.split('=').next().unwrap_or(name).to_ascii_lowercase();
    let likely = |known: &str| {
        let known = known.to_ascii_lowercase();
        known == lower || (lower.len() >= 2 && (known.starts_with(&lower) || lower.starts_with(&known)))
    };
    let ours = OWN_OPTIONS.iter().filter(|(known, _)| likely(known)).map(|(known, _)| format!("--{known}"));
    let theirs = OPTIONS.iter().filter(|(known, _)| likely(known)).map(|(known, _)| format!("-{known}"));
    let hint = theirs.chain(ours).min_by_key(|known| known.len().abs_diff(lower.len()));
    StreamingError::UnknownOption { word: word.to_string(), hint }
}

#[cfg(test)]
mod tests {
    use super::read;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    fn check(text: &str, expected: &[&str]) {
        let given = read(&words(text)).unwrap();
        let shown: Vec<String> =
            given.iter().map(|each| format!("{} {}", each.shown(), each.values.join(" "))).collect();
        assert_eq!(shown, expected, "{text}");
    }

    fn check_error(text: &str, expected: &str) {
        let error = read(&words(text)).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }

    #[test]
    fn options_are_read() {
        check("-input a b --output c", &["-input a b", "-output c"]);
        check("-D a=b -Dc=d -jobconf e=f", &["-D a=b", "-D c=d", "-jobconf e=f"]);
        check("--memory 1G --memory=2G --overwrite", &["--memory 1G", "--memory 2G", "--overwrite "]);
        check("-mapper -x -verbose", &["-mapper -x", "-verbose "]);
        check("--overwrite=false", &["--overwrite false"]);
    }

    #[test]
    fn bad_words_are_named() {
        check_error("-inputs x", "-inputs (did you mean -input?)");
        check_error("-numreducetasks 3", "did you mean -numReduceTasks");
        check_error("-map x", "did you mean -map");
        check_error("-zzz", "no option -zzz;");
        check_error("-input a -combinr b", "no option -combinr");
        check_error("stray -input x", "\"stray\"");
        check_error("-mapper cat -n", "no option -n");
        check_error("-output -mapper cat", "-output needs a value");
        check_error("-reducer", "-reducer needs a value");
        check_error("-background", "-background is not supported");
        check_error("-libjars x.jar", "-libjars is not supported");
        check_error("-archives x.zip", "-archives is not supported");
        check_error("-inputreader StreamXmlRecord,begin=a", "-inputreader is not supported");
        check_error("-mapdebug x", "-mapdebug is not supported");
        check_error("-memory 1G", "did you mean --memory");
    }
}
