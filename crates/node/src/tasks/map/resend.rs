//! Resending: a map task whose lost data is in a spool appends the frames again, without the user's program.

use crate::failure::append_failure;
use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::shuffle::stage_files::{StageFileAt, StageRead};
use crate::slots::meters::{Meter, MeteredChunks};
use crate::slots::state::SlotState;
use api::task::{MapAgain, MapResult, Resend, Spool};
use api::{Blame, DataSum, TaskFailure};
use dataport::{AnyStageFile, StageReadError};
use iappender::{ChunkService, IAppender};
use ids::{AttemptKey, IfileIndex, Source};
use ifile::frame::FrameRecords;
use ifile::record::RecordHeader;
use ifile::spool::{SpoolError, SpoolFrames, SpoolOf};
use ifile::{FormatError, FrameHeader};
use stagefile::Payload;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A task that resends, and its attempt.
pub(crate) struct Resending<'a> {
    pub shared: &'a Shared,
    pub job: &'a AttemptData,
    pub attempt: AttemptKey,
    pub again: &'a MapAgain,
    pub resend: &'a Resend,
}

pub(crate) enum Resent {
    Done(Box<MapResult>),
    /// The spool is lost or damaged: nothing was appended, and the user's program must run.
    NotReadable(String),
}

/// The reason why a spool cannot be sent again.
#[derive(Debug, thiserror::Error)]
enum ResendError {
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("its data differs from the commits")]
    OtherData,
    /// It cannot be opened, or the receiver of the frames has failed.
    #[error("{}", .0.message)]
    Failed(TaskFailure),
}

/// Reads the spool twice: first to verify that all lost data is there as committed, because appended frames cannot be
/// taken back.
pub(crate) fn run(of: &Resending<'_>, state: &mut SlotState) -> Result<Resent, TaskFailure> {
    let metering = of.shared.meters.begin(of.attempt, 2 * of.resend.spool.bytes);
    if let Err(error) = of.check(&metering.meter) {
        return of.unreadable(&error);
    }
    let appended = of.append(state, &metering.meter)?;
    let resent_bytes = appended.commits.iter().map(|commit| commit.sum.bytes).sum();
    let stands = |(ifile, _): &&(IfileIndex, DataSum)| !of.again.ifiles.contains(ifile);
    Ok(Resent::Done(Box::new(MapResult {
        commits: appended.commits,
        // These are valid as committed.
        withheld: of.again.expected.iter().filter(stands).copied().collect(),
        spool: Some(of.resend.spool.clone()),
        resent_bytes,
        ..of.resend.told.clone()
    })))
}

impl Resending<'_> {
    fn spool(&self) -> &Spool {
        &self.resend.spool
    }

    fn is_lost(&self, ifile: IfileIndex) -> bool {
        self.again.ifiles.binary_search(&ifile).is_ok()
    }

    /// Checks that the spool holds the data that was committed to the damaged I-files.
    fn check(&self, meter: &Meter) -> Result<(), ResendError> {
        let mut sums: BTreeMap<IfileIndex, DataSum> = BTreeMap::new();
        self.read(meter, 0, |header, _| {
            if self.is_lost(header.ifile) {
                sums.entry(header.ifile).or_default().add(&header.sum);
            }
            Ok(())
        })?;
        sums.retain(|_, sum| sum.records > 0);
        let lost = self.again.expected.iter().filter(|(ifile, _)| self.is_lost(*ifile)).copied();
        match sums == lost.collect::<BTreeMap<_, _>>() {
            true => Ok(()),
            false => Err(ResendError::OtherData),
        }
    }

    fn append(&self, state: &mut SlotState, meter: &Meter) -> Result<iappender::Appended, TaskFailure> {
        let (job, here) = (self.job, self.shared.control.node());
        let (chunkserver, layout) = (job.chunkserver()?, &job.run.spec.layout);
        let source = Source { map_task: self.attempt.task.task, attempt: self.attempt.attempt };
        let spread;
        let service = match self.shared.other_nodes(job.job) {
            Some(others) => {
                // Not on the node of the spool, so that the data is on two nodes again.
                let with_spool = self.spool().node;
                spread = others.away_from(with_spool).chunks(
                    job,
                    source,
                    Arc::clone(&chunkserver),
                    Some(with_spool),
                );
                &spread as &dyn ChunkService
            }
            None => chunkserver.service(),
        };
        let metered = MeteredChunks::new(service, meter, here);
        let mut appender =
            IAppender::new(&metered, &mut state.slabs, source, job.key_shape, layout.ifile_count);
        let read = self.read(meter, self.spool().bytes, |header, payload| {
            if !self.is_lost(header.ifile) {
                return Ok(());
            }
            for record in FrameRecords::new(header.key_shape, payload) {
                let why = |error: FormatError| self.why(&SpoolError::from(error).into());
                let (_, record) = record.map_err(|error| TaskFailure::new(Blame::Engine, why(error)))?;
                let appended =
                    appender.append(header.ifile, record.key, record.value, record.partition_key_bytes);
                appended.map_err(|error| append_failure(&error))?;
            }
            Ok(())
        });
        // It was readable a moment ago. The data that this attempt appended does not count, and the next one checks
        // again.
        read.map_err(|error| match self.stopped(&error) {
            Some(failure) => failure,
            None => TaskFailure::new(Blame::Environment, self.why(&error)),
        })?;
        appender.finish().map_err(|error| append_failure(&error))
    }

    /// Passes all frames to `show`; `done` bytes were read before.
    fn read(
        &self,
        meter: &Meter,
        done: u64,
        mut show: impl FnMut(&FrameHeader, &[u8]) -> Result<(), TaskFailure>,
    ) -> Result<(), ResendError> {
        let layout = &self.job.run.spec.layout;
        let of = SpoolOf {
            source: Source { map_task: self.attempt.task.task, attempt: self.spool().attempt },
            key_shape: self.job.key_shape,
            payload_bytes_max: layout
                .chunk_bytes
                .max(layout.record_bytes_max + RecordHeader::BYTES_MAX as u64),
        };
        if of.source.attempt >= self.attempt.attempt
            || self.again.ifiles.iter().any(|ifile| ifile.0 >= layout.ifile_count)
        {
            return Err(ResendError::OtherData);
        }
        let mut frames = SpoolFrames::new(of, self.open().map_err(ResendError::Failed)?);
        let mut bytes = done;
        while let Some((header, payload)) = frames.next_frame()? {
            if self.job.cancelled.load(Ordering::Relaxed) {
                let failure = TaskFailure::new(Blame::Cancelled, "the attempt was cancelled");
                return Err(ResendError::Failed(failure));
            }
            bytes += payload.len() as u64;
            meter.has_done(bytes);
            show(&header, payload).map_err(ResendError::Failed)?;
        }
        Ok(())
    }

    fn open(&self) -> Result<AnyStageFile, TaskFailure> {
        let spool = self.spool();
        let payload = Payload { bytes: spool.bytes, crc32c: spool.crc32c };
        let at = StageFileAt { name: spool.name.clone(), payload, home: spool.node, replica: None };
        let others = self.shared.other_nodes(self.job.job);
        let read = StageRead {
            job: self.job.job,
            here: self.shared.control.node(),
            others: others.as_ref(),
            offset: 0,
            length: spool.bytes,
            // Two windows are in memory if the data comes from another node.
            window_bytes: self.job.object_buffer_bytes() / 2,
            cancelled: &self.job.cancelled,
        };
        self.job.stage_files.open(&at, &read)
    }

    /// Returns the failure of an attempt that was told to stop meanwhile.
    fn stopped(&self, error: &ResendError) -> Option<TaskFailure> {
        match error {
            ResendError::Failed(failure) => Some(failure.clone()),
            ResendError::Spool(SpoolError::Read(error)) => match StageReadError::of(error) {
                Some(cancelled @ StageReadError::Cancelled) => Some(cancelled.to_failure()),
                _ => None,
            },
            _ => None,
        }
    }

    fn why(&self, error: &ResendError) -> String {
        let spool = self.spool();
        format!("{} on {}: {error}", spool.name, spool.node)
    }

    fn unreadable(&self, error: &ResendError) -> Result<Resent, TaskFailure> {
        match self.stopped(error) {
            Some(failure) if failure.blame == Blame::Cancelled => Err(failure),
            _ => Ok(Resent::NotReadable(self.why(error))),
        }
    }
}
