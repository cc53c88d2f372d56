use crate::fold::Fold;
use crate::function::*;
use crate::part::PartWriter;
use api::TaskFailure;
pub(crate) struct PairWriter;
pub(crate) struct ListReducer;
pub(crate) struct FoldReducer;
impl FoldReducer {
    pub(crate) fn new(_: Fold) -> Self {
        Self
    }
}
macro_rules! stub { ($($name:ident)*) => { $(impl ReduceFunction for $name {
    fn run(&mut self, _: &mut dyn GroupedRecords, _: &mut PartWriter) -> Result<ReduceCounts, TaskFailure> { panic!("lands next") }
})* } }
stub!(PairWriter ListReducer FoldReducer);
