//! Hides parts of jobs from callers who neither own them nor administer the server: the words of programs, their
//! environment, and all their output.

use crate::gate::Caller;
use api::control::JobOutcome;
use api::history::{AttemptRow, EventKind, EventRow, JobDetails, JobRow};
use api::people::Role;
use api::task::RunTask;
use api::{Blame, Function, JobKind, JobReport, JobSpec, JsonText, TaskFailure, TasksKind};

/// Replacement for hidden words.
const HIDDEN: &str = "...";

/// Returns whether the caller may see everything of a job of this user.
pub(crate) fn sees_all(caller: &Caller, owner: Option<&str>) -> bool {
    match caller.role {
        Role::Admin => true,
        Role::User => owner.is_some() && owner == caller.user.as_deref(),
        Role::ReadOnly | Role::Node => false,
    }
}

/// Hides the parts of a job that only its owner and administrators may see.
pub(crate) fn hide_in_details(details: &mut JobDetails) {
    hide_in_spec(&mut details.spec);
    let by_program = |attempt: &AttemptRow| attempt.failure.as_ref().is_some_and(is_by_program);
    let failed = details.attempts.iter().any(by_program);
    details.attempts.iter_mut().filter_map(|attempt| attempt.failure.as_mut()).for_each(hide_in_failure);
    for event in &mut details.events {
        hide_in_event(event, failed);
    }
    hide_in_row(&mut details.job);
}

/// Hides the reason of a failure, which may quote the program.
pub(crate) fn hide_in_row(row: &mut JobRow) {
    row.error = row.error.take().map(|_| HIDDEN.to_string());
}

fn hide_in_spec(spec: &mut JobSpec) {
    for function in [&mut spec.mapper, &mut spec.combiner, &mut spec.reducer].into_iter().flatten() {
        if let Function::Command { words } = function {
            hide_words(words);
        }
    }
    hide_values(&mut spec.env);
    // Some of them are words.
    spec.pinned.clear();
    if let Some(task) = spec.kind.program_mut() {
        task.pinned.clear();
        hide_in_program(task);
        task.pipeline.iter_mut().for_each(hide_in_program);
    }
    if let JobKind::Tasks { kind: TasksKind::Steps(steps) } = &mut spec.kind {
        steps.spec = JsonText::hidden();
    }
}

fn hide_in_program(task: &mut RunTask) {
    hide_words(&mut task.words);
    hide_values(&mut task.env);
}

/// Hides all words except the name of the program.
fn hide_words(words: &mut Vec<String>) {
    if words.len() > 1 {
        words.truncate(1);
        words.push(HIDDEN.to_string());
    }
}

fn hide_values(env: &mut [(String, String)]) {
    env.iter_mut().for_each(|(_, value)| *value = HIDDEN.to_string());
}

fn is_by_program(failure: &TaskFailure) -> bool {
    failure.blame == Blame::UserProgram
}

fn hide_in_failure(failure: &mut TaskFailure) {
    if is_by_program(failure) {
        failure.message = "the program failed".to_string();
    }
    failure.stderr_tail.clear();
    failure.said = None;
}

fn hide_in_event(event: &mut EventRow, has_failed_program: bool) {
    let is_of_program =
        [EventKind::StandardOutput, EventKind::StandardError, EventKind::Status, EventKind::StepRuns]
            .contains(&event.kind);
    let may_quote_it =
        has_failed_program && [EventKind::AttemptFailed, EventKind::JobFailed].contains(&event.kind);
    if is_of_program || may_quote_it {
        event.detail = None;
    }
}

pub(crate) fn hide_in_report(report: &mut JobReport) {
    for function in [&mut report.mapper, &mut report.combiner, &mut report.reducer] {
        hide_in_command_line(function);
    }
}

fn hide_in_command_line(function: &mut String) {
    if !function.starts_with("builtin:")
        && let Some((program, _)) = function.split_once(' ')
    {
        *function = format!("{program} {HIDDEN}");
    }
}

pub(crate) fn hide_in_outcome(outcome: &mut JobOutcome) {
    match outcome {
        JobOutcome::Succeeded(report) => hide_in_report(report),
        JobOutcome::Failed { failure, .. } => hide_in_failure(failure),
        JobOutcome::Done | JobOutcome::Cancelled { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{hide_in_command_line, hide_in_failure, hide_in_spec, sees_all};
    use crate::gate::Caller;
    use api::people::Role;
    use api::task::RunTask;
    use api::{Blame, Function, JobSpec, PinnedFile, TaskFailure};
    use std::path::PathBuf;

    const SECRET: &str = "hunter2";

    #[test]
    fn owners_and_administrators_see_all() {
        let caller = |user: &str, role| Caller { user: Some(user.into()), role, ..Caller::local() };
        let check = |caller: &Caller, owner: Option<&str>, expected| {
            assert_eq!(sees_all(caller, owner), expected, "{caller:?} {owner:?}");
        };
        check(&Caller::local(), None, true);
        check(&Caller::local(), Some("ann"), true);
        check(&caller("ann", Role::User), Some("ann"), true);
        check(&caller("ann", Role::User), Some("bob"), false);
        check(&caller("ann", Role::User), None, false);
        check(&caller("eve", Role::ReadOnly), Some("eve"), false);
    }

    #[test]
    fn hidden_fields_are_in_no_part() {
        let path = PathBuf::from(format!("files:{SECRET}@1"));
        let pinned = || PinnedFile { path: path.clone(), ..PinnedFile::default() };
        let task = RunTask {
            words: vec!["sh".into(), "-c".into(), SECRET.into()],
            env: vec![("PASSWORD".into(), SECRET.into())],
            ..RunTask::default()
        };
        let task = RunTask { pinned: vec![pinned()], pipeline: vec![task.clone()], ..task };
        let mut spec = JobSpec::of_one_task("job".to_string(), task);
        spec.mapper = Some(Function::Command { words: vec!["sed".into(), SECRET.into()] });
        spec.reducer = Some(Function::Builtin { name: "sum".into(), argument: None });
        spec.env = vec![("TOKEN".into(), SECRET.into())];
        spec.pinned = vec![pinned()];
        hide_in_spec(&mut spec);
        let shown = format!("{spec:?}");
        assert!(!shown.contains(SECRET), "{shown}");
        for name in ["sh", "sed", "sum", "PASSWORD", "TOKEN"] {
            assert!(shown.contains(name), "{name} is not in {shown}");
        }
        let mut failure = TaskFailure::new(Blame::UserProgram, format!("KeyError: {SECRET}"));
        failure.stderr_tail.push(SECRET.to_string());
        hide_in_failure(&mut failure);
        assert!(!format!("{failure:?}").contains(SECRET), "{failure:?}");
        let mut ours = TaskFailure::new(Blame::Environment, "a disk is full");
        hide_in_failure(&mut ours);
        assert_eq!(ours.message, "a disk is full");
    }

    #[test]
    fn a_report_names_programs_without_their_words() {
        for (function, expected) in
            [("sed hunter2", "sed ..."), ("builtin:grep:a b", "builtin:grep:a b"), ("cat", "cat")]
        {
            let mut shown = function.to_string();
            hide_in_command_line(&mut shown);
            assert_eq!(shown, expected);
        }
    }
}
