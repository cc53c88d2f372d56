//! `sailfish workflow why`: the steps that would run, and why.

use super::{WhyArgs, job_of, read_at, stages};
use crate::commands::run::steps;
use crate::engine::resources::CommandLineFrontEnd;
use crate::engine::shipping;
use crate::exit::Failure;
use crate::show::escape;
use crate::show::terminal::print;
use api::history::EventKind;
use workflowfile::{JobMachines, NamedWorkflow};

pub fn run(args: &WhyArgs) -> Result<(), Failure> {
    stages::check_steps(&args.file.file, "why")?;
    let site = args.place.site();
    let machines = JobMachines {
        front_end: &CommandLineFrontEnd { site: site.as_ref() },
        state: args.place.state.as_deref(),
        slots: None,
    };
    let NamedWorkflow { name, mut spec } = read_at(&args.file, args.place.sources(), machines)?;
    if let Some(step) = &args.step {
        workflowfile::check_step(&spec, step)
            .map_err(|error| Failure::refused(anyhow::Error::from(error)))?;
    }
    args.place.uploaded(&mut spec)?;
    spec.only_judges = true;
    let target = args.place.target()?;
    if target.connection.is_some() {
        // As a run would name them; nothing is sent, because no step begins.
        spec.steps
            .iter_mut()
            .filter_map(|step| step.job.as_deref_mut())
            .try_for_each(shipping::name_shipped)?;
    }
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
