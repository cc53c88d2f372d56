//! A workflow as a shell script that does the same without the engine, one step after the other.

use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{RunTask, TaskFile};
use std::path::{Path, PathBuf};

/// Returns a script for `sh`. Each step runs in a directory of its own; its outputs are renamed into place when it has
/// succeeded. Temporary files are removed at the end.
pub fn script(spec: &WorkflowSpec) -> Result<String, String> {
    let stored = |step: &WorkflowStep| {
        let mut files = step.program.inputs.iter().chain(&step.program.outputs);
        files.find(|file| file.is_stored()).cloned()
    };
    if let Some((step, file)) = spec.steps.iter().find_map(|step| Some((step, stored(step)?))) {
        return Err(format!(
            "the step {:?} names the stored file {}, which a script without sailfish does not have: give it a plain file",
            step.name,
            file.path.display()
        ));
    }
    if let Some(step) = spec.steps.iter().find(|step| step.job.is_some()) {
        return Err(format!(
            "the step {:?} is a MapReduce job, which a script without sailfish cannot run: use `sailfish workflow run`",
            step.name
        ));
    }
    let order = workflow::order(&spec.steps)?;
    let mut text = String::from("#!/bin/sh\nset -eu\nwork=$(mktemp -d)\ntrap 'rm -rf \"$work\"' EXIT\n");
    for number in order {
        let step = &spec.steps[number as usize];
        text.push_str(&format!("\n# {}\n", step.name.escape_default()));
        add_step(&mut text, &step.program, &format!("\"$work\"/{number}"));
    }
    let temporary: Vec<String> = workflow::removed(spec)?.iter().map(|path| quoted_path(path)).collect();
    if !temporary.is_empty() {
        text.push_str(&format!("\nrm -f {}\n", temporary.join(" ")));
    }
    Ok(text)
}

fn add_step(text: &mut String, program: &RunTask, dir: &str) {
    let mut add = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    let above = |path: &Path| path.parent().filter(|above| !above.as_os_str().is_empty()).map(quoted_path);
    let has_own = program.has_own_directory();
    if has_own {
        add(format!("mkdir -p {dir}"));
    }
    for input in program.inputs.iter().filter(|_| has_own) {
        above(&input.name).into_iter().for_each(|above| add(format!("mkdir -p {dir}/{above}")));
        add(format!("ln -s {} {dir}/{}", quoted_path(&input.path), quoted_path(&input.name)));
    }
    for output in &program.outputs {
        match has_own {
            true => above(&output.name).into_iter().for_each(|above| add(format!("mkdir -p {dir}/{above}"))),
            false => above(&output.path).into_iter().for_each(|above| add(format!("mkdir -p {above}"))),
        }
    }
    let variables = program.resources.variables().chain(program.env.iter().cloned());
    let env: Vec<String> = variables.map(|(name, value)| quoted(&format!("{name}={value}"))).collect();
    let env = if env.is_empty() { String::new() } else { format!("env {} ", env.join(" ")) };
    let mut words: Vec<String> = program.words.iter().map(|word| quoted(word)).collect();
    if let Some(first) = program.words.first().filter(|word| word.contains('/')) {
        words[0] = quoted_path(&program.directory.join(first));
    }
    let place = if has_own { dir.to_string() } else { quoted_path(&program.directory) };
    let stream = |files: &[TaskFile], name: &Path| {
        let path = files.iter().find(|file| file.name == name).filter(|_| !has_own).map(|file| &file.path);
        quoted_path(path.map_or(name, PathBuf::as_path))
    };
    let stdin = program.stdin.as_ref().map_or("/dev/null".to_string(), |name| stream(&program.inputs, name));
    let stdout = program.stdout.as_ref();
    let stdout = stdout.map_or(String::new(), |name| format!(" > {}", stream(&program.outputs, name)));
    add(format!("(cd {place} && {env}{} < {stdin}{stdout})", words.join(" ")));
    for output in program.outputs.iter().filter(|_| has_own) {
        let path = quoted_path(&output.path);
        above(&output.path).into_iter().for_each(|above| add(format!("mkdir -p {above}")));
        add(format!("mv -f {dir}/{} {path}", quoted_path(&output.name)));
    }
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Quotes a word for `sh`.
fn quoted(word: &str) -> String {
    let is_plain = |each: char| each.is_ascii_alphanumeric() || "/._-=+:,".contains(each);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
