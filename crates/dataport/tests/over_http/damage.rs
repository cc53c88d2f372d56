//! Streams that are cut or altered at every place give an error or exactly the right records.

use crate::cluster::Cluster;
use crate::model::{self, Case};
use crate::reading;
use std::sync::atomic::Ordering;

#[test]
fn altered_answer_is_an_error_or_harmless() {
    for keep in [false, true] {
        let case = Case { keep, ..Case::plain() };
        let cluster = Cluster::start(&case);
        let outcome = model::run(&case, &cluster);
        cluster.seal();
        let range = (Some(&[0, 0, 0, 20][..]), Some(&[0, 0, 0, 90][..]));
        let expected = case.expected(&outcome, range);
        assert!(!expected.is_empty());
        let mut errors = 0;
        for byte in (0..6000).step_by(37) {
            cluster.nodes[1].line.state.flip_at.store(byte, Ordering::Relaxed);
            match reading::read(&cluster, &outcome, 0, range) {
                // The date in the head of the answer, or a byte behind its end.
                Ok((records, _)) => assert!(records == expected, "byte {byte} made a change"),
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 20, "{errors} of the alterations were noticed");
    }
}

#[test]
fn damaged_run_of_another_node_is_an_error() {
    let case = Case { keep: true, ..Case::plain() };
    let cluster = Cluster::start(&case);
    let outcome = model::run(&case, &cluster);
    cluster.seal();
    let all = [ids::IfileIndex(0), ids::IfileIndex(1)];
    let mut damaged = 0;
    for run in cluster.nodes[1].served.server().runs_of(&all) {
        let path = run.path().expect("kept runs are on disk");
        let mut bytes = std::fs::read(path).expect("a run file");
        bytes[200] ^= 1;
        std::fs::write(path, bytes).expect("written");
        damaged += 1;
    }
    assert!(damaged > 0);
    let read = reading::read(&cluster, &outcome, 0, (None, None));
    let error = read.expect_err("the damage was not noticed");
    assert!(error.to_failure().message.contains("damaged"), "{error}");
}
