//! Keys with tails on the reduce side: a group consists of equal whole keys, and no partition key may be a prefix of
//! another one.

use crate::tasks::map::emit::shown;
use api::{Blame, TaskFailure};
use imerger::Grouped;

/// Finds the beginnings of groups in a sorted stream of keys with tails.
#[derive(Debug, Default)]
pub(crate) struct KeyTails {
    /// Keys of the last record; None before the first.
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    key: Vec<u8>,
    partition_key_bytes: usize,
}

impl KeyTails {
    /// Returns whether a record begins a group. Fails if its partition key is a prefix of the last one, or the other
    /// way round: the engine cuts between partition keys, and the records of two such keys are interleaved.
    #[inline]
    pub fn starts_group(&mut self, record: &Grouped<'_>) -> Result<bool, TaskFailure> {
        let Grouped { key, partition_key_bytes, .. } = *record;
        let Some(last) = &mut self.last else {
            self.last = Some(Last { key: key.to_vec(), partition_key_bytes });
            return Ok(true);
        };
        if last.partition_key_bytes == partition_key_bytes && last.key == key {
            return Ok(false);
        }
        let (before, partition_key) = (&last.key[..last.partition_key_bytes], &key[..partition_key_bytes]);
        let shorter = before.len().min(partition_key.len());
        if before != partition_key && before[..shorter] == partition_key[..shorter] {
            return Err(is_beginning(before, partition_key));
        }
        last.key.clear();
        last.key.extend_from_slice(key);
        last.partition_key_bytes = partition_key_bytes;
        Ok(true)
    }
}

#[cold]
fn is_beginning(before: &[u8], partition_key: &[u8]) -> TaskFailure {
    let (short, long) = match before.len() < partition_key.len() {
        true => (before, partition_key),
        false => (partition_key, before),
    };
    let message = format!(
        "the partition key {} is the beginning of another one, {}: with --key-tails this is not allowed; end each with a byte that it does not contain, \
         or begin it with its length",
        shown(short),
        shown(long)
    );
    TaskFailure::new(Blame::UserData, message)
}

#[cfg(test)]
mod tests {
    use super::KeyTails;
    use imerger::Grouped;

    /// Checks keys, in which `|` ends the partition key, each with whether it begins a group.
    fn check(keys: &[(&str, bool)]) -> Result<(), String> {
        let mut tails = KeyTails::default();
        for (text, expected) in keys {
            let (partition_key, _) = text.split_once('|').unwrap();
            let key = text.replace('|', "");
            let partition_key_bytes = partition_key.len();
            let record = Grouped {
                key: key.as_bytes(),
                value: b"",
                partition_key_bytes,
                starts_group: false,
                is_separated: false,
            };
            let starts_group = tails.starts_group(&record).map_err(|failure| failure.message)?;
            assert_eq!(starts_group, *expected, "{text}");
        }
        Ok(())
    }

    #[test]
    fn groups_are_equal_in_the_whole_key() {
        check(&[("|", true), ("|", false)]).unwrap();
        check(&[("|", true), ("|a", true), ("|b", true)]).unwrap();
        check(&[("a|1", true), ("a|1", false), ("a|2", true), ("b|", true), ("b|2", true)]).unwrap();
    }

    #[test]
    fn partition_key_that_prefixes_another_is_refused() {
        for keys in [["a|a", "ab|1"], ["ab|1", "a|b5"], ["a|b", "ab|"], ["|a", "b|"]] {
            let refused = check(&keys.map(|key| (key, true))).unwrap_err();
            assert!(refused.contains("is the beginning of another one"), "{refused}");
        }
    }
}
