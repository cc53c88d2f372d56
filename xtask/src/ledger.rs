//! `cargo xtask ledger`: the minutes of each stage of `make test`, of slow test modules, and whether a cold run stayed
//! within the ceilings of `docs/testing.md`.

use anyhow::{Context, Result, bail};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Modules whose cases take less than this in total are not listed.
const MODULE_SECONDS_MIN: f64 = 20.0;
/// A cold stage fails the run if it takes more than its ceiling times this.
const CEILING_TOLERANCE: f64 = 1.5;
/// The stage with a list of cases by module.
const TESTS_STAGE: &str = "Rust tests";
/// Heading of the table of ceilings in `docs/testing.md`: `| stage | CPU minutes, at most |`.
const CEILINGS_HEADER: &str = "CPU minutes, at most";

/// A line of `tests/ledger/stage.sh`.
#[derive(Debug, PartialEq)]
struct Stage {
    name: String,
    wall_seconds: f64,
    cpu_seconds: f64,
    exit_code: i32,
}

/// Seconds and number of the cases of one module.
#[derive(Debug, Default, PartialEq)]
struct Module {
    seconds: f64,
    cases: u64,
}

/// The ledger of one run: its stages and cases, and their ceilings.
struct Ledger {
    stages: Vec<Stage>,
    modules: BTreeMap<String, Module>,
    /// Stage to CPU minutes.
    ceilings: BTreeMap<String, f64>,
    cold: bool,
}

/// Prints the ledger of DIR, stores it there as `ledger.txt`, and fails if a cold stage took too long.
///
/// DIR holds `stages.tsv`, `cold` if the target directory was empty at the start, and `junit.xml` if tests ran.
pub fn run(root: &Path, dir: &Path) -> Result<ExitCode> {
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let junit = dir.join("junit.xml");
    let ledger = Ledger {
        stages: stages(&read(&dir.join("stages.tsv"))?)?,
        modules: if junit.exists() { modules(&read(&junit)?)? } else { BTreeMap::new() },
        ceilings: ceilings(&read(&root.join("docs/testing.md"))?)?,
        cold: dir.join("cold").exists(),
    };
    let table = ledger.table();
    print!("{table}");
    let kept = dir.join("ledger.txt");
    std::fs::write(&kept, &table).with_context(|| format!("write {}", kept.display()))?;
    let breaches = ledger.breaches();
    for breach in &breaches {
        println!("{breach}");
    }
    Ok(if breaches.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Ledger {
    fn table(&self) -> String {
        let mut table = format!("{:<40} {:>8} {:>8} {:>8}\n", "stage", "wall min", "CPU min", "ceiling");
        let (mut wall, mut cpu) = (0.0, 0.0);
        for stage in &self.stages {
            wall += stage.wall_seconds;
            cpu += stage.cpu_seconds;
            let ceiling =
                self.ceilings.get(&stage.name).map_or(String::new(), |minutes| format!("{minutes:.1}"));
            let failed = if stage.exit_code == 0 { "" } else { "  failed" };
            row(&mut table, &stage.name, stage.wall_seconds, Some(stage.cpu_seconds), &ceiling, failed);
            if stage.name == TESTS_STAGE {
                self.add_modules(&mut table);
            }
        }
        row(&mut table, "all", wall, Some(cpu), "", "");
        let state = if self.cold {
            "was empty: a cold run"
        } else {
            "was not empty: ceilings are those of a cold run"
        };
        writeln!(table, "The target directory {state}.").expect("a text takes all");
        table
    }

    /// Adds the seconds of parallel cases, so modules can take more than their stage.
    fn add_modules(&self, table: &mut String) {
        let mut modules: Vec<_> =
            self.modules.iter().filter(|(_, module)| module.seconds >= MODULE_SECONDS_MIN).collect();
        modules.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        for (name, module) in modules {
            row(table, &format!("  {name}"), module.seconds, None, "", &format!("  {} cases", module.cases));
        }
        let cases: u64 = self.modules.values().map(|module| module.cases).sum();
        writeln!(table, "  {cases} cases").expect("a text takes all");
    }

    /// Returns a sentence for each cold stage that exceeded its ceiling.
    fn breaches(&self) -> Vec<String> {
        let over = |stage: &Stage| {
            let ceiling = *self.ceilings.get(&stage.name)?;
            let minutes = stage.cpu_seconds / 60.0;
            (self.cold && minutes > ceiling * CEILING_TOLERANCE).then(|| {
                format!(
                    "{}: {minutes:.1} CPU minutes, more than {CEILING_TOLERANCE} times its ceiling of {ceiling:.1}: \
                     make it shorter, or justify a higher ceiling in docs/testing.md",
                    stage.name
                )
            })
        };
        self.stages.iter().filter_map(over).collect()
    }
}

fn row(table: &mut String, name: &str, wall: f64, cpu: Option<f64>, ceiling: &str, note: &str) {
    let cpu = cpu.map_or(String::new(), |seconds| format!("{:.1}", seconds / 60.0));
    let line = format!("{name:<40} {:>8.1} {cpu:>8} {ceiling:>8}{note}", wall / 60.0);
    writeln!(table, "{}", line.trim_end()).expect("a text takes all");
}

fn stages(text: &str) -> Result<Vec<Stage>> {
    let stage = |line: &str| -> Result<Stage> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, wall, cpu, code] = fields[..] else { bail!("{line:?} is not a line of a ledger") };
        Ok(Stage {
            name: name.to_string(),
            wall_seconds: wall.parse().with_context(|| format!("read the wall seconds of {line:?}"))?,
            cpu_seconds: cpu.parse().with_context(|| format!("read the CPU seconds of {line:?}"))?,
            exit_code: code.parse().with_context(|| format!("read the exit code of {line:?}"))?,
        })
    };
    text.lines().map(stage).collect()
}

/// Adds up the cases of a JUnit report: by binary and first module of their name.
fn modules(report: &str) -> Result<BTreeMap<String, Module>> {
    let mut reader = Reader::from_str(report);
    let mut modules: BTreeMap<String, Module> = BTreeMap::new();
    loop {
        match reader.read_event().context("read the report of the tests")? {
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == b"testcase" => {
                let (binary, case) = (attribute(&tag, "classname")?, attribute(&tag, "name")?);
                let seconds: f64 = attribute(&tag, "time")?.parse().context("read the seconds of a case")?;
                let name = match case.split_once("::") {
                    Some((module, _)) => format!("{binary} {module}"),
                    None => binary,
                };
                let module = modules.entry(name).or_default();
                module.seconds += seconds;
                module.cases += 1;
            }
            Event::Eof => return Ok(modules),
            _ => (),
        }
    }
}

fn attribute(tag: &BytesStart, name: &str) -> Result<String> {
    let attribute = tag.try_get_attribute(name).context("read a tag")?;
    let attribute = attribute.with_context(|| format!("find {name} of a case"))?;
    String::from_utf8(attribute.value.to_vec()).with_context(|| format!("read {name} of a case"))
}

/// Returns the rows `| stage | minutes |` of the table whose header names [`CEILINGS_HEADER`].
fn ceilings(document: &str) -> Result<BTreeMap<String, f64>> {
    let mut lines = document.lines().skip_while(|line| !line.contains(CEILINGS_HEADER));
    if lines.next().is_none() {
        bail!("docs/testing.md has no table with the column {CEILINGS_HEADER:?}");
    }
    let mut ceilings = BTreeMap::new();
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, stage, minutes, ..] = cells[..] else { bail!("{line:?} is not a row of ceilings") };
        let minutes = minutes.parse().with_context(|| format!("read the minutes of {line:?}"))?;
        ceilings.insert(stage.to_string(), minutes);
    }
    Ok(ceilings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
# Tests
| stage | CPU minutes, at most | why |
|---|---|---|
| lint | 2 | x |
| Rust tests | 10.5 | y |

| other | 3 |";

    fn ledger(cold: bool, lint_cpu_seconds: f64) -> Ledger {
        let lines = format!("lint\t60.00\t{lint_cpu_seconds}\t0\nRust tests\t300\t60.5\t101\n");
        let report = r#"<testsuites><testsuite name="blackbox::failures">
            <testcase name="chaos::a" classname="blackbox::failures" time="130.5"/>
            <testcase name="chaos::b" classname="blackbox::failures" time="2"><failure/></testcase>
            <testcase name="quick" classname="api" time="0.1"/></testsuite></testsuites>"#;
        let (stages, modules) = (stages(&lines).unwrap(), modules(report).unwrap());
        Ledger { stages, modules, ceilings: ceilings(DOCUMENT).unwrap(), cold }
    }

    #[test]
    fn table_lists_stages_and_slow_modules() {
        let expected = "\
stage                                    wall min  CPU min  ceiling
lint                                          1.0      1.5      2.0
Rust tests                                    5.0      1.0     10.5  failed
  blackbox::failures chaos                    2.2                    2 cases
  3 cases
all                                           6.0      2.5
The target directory was not empty: ceilings are those of a cold run.
";
        assert_eq!(ledger(false, 90.0).table(), expected);
    }

    #[test]
    fn only_cold_stages_above_their_ceiling_fail() {
        assert!(ledger(true, 180.0).breaches().is_empty());
        assert!(ledger(false, 181.0).breaches().is_empty());
        let breaches = ledger(true, 181.0).breaches();
        assert!(breaches.len() == 1 && breaches[0].starts_with("lint: 3.0 CPU minutes"), "{breaches:?}");
    }

    #[test]
    fn unreadable_lines_are_errors() {
        assert!(stages("lint\t1\t2\n").is_err());
        assert!(stages("lint\tone\t2\t0\n").is_err());
        assert!(ceilings("no table").is_err());
        assert!(ceilings("| stage | CPU minutes, at most |\n|---|---|\n| lint | some |").is_err());
        assert!(modules("<testcase name='a' classname='b'/>").is_err());
    }
}
