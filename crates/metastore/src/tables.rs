//! Groups of tables by subject, with the statements for their rows.

pub(crate) mod files;
pub(crate) mod finished_runs;
pub(crate) mod fleet;
pub(crate) mod groups;
pub(crate) mod intermediate_files;
pub(crate) mod kept;
pub(crate) mod people;
pub(crate) mod reopen;
pub(crate) mod shuffle_data;
pub(crate) mod usage;
