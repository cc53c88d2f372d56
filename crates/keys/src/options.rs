//! Orders and stretches in the notation of users: the options of `sort -k` that Hadoop's comparator and partitioner
//! take, `-k1,1 -k2.3,2nr`.

use api::{FieldPlace, KeyStretch, Numbers, OrderStep};

/// Options that cannot be parsed, for the user to correct.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("{word:?} is not understood: write -k POS1[,POS2], -n or -r, as in \"-k1,1 -k2,2nr\"")]
    UnknownWord { word: String },
    #[error("{text:?} is not a range of fields: write FIELD[.CHARACTER][,FIELD[.CHARACTER]], as in 1,2")]
    BadStretch { text: String },
    #[error("{text:?} starts at 0: fields and characters count from 1")]
    PlaceZero { text: String },
    #[error("-k at the end of {text:?} needs a range of fields, as in -k1,2")]
    NoStretch { text: String },
}

/// A `-k`, and whether it has its own letters.
struct Key {
    stretch: KeyStretch,
    numeric: bool,
    reversed: bool,
}

/// Parses comparator options. `numbers` is the meaning of `n`. A `-k` without letters takes the global ones (`-n`,
/// `-r`, `-nr`); without any `-k` these apply to the whole key. Empty text is no order: bytewise.
pub fn parse_order_options(text: &str, numbers: Numbers) -> Result<Vec<OrderStep>, OptionsError> {
    let (keys, numeric_all, reversed_all) = parse(text)?;
    let step = |key: Key| {
        let has_letters = key.numeric || key.reversed;
        let (numeric, reversed) =
            if has_letters { (key.numeric, key.reversed) } else { (numeric_all, reversed_all) };
        OrderStep { stretch: key.stretch, numbers: numeric.then_some(numbers), reversed }
    };
    Ok(keys.into_iter().map(step).collect())
}

/// Parses partitioner options, which have the same form; their order letters are ignored.
pub fn parse_partition_options(text: &str) -> Result<Vec<KeyStretch>, OptionsError> {
    Ok(parse(text)?.0.into_iter().map(|key| key.stretch).collect())
}

/// Parses a stretch without letters: `1,2` or `1.3,2.4` or `2`.
pub fn parse_stretch(text: &str) -> Result<KeyStretch, OptionsError> {
    match parse_key(text)? {
        Key { stretch, numeric: false, reversed: false } => Ok(stretch),
        _ => Err(OptionsError::BadStretch { text: text.to_string() }),
    }
}

/// Formats an order in the notation of users.
pub fn order_text(order: &[OrderStep]) -> String {
    let step = |step: &OrderStep| {
        let letters = match (step.numbers.is_some(), step.reversed) {
            (false, false) => "",
            (true, false) => "n",
            (false, true) => "r",
            (true, true) => "nr",
        };
        format!("{}{letters}", stretches_text(&[step.stretch]))
    };
    order.iter().map(step).collect::<Vec<_>>().join(" ")
}

/// Formats stretches in the notation of users.
pub fn stretches_text(stretches: &[KeyStretch]) -> String {
    let place = |place: FieldPlace, default: u32| match place.character {
        character if character == default => place.field.to_string(),
        character => format!("{}.{character}", place.field),
    };
    let stretch = |stretch: &KeyStretch| {
        let end = stretch.end.map_or(String::new(), |end| format!(",{}", place(end, 0)));
        format!("-k{}{end}", place(stretch.start, 1))
    };
    stretches.iter().map(stretch).collect::<Vec<_>>().join(" ")
}

/// Returns the number of first steps of an order that are exactly these stretches, so that records with equal stretches
/// are adjacent and hashing these steps keeps them in one part. None if the order does not begin with them.
pub fn leading_steps(order: &[OrderStep], stretches: &[KeyStretch]) -> Option<u32> {
    let leads = !stretches.is_empty()
        && stretches.len() <= order.len()
        && order.iter().zip(stretches).all(|(step, stretch)| step.stretch == *stretch);
    leads.then_some(stretches.len() as u32)
}

/// Returns the keys, and whether `-n` and `-r` apply to all.
fn parse(text: &str) -> Result<(Vec<Key>, bool, bool), OptionsError> {
    let mut keys = Vec::new();
    let (mut numeric_all, mut reversed_all) = (false, false);
    let mut words = text.split_ascii_whitespace();
    while let Some(word) = words.next() {
        match word {
            "-n" => numeric_all = true,
            "-r" => reversed_all = true,
            "-nr" | "-rn" => (numeric_all, reversed_all) = (true, true),
            "-k" => {
                let key = words.next().ok_or_else(|| OptionsError::NoStretch { text: text.to_string() })?;
                keys.push(parse_key(key)?);
            }
            _ => match word.strip_prefix("-k") {
                Some(key) => keys.push(parse_key(key)?),
                None => return Err(OptionsError::UnknownWord { word: word.to_string() }),
            },
        }
    }
    if keys.is_empty() && (numeric_all || reversed_all) {
        keys.push(Key { stretch: KeyStretch::WHOLE, numeric: false, reversed: false });
    }
    Ok((keys, numeric_all, reversed_all))
}

/// Parses `POS1[,POS2]`, each `FIELD[.CHARACTER]` followed by letters.
fn parse_key(text: &str) -> Result<Key, OptionsError> {
    let bad = || OptionsError::BadStretch { text: text.to_string() };
    let (start, end) = match text.split_once(',') {
        Some((start, end)) => (start, Some(end)),
        None => (text, None),
    };
    let (start, start_letters) = parse_place(start, 1).ok_or_else(bad)?;
    let (end, end_letters) = match end {
        Some(end) => parse_place(end, 0).ok_or_else(bad).map(|(place, letters)| (Some(place), letters))?,
        None => (None, ""),
    };
    if start.field == 0 || start.character == 0 {
        return Err(OptionsError::PlaceZero { text: text.to_string() });
    }
    // For Hadoop, an end in field 0 means no end.
    let stretch = KeyStretch { start, end: end.filter(|end| end.field > 0) };
    let has = |letter| start_letters.contains(letter) || end_letters.contains(letter);
    Ok(Key { stretch, numeric: has('n'), reversed: has('r') })
}

/// Parses a place and the letters after it.
fn parse_place(text: &str, character_default: u32) -> Option<(FieldPlace, &str)> {
    let place = text.trim_end_matches(['n', 'r']);
    let letters = &text[place.len()..];
    let (field, character) = match place.split_once('.') {
        Some((field, character)) => (number(field)?, number(character)?),
        None => (number(place)?, character_default),
    };
    Some((FieldPlace { field, character }, letters))
}

/// Accepts only digits: the standard library would accept a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{
        OptionsError, leading_steps, order_text, parse_order_options, parse_partition_options, parse_stretch,
    };
    use api::{KeyStretch, Numbers};

    #[test]
    fn options_are_read_as_hadoop_does() {
        let check = |options: &str, expected: &str| {
            let steps = parse_order_options(options, Numbers::Lenient).unwrap();
            assert_eq!(order_text(&steps), expected, "{options}");
            assert_eq!(parse_order_options(expected, Numbers::Lenient).unwrap(), steps);
        };
        check("", "");
        check("-k1,1", "-k1,1");
        check("-k1,1 -k2,2nr", "-k1,1 -k2,2nr");
        check("-k 2.3n,4.5r", "-k2.3,4.5nr");
        check("-k2", "-k2");
        check("-k2.1nr", "-k2nr");
        check("-k2,0", "-k2");
        check("-n", "-k1n");
        check("-r", "-k1r");
        check("-nr", "-k1nr");
        check("-rn", "-k1nr");
        check("-k1,1 -k2,2n -r", "-k1,1r -k2,2n");
        check("-n -r -k3", "-k3nr");
    }

    #[test]
    fn unreadable_options_are_named() {
        let check = |options: &str, expected: &str| {
            let error = parse_order_options(options, Numbers::Strict).unwrap_err().to_string();
            assert!(error.contains(expected), "{options}: {error}");
        };
        check("-k", "needs a range of fields");
        check("-k1,1 -u", "\"-u\" is not understood");
        check("2,2", "\"2,2\" is not understood");
        check("-k1,1b", "\"1,1b\" is not a range of fields");
        check("-ka", "not a range of fields");
        check("-k1.", "not a range of fields");
        check("-k1,", "not a range of fields");
        check("-k+1", "not a range of fields");
        check("-k99999999999", "not a range of fields");
        check("-k1,2,3", "not a range of fields");
        check("-k0", "count from 1");
        check("-k1.0", "count from 1");
        let letters = OptionsError::BadStretch { text: "1,2n".into() };
        assert_eq!(parse_stretch("1,2n"), Err(letters));
        assert_eq!(parse_stretch("1"), Ok(KeyStretch::WHOLE));
    }

    #[test]
    fn an_order_may_begin_with_the_partition() {
        let check = |order: &str, partition: &str, expected| {
            let steps = parse_order_options(order, Numbers::Strict).unwrap();
            let stretches = parse_partition_options(partition).unwrap();
            assert_eq!(leading_steps(&steps, &stretches), expected, "{order} {partition}");
        };
        check("-k1,1 -k2,2nr", "-k1,1", Some(1));
        check("-k1,1 -k2,2nr", "-k1,1 -k2,2", Some(2));
        check("-k1,1 -k2,2nr", "-k2,2", None);
        check("-k1,1", "-k1,1 -k2,2", None);
        check("-k1 -k2", "-k1,2", None);
        check("-k1 -k2", "", None);
    }
}
