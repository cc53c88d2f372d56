//! Order of keys and partitions, from partitioner, comparator and the number of reduce tasks.

use crate::classes::{PartitionerClass, is_key_field_comparator};
use crate::error::StreamingError;
use crate::job::PartitionChoice;
use crate::names;
use crate::properties::{Properties, Property};
use api::{FieldPlace, KeyRules, KeyStretch, Numbers, OrderStep, PartitionRule};
use keys::{leading_steps, parse_order_options, parse_partition_options};

/// Determines order and partitions of a job. `reduces` is the number that the user requested; None leaves it to the
/// engine.
pub(crate) fn rules(
    properties: &Properties,
    partitioner: Option<PartitionerClass>,
    reduces: Option<u32>,
    notes: &mut Vec<String>,
) -> Result<(KeyRules, PartitionChoice), StreamingError> {
    let order = order(properties, notes)?;
    let stretches = match partitioner {
        Some(PartitionerClass::KeyFieldBased) => Some(stretches(properties)?),
        Some(PartitionerClass::Hash) | None => None,
    };
    for name in [names::PARTITIONER_OPTIONS, names::KEY_FIELDS_FOR_PARTITION] {
        if let (None, Some(property)) = (&stretches, properties.get(name)) {
            notes.push(format!(
                "-D {} has no effect, as in Hadoop, without -partitioner \
                 org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner",
                property.written
            ));
        }
    }
    let separator = match order.is_empty() && stretches.is_none() {
        true => Vec::new(),
        false => properties.separator(names::KEY_FIELD_SEPARATOR)?,
    };
    let (choice, group_steps) = choose(&order, stretches, reduces);
    let partitions = match &choice {
        PartitionChoice::Exactly(rule) => Some(rule.clone()),
        PartitionChoice::Engine | PartitionChoice::ByBytes { .. } => None,
    };
    Ok((KeyRules { order, separator, partitions, group_steps, tails: false }, choice))
}

fn order(properties: &Properties, notes: &mut Vec<String>) -> Result<Vec<OrderStep>, StreamingError> {
    let options = properties.get(names::COMPARATOR_OPTIONS);
    let comparator = properties.get(names::COMPARATOR_CLASS);
    let by_fields = match comparator {
        Some(class) => is_key_field_comparator(&format!("-D {}", class.written), &class.value)?,
        None => false,
    };
    match options {
        Some(options) if by_fields => {
            parse_order_options(&options.value, Numbers::Lenient).map_err(|error| wrong(options, &error))
        }
        Some(options) => {
            notes.push(format!(
                "-D {} has no effect, as in Hadoop, without -D mapreduce.job.output.key.comparator.class=\
                 org.apache.hadoop.mapreduce.lib.partition.KeyFieldBasedComparator",
                options.written
            ));
            Ok(Vec::new())
        }
        None => Ok(Vec::new()),
    }
}

/// Returns the stretches that the partitioner hashes: `num.key.fields.for.partition` overrides the options; the whole
/// key if neither is given.
fn stretches(properties: &Properties) -> Result<Vec<KeyStretch>, StreamingError> {
    if let Some(fields) = properties.number(names::KEY_FIELDS_FOR_PARTITION, 1)? {
        let start = FieldPlace { field: 1, character: 1 };
        return Ok(vec![KeyStretch { start, end: Some(FieldPlace { field: fields, character: 0 }) }]);
    }
    let stretches = match properties.get(names::PARTITIONER_OPTIONS) {
        Some(options) => parse_partition_options(&options.value).map_err(|error| wrong(options, &error))?,
        None => Vec::new(),
    };
    Ok(if stretches.is_empty() { vec![KeyStretch::WHOLE] } else { stretches })
}

fn wrong(property: &Property, error: &keys::OptionsError) -> StreamingError {
    property.wrong(&error.to_string())
}

/// Chooses the origin of the partitions, and the number of first steps of the order in the partition key.
fn choose(
    order: &[OrderStep],
    stretches: Option<Vec<KeyStretch>>,
    reduces: Option<u32>,
) -> (PartitionChoice, u32) {
    if let Some(count) = reduces {
        let stretches = stretches.unwrap_or_default();
        return (PartitionChoice::Exactly(PartitionRule { count, stretches }), 0);
    }
    let Some(stretches) = stretches else { return (PartitionChoice::Engine, 0) };
    if order.is_empty() && stretches == [KeyStretch::WHOLE] {
        return (PartitionChoice::Engine, 0);
    }
    // Records of a partition are adjacent if the fields are the first steps of the order, so key ranges suffice;
    // otherwise the partition is the unit.
    match leading_steps(order, &stretches) {
        Some(steps) if steps as usize == order.len() => (PartitionChoice::Engine, 0),
        Some(steps) => (PartitionChoice::Engine, steps),
        None => (PartitionChoice::ByBytes { stretches }, 0),
    }
}
