//! Advice about the most common mistakes with programs, derived from the failure of a job.

use api::{Blame, Function, JobSpec, TaskFailure, name_beside};
use ids::StageKind;
use std::ffi::OsStr;
use std::path::Path;

/// Words that a shell would not pass to a program.
const OF_SHELLS: &[&str] = &["|", "||", "&&", ";", "&", ">", ">>", "<", "2>", "2>&1", "2>/dev/null"];
/// Programs that exit with 1 if they find nothing.
const GREPS: &[&str] = &["grep", "egrep", "fgrep", "zgrep", "rg"];
const NOTHING_FOUND: i32 = 1;

/// Returns a sentence about a failure in a stage that looks like one of these mistakes. Relative paths are those of
/// `start_dir`.
pub fn advice(
    spec: &JobSpec,
    stage: Option<StageKind>,
    failure: &TaskFailure,
    start_dir: &Path,
) -> Option<String> {
    if failure.blame == Blame::Engine {
        return Some("the cause is a bug in sailfish or the hardware, not your program or data".to_string());
    }
    let functions = match stage {
        Some(StageKind::Map) => [("mapper", &spec.mapper), ("combiner", &spec.combiner)],
        Some(StageKind::Reduce) => [("reducer", &spec.reducer), ("combiner", &spec.combiner)],
        _ => return None,
    };
    functions.into_iter().find_map(|(option, function)| match function {
        Some(Function::Command { words }) if names(failure, words) => {
            about_words(option, words, spec, failure, start_dir)
        }
        _ => None,
    })
}

/// Returns whether this program failed.
fn names(failure: &TaskFailure, words: &[String]) -> bool {
    let program = words.first().map(|word| format!("{word:?}"));
    program.is_some_and(|program| failure.message.contains(&program))
}

fn about_words(
    option: &str,
    words: &[String],
    spec: &JobSpec,
    failure: &TaskFailure,
    start_dir: &Path,
) -> Option<String> {
    if let Some(word) = words.iter().find(|word| OF_SHELLS.contains(&word.as_str())) {
        let line = words.join(" ");
        return Some(format!(
            "programs run without a shell, so {word} was an argument of the program: give --{option} \"sh \
             -c '{line}'\""
        ));
    }
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    let found_nothing = failure.exit_code == Some(NOTHING_FOUND) && failure.stderr_tail.is_empty();
    if GREPS.contains(&program) && found_nothing {
        return Some(format!(
            "{program} exits with 1 if no line matches, and every task runs it: give --{option} \
             builtin:grep:PATTERN, or \"sh -c '{} || [ $? = 1 ]'\"",
            words.join(" ")
        ));
    }
    let sent = |name: &OsStr| spec.files.iter().any(|file| name_beside(file) == Some(name));
    let is_left = |word: &&String| {
        let path = Path::new(word.as_str());
        path.file_name().is_some_and(|name| !sent(name)) && start_dir.join(path).is_file()
    };
    words.iter().skip(1).find(is_left).map(|word| {
        format!("{word} is a file here, and programs run in directories of their own: add --file {word}")
    })
}

#[cfg(test)]
mod tests {
    use super::advice;
    use api::{Blame, Function, JobSpec, TaskFailure};
    use ids::StageKind;

    fn advised(line: &str, files: &[&str], exit_code: i32) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("map.py"), "").unwrap();
        let mapper = Function::parse(line).unwrap();
        let words = line.split(' ').next().unwrap_or_default();
        let message = format!("program {words:?} ended with exit code {exit_code}");
        let failure =
            TaskFailure { exit_code: Some(exit_code), ..TaskFailure::new(Blame::UserProgram, message) };
        let files = files.iter().map(|file| dir.path().join(file)).collect();
        let spec = JobSpec { mapper: Some(mapper), files, ..JobSpec::named("job") };
        assert_eq!(advice(&spec, Some(StageKind::Reduce), &failure, dir.path()), None);
        advice(&spec, Some(StageKind::Map), &failure, dir.path())
    }

    #[test]
    fn the_commonest_mistakes_are_told() {
        let check = |line: &str, exit_code, expected: &str| {
            let told = advised(line, &[], exit_code).unwrap_or_default();
            assert!(told.contains(expected), "{line}: {told}");
        };
        check("python3 map.py", 2, "add --file map.py");
        check("cat | grep x", 1, "give --mapper \"sh -c 'cat | grep x'\"");
        check("grep x", 1, "builtin:grep:PATTERN");
        // A pattern may be the name of a file.
        check("grep map.py", 1, "builtin:grep:PATTERN");
        assert_eq!(advised("grep x", &[], 2), None);
        assert_eq!(advised("python3 map.py", &["map.py"], 1), None);
        assert_eq!(advised("python3 other.py", &[], 1), None);
        assert_eq!(advised("sh -c 'a | b'", &[], 1), None);
    }
}
