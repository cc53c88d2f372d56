//! The list of kinds, and specifications that are read by it.

use crate::{EarlyStep, FinishedSteps, KnownRuns, NodeSize, PriorRuns, RunMemory, Step, StepPlanner};
use api::JsonText;
use ids::StepNumber;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Kinds of jobs by their names.
#[derive(Clone, Default)]
pub struct Kinds {
    readers: BTreeMap<&'static str, Reader>,
}

type Reader = fn(&JsonText) -> Result<Arc<dyn StepPlan>, KindError>;

/// A specification that its kind accepts.
pub trait StepPlan: Send + Sync {
    /// Returns the steps that need no other step.
    fn first(&self, size: NodeSize) -> Vec<Step>;

    /// Returns the steps that may begin now: see [`StepPlanner::next`].
    fn next(&self, finished: &FinishedSteps<'_>, size: NodeSize) -> Vec<Step>;

    /// Returns the steps that may begin while these run: see [`StepPlanner::early`].
    fn early(&self, _: &[StepNumber], _: &FinishedSteps<'_>, _: NodeSize) -> Vec<EarlyStep> {
        Vec::new()
    }

    /// Returns the memory of finished runs, for a kind that has one.
    fn memory(&self) -> Option<&dyn RunMemory> {
        None
    }

    /// Returns the files that the steps write: see [`StepPlanner::writes`].
    fn writes(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the ranks of the steps: see [`StepPlanner::ranks`].
    fn ranks(&self, _: &KnownRuns) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the plan with facts of earlier jobs, if it depends on them: see [`StepPlanner::with_prior`].
    fn with_prior(&self, _: &PriorRuns) -> Option<Arc<dyn StepPlan>> {
        None
    }
}

/// The reason why a job of a kind is refused. Always the fault of its user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    #[error("there is no kind of job {name:?}: the kinds are {known}")]
    Unknown { name: String, known: String },
    #[error("the specification of the {kind} cannot be read: {reason}")]
    Unreadable { kind: &'static str, reason: String },
    #[error("the {kind} cannot run: {reason}")]
    Refused { kind: &'static str, reason: String },
}

impl Kinds {
    /// Adds a kind. One with the same name is replaced.
    pub fn with<K: StepPlanner>(mut self) -> Self {
        self.readers.insert(K::NAME, read::<K>);
        self
    }

    /// Returns the names of all kinds, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.readers.keys().copied()
    }

    /// Reads and checks the specification of a job.
    pub fn read(&self, name: &str, spec: &JsonText) -> Result<Arc<dyn StepPlan>, KindError> {
        let unknown = || {
            let known = self.names().collect::<Vec<_>>().join(", ");
            KindError::Unknown { name: name.to_string(), known }
        };
        self.readers.get(name).ok_or_else(unknown)?(spec)
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

struct Checked<K: StepPlanner>(K::Spec);

impl<K: StepPlanner> StepPlan for Checked<K> {
    fn first(&self, size: NodeSize) -> Vec<Step> {
        K::plan(&self.0, size)
    }

    fn next(&self, finished: &FinishedSteps<'_>, size: NodeSize) -> Vec<Step> {
        K::next(&self.0, finished, size)
    }

    fn early(&self, running: &[StepNumber], finished: &FinishedSteps<'_>, size: NodeSize) -> Vec<EarlyStep> {
        K::early(&self.0, running, finished, size)
    }

    fn memory(&self) -> Option<&dyn RunMemory> {
        K::memory(&self.0)
    }

    fn writes(&self) -> Vec<PathBuf> {
        K::writes(&self.0)
    }

    fn ranks(&self, known: &KnownRuns) -> Vec<u64> {
        K::ranks(&self.0, known)
    }

    fn with_prior(&self, prior: &PriorRuns) -> Option<Arc<dyn StepPlan>> {
        K::with_prior(&self.0, prior).map(|spec| Arc::new(Checked::<K>(spec)) as Arc<dyn StepPlan>)
    }
}

fn read<K: StepPlanner>(spec: &JsonText) -> Result<Arc<dyn StepPlan>, KindError> {
    let spec = K::read(spec);
    let spec = spec.map_err(|error| KindError::Unreadable { kind: K::NAME, reason: error.to_string() })?;
    K::check(&spec).map_err(|reason| KindError::Refused { kind: K::NAME, reason })?;
    Ok(Arc::new(Checked::<K>(spec)))
}

#[cfg(test)]
mod tests {
    use super::{KindError, Kinds};
    use crate::{FinishedSteps, NodeSize, Step, StepPlanner};
    use api::JsonText;

    struct Even;

    impl StepPlanner for Even {
        type Spec = u32;
        const NAME: &'static str = "even";

        fn check(spec: &u32) -> Result<(), String> {
            if spec.is_multiple_of(2) { Ok(()) } else { Err(format!("{spec} is odd")) }
        }

        fn plan(_: &u32, _: NodeSize) -> Vec<Step> {
            Vec::new()
        }

        fn next(_: &u32, _: &FinishedSteps<'_>, _: NodeSize) -> Vec<Step> {
            Vec::new()
        }
    }

    #[test]
    fn refusals_name_the_kind() {
        let kinds = Kinds::default().with::<Even>();
        let error = |name: &str, spec: u32| {
            kinds.read(name, &JsonText::of(&spec).unwrap()).err().map(|error| error.to_string())
        };
        assert_eq!(error("even", 4), None);
        assert_eq!(error("even", 5).as_deref(), Some("the even cannot run: 5 is odd"));
        assert!(matches!(
            kinds.read("even", &JsonText::of(&"x").unwrap()).err(),
            Some(KindError::Unreadable { kind: "even", .. })
        ));
        let unknown = "there is no kind of job \"odd\": the kinds are even";
        assert_eq!(error("odd", 4).as_deref(), Some(unknown));
    }
}
