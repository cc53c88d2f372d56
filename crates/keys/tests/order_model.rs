//! Encodings against a model: a comparator of the keys themselves, with big decimals for numbers.

use api::{KeyRules, KeyStretch, Numbers, OrderStep, PartitionRule};
use bigdecimal::{BigDecimal, Zero};
use keys::{KeyDecoder, KeyEncoder, parse_stretch};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::str::FromStr;

/// Returns the stretch of a key, found by counting separators from the front.
fn stretch<'k>(key: &'k [u8], separator: &[u8], stretch: &KeyStretch) -> Option<&'k [u8]> {
    let mut fields = vec![(0, key.len())];
    let mut at = 0;
    while at + separator.len() <= key.len() {
        if &key[at..at + separator.len()] == separator {
            let last = fields.len() - 1;
            fields[last].1 = at;
            at += separator.len();
            fields.push((at, key.len()));
        } else {
            at += 1;
        }
    }
    let start = fields.get(stretch.start.field as usize - 1)?.0 + stretch.start.character as usize - 1;
    let end = match stretch.end.and_then(|end| fields.get(end.field as usize - 1).map(|field| (end, field))) {
        None => key.len(),
        Some((end, field)) if end.character == 0 => field.1,
        Some((end, field)) => (field.0 + end.character as usize).min(key.len()),
    };
    (start < key.len()).then(|| &key[start..end.max(start)])
}

fn strict(text: &[u8]) -> Option<BigDecimal> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    let shape = regex_like(text)?;
    Some(BigDecimal::from_str(&shape).expect("the shape was checked"))
}

/// Returns the text if it is a number by our grammar, in a form that the big decimals parse.
fn regex_like(text: &str) -> Option<String> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let digits = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    let is_number = digits.matches('.').count() <= 1
        && digits.chars().any(|each| each.is_ascii_digit())
        && digits.chars().all(|each| each.is_ascii_digit() || each == '.');
    let exponent_text = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
    let is_exponent =
        exponent_text.is_none_or(|text| !text.is_empty() && text.chars().all(|each| each.is_ascii_digit()));
    (is_number && is_exponent).then(|| {
        let sign = if mantissa.starts_with('-') { "-" } else { "" };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        format!("{sign}0{whole}.{fraction}0e{}", exponent.unwrap_or("0"))
    })
}

fn lenient(text: &[u8]) -> BigDecimal {
    let longest = (0..=text.len()).rev().find_map(|length| {
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
        plain.then(|| regex_like(text)).flatten()
    });
    longest.map_or_else(BigDecimal::zero, |text| BigDecimal::from_str(&text).expect("a number"))
}

/// Compares two keys. None if the order has no place for one of them.
fn compare(rules: &KeyRules, steps: usize, left: &[u8], right: &[u8]) -> Option<Ordering> {
    let mut order = Ordering::Equal;
    for step in &rules.order[..steps] {
        let places = [left, right].map(|key| stretch(key, &rules.separator, &step.stretch));
        let here = match (places, step.numbers) {
            ([left, right], None) => left.cmp(&right),
            ([left, right], Some(Numbers::Strict)) => strict(left?)?.cmp(&strict(right?)?),
            ([left, right], Some(Numbers::Lenient)) => left.map(lenient).cmp(&right.map(lenient)),
        };
        order = order.then(if step.reversed { here.reverse() } else { here });
    }
    Some(order)
}

fn number_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[+-]?[0-9]{1,4}",
        "[+-]?0{0,3}[0-9]{0,3}\\.[0-9]{1,4}0{0,2}",
        "-?[0-9]{90,110}",
        "-?0?\\.0{25,35}[0-9]{1,3}",
        "[+-]?[0-9]{1,3}(\\.[0-9]{0,2})?[eE][+-]?[0-9]{1,3}",
        "[0-9]{1,3}[a. -][0-9]{0,2}",
    ]
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        number_text().prop_map(String::into_bytes),
        proptest::collection::vec(
            prop_oneof![Just(0), Just(1), Just(0xff), Just(b'a'), Just(b'5'), Just(b'-'), Just(b'.')],
            0..4
        ),
    ]
}

fn key(separator: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(field(), 0..4).prop_map(move |fields| fields.join(separator))
}

fn step() -> impl Strategy<Value = OrderStep> {
    let stretch = prop_oneof![
        Just("1"),
        Just("1,1"),
        Just("2,2"),
        Just("2"),
        Just("3"),
        Just("1.2,2.1"),
        Just("2.2,2.3"),
        Just("2,1")
    ];
    let numbers = prop_oneof![Just(None), Just(Some(Numbers::Strict)), Just(Some(Numbers::Lenient))];
    (stretch, numbers, any::<bool>()).prop_map(|(stretch, numbers, reversed)| OrderStep {
        stretch: parse_stretch(stretch).expect("a stretch"),
        numbers,
        reversed,
    })
}

/// Generates rules, and two keys with the separator of the rules.
fn case() -> impl Strategy<Value = (KeyRules, Vec<u8>, Vec<u8>)> {
    let separator = prop_oneof![Just(&b"\t"[..]), Just(&b"::"[..]), Just(&b"aa"[..])];
    let partitions = proptest::option::of((1u32..9, any::<bool>()));
    let rules = (proptest::collection::vec(step(), 0..4), partitions, 0u32..4);
    (separator, rules).prop_flat_map(|(separator, (order, partitions, group_steps))| {
        let group_steps = group_steps.min(order.len() as u32);
        let partitions = partitions.map(|(count, whole)| PartitionRule {
            count,
            stretches: if whole { vec![] } else { vec![parse_stretch("2,2").expect("a stretch")] },
        });
        let rules = KeyRules { order, separator: separator.to_vec(), partitions, group_steps, tails: false };
        (Just(rules), key(separator), key(separator))
    })
}

/// Encodes to stored key, stored value, partition and partition key.
type Owned = (Vec<u8>, Vec<u8>, Option<u32>, Vec<u8>);

fn encode(rules: &KeyRules, key: &[u8], value: &[u8]) -> Option<Owned> {
    let mut encoder = KeyEncoder::new(rules).expect("rules are good");
    let stored = encoder.encode(key, value).ok()?;
    let partition_key = stored.key[..stored.partition_key_bytes].to_vec();
    Some((stored.key.to_vec(), stored.value.to_vec(), stored.partition, partition_key))
}

proptest! {
    #[test]
    fn bytes_compare_as_keys_do((rules, left, right) in case()) {
        let (Some(of_left), Some(of_right)) = (encode(&rules, &left, b"l"), encode(&rules, &right, b"")) else {
            let steps = rules.order.len();
            let both = [&left, &right].map(|key| compare(&rules, steps, key, key));
            prop_assert!(both.contains(&None), "only what has no place is refused");
            return Ok(());
        };
        let in_partition = of_left.2.cmp(&of_right.2);
        let by_steps = |steps| compare(&rules, steps, &left, &right).expect("both were encoded");
        let expected = if rules.order.is_empty() { left.cmp(&right) } else { by_steps(rules.order.len()) };
        prop_assert_eq!(of_left.0.cmp(&of_right.0), in_partition.then(expected));

        // The partition key is equal if its steps are, and never a prefix of another one.
        if !rules.order.is_empty() {
            let steps = if rules.group_steps == 0 { rules.order.len() } else { rules.group_steps as usize };
            prop_assert_eq!(of_left.3.cmp(&of_right.3), in_partition.then(by_steps(steps)));
            prop_assert!(of_left.3 == of_right.3 || !of_left.3.starts_with(&of_right.3));
        }
        if let Some(rule) = &rules.partitions {
            prop_assert!(of_left.2.is_some_and(|partition| partition < rule.count));
        }
        let decoder = KeyDecoder::new(&rules);
        prop_assert_eq!(decoder.decode(&of_left.0, &of_left.1), Some((&left[..], &b"l"[..])));
        prop_assert_eq!(decoder.decode(&of_right.0, &of_right.1), Some((&right[..], &b""[..])));
    }

    #[test]
    fn numbers_compare_by_value(left in number_text(), right in number_text(), reversed: bool) {
        let step = OrderStep { stretch: KeyStretch::WHOLE, numbers: Some(Numbers::Strict), reversed };
        let rules = KeyRules { order: vec![step], ..KeyRules::default() };
        let (left_bytes, right_bytes) = (left.as_bytes(), right.as_bytes());
        let encoded = [left_bytes, right_bytes].map(|key| encode(&rules, key, b""));
        let values = [left_bytes, right_bytes].map(strict);
        match (encoded, values) {
            ([Some(of_left), Some(of_right)], [Some(left_value), Some(right_value)]) => {
                let expected = left_value.cmp(&right_value);
                prop_assert_eq!(
                    of_left.0.cmp(&of_right.0),
                    if reversed { expected.reverse() } else { expected }
                );
            }
            (encoded, values) => prop_assert_eq!(
                encoded.map(|each| each.is_none()),
                values.map(|each| each.is_none())
            ),
        }
    }

    /// An encoder reused for many records gives the same as a new one for each.
    #[test]
    fn an_encoder_remembers_nothing((rules, left, right) in case()) {
        let mut encoder = KeyEncoder::new(&rules).expect("rules are good");
        let _ = encoder.encode(&left, b"some value");
        let again = encoder.encode(&right, b"v").ok().map(|stored| (stored.key.to_vec(), stored.value.to_vec()));
        prop_assert_eq!(again, encode(&rules, &right, b"v").map(|(key, value, _, _)| (key, value)));
    }
}
