//! A workflow as a drawing (SVG): boxes for steps in layers from left to right, lines for those that wait for others.
//!
//! Layers by longest path, order by barycenters, places by least squares (Sugiyama, Tagawa, Toda 1981). The crate
//! `rust-sugiyama` places boxes without lines around them, and `dagre` 0.1.2 builds only with serde_json.

mod drawing;
mod layers;

use api::job::workflow::WorkflowSpec;
use api::task::TaskFile;
use api::{Function, JobSpec};
use drawing::{Arrow, Drawing, Shape};
use layers::Layout;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum number of steps of a drawing.
const PLOT_STEPS_MAX: usize = 2000;
/// Maximum number of pieces of lines, one for each layer that a line crosses.
const PLOT_PIECES_MAX: usize = 20_000;

/// Returns the drawing of a workflow. A dashed line is a stream of a pipeline, if a node has enough slots.
pub fn plot(spec: &WorkflowSpec) -> Result<String, String> {
    let count = spec.steps.len();
    if count > PLOT_STEPS_MAX {
        return Err(format!(
            "it has {count} steps, and a drawing at most {PLOT_STEPS_MAX}: see them with `sailfish workflow plan`"
        ));
    }
    let before = workflow::steps_before(&spec.steps)?;
    let shapes = shapes(spec);
    let layout = Layout::new(&before, &shapes.iter().map(Shape::size).collect::<Vec<_>>(), PLOT_PIECES_MAX);
    let layout = layout.ok_or_else(|| {
        format!(
            "its lines cross more than {PLOT_PIECES_MAX} layers of steps: see the steps with `sailfish workflow plan`"
        )
    })?;
    let mut pipelines = vec![0; count];
    for (number, pipeline) in workflow::preview(spec, u32::MAX)?.iter().enumerate() {
        pipeline.steps.iter().filter(|step| **step < count).for_each(|step| pipelines[*step] = number);
    }
    let arrow = |line: &layers::Line| Arrow {
        streams: pipelines[line.from] == pipelines[line.to],
        title: arrow_title(spec, line.from, line.to),
        points: line.points.clone(),
    };
    let arrows: Vec<Arrow> = layout.lines.iter().map(arrow).collect();
    Ok(Drawing { shapes: &shapes, layout: &layout, arrows: &arrows }.svg())
}

/// Returns the box of each step.
fn shapes(spec: &WorkflowSpec) -> Vec<Shape> {
    let inputs = spec.steps.iter().flat_map(|step| &step.program.inputs);
    let read: BTreeSet<&Path> = inputs.map(|input| input.path.as_path()).collect();
    let shape = |step: &api::job::workflow::WorkflowStep| {
        let outputs = &step.program.outputs;
        let is_kept = |output: &&TaskFile| !output.temporary || !read.contains(output.path.as_path());
        let names = |kept: bool| -> Vec<String> {
            let chosen = outputs.iter().filter(|output| is_kept(output) == kept);
            chosen.map(|output| output.name.display().to_string()).collect()
        };
        let mut title = vec![step.name.clone(), step.program.words.join(" ")];
        if let Some(job) = &step.job {
            title[1] = functions(job);
        }
        title.extend(step.program.inputs.iter().map(|input| format!("reads {}", input.name.display())));
        title.extend(names(true).iter().map(|name| format!("writes {name}")));
        title.extend(names(false).iter().map(|name| format!("writes {name} (temporary)")));
        Shape { name: step.name.clone(), kept: names(true), temporary: names(false), title: title.join("\n") }
    };
    spec.steps.iter().map(shape).collect()
}

/// Returns the functions of a job as words.
fn functions(job: &JobSpec) -> String {
    let named = [("map", &job.mapper), ("reduce", &job.reducer)];
    let text = |(name, function): (&str, &Option<Function>)| {
        function.as_ref().map(|function| format!("{name} {}", function.display()))
    };
    let texts: Vec<String> = named.into_iter().filter_map(text).collect();
    if texts.is_empty() { "sort".to_string() } else { texts.join(", ") }
}

/// Returns the names of the files that one step reads of another.
fn arrow_title(spec: &WorkflowSpec, from: usize, to: usize) -> String {
    let [from, to] = [from, to].map(|number| &spec.steps[number]);
    let outputs: BTreeMap<&Path, &TaskFile> =
        from.program.outputs.iter().map(|output| (output.path.as_path(), output)).collect();
    let read = to.program.inputs.iter().filter_map(|input| outputs.get(input.path.as_path()));
    let names: Vec<String> = read.map(|output| output.name.display().to_string()).collect();
    match names.is_empty() {
        true => format!("{} after {}", to.name, from.name),
        false => names.join("\n"),
    }
}
