//! Accounts of a job: what its attempts used, whatever their end.

use crate::interface::{Ended, Outbox};
use crate::job::Job;
use api::Task;
use api::kept::KeptPlace;
use ids::AttemptKey;
use rows::{Change, UsageSums};

impl Job {
    /// Adds what an attempt used to the accounts of its user. An attempt that never ran used nothing.
    pub(crate) fn account(&self, ended: &Ended, outbox: &mut Outbox) {
        let Some(used) = ended.used else { return };
        let took_ns = ended.ended_ns.saturating_sub(ended.started_ns);
        self.used(UsageSums::attempt(used, self.claimed_bytes(ended.attempt), took_ns), outbox);
    }

    /// Adds I-files that stay after the job.
    pub(crate) fn account_kept(&self, places: &[KeptPlace], outbox: &mut Outbox) {
        let kept_bytes = places.iter().map(|place| place.dir.bytes).fold(0, u64::saturating_add);
        if kept_bytes > 0 {
            self.used(UsageSums { kept_bytes, ..UsageSums::default() }, outbox);
        }
    }

    fn used(&self, sums: UsageSums, outbox: &mut Outbox) {
        let (user, sums) = (self.owner().name.to_string(), Box::new(sums));
        outbox.write(Change::Used { job: self.id(), user, sums, now_ns: outbox.now_ns() });
    }

    /// Returns the memory that others cannot use because of an attempt: the claim of a program, or its slot's share of
    /// the memory of its job.
    fn claimed_bytes(&self, attempt: AttemptKey) -> u64 {
        let spec = self.spec();
        match (spec.kind.program(), self.task(attempt)) {
            (Some(program), _) => program.memory_bytes,
            (None, Some(Task::Run(program))) => program.memory_bytes,
            (None, _) => spec.memory_bytes / u64::from(spec.slots.max(1)),
        }
    }
}
