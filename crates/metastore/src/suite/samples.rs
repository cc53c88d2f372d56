//! Rows of made-up jobs, for all parts of the suite.

use crate::{Change, Metastore};
use api::task::SealTask;
use api::{Codec, JobSpec, Layout, Task};
use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, StageKind, TaskIndex, TaskKey};
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) fn spec() -> JobSpec {
    JobSpec {
        output: PathBuf::from("/out"),
        codec: Codec::Lz4,
        memory_bytes: 1 << 30,
        slots: 2,
        disks: vec![PathBuf::from("/disk")],
        sync: true,
        layout: Layout {
            ifile_count: 4,
            chunk_bytes: 1 << 27,
            frame_bytes: 1 << 18,
            block_bytes: 1 << 16,
            record_bytes_max: 1 << 28,
            combine_window_bytes: 0,
            split_bytes: 1 << 20,
            chunk_share_bytes: 1 << 29,
            sort_share_bytes: 1 << 28,
            io_share_bytes: 1 << 27,
        },
        ..JobSpec::named("a job")
    }
}

pub(super) fn seal() -> Task {
    Task::Seal(SealTask::default())
}

pub(super) fn owner(uuid: &str) -> Change {
    Change::OwnerStarted { uuid: uuid.to_string(), pid: 7, now_ns: 1 }
}

pub(super) fn submitted(job: JobId, uuid: &str) -> Change {
    Change::JobSubmitted {
        job,
        owner: uuid.to_string(),
        spec: Arc::new(spec()),
        stages: vec![StageKind::Map, StageKind::Seal],
        staging: PathBuf::from("/.out"),
        disk_dirs: vec![PathBuf::from("/disk/job")],
        user: Some("ann".to_string()),
        priority: -3,
        waits: false,
        step_of: None,
        now_ns: 2,
    }
}

pub(super) fn attempt(job: JobId, stage: u16, task: u32, number: u32) -> AttemptKey {
    let task = TaskKey { job, stage: StageIndex(stage), task: TaskIndex(task) };
    AttemptKey { task, attempt: AttemptNumber(number) }
}

pub(super) async fn new_job(store: &Metastore) -> JobId {
    let job = store.reserve_job_id().await.unwrap();
    store.apply(&[owner("me"), submitted(job, "me")]).await.unwrap();
    job
}
