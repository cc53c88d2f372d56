//! Flows of several stages.

mod check;
mod mending;
mod stages;

pub use check::{FlowError, check};
pub(crate) use mending::{input_lost, mend_flows};
pub(crate) use stages::{
    check_same_part, flow_goes_on, let_end, may_end, near_stage_files, part_is_there, parts_gone,
    parts_replicated, restore, tell_those_it_reads, waits_for_inputs, with_stage_files,
};
