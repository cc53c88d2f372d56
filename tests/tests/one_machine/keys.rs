//! Numeric and reversed order, fields, partitions, and combiners that touch keys, against models.

use bigdecimal::BigDecimal;
use blackbox::{Finished, Questions, Random, Sandbox, State, part_lines};
use std::cmp::Reverse;
use std::fmt::Write;
use std::fs;
use std::str::FromStr;

/// Exit code of a job with an option or a record that cannot be used.
const REFUSED: i32 = 2;
const FAILED: i32 = 1;
/// Several splits and frames, and still quick in a debug build.
const NUMBERS: usize = 60_000;
/// Prints what it reads, then how much that was: one such line for each process.
const COUNTING_REDUCER: &str = "awk '{ print; lines++ } END { printf \"END\\t%d\\n\", lines }'";

/// Lines `number TAB position`: small and huge integers, decimals, negative ones, one value written in many ways.
fn numbers(count: usize) -> Vec<(String, String)> {
    let mut random = Random::new(11);
    let mut pairs = Vec::with_capacity(count);
    for position in 0..count {
        let bits = random.next_bits();
        let sign = ["", "", "-", "+"][(bits & 3) as usize];
        let small = bits >> 50;
        let digits = match (bits >> 2) & 7 {
            0 => format!("{small}.0"),
            1 => format!("00{small}"),
            2 => format!("{small}.{:04}", (bits >> 8) & 0xfff),
            3 => format!("0.00{:03}", (bits >> 8) % 1000),
            4 => format!("{small}e{}", (bits >> 8) % 9),
            5 => format!("{:020}{small}", bits).repeat(1 + (bits >> 8) as usize % 6),
            _ => small.to_string(),
        };
        pairs.push((format!("{sign}{digits}"), format!("line {position}")));
    }
    pairs
}

fn text(pairs: &[(String, String)]) -> String {
    let mut text = String::new();
    for (key, value) in pairs {
        writeln!(text, "{key}\t{value}").expect("memory takes all");
    }
    text
}

fn value_of(key: &str) -> BigDecimal {
    BigDecimal::from_str(key.trim_start_matches('+')).expect("a number").normalized()
}

/// Stable, as ours must be: what is equal stays in input order.
fn sorted_by_value(mut pairs: Vec<(String, String)>, reversed: bool) -> Vec<(String, String)> {
    let value = |pair: &(String, String)| value_of(&pair.0);
    match reversed {
        true => pairs.sort_by_cached_key(|pair| Reverse(value(pair))),
        false => pairs.sort_by_cached_key(value),
    }
    pairs
}

#[track_caller]
fn run(sandbox: &Sandbox, options: &[&str]) -> Finished {
    sandbox.run_job(&[&["--no-sync", "--overwrite"], options].concat()).expect_success()
}

#[test]
fn numbers_are_sorted_by_value() {
    let sandbox = Sandbox::new();
    let pairs = numbers(NUMBERS);
    sandbox.write("in.tsv", text(&pairs));
    let total = ["--input", "in.tsv", "--order", "numeric", "--total-order"];
    for options in [&["--memory", "64M", "--slots", "8"][..], &["--memory", "1G", "--slots", "1"]] {
        for reversed in [&[][..], &["--reverse"]] {
            run(&sandbox, &[&total, options, reversed].concat());
            let expected = text(&sorted_by_value(pairs.clone(), !reversed.is_empty()));
            let got = sandbox.concatenated(&sandbox.out());
            assert!(got == expected.as_bytes(), "{options:?} {reversed:?} differ");
        }
    }
}

#[test]
fn numbers_of_equal_value_are_one_group() {
    let sandbox = Sandbox::new();
    sandbox.write("in.tsv", "10\t1\n9\t2\n1e1\t3\n-0\t4\n+0.00\t5\n10.0\t6\n-3\t7\n");
    run(&sandbox, &["--input", "in.tsv", "--order", "numeric", "--reducer", "builtin:sum", "--total-order"]);
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["-3\t7", "-0\t9", "9\t2", "10\t10"]);
    // A job file says the same.
    sandbox.write(
        "job.toml",
        "input = \"in.tsv\"\norder = \"numeric\"\nreverse = true\nreducer = \"builtin:list\"\n",
    );
    run(&sandbox, &["--job", "job.toml"]);
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["10\t1,3,6", "9\t2", "-0\t4,5", "-3\t7"]);
    let shown = sandbox.look(&["show", "2"]).expect_success().text();
    assert!(shown.contains("-k1nr"), "{shown}");
}

/// Which of several equal keys is printed follows from the input alone, not from the windows of combining.
#[test]
fn group_names_are_independent_of_memory_and_slots() {
    let sandbox = Sandbox::new();
    let pairs = numbers(NUMBERS);
    let ones: Vec<(String, String)> = pairs.into_iter().map(|(key, _)| (key, "1".to_string())).collect();
    sandbox.write("in.tsv", text(&ones));
    let mut outputs = Vec::new();
    for options in [["--memory", "64M", "--slots", "8"], ["--memory", "1G", "--slots", "1"]] {
        let job = ["--input", "in.tsv", "--order", "numeric", "--reducer", "builtin:sum", "--total-order"];
        run(&sandbox, &[&job[..], &options].concat());
        outputs.push(sandbox.concatenated(&sandbox.out()));
    }
    let mut expected: Vec<(String, u32)> = Vec::new();
    let mut last = None;
    for (key, _) in sorted_by_value(ones, false) {
        let value = value_of(&key);
        match expected.last_mut() {
            Some((_, count)) if last.as_ref() == Some(&value) => *count += 1,
            _ => expected.push((key, 1)),
        }
        last = Some(value);
    }
    let expected: String = expected.iter().map(|(key, count)| format!("{key}\t{count}\n")).collect();
    assert!(outputs.iter().all(|output| output == expected.as_bytes()), "outputs differ");
}

#[test]
fn wrong_numbers_are_named() {
    let sandbox = Sandbox::new();
    sandbox.write("in.tsv", "1\ta\n2\tb\ntwelve\tthe value\n3\tc\n");
    let finished = sandbox.run_job(&["--input", "in.tsv", "--order", "numeric"]);
    let texts = ["\"twelve\" is not a number", "\"the value\"", "in.tsv", "order by bytes"];
    finished.expect_failure(REFUSED, &texts);
    sandbox.assert_nothing_left();
    assert_eq!(sandbox.attempts().is(State::Failed).count(), 1, "another attempt gives the same");
}

#[test]
fn reversed_bytes_are_the_bytes_reversed() {
    let sandbox = Sandbox::new();
    let mut lines: Vec<&[u8]> = vec![b"b", b"a\x00", b"a", b"a\x00b", b"", b"\xff", b"ab", b"a", b"\x00"];
    sandbox.write("in", lines.join(&b'\n'));
    run(&sandbox, &["--input", "in", "--reverse", "--total-order"]);
    lines.sort_by_key(|line| Reverse(*line));
    assert_eq!(part_lines(&sandbox.concatenated(&sandbox.out())), lines);
}

/// The partition of a key as Hadoop's HashPartitioner has it.
fn partition(key: &str, count: u32) -> usize {
    let hash = key.bytes().fold(1i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte as i8)));
    ((hash & i32::MAX) as u32 % count) as usize
}

#[test]
fn each_partition_is_one_part_from_one_reducer() {
    let sandbox = Sandbox::new();
    let mut random = Random::new(5);
    let pairs: Vec<(String, String)> = (0..40_000)
        .map(|position| (format!("ké{}", random.next_bits() % 3000), format!("value {position}")))
        .collect();
    sandbox.write("in.tsv", text(&pairs));
    for count in [1, 3, 7] {
        let mut expected: Vec<Vec<(String, String)>> = vec![Vec::new(); count];
        for pair in &pairs {
            expected[partition(&pair.0, count as u32)].push(pair.clone());
        }
        let count_text = count.to_string();
        for options in [&["--memory", "64M", "--slots", "8"][..], &["--memory", "1G", "--slots", "1"]] {
            let job = ["--input", "in.tsv", "--partitions", &count_text, "--reducer", COUNTING_REDUCER];
            run(&sandbox, &[&job, options].concat());
            assert_eq!(sandbox.part_names(&sandbox.out()).len(), count);
            for (index, of_partition) in expected.iter_mut().enumerate() {
                of_partition.sort_by(|left, right| left.0.cmp(&right.0));
                let part = fs::read_to_string(sandbox.out().join(format!("part-{index:05}"))).unwrap();
                let wanted = format!("{}END\t{}\n", text(of_partition), of_partition.len());
                assert!(part == wanted, "part {index} of {count} with {options:?} differs");
            }
        }
    }
}

#[test]
fn an_empty_partition_is_a_part_as_well() {
    let sandbox = Sandbox::new();
    sandbox.write("few", "a\nb\nc\n");
    run(&sandbox, &["--input", "few", "--partitions", "5", "--reducer", COUNTING_REDUCER]);
    let lines = |name: &str| fs::read_to_string(sandbox.out().join(name)).unwrap();
    // 'a' is 128, 'b' 129, 'c' 130.
    let parts: Vec<String> = (0..5).map(|part| lines(&format!("part-{part:05}"))).collect();
    assert_eq!(parts, ["c\t\nEND\t1\n", "END\t0\n", "END\t0\n", "a\t\nEND\t1\n", "b\t\nEND\t1\n"]);

    sandbox.write("empty", "");
    run(&sandbox, &["--input", "empty", "--partitions", "3", "--reducer", "builtin:count"]);
    assert_eq!(sandbox.part_names(&sandbox.out()).len(), 3);
    assert_eq!(sandbox.concatenated(&sandbox.out()), b"");
}

#[test]
fn values_come_sorted_by_a_second_key() {
    let sandbox = Sandbox::new();
    let mut random = Random::new(3);
    let pairs: Vec<(String, String)> = (0..30_000)
        .map(|position| {
            let bits = random.next_bits();
            (format!("{:02}:{}", bits % 50, (bits >> 8) % 200), format!("value {position}"))
        })
        .collect();
    sandbox.write("in.tsv", text(&pairs));
    let mut expected = pairs.clone();
    let number = |key: &str| key[3..].parse::<u32>().expect("a number");
    expected.sort_by(|left, right| {
        left.0[..2].cmp(&right.0[..2]).then_with(|| number(&right.0).cmp(&number(&left.0)))
    });
    let order = ["--input", "in.tsv", "--sort-keys", "-k1.1,1.2 -k1.4,1nr"];
    run(&sandbox, &[&order[..], &["--total-order"]].concat());
    assert!(sandbox.concatenated(&sandbox.out()) == text(&expected).as_bytes(), "in total order");

    // By what the first step says: a hash of it, so many partitions, or the partition as the unit.
    let fields = ["--partition-fields", "1.1,1.2"];
    let other_fields = ["--partition-fields", "1.2,1.2"];
    for options in [&fields[..], &[&fields[..], &["--partitions", "4"]].concat(), &other_fields] {
        run(&sandbox, &[&order[..], options].concat());
        let mut lines = Vec::new();
        for name in sandbox.part_names(&sandbox.out()) {
            let part = fs::read_to_string(sandbox.out().join(name)).unwrap();
            let of_part: Vec<String> = part.lines().map(str::to_string).collect();
            let mut keys: Vec<&str> = of_part.iter().map(|line| &line[..2]).collect();
            assert!(keys.is_sorted(), "{options:?}");
            keys.dedup();
            lines.push((keys.iter().map(|key| key.to_string()).collect::<Vec<_>>(), of_part.clone()));
        }
        // Every first key lies in one part, and there its lines are as in the total order.
        for first in 0..50 {
            let first = format!("{first:02}");
            let holders: Vec<_> = lines.iter().filter(|(keys, _)| keys.contains(&first)).collect();
            assert_eq!(holders.len(), 1, "{first} {options:?}");
            let got: Vec<&String> = holders[0].1.iter().filter(|line| line.starts_with(&first)).collect();
            let wanted: Vec<String> = expected
                .iter()
                .filter(|pair| pair.0.starts_with(&first))
                .map(|pair| format!("{}\t{}", pair.0, pair.1))
                .collect();
            assert!(got == wanted.iter().collect::<Vec<_>>(), "{first} {options:?}");
        }
    }
}

#[test]
fn separator_of_lines_parts_the_fields() {
    let sandbox = Sandbox::new();
    // A separator of several bytes, which a field may hold the beginning of.
    sandbox.write("in", "b::x:10::1\na::x:9::2\nb::x:2::3\na::y::4\nb::x:10::5\na\n");
    let fields = ["--input", "in", "--separator", "::", "--key-fields", "2", "--total-order"];
    run(&sandbox, &fields);
    let sorted = sandbox.output_lines(&sandbox.out());
    assert_eq!(sorted, ["a", "a::x:9::2", "a::y::4", "b::x:10::1", "b::x:10::5", "b::x:2::3"]);
    run(&sandbox, &[&fields[..], &["--sort-keys", "-k1,1r -k2,2"]].concat());
    let sorted = sandbox.output_lines(&sandbox.out());
    assert_eq!(sorted, ["b::x:10::1", "b::x:10::5", "b::x:2::3", "a", "a::x:9::2", "a::y::4"]);
}

#[test]
fn kept_ifiles_are_reduced_again_in_their_order() {
    let sandbox = Sandbox::new();
    sandbox.write("in.tsv", "9\tx\n10\ty\n-1\tz\n9.0\tw\n");
    let options = ["--input", "in.tsv", "--order", "numeric", "--partitions", "3", "--keep-ifiles"];
    run(&sandbox, &[&options[..], &["--reducer", "builtin:list"]].concat());
    let again = sandbox.path("again");
    let again = again.to_str().expect("a sandbox has a plain path");
    let args = ["rerun-reduce", "1", "--reducer", COUNTING_REDUCER, "--output", again, "--no-sync"];
    sandbox.look(&args).expect_success();
    // '9' is 88, '10' is 2528, '-1' is 2405, '9.0' is 86042: each by its bytes.
    let part = |part: u32| fs::read_to_string(sandbox.path("again").join(format!("part-{part:05}"))).unwrap();
    assert_eq!([part(0), part(1), part(2)], ["END\t0\n", "9\tx\nEND\t1\n", "-1\tz\n9.0\tw\n10\ty\nEND\t3\n"]);
}

#[test]
fn a_combiner_that_changes_keys_is_an_error() {
    let sandbox = Sandbox::new();
    sandbox.write("in.tsv", "a\t1\nb\t2\na\t3\n");
    let job = |combiner: &str| {
        sandbox.run_job(&["--input", "in.tsv", "--combiner", combiner, "--reducer", "cat", "--overwrite"])
    };
    job("sed s/^b/z/").expect_failure(FAILED, &["\"z\"", "may only fold the values of a key"]);
    sandbox.assert_nothing_left();
    // Any order of keys is as good.
    job("sort -r").expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["a\t3", "a\t1", "b\t2"]);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "1\n");
    let check = |options: &[&str], texts: &[&str]| {
        let finished = sandbox.run_job(&[&["--input", "in"], options].concat());
        finished.expect_failure(REFUSED, texts);
        assert!(!sandbox.state().exists(), "a refused request left a state: {options:?}");
    };
    check(&["--partitions", "0"], &["--partitions", "1 to 50000"]);
    check(&["--partitions", "50001"], &["--partitions", "1 to 50000"]);
    check(&["--partitions", "2", "--total-order"], &["--total-order", "--partitions"]);
    check(&["--partitions", "2", "--map-only"], &["--partitions", "--map-only"]);
    check(&["--order", "numeric", "--map-only"], &["--order", "--map-only"]);
    check(&["--order", "random"], &["--order", "numeric"]);
    check(&["--sort-keys", "-k1,1", "--reverse"], &["--sort-keys", "--reverse"]);
    check(&["--sort-keys", "-k0"], &["--sort-keys", "count from 1"]);
    check(&["--sort-keys", "-k1,1 -u"], &["--sort-keys", "\"-u\""]);
    check(&["--partition-fields", "1,"], &["--partition-fields", "\"1,\""]);
    check(
        &["--partition-fields", "2,1", "--key-fields", "2"],
        &["--partition-fields 2,1", "ends before it begins"],
    );
    check(&["--partition-fields", "2"], &["--partition-fields 2", "--key-fields 2"]);
    check(
        &["--combiner", "builtin:sum", "--reducer", "builtin:count"],
        &["--combiner builtin:sum", "--reducer builtin:count"],
    );
}

/// The first trap of the field report: sessions of a user, whose visits lie in several parts where the whole key decides.
/// Field report, trap 1.
#[test]
fn partition_field_is_that_field_alone() {
    let sandbox = Sandbox::new();
    let mut random = Random::new(5);
    let visits: String =
        (0..4000).map(|visit| format!("user-{}\t{visit:06}\tpage\n", random.below(40))).collect();
    sandbox.write("in", &visits);
    let options =
        ["--key-fields", "2", "--partition-fields", "1", "--partitions", "8", "--sort-keys", "-k1,1 -k2,2n"];
    run(&sandbox, &[&["--input", "in"], &options[..]].concat());
    let mut parts_of = std::collections::BTreeMap::new();
    for name in sandbox.part_names(&sandbox.out()) {
        let part = fs::read_to_string(sandbox.out().join(&name)).unwrap();
        for line in part.lines() {
            let user = line.split('\t').next().unwrap_or_default().to_string();
            parts_of.entry(user).or_insert_with(std::collections::BTreeSet::new).insert(name.clone());
        }
    }
    assert_eq!(parts_of.len(), 40);
    assert!(parts_of.values().all(|parts| parts.len() == 1), "{parts_of:?}");
}
