//! Chunks are on two nodes in time, and that costs the job little: at the size of the paper, and the same each time.

use sim::{Copies, Copying, Racks, copies};

/// Two racks of five nodes and a small job.
fn small(copying: Copying) -> Racks {
    Racks {
        racks: 2,
        nodes_per_rack: 5,
        memory_bytes: 1280 << 20,
        input_bytes_per_node: 500_000_000,
        copying,
        ..Racks::of_the_paper(100e6, 400.0)
    }
}

/// ISS, Figures 22 and 23.
fn check_window(link_bits_per_second: f64, shuffled_share_min: f64) -> Copies {
    let seen = copies(Racks::of_the_paper(link_bits_per_second, 400.0));
    println!(
        "{} runs; maps ended at {:.0} s, the job at {:.0} s; on one node only for {:.1} s (median), {:.1} s at most",
        seen.runs,
        seen.maps_end_s,
        seen.job_s,
        seen.single_s(0.5),
        seen.single_s(1.0)
    );
    assert_eq!(seen.share_copied(seen.job_s), 1.0);
    assert_eq!(seen.copied_s.len(), seen.runs, "each once");
    let share = seen.share_copied(seen.maps_end_s);
    assert!(share >= shuffled_share_min, "{share} of the runs when the last record was appended");
    seen
}

#[test]
fn chunks_have_two_copies_before_reduces_end() {
    let slow = check_window(100e6, 0.5);
    let fast = check_window(1e9, 0.9);
    assert!(fast.single_s(0.5) < slow.single_s(0.5));
}

#[test]
fn replicas_move_only_the_necessary_bytes() {
    let none = copies(small(Copying::None));
    let input_bytes = 10.0 * small(Copying::None).input_bytes_per_node as f64;
    assert_eq!((none.copied_bytes, none.copied_s.len()), (0.0, 0));
    for (copying, copied_bytes) in
        [(Copying::Read, 0.0), (Copying::ReadAndSend, input_bytes), (Copying::Full, input_bytes)]
    {
        let seen = copies(small(copying));
        println!("{copying:?}: {:.1} s of {:.1} s", seen.job_s, none.job_s);
        assert!((seen.copied_bytes - copied_bytes).abs() <= 0.01 * input_bytes, "{copying:?}");
        assert!(seen.job_s <= 1.15 * none.job_s, "{copying:?}");
        // Who writes no replicas writes the runs that they would be made of all the same.
        assert!(seen.written_bytes >= none.written_bytes, "{copying:?}");
    }
}

#[test]
fn job_on_racks_is_reproducible() {
    assert_eq!(copies(small(Copying::Full)), copies(small(Copying::Full)));
}
