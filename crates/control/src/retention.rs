//! Data that outlives its job: it is kept by nodes, checked, reduced again, and removed.

mod adopted;
pub(crate) mod checks;
mod keeping;
mod kept_check;

pub use checks::CheckBegin;
pub(crate) use checks::Checks;
pub use keeping::{DirInStore, FoundDirs};
pub(crate) use keeping::{announced, begin_keeping, drop_kept, found, keeper_lost, let_go};
pub use kept_check::KeptCheck;
