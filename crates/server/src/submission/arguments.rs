//! Checks of the words and variables with which a program is started. A job is refused if no kernel would accept them.

use crate::ServerError;
use api::job::resources::GenericResources;
use api::task::RunTask;
use api::{Function, JobSpec};

/// Longest word or variable, with its final zero byte: `MAX_ARG_STRLEN` of Linux, 32 pages of 4 KiB.
const STRING_BYTES_MAX: usize = 128 << 10;
/// Maximum bytes of all words and variables together: a quarter of the usual stack of 8 MiB.
const ALL_BYTES_MAX: usize = 2 << 20;
/// Maximum bytes of the words and variables of all programs of a pipeline.
const PIPELINE_BYTES_MAX: usize = 8 << 20;
/// Bytes of the pointer that the kernel needs for each word and variable.
const POINTER_BYTES: usize = 8;

/// Returns an error for a job whose programs could not be started.
pub(crate) fn check_spec(spec: &JobSpec) -> Result<(), ServerError> {
    for function in [&spec.mapper, &spec.combiner, &spec.reducer].into_iter().flatten() {
        if let Function::Command { words } = function {
            check(words, &spec.env)?;
        }
    }
    spec.kind.program().into_iter().try_for_each(check_task)
}

/// Does the same for a job of one task.
pub(crate) fn check_task(task: &RunTask) -> Result<(), ServerError> {
    task.programs().try_for_each(|program| check(&program.words, &program.env))?;
    let resources = task.programs().map(|program| &program.resources);
    resources.chain([&task.resources_of_all()]).try_for_each(GenericResources::check)?;
    let strings = task.programs().flat_map(|program| {
        program
            .words
            .iter()
            .map(String::len)
            .chain(program.env.iter().map(|(name, value)| name.len() + value.len()))
    });
    // Each program of a pipeline sees the paths in the words of all.
    match strings.sum::<usize>() {
        bytes if bytes > PIPELINE_BYTES_MAX => {
            Err(ServerError::ManyArguments { bytes, max: PIPELINE_BYTES_MAX })
        }
        _ => Ok(()),
    }
}

fn check(words: &[String], env: &[(String, String)]) -> Result<(), ServerError> {
    let variables = env.iter().map(|(name, value)| name.len() + 1 + value.len());
    let mut all_bytes = 0;
    for bytes in words.iter().map(String::len).chain(variables).map(|bytes| bytes + 1) {
        if bytes > STRING_BYTES_MAX {
            return Err(ServerError::LongArgument { bytes, max: STRING_BYTES_MAX });
        }
        all_bytes += bytes + POINTER_BYTES;
    }
    match all_bytes > ALL_BYTES_MAX {
        true => Err(ServerError::ManyArguments { bytes: all_bytes, max: ALL_BYTES_MAX }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{STRING_BYTES_MAX, check, check_task};
    use crate::ServerError;
    use api::task::RunTask;
    use std::process::Command;

    /// Compares the limit with the kernel, which starts a program with the longest accepted word and refuses one byte
    /// more.
    #[test]
    fn the_longest_word_is_the_kernels() {
        // Other page sizes have other limits: in a cluster the lowest one counts.
        if rustix::param::page_size() != 4096 {
            return;
        }
        let starts = |bytes: usize| Command::new("true").arg("x".repeat(bytes)).status().is_ok();
        let passes = |bytes: usize| check(&["true".to_string(), "x".repeat(bytes)], &[]).is_ok();
        for bytes in [STRING_BYTES_MAX - 1, STRING_BYTES_MAX] {
            assert_eq!(starts(bytes), passes(bytes), "{bytes}");
        }
    }

    #[test]
    fn words_of_a_pipeline_count_together() {
        let program = RunTask { words: vec!["x".repeat(100_000); 19], ..RunTask::default() };
        let pipeline = |others: usize| {
            let task = RunTask { pipeline: vec![program.clone(); others], ..program.clone() };
            check_task(&task).is_ok()
        };
        assert!(pipeline(3) && !pipeline(4));
    }

    #[test]
    fn variables_count_and_so_do_all_together() {
        let of = |bytes: usize| vec![("NAME".to_string(), "x".repeat(bytes))];
        assert!(check(&[], &of(STRING_BYTES_MAX - 6)).is_ok());
        assert!(matches!(check(&[], &of(STRING_BYTES_MAX - 5)), Err(ServerError::LongArgument { .. })));
        let words = |count: usize| vec!["x".repeat(100_000); count];
        assert!(check(&words(20), &[]).is_ok());
        assert!(matches!(check(&words(21), &[]), Err(ServerError::ManyArguments { .. })));
    }
}
