//! Numbers of migrations: unique, without gaps, and the same for every database.

use super::Finding;
use super::tree::Tree;
use std::collections::BTreeMap;

const MIGRATIONS: &str = "crates/metastore/migrations/";
const NUMBER_DIGITS: usize = 4;

/// Parses the number and name of `0001_name.sql`.
fn read_name(name: &str) -> Option<(u32, &str)> {
    let (number, rest) = name.split_once('_')?;
    let name = rest.strip_suffix(".sql")?;
    if number.len() != NUMBER_DIGITS {
        return None;
    }
    Some((number.parse().ok()?, name))
}

pub fn paired(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut databases: BTreeMap<&str, BTreeMap<u32, &str>> = BTreeMap::new();
    for file in tree.files() {
        let Some(rest) = file.path.strip_prefix(MIGRATIONS) else { continue };
        let Some((database, (number, name))) =
            rest.split_once('/').and_then(|(d, n)| Some((d, read_name(n)?)))
        else {
            let message = "a migration is DATABASE/NNNN_name.sql: rename it";
            findings.push(Finding::new(&file.path, 0, message));
            continue;
        };
        if databases.entry(database).or_default().insert(number, name).is_some() {
            findings.push(Finding::new(
                &file.path,
                0,
                format!("number {number:04} is taken: use the next one"),
            ));
        }
    }
    for (database, numbers) in &databases {
        let missing =
            (1..=numbers.keys().next_back().copied().unwrap_or(0)).filter(|each| !numbers.contains_key(each));
        for number in missing {
            let message = format!("number {number:04} is missing: numbers count from 0001 without gaps");
            findings.push(Finding::new(&format!("{MIGRATIONS}{database}"), 0, message));
        }
        for (other, theirs) in databases.iter().filter(|(other, _)| *other != database) {
            for (number, name) in theirs.iter().filter(|(number, name)| numbers.get(number) != Some(name)) {
                let message = format!("{number:04}_{name}.sql of {other} has no counterpart here: add it");
                findings.push(Finding::new(&format!("{MIGRATIONS}{database}"), 0, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::paired;

    /// Checks a set of file names below the migrations directory.
    #[track_caller]
    fn check(names: &[&str], expected: &[&str]) {
        let paths: Vec<String> = names.iter().map(|name| format!("{}{name}", super::MIGRATIONS)).collect();
        let samples: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
        let expected: Vec<String> =
            expected.iter().map(|each| format!("{}{each}", super::MIGRATIONS)).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_finds(paired, &samples, &expected);
    }

    #[test]
    fn migrations_are_numbered_and_paired() {
        check(&["sqlite/0001_start.sql", "sqlite/0002_more.sql"], &[]);
        check(&["sqlite/0001_start.sql", "postgres/0001_start.sql"], &[]);
        check(&["sqlite/0001_a.sql", "sqlite/0003_c.sql"], &["sqlite: number 0002 is missing"]);
        check(&["sqlite/0001_a.sql", "sqlite/0001_b.sql"], &["sqlite/0001_b.sql: number 0001 is taken"]);
        check(&["sqlite/1_a.sql"], &["sqlite/1_a.sql: a migration is"]);
        check(&["0001_a.sql"], &["0001_a.sql: a migration is"]);
        check(
            &["postgres/0001_a.sql", "sqlite/0001_a.sql", "sqlite/0002_b.sql"],
            &["postgres: 0002_b.sql of sqlite has no counterpart"],
        );
    }
}
