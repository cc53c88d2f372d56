//! Calls that fail while chunks are spilled and runs are written: all that was acknowledged is there in the end, or the
//! error is that of the disk. Faults are named by the environment of a process, so each case is a process of its own.

use crate::job::{append, layout, merged, server, temporary_directory};
use api::{Codec, DataSum};
use chunkserver::ChunkServerError;
use iappender::AppendError;
use ids::IfileIndex;
use std::process::Command;

const FAULT_VARIABLE: &str = "SAILFISH_IO_FAULT";
/// Open chunks of so many I-files want more memory than there is: some of each goes to disk raw, and then into a run.
const IFILES: u32 = 8;
const RECORDS: u32 = 12_000;
/// Calls of one kind, at most: a walk that goes on longer does not end.
const CALLS_MAX: u32 = 300;
const SURVIVED: &str = "all is there";
const FAILED: &str = "failed, and said so: ";

/// Spills and reads in a chunkserver whose calls may fail. Returns [`SURVIVED`], or the failure behind [`FAILED`].
fn spill_and_read() -> String {
    let place = temporary_directory();
    let server = server(layout(IFILES, 64 << 10, 3), Codec::Lz4, place.path(), true);
    if let Err(error) = append(&server, 0, RECORDS) {
        assert!(matches!(error, AppendError::Spill { .. }), "{error:?}");
    }
    if let Err(error) = server.seal(&[]) {
        assert!(matches!(*error, ChunkServerError::Disk { .. }), "{error:?}");
        return format!("{FAILED}{}", error.to_failure().message);
    }
    let mut sum = DataSum::default();
    for ifile in (0..IFILES).map(IfileIndex) {
        for run in server.runs_of(&[ifile]) {
            sum.add(&merged(&[&run], None, None).expect("what was written can be read").sum);
        }
    }
    assert_eq!(sum.records, u64::from(RECORDS), "records that were acknowledged");
    SURVIVED.to_string()
}

/// The same in a process of its own, with a fault; what it printed.
fn in_a_process(fault: &str) -> String {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.args(["--exact", "failing::calls_that_fail_lose_nothing_unseen", "--nocapture"]);
    let output = command.env(FAULT_VARIABLE, fault).output().expect("a test can be started again");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{fault}: {said}");
    said
}

#[test]
fn calls_that_fail_lose_nothing_unseen() {
    if std::env::var_os(FAULT_VARIABLE).is_some() {
        println!("{}", spill_and_read());
        return;
    }
    assert_eq!(spill_and_read(), SURVIVED);
    for (kind, fault, ending) in
        [("create", "eio", ""), ("write", "eio", ""), ("create", "enospc", "+"), ("write", "enospc", "+")]
    {
        let (mut survived, mut failed) = (0, 0);
        for number in 1.. {
            assert!(number < CALLS_MAX, "{kind} calls have no end");
            let said = in_a_process(&format!("{kind}:{fault}:{number}{ending}"));
            if !said.contains("gets the planted fault") {
                break;
            }
            let cause = if fault == "eio" { "Input/output error" } else { "No space left on device" };
            let is_named = said.lines().any(|line| line.starts_with(FAILED) && line.contains(cause));
            assert!(is_named || said.contains(SURVIVED), "{said}");
            survived += u32::from(!is_named);
            failed += u32::from(is_named);
        }
        println!("{kind}:{fault}{ending}: {survived} survived, {failed} failed");
        assert!(survived + failed > 8);
    }
}
