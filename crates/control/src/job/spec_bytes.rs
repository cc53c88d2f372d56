//! The memory of a job's specification.

use api::task::RunTask;
use api::{Function, JobSpec, PinnedFile};

/// Bytes besides the name of a file: its length, time or hash.
const NAMED_BYTES: usize = 64;
/// Bytes of a part of a stored file.
const PART_BYTES: usize = 24;

/// Estimates the bytes of a specification that its user chooses: words, variables, names of files.
pub fn spec_bytes(spec: &JobSpec) -> u64 {
    let functions = [&spec.mapper, &spec.combiner, &spec.reducer].into_iter().flatten();
    let of_function = |function: &Function| match function {
        Function::Command { words } => bytes_of(words),
        Function::Builtin { name, argument } => name.len() + argument.as_ref().map_or(0, String::len),
    };
    let inputs = spec.inputs.iter().map(|input| input.path.as_os_str().len() + NAMED_BYTES);
    let seen_by = spec.seen_by.iter().map(|seen| seen.dir.as_os_str().len() + bytes_of(&seen.nodes));
    let files = spec.files.iter().map(|file| file.as_os_str().len());
    let shipped = spec.shipped.iter().map(|file| file.path.as_os_str().len() + NAMED_BYTES);
    let pinned = spec.pinned.iter().map(pinned_bytes);
    let recording = spec.recording.iter().map(|recording| {
        let files = recording
            .files
            .iter()
            .chain(&recording.reads)
            .chain(&recording.streamed)
            .map(|file| file.as_os_str().len())
            .sum::<usize>();
        recording.directory.as_os_str().len() + files + recording.inputs.len() * NAMED_BYTES
    });
    let bytes: usize = functions
        .map(of_function)
        .chain(inputs)
        .chain(seen_by)
        .chain(files)
        .chain(shipped)
        .chain(pinned)
        .chain(recording)
        .sum();
    let single: u64 = spec.kind.program().into_iter().map(task_bytes).sum();
    let steps: u64 = spec.kind.steps().map_or(0, |steps| steps.spec.text().len() as u64);
    (bytes + env_bytes(&spec.env)) as u64 + single + steps
}

/// Estimates the same bytes for a job of one task, with all programs of its pipeline.
pub fn task_bytes(task: &RunTask) -> u64 {
    task.programs().map(program_bytes).sum()
}

fn program_bytes(task: &RunTask) -> u64 {
    let files = task.files.iter().map(|file| file.as_os_str().len());
    let shipped = task.shipped.iter().map(|file| file.path.as_os_str().len() + NAMED_BYTES);
    let declared = task.inputs.iter().chain(&task.outputs);
    let declared = declared.map(|file| file.name.as_os_str().len() + file.path.as_os_str().len());
    let pinned = task.pinned.iter().map(pinned_bytes);
    let removed = task.removes.iter().map(|path| path.as_os_str().len());
    let names: usize = files.chain(shipped).chain(pinned).chain(declared).chain(removed).sum();
    (bytes_of(&task.words) + env_bytes(&task.env) + task.directory.as_os_str().len() + names) as u64
}

fn pinned_bytes(file: &PinnedFile) -> usize {
    file.path.as_os_str().len() + NAMED_BYTES + file.stored.parts.len() * PART_BYTES
}

fn bytes_of(words: &[String]) -> usize {
    words.iter().map(String::len).sum()
}

fn env_bytes(env: &[(String, String)]) -> usize {
    env.iter().map(|(name, value)| name.len() + value.len()).sum()
}
