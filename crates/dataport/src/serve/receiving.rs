//! Turns of the receivers of copies of stage files.

use crate::wire::data_scope::DataScope;
use crate::wire::stage_name::StageFileName;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stage files whose copies are being received.
#[derive(Default)]
pub(crate) struct Receiving {
    files: Mutex<BTreeSet<(DataScope, StageFileName)>>,
}

/// The exclusive right to receive a file.
pub(crate) struct Turn {
    receiving: Arc<Receiving>,
    file: (DataScope, StageFileName),
}

impl Receiving {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<(DataScope, StageFileName)>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the right to receive a file; None while another request has it.
    pub fn turn(self: &Arc<Self>, of: DataScope, name: &StageFileName) -> Option<Turn> {
        let file = (of, name.clone());
        let is_free = self.lock().insert(file.clone());
        is_free.then(|| Turn { receiving: Arc::clone(self), file })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.receiving.lock().remove(&self.file);
    }
}
