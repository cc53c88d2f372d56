//! Generic resources of nodes and jobs, by the numbers of their kinds in the scheduler.

use api::job::resources::GenericResources;
use scheduler::{Amount, Amounts};

/// Names of generic resources by the numbers of their kinds.
#[derive(Default)]
pub(crate) struct ResourceKinds(Vec<String>);

impl ResourceKinds {
    fn number(&mut self, name: &str) -> u32 {
        let known = self.0.iter().position(|each| each == name);
        let index = known.unwrap_or_else(|| {
            self.0.push(name.to_string());
            self.0.len() - 1
        });
        index as u32
    }

    /// Returns the amounts for the scheduler.
    pub fn amounts(&mut self, resources: &GenericResources) -> Amounts {
        Amounts::of(resources.iter().map(|(name, count)| Amount { kind: self.number(name), count }))
    }

    /// Returns the amounts under their names.
    pub fn named(&self, amounts: Amounts) -> GenericResources {
        let name = |kind: u32| self.0.get(kind as usize).cloned().unwrap_or_default();
        amounts.iter().map(|amount| (name(amount.kind), amount.count)).collect()
    }
}
