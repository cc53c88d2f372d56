//! The options for the order of keys and the assignment of keys to parts.

use anyhow::{Context, bail, ensure};
use api::{FieldPlace, KeyOrder, KeyRules, KeyStretch, Numbers, OrderStep, PartitionRule, Partitioning};

/// Bytes of input per partition, if the user does not give their number.
const INPUT_BYTES_PER_PARTITION: u64 = 32 << 20;
const DERIVED_PARTITIONS_MAX: u64 = 64;

/// Order and partitions as requested, not checked yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions {
    pub order: Option<KeyOrder>,
    pub reverse: bool,
    pub sort_keys: Option<String>,
    pub partitions: Option<u32>,
    pub partition_fields: Option<String>,
    pub key_tails: bool,
}

/// The reach of the order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderScope {
    /// All keys of a part are below those of the next one.
    AllParts,
    EachPart,
}

/// The fields of keys in lines.
#[derive(Clone, Copy, Debug)]
pub struct KeyFields<'a> {
    pub separator: &'a [u8],
    /// Number of fields in a key, if known.
    pub count: Option<u32>,
}

impl KeyOptions {
    /// Returns the options, each with whether it was given.
    pub fn given(&self) -> [(&'static str, bool); 6] {
        [
            ("--order", self.order.is_some()),
            ("--reverse", self.reverse),
            ("--sort-keys", self.sort_keys.is_some()),
            ("--partitions", self.partitions.is_some()),
            ("--partition-fields", self.partition_fields.is_some()),
            ("--key-tails", self.key_tails),
        ]
    }

    /// Returns the key rules of a job. Every error names the option.
    pub fn rules(
        &self,
        scope: OrderScope,
        fields: KeyFields<'_>,
        input_bytes: u64,
    ) -> anyhow::Result<(Partitioning, KeyRules)> {
        if self.key_tails {
            self.check_tails_alone()?;
        }
        let order = self.order_steps()?;
        let stretches = match self.partition_fields.as_deref() {
            Some(text) => partition_stretches("--partition-fields", text, fields.count)?,
            None => Vec::new(),
        };
        if scope == OrderScope::AllParts {
            let partitions = self.partitions.is_some() || self.partition_fields.is_some();
            ensure!(
                !partitions,
                "--total-order cuts parts by range of keys, --partitions and --partition-fields by equal \
                 keys or fields: leave one out"
            );
        }
        let leading = keys::leading_steps(&order, &stretches);
        let (partitions, group_steps) = match (self.partitions, leading) {
            (Some(count), _) => (Some(PartitionRule { count, stretches }), 0),
            (None, _) if stretches.is_empty() => (None, 0),
            // Hashing the leading steps of the order keeps such keys together, in any useful number of parts.
            (None, Some(steps)) => (None, steps),
            (None, None) => (Some(PartitionRule { count: derived_partitions(input_bytes), stretches }), 0),
        };
        let partitioning = match (&partitions, scope) {
            (Some(_), _) => Partitioning::Partitions,
            (None, OrderScope::AllParts) => Partitioning::Range,
            (None, OrderScope::EachPart) => Partitioning::Hash,
        };
        let speaks_of_fields = !order.is_empty() || partitions.is_some();
        let separator = if speaks_of_fields { fields.separator.to_vec() } else { Vec::new() };
        let rules = KeyRules { order, separator, partitions, group_steps, tails: self.key_tails };
        let option = if self.partitions.is_some() { "--partitions" } else { "--sort-keys" };
        keys::KeyEncoder::new(&rules).context(option)?;
        Ok((partitioning, rules))
    }

    fn check_tails_alone(&self) -> anyhow::Result<()> {
        let others = self.given().into_iter().filter(|(option, _)| *option != "--key-tails");
        match others.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => bail!(
                "{option} does not go with --key-tails: keys with tails are compared by their bytes, and \
                 each carries its partition; leave one of them out"
            ),
            None => Ok(()),
        }
    }

    fn order_steps(&self) -> anyhow::Result<Vec<OrderStep>> {
        if let Some(text) = &self.sort_keys {
            ensure!(
                self.order.is_none() && !self.reverse,
                "--sort-keys has letters of its own for --order numeric (n) and --reverse (r): leave one out"
            );
            let order = keys::parse_order_options(text, Numbers::Strict).context("--sort-keys")?;
            ensure!(!order.is_empty(), "--sort-keys is empty: write it as in \"-k1,1 -k2,2nr\"");
            return Ok(order);
        }
        let numbers = match self.order {
            Some(KeyOrder::Numeric) => Some(Numbers::Strict),
            Some(KeyOrder::Bytes) | None => None,
        };
        let step = OrderStep { stretch: KeyStretch::WHOLE, numbers, reversed: self.reverse };
        // Bytewise comparison of whole keys is the default anyway.
        Ok(if numbers.is_some() || self.reverse { vec![step] } else { Vec::new() })
    }
}

/// Parses the fields of keys that choose a partition. `option`: its name, for errors.
pub fn partition_stretches(
    option: &str,
    text: &str,
    key_fields: Option<u32>,
) -> anyhow::Result<Vec<KeyStretch>> {
    let mut stretches = match text.trim_start().starts_with('-') {
        true => keys::parse_partition_options(text).with_context(|| option.to_string())?,
        false => vec![keys::parse_stretch(text).with_context(|| option.to_string())?],
    };
    // A field number selects this field alone; `-kN` extends to the end of the key, as in `sort`.
    if let ([stretch], Ok(_)) = (stretches.as_mut_slice(), text.trim().parse::<u32>()) {
        stretch.end = Some(FieldPlace { field: stretch.start.field, character: 0 });
    }
    stretches.iter().try_for_each(|stretch| check_stretch(option, text, stretch, key_fields))?;
    Ok(stretches)
}

/// Returns an error for a stretch that no key has, or that ends before it begins: it would put every key into one part.
fn check_stretch(
    option: &str,
    text: &str,
    stretch: &KeyStretch,
    key_fields: Option<u32>,
) -> anyhow::Result<()> {
    let (start, end) = (stretch.start, stretch.end);
    let ends_before = end.is_some_and(|end| {
        let in_field = end.field == start.field && end.character > 0 && end.character < start.character;
        end.field < start.field || in_field
    });
    ensure!(!ends_before, "{option} {text}: it ends before it begins");
    let last = end.map_or(start.field, |end| end.field.max(start.field));
    if let Some(key_fields) = key_fields.filter(|key_fields| last > *key_fields) {
        let plural = if key_fields == 1 { "field" } else { "fields" };
        bail!("{option} {text}: a key has {key_fields} {plural} here; give --key-fields {last}, or fewer");
    }
    Ok(())
}

fn derived_partitions(input_bytes: u64) -> u32 {
    (input_bytes / INPUT_BYTES_PER_PARTITION).clamp(1, DERIVED_PARTITIONS_MAX) as u32
}

/// Returns the parts of a key that choose its partition, for tables.
pub fn partition_text(rule: &PartitionRule) -> String {
    match rule.stretches.as_slice() {
        [] => "the whole key".to_string(),
        stretches => keys::stretches_text(stretches),
    }
}

/// Summarizes the rules for tables; None if the job has no rules of its own.
pub fn text(rules: &KeyRules) -> Option<String> {
    let mut words = Vec::new();
    if rules.tails {
        words.push("with tails".to_string());
    }
    if !rules.order.is_empty() {
        words.push(keys::order_text(&rules.order));
    }
    if let Some(rule) = &rules.partitions {
        words.push(format!("{} partitions by {}", rule.count, partition_text(rule)));
    }
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{KeyFields, KeyOptions, OrderScope, text};
    use api::{KeyOrder, Partitioning};

    fn sorted(sort_keys: &str, partition_fields: Option<&str>, partitions: Option<u32>) -> KeyOptions {
        KeyOptions {
            sort_keys: Some(sort_keys.to_string()),
            partition_fields: partition_fields.map(str::to_string),
            partitions,
            ..KeyOptions::default()
        }
    }

    #[test]
    fn options_become_rules() {
        let check = |options: KeyOptions, expected: (Partitioning, Option<&str>, u32)| {
            let fields = KeyFields { separator: b"\t", count: Some(5) };
            let (partitioning, rules) = options.rules(OrderScope::EachPart, fields, 200 << 20).unwrap();
            assert_eq!((partitioning, text(&rules).as_deref(), rules.group_steps), expected, "{options:?}");
        };
        let none = KeyOptions::default;
        let (hash, partitions) = (Partitioning::Hash, Partitioning::Partitions);
        check(none(), (hash, None, 0));
        check(KeyOptions { order: Some(KeyOrder::Bytes), ..none() }, (hash, None, 0));
        check(KeyOptions { reverse: true, ..none() }, (hash, Some("-k1r"), 0));
        check(KeyOptions { order: Some(KeyOrder::Numeric), ..none() }, (hash, Some("-k1n"), 0));
        let expected = (partitions, Some("3 partitions by the whole key"), 0);
        check(KeyOptions { partitions: Some(3), ..none() }, expected);
        check(KeyOptions { key_tails: true, ..none() }, (hash, Some("with tails"), 0));
        // The order begins with the fields: its leading steps decide the part.
        check(sorted("-k1,1 -k2,2nr", Some("1,1"), None), (hash, Some("-k1,1 -k2,2nr"), 1));
        // The order does not begin with the field: the partition is the unit.
        let expected = (partitions, Some("-k2,2nr, 6 partitions by -k1,1"), 0);
        check(sorted("-k2,2nr", Some("1,1"), None), expected);
        // A number selects one field, without the following ones.
        check(sorted("-k2,2nr", Some("1"), None), expected);
        check(sorted("-k2,2nr", Some("-k1"), None), (partitions, Some("-k2,2nr, 6 partitions by -k1"), 0));
        let expected = (partitions, Some("-k1,1 -k2.3,4.5, 2 partitions by -k1,1"), 0);
        check(sorted("-k1,1 -k2.3,4.5", Some("-k1,1"), Some(2)), expected);
    }

    #[test]
    fn unsuitable_key_options_are_refused() {
        let check = |options: KeyOptions, scope, expected: &str| {
            let fields = KeyFields { separator: b"\t", count: Some(2) };
            let error = options.rules(scope, fields, 0).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(expected), "{options:?}: {error}");
        };
        let none = KeyOptions::default;
        let (all, each) = (OrderScope::AllParts, OrderScope::EachPart);
        check(KeyOptions { reverse: true, ..sorted("-k1", None, None) }, each, "letters of its own");
        check(sorted("", None, None), each, "--sort-keys is empty");
        check(sorted("-k1,1x", None, None), each, "--sort-keys: \"1,1x\" is not a range of fields");
        check(
            KeyOptions { partitions: Some(0), ..none() },
            each,
            "--partitions: 0 partitions: give 1 to 50000",
        );
        check(KeyOptions { partitions: Some(50_001), ..none() }, each, "give 1 to 50000");
        check(KeyOptions { partition_fields: Some("x".into()), ..none() }, each, "--partition-fields");
        check(KeyOptions { partitions: Some(3), ..none() }, all, "--total-order");
        for (text, expected) in [
            ("2,1", "it ends before it begins"),
            ("1.3,1.2", "it ends before it begins"),
            ("3", "a key has 2 fields here; give --key-fields 3"),
            ("1,3", "--key-fields 3"),
            ("-k1,1 -k4", "--key-fields 4"),
        ] {
            check(KeyOptions { partition_fields: Some(text.into()), ..none() }, each, expected);
        }
        for more in [
            KeyOptions { order: Some(KeyOrder::Bytes), ..none() },
            KeyOptions { reverse: true, ..none() },
            KeyOptions { partitions: Some(3), ..none() },
            sorted("-k1", None, None),
            KeyOptions { partition_fields: Some("1".into()), ..none() },
        ] {
            check(KeyOptions { key_tails: true, ..more }, each, "does not go with --key-tails");
        }
    }
}
