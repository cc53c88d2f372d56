//! Reading a split.
use crate::function::RecordInput;
use api::{InputFile, Split, TaskFailure};
/// Limits of a reader.
#[derive(Clone, Copy, Debug)]
pub struct ReaderLimits {
    pub buffer_bytes: usize,
    pub record_bytes_max: u64,
}
/// Reads a split.
pub struct SplitReader {}
impl SplitReader {
    /// Opens.
    pub fn open(_inputs: &[InputFile], _split: &Split, _limits: ReaderLimits) -> Result<Self, TaskFailure> {
        panic!("lands next")
    }
    /// Bytes read so far, after decompression, without line ends that were added.
    pub fn bytes(&self) -> u64 {
        0
    }
    /// Lines read so far.
    pub fn records(&self) -> u64 {
        0
    }
}
impl RecordInput for SplitReader {
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        panic!("lands next")
    }
    fn position(&self, _: usize) -> String {
        String::new()
    }
}
