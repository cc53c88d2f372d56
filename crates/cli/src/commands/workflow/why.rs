//! `sailfish workflow why`: the steps that would run, and why.

use super::{WhyArgs, job_of, read, stages};
use crate::commands::run::steps;
use crate::exit::Failure;
use crate::show::escape;
use crate::show::terminal::print;
use api::history::EventKind;
use workflowfile::NamedWorkflow;

pub fn run(args: &WhyArgs) -> Result<(), Failure> {
    stages::check_steps(&args.file.file, "why")?;
    let NamedWorkflow { name, mut spec } = read(&args.file, args.place.sources())?;
    if let Some(step) = &args.step {
        workflowfile::check_step(&spec, step)
            .map_err(|error| Failure::refused(anyhow::Error::from(error)))?;
    }
    args.place.uploaded(&mut spec)?;
    spec.only_judges = true;
    let target = args.place.target()?;
    let job = steps::submit(&target, job_of(format!("{name}: why"), &spec)?)?;
    let events = steps::events(&target, job)?;
    let reasons = events.iter().filter(|event| event.kind == EventKind::StepRuns);
    let reasons = reasons.filter_map(|event| event.detail.as_deref());
    let is_asked =
        |reason: &&str| args.step.as_ref().is_none_or(|step| reason.starts_with(&format!("{step:?}: ")));
    let mut lines: Vec<String> =
        reasons.filter(is_asked).map(|reason| format!("{}\n", escape::cell(reason))).collect();
    if lines.is_empty() {
        lines.push(match &args.step {
            Some(step) => format!("{step:?}: it is skipped, as nothing changed for it\n"),
            None => "all steps are skipped, as nothing changed for them\n".to_string(),
        });
    }
    Ok(print(&lines.concat())?)
}
