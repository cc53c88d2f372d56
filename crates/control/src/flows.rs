//! Flows of several stages.

mod check;
mod stages;

pub use check::{FlowError, check};
pub(crate) use stages::{
    check_same_part, flow_goes_on, input_lost, may_end, mend_flows, near_stage_files, part_is_there,
    parts_gone, parts_replicated, restore, rests, tell_those_it_reads, waits_for_inputs, with_stage_files,
};
