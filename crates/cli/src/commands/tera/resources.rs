//! Checked resources of the machine for a job, and the common specification of all these jobs.

use super::EngineArgs;
use crate::engine::resources::CommandLineFrontEnd;
use crate::options::connect::Site;
use anyhow::Context;
use api::{Formats, JobSpec, OutputFormat, RecordFormat, Split};
use jobspec::standard_output::{self, PrivateOutput};
use jobspec::{Held, Plan, paths, state_dir};
use mapreduce::layout::{self, LayoutRequest};
use std::path::PathBuf;

/// Memory, slots and directories of a job.
#[derive(Debug)]
pub struct Resources {
    pub memory_bytes: u64,
    pub slots: u32,
    pub disks: Vec<PathBuf>,
    pub state_dir: PathBuf,
    pub server: Option<Site>,
    pub start_dir: PathBuf,
    pub json: bool,
}

impl Resources {
    /// Checks the options. Every error names the option, and the user can fix it.
    pub fn of(args: &EngineArgs) -> anyhow::Result<Resources> {
        let start_dir = std::env::current_dir().context("finding the current directory")?;
        let server = args.state.site();
        let front_end = CommandLineFrontEnd { site: server.as_ref() };
        let (memory_bytes, slots) = jobspec::resources(args.memory.as_deref(), args.slots, &front_end)?;
        let state_dir = state_dir::state_dir(args.state.state.as_deref())?;
        // The directory below the state directory is created with the job.
        let disks = match args.disk.is_empty() {
            true => vec![state_dir.join("disk")],
            false => paths::disks(&args.disk, &start_dir)?,
        };
        Ok(Resources { memory_bytes, slots, disks, state_dir, server, start_dir, json: args.json })
    }

    /// Returns the front end of a job with these resources.
    pub fn front_end(&self) -> CommandLineFrontEnd<'_> {
        CommandLineFrontEnd { site: self.server.as_ref() }
    }

    /// Returns a private directory for an output that is read and thrown away. It is removed with the value; the
    /// remains of killed processes are removed now.
    pub fn private_output(&self) -> anyhow::Result<PrivateOutput> {
        standard_output::sweep(&self.disks);
        PrivateOutput::create(&self.disks[0])
    }

    /// Returns a job over rows, to be filled in: no input yet, identity, no reducer, hash, nothing compressed, rows
    /// written as they were read. `input_bytes` determines its sizes.
    pub fn job(&self, name: &str, output: PathBuf, input_bytes: u64) -> anyhow::Result<JobSpec> {
        let (memory_bytes, slots) = (self.memory_bytes, self.slots);
        // Errors of this call name the option.
        let layout = layout::derive(&LayoutRequest { memory_bytes, slots, input_bytes, combines: false })?;
        let formats = Formats { input: RecordFormat::TERA, output: OutputFormat::Raw, ..Formats::default() };
        Ok(JobSpec {
            output,
            memory_bytes,
            slots,
            disks: self.disks.clone(),
            layout,
            formats,
            ..JobSpec::named(name)
        })
    }

    /// Returns a plan for the job.
    pub fn plan(&self, spec: JobSpec, splits: Vec<Split>) -> Plan {
        Plan {
            spec,
            splits,
            state_dir: self.state_dir.clone(),
            start_dir: self.start_dir.clone(),
            json: self.json,
            held: Held::default(),
        }
    }
}
