//! Limits of a program and its children: by control groups where this user may make them, else measured.

use crate::slot::{Slot, read_line, start_limited};
use containment::{Containment, ProcessLimits, UnlinkedFiles, Usage};

const MIB: u64 = 1 << 20;

/// Waits until the script says that it has what it wants, or is ended; returns what it uses, or ran into.
fn usage(slot: &Slot, script: &str, limits: ProcessLimits) -> Usage {
    let mut program = start_limited(&slot.init, script, limits);
    read_line(&mut program.output);
    let usage = slot.init.usage(UnlinkedFiles::Counted).unwrap();
    assert!(slot.init.end_others(None).unwrap());
    usage
}

#[test]
fn memory_is_limited_by_kernel_or_measured() {
    let script =
        "python3 -c 'b = bytearray(b\"x\") * (150 << 20); print(1, flush=True); input()' < /dev/zero; echo";
    for containment in [Containment::Namespaces, Containment::Subreaper] {
        let slot = Slot::new(containment);
        // Raised, lowered, and none in between.
        let limits = [Some(100), Some(400), None, Some(120), Some(90)];
        let seen = limits.map(|limit| {
            let memory_bytes = limit.map(|limit| limit * MIB);
            usage(&slot, script, ProcessLimits { memory_bytes, ..ProcessLimits::default() })
        });
        let [low, high, none, ..] = seen;
        assert!(
            none.memory_bytes > 150 * MIB && !none.ended_for_memory && !high.ended_for_memory,
            "{seen:?}"
        );
        let is_enforced = low.ended_for_memory;
        for (limit, usage) in limits.into_iter().zip(seen) {
            let is_low = limit.is_some_and(|limit| limit < 150);
            assert_eq!(usage.ended_for_memory, is_low && is_enforced, "{limit:?}: {seen:?}");
            assert!(is_enforced || usage.memory_bytes > 150 * MIB, "{limit:?}: {seen:?}");
        }
        println!("memory in {containment:?} is enforced by the kernel: {is_enforced}");
    }
}

#[test]
fn processes_are_limited_by_kernel_or_counted() {
    let script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 60 > /dev/null & done; echo; exec sleep 60";
    for containment in [Containment::Namespaces, Containment::Subreaper] {
        let slot = Slot::new(containment);
        let limited =
            |processes| usage(&slot, script, ProcessLimits { processes, ..ProcessLimits::default() });
        let (few, none, many) = (limited(Some(5)), limited(None), limited(Some(50)));
        assert_eq!((none.processes, none.refused_processes, many.refused_processes), (10, false, false));
        assert!(few.refused_processes || few.processes == 10, "{few:?}");
        println!("processes in {containment:?} are limited by the kernel: {}", few.refused_processes);
    }
}

#[test]
fn unlinked_files_are_counted_once() {
    let slot = Slot::new(Containment::Subreaper);
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "cd {}; head -c 3000000 /dev/zero > f; exec 3< f 4< f; rm f; sleep 60 & echo; wait",
        dir.path().display()
    );
    let used = usage(&slot, &script, ProcessLimits::default());
    assert!((3_000_000..3_100_000).contains(&used.unlinked_bytes), "{used:?}");
}
