//! The end of the mapper's road: each pair goes to the appender, under the I-file its key belongs to. Under
//! range partitioning output is held until boundaries are fixed.

use crate::Shared;
use crate::failure::append_failure;
use crate::job_data::JobData;
use api::{Blame, Partitioning, SourceCommit, TaskFailure};
use iappender::{IAppender, Partitioner, choose_boundaries};
use ifile::KeyShape;
use ifile::record::{decode, encode};
use mapper::Emitter;

/// Held output at which the first mapper proposes boundaries (design section 3, "Which I-file").
const HELD_BYTES_MAX: usize = 1 << 20;

enum Route {
    Known(Partitioner),
    /// Encoded records that wait for boundaries.
    Held(Vec<u8>),
}

/// Sends pairs to I-files.
pub(crate) struct AppendEmitter<'a> {
    shared: &'a Shared,
    job: &'a JobData,
    appender: IAppender<'a>,
    route: Route,
}

impl<'a> AppendEmitter<'a> {
    pub fn new(shared: &'a Shared, job: &'a JobData, appender: IAppender<'a>) -> Self {
        let spec = &job.run.spec;
        let route = match (spec.partitioning, job.boundaries.get()) {
            (Partitioning::Hash | Partitioning::Partitions, _) => {
                Route::Known(Partitioner::Hash { ifile_count: spec.layout.ifile_count })
            }
            (Partitioning::Range, Some(known)) => Route::Known(Partitioner::range(known.clone())),
            (Partitioning::Range, None) => Route::Held(Vec::new()),
        };
        Self { shared, job, appender, route }
    }

    /// Sends what is left; gives back what was appended.
    pub fn finish(mut self) -> Result<Vec<SourceCommit>, TaskFailure> {
        if matches!(self.route, Route::Held(_)) {
            self.fix_boundaries()?;
        }
        self.appender.finish().map_err(|error| append_failure(&error))
    }

    /// Proposes boundaries from the held output, takes those that are fixed, and sends what was held.
    #[cold]
    fn fix_boundaries(&mut self) -> Result<(), TaskFailure> {
        let Route::Held(held) = &mut self.route else { return Ok(()) };
        let held = std::mem::take(held);
        let boundaries = match self.job.boundaries.get() {
            Some(known) => known.clone(),
            None => {
                let sample = records(&held).map(|(key, value)| (key, (key.len() + value.len()) as u64));
                let keys = choose_boundaries(sample.collect(), self.job.run.spec.layout.ifile_count);
                let fixed = self.shared.server.propose_boundaries(self.job.job, keys);
                let fixed = fixed.map_err(|error| {
                    TaskFailure::new(Blame::Environment, format!("cannot store range boundaries: {error}"))
                })?;
                self.job.boundaries.get_or_init(|| fixed).clone()
            }
        };
        let partitioner = Partitioner::range(boundaries);
        for (key, value) in records(&held) {
            let appended = self.appender.append(partitioner.ifile(key), key, value, key.len());
            appended.map_err(|error| append_failure(&error))?;
        }
        self.route = Route::Known(partitioner);
        Ok(())
    }
}

fn records(held: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = held;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let record = decode(KeyShape::Whole, rest).expect("held records were encoded by this emitter");
        rest = &rest[record.encoded.len()..];
        Some((record.key, record.value))
    })
}

impl Emitter for AppendEmitter<'_> {
    #[inline]
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        if (key.len() + value.len()) as u64 > self.job.run.spec.layout.record_bytes_max {
            return Err(too_large(self.job, key.len() + value.len()));
        }
        match &mut self.route {
            Route::Known(partitioner) => {
                let appended = self.appender.append(partitioner.ifile(key), key, value, key.len());
                appended.map_err(|error| append_failure(&error))
            }
            Route::Held(held) => {
                encode(KeyShape::Whole, key, value, key.len(), held);
                if held.len() >= HELD_BYTES_MAX { self.fix_boundaries() } else { Ok(()) }
            }
        }
    }
}

#[cold]
fn too_large(job: &JobData, bytes: usize) -> TaskFailure {
    let needed = bytes as u64 * 4;
    let message = format!(
        "the mapper put out a record of {bytes} bytes; with --memory {} a record may have {} bytes, and this \
         one needs at least {needed} bytes of memory",
        job.run.spec.memory_bytes, job.run.spec.layout.record_bytes_max,
    );
    TaskFailure::new(Blame::UserData, message)
}
