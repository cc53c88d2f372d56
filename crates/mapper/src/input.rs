//! Inputs.
use std::path::PathBuf;
/// Why inputs are not usable.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("input {} does not exist", path.display())]
    Missing { path: PathBuf },
}
/// Lists inputs.
pub fn list(_args: &[String]) -> Result<Vec<api::InputFile>, InputError> {
    panic!("lands next")
}
