//! The end of the map side: each pair goes to the appender, under the I-file of its key. Under range partitioning
//! output is held until boundaries are fixed. If a job has its own order or partitions, pairs are encoded first; other
//! jobs skip this.

use crate::failure::append_failure;
use crate::job_data::JobData;
use crate::shared::Shared;
use api::{Blame, Partitioning, Split, TaskFailure};
use functions::Emitter;
use iappender::{Appended, IAppender, Partitioner, choose_boundaries};
use ids::IfileIndex;
use ifile::KeyShape;
use ifile::record::{Record, decode, encode, encode_separated};
use keys::{KeyEncoder, KeyError, Stored, ifile_of_partition};

/// Bytes of held output at which the first mapper proposes boundaries.
const HELD_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a key or value in a message.
const SHOWN_BYTES_MAX: usize = 80;

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

    /// Sends the rest. Returns the appended data.
    pub fn finish(mut self) -> Result<Appended, TaskFailure> {
        if matches!(self.route, Route::Held(_)) {
            self.fix_boundaries()?;
        }
        self.appender.finish().map_err(|error| append_failure(&error))
    }

    /// Proposes boundaries from the held output, takes the fixed ones, and sends the held output.
    #[cold]
    fn fix_boundaries(&mut self) -> Result<(), TaskFailure> {
        let Route::Held(held) = &mut self.route else { return Ok(()) };
        let held = std::mem::take(held);
        let boundaries = match self.job.boundaries.get() {
            Some(known) => known.clone(),
            None => {
                let sample = records(self.job.key_shape, &held)
                    .map(|record| (record.partition_key(), (record.key.len() + record.value.len()) as u64));
                let keys = choose_boundaries(sample.collect(), self.job.run.spec.layout.ifile_count);
                let fixed = self.shared.control.propose_boundaries(self.job.job, keys)?;
                self.job.boundaries.get_or_init(|| fixed).clone()
            }
        };
        let partitioner = Partitioner::range(boundaries);
        for record in records(self.job.key_shape, &held) {
            let ifile = partitioner.ifile(record.partition_key());
            let Record { key, value, partition_key_bytes, .. } = record;
            let appended = match record.is_separated() {
                false => self.appender.append(ifile, key, value, partition_key_bytes),
                true => self.appender.append_separated(ifile, key, value, partition_key_bytes),
            };
            appended.map_err(|error| append_failure(&error))?;
        }
        self.route = Route::Known(partitioner);
        Ok(())
    }

    /// Sends a record whose key is stored unchanged.
    #[inline]
    fn emit_plain(
        &mut self,
        key: &[u8],
        value: &[u8],
        partition_key_bytes: usize,
    ) -> Result<(), TaskFailure> {
        if (key.len() + value.len()) as u64 > self.job.run.spec.layout.record_bytes_max {
            return Err(too_large(self.job, key.len() + value.len()));
        }
        match &mut self.route {
            Route::Known(partitioner) => {
                let ifile = partitioner.ifile(&key[..partition_key_bytes]);
                self.append(ifile, key, value, partition_key_bytes)
            }
            Route::Held(held) => {
                encode(self.job.key_shape, key, value, partition_key_bytes, held);
                if held.len() >= HELD_BYTES_MAX { self.fix_boundaries() } else { Ok(()) }
            }
        }
    }

    /// Does the same for a record without a value whose line has a separator.
    #[cold]
    fn emit_plain_separated(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        if key.len() as u64 > self.job.run.spec.layout.record_bytes_max {
            return Err(too_large(self.job, key.len()));
        }
        match &mut self.route {
            Route::Known(partitioner) => {
                let ifile = partitioner.ifile(key);
                let appended = self.appender.append_separated(ifile, key, b"", key.len());
                appended.map_err(|error| append_failure(&error))
            }
            Route::Held(held) => {
                encode_separated(self.job.key_shape, key, b"", key.len(), held);
                if held.len() >= HELD_BYTES_MAX { self.fix_boundaries() } else { Ok(()) }
            }
        }
    }

    /// Sends a record with an encoded key.
    fn emit_stored(&mut self, stored: &Stored<'_>, is_separated: bool) -> Result<(), TaskFailure> {
        let layout = &self.job.run.spec.layout;
        let stored_bytes = stored.key.len() + stored.value.len();
        if stored_bytes as u64 > layout.record_bytes_max {
            return Err(too_large(self.job, stored_bytes));
        }
        let partition_key = &stored.key[..stored.partition_key_bytes];
        let ifile = match (stored.partition, &mut self.route, self.job.partition_count()) {
            (Some(partition), _, Some(count)) => ifile_of_partition(partition, count, layout.ifile_count),
            (_, Route::Known(partitioner), _) => partitioner.ifile(partition_key),
            (_, Route::Held(held), _) => {
                let encode = if is_separated { encode_separated } else { encode };
                encode(self.job.key_shape, stored.key, stored.value, stored.partition_key_bytes, held);
                return if held.len() >= HELD_BYTES_MAX { self.fix_boundaries() } else { Ok(()) };
            }
        };
        if !is_separated {
            return self.append(ifile, stored.key, stored.value, stored.partition_key_bytes);
        }
        let Stored { key, value, partition_key_bytes, .. } = *stored;
        let appended = self.appender.append_separated(ifile, key, value, partition_key_bytes);
        appended.map_err(|error| append_failure(&error))
    }

    #[inline]
    fn append(
        &mut self,
        ifile: IfileIndex,
        key: &[u8],
        value: &[u8],
        partition_key_bytes: usize,
    ) -> Result<(), TaskFailure> {
        let appended = self.appender.append(ifile, key, value, partition_key_bytes);
        appended.map_err(|error| append_failure(&error))
    }
}

fn records(shape: KeyShape, held: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = held;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let record = decode(shape, rest).expect("held records were encoded by this emitter");
        rest = &rest[record.encoded.len()..];
        Some(record)
    })
}

impl Emitter for AppendEmitter<'_> {
    #[inline]
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        // If keys have tails, a key without an explicit one has none.
        self.emit_plain(key, value, key.len())
    }

    fn emit_separated(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        self.emit_plain_separated(key)
    }

    fn emit_with_tail(
        &mut self,
        key: &[u8],
        value: &[u8],
        partition_key_bytes: usize,
    ) -> Result<(), TaskFailure> {
        match self.job.run.spec.keys.tails {
            true => self.emit_plain(key, value, partition_key_bytes),
            false => Err(functions::no_tails()),
        }
    }
}

/// Encodes pairs before an [`AppendEmitter`], for jobs with their own order or partitions.
pub(crate) struct EncodingEmitter<'a, 'b> {
    encoder: KeyEncoder,
    inner: &'b mut AppendEmitter<'a>,
    /// Input of the attempt, for messages.
    split: &'b Split,
}

impl<'a, 'b> EncodingEmitter<'a, 'b> {
    pub fn new(encoder: KeyEncoder, inner: &'b mut AppendEmitter<'a>, split: &'b Split) -> Self {
        Self { encoder, inner, split }
    }

    #[cold]
    fn no_place_in_order(&self, error: &KeyError, key: &[u8], value: &[u8]) -> TaskFailure {
        let mut message =
            format!("{error}, in the record with key {} and value {}", shown(key), shown(value));
        let inputs = &self.inner.job.run.spec.inputs;
        if let Some(segment) = self.split.segments.first()
            && let Some(file) = inputs.get(segment.file_index as usize)
        {
            let path = file.path.display();
            message.push_str(&format!(", made from {path} from byte {} on", segment.offset_bytes));
        }
        message.push_str(": keys are ordered by number here; leave such records out, or order by bytes");
        TaskFailure::new(Blame::UserData, message)
    }
}

impl Emitter for EncodingEmitter<'_, '_> {
    #[inline]
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        match self.encoder.encode(key, value) {
            Ok(stored) => self.inner.emit_stored(&stored, false),
            Err(error) => Err(self.no_place_in_order(&error, key, value)),
        }
    }

    fn emit_separated(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        match self.encoder.encode(key, b"") {
            Ok(stored) => self.inner.emit_stored(&stored, true),
            Err(error) => Err(self.no_place_in_order(&error, key, b"")),
        }
    }
}

/// Formats bytes of a record for a message, truncated if they are long.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let more = if cut.len() < bytes.len() { "…" } else { "" };
    format!("{:?}{more}", String::from_utf8_lossy(cut))
}

#[cold]
fn too_large(job: &JobData, bytes: usize) -> TaskFailure {
    let needed = bytes as u64 * 4;
    let message = format!(
        "the mapper wrote a record of {bytes} bytes; with --memory {} a record may have {} bytes, and this \
         one needs at least {needed} bytes of memory",
        job.run.spec.memory_bytes, job.run.spec.layout.record_bytes_max,
    );
    TaskFailure::new(Blame::UserData, message)
}
