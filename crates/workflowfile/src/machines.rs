//! The machines that a workflow file is read for.

use anyhow::bail;
use jobspec::{FrontEnd, SeenInputs, StoredInputs, StoredShape, StoredUse};
use std::path::{Path, PathBuf};

/// The machines that see the inputs that no step writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// This one: the inputs must exist.
    Here,
    /// The nodes of a server.
    OnNodes,
}

/// The machines for which the jobs of a file are planned.
#[derive(Clone, Copy)]
pub struct JobMachines<'a> {
    pub front_end: &'a dyn FrontEnd,
    /// State directory; None: the default one.
    pub state: Option<&'a Path>,
    /// Slots of this machine; None: its cores.
    pub slots: Option<u32>,
}

/// A machine of any size, on which files are checked. It has the stored files of another one.
pub(crate) struct AnyMachine<'a> {
    pub stored: Option<&'a dyn FrontEnd>,
}

impl JobMachines<'_> {
    /// No machine, without stored files.
    pub const NONE: JobMachines<'static> =
        JobMachines { front_end: &AnyMachine { stored: None }, state: None, slots: None };
}

impl FrontEnd for AnyMachine<'_> {
    fn resources(&self, memory_bytes: Option<u64>, slots: Option<u32>) -> anyhow::Result<(u64, u32)> {
        Ok((memory_bytes.unwrap_or(1 << 30), slots.unwrap_or(1)))
    }

    fn check_replaced(&self, _: &Path) -> anyhow::Result<()> {
        Ok(())
    }

    fn stored_inputs(&self, state_dir: &Path, name: &str, wanted: StoredUse) -> anyhow::Result<StoredInputs> {
        match self.stored.filter(|_| wanted == StoredUse::Listed) {
            Some(other) => other.stored_inputs(state_dir, name, wanted),
            None if wanted == StoredUse::Listed => Ok(StoredInputs::default()),
            None => bail!("{name} is a stored file: name a plain file"),
        }
    }

    fn seen_inputs(&self, path: &str) -> anyhow::Result<SeenInputs> {
        bail!("only some nodes see {path}: name a file that all nodes see")
    }

    fn stored_output(&self, _: &Path, name: &str, _: StoredShape) -> anyhow::Result<Option<PathBuf>> {
        bail!("{name} is a stored file: name a plain directory")
    }

    fn warn(&self, _: &str) {}
}
