//! The namespaces of a job: the next one finds nothing of it.

use crate::slot::{Slot, start};
use containment::{Containment, JobFiles, Space};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn next_job(slot: &Slot) -> Space {
    slot.init.new_job(JobFiles::default()).unwrap()
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

#[test]
fn next_job_finds_nothing_of_the_last() {
    let slot = Slot::new(Containment::Namespaces);
    let look = "ls -A /tmp /run /dev/shm | tr '\\n' ' '; tail -qn +2 /proc/sysvipc/*; pgrep sleep";
    let first = slot.run(look).1;
    for leave in [
        "echo x > /tmp/left",
        "mkdir -p /dev/shm/a/b",
        "echo x > /run/left",
        "chmod 700 /tmp",
        "ipcmk -M 4096",
        "ipcmk -Q",
        "ipcmk -S 3",
        "python3 -c 'import ctypes; c = ctypes.CDLL(None, use_errno=True); assert c.mq_open(b\"/left\", 0x40, 0o600, None) > 0'",
        "setsid sleep 3600 > /dev/null &",
    ] {
        assert!(slot.run(leave).0.success(), "{leave}");
        slot.init.end_others(None).unwrap();
        // The next attempt of the job still finds the files, as on any machine.
        let changed = !["sleep", "chmod", "mq_open"].iter().any(|word| leave.contains(word));
        assert_eq!(slot.run(look).1 != first, changed, "{leave}");
        let space = next_job(&slot);
        assert_eq!(space == Space::New, !leave.contains("sleep"), "{leave}");
        assert_eq!(slot.run(look).1, first, "{leave}");
        assert_eq!(slot.run("stat -c %a /tmp").1, "1777\n", "{leave}");
    }
}

#[test]
fn job_that_leaves_nothing_hands_on_its_namespaces() {
    let slot = Slot::new(Containment::Namespaces);
    for _ in 0..3 {
        assert!(slot.run("true").0.success());
        assert_eq!(next_job(&slot), Space::Unchanged);
    }
    assert!(slot.run("mount --bind /usr /opt 2>/dev/null || echo x > /tmp/x").0.success());
    assert_eq!(next_job(&slot), Space::New);
}

#[test]
fn filled_memory_is_free_for_the_next_job() {
    let slot = Slot::new(Containment::Namespaces);
    let used = "df --output=used /dev/shm | tail -n 1 | tr -d ' '";
    let fill = "exec 3> /dev/shm/kept; rm /dev/shm/kept; head -c 64M /dev/zero | tee /dev/shm/filled >&3; setsid sleep 3600 > /dev/null &";
    assert!(slot.run(&format!("{fill} {used} >&2")).0.success());
    assert_eq!(next_job(&slot), Space::New);
    assert_eq!(slot.run(used).1, "0\n");
}

#[test]
fn named_files_stay_visible_and_others_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen/deep");
    std::fs::create_dir_all(&seen).unwrap();
    for path in [seen.join("a"), dir.path().join("single"), dir.path().join("hidden")] {
        std::fs::write(path, "text").unwrap();
    }
    let temporary = tempfile::tempdir().unwrap();
    let slot = Slot::new(Containment::Namespaces);
    let visible = vec![bytes(&seen), bytes(&dir.path().join("single")), bytes(&dir.path().join("missing"))];
    slot.init.new_job(JobFiles { temporary: Some(bytes(temporary.path())), visible }).unwrap();
    let script = format!(
        "cd {}; find . -type f | sort | tr '\\n' ' '; echo out > seen/deep/out; echo own > /tmp/own; cat single",
        dir.path().display()
    );
    let mut program = start(&slot.init, &script);
    let mut text = String::new();
    program.output.read_to_string(&mut text).unwrap();
    assert_eq!(text, "./seen/deep/a ./single text");
    assert_eq!(std::fs::read_to_string(seen.join("out")).unwrap(), "out\n");
    assert_eq!(std::fs::read_to_string(temporary.path().join("own")).unwrap(), "own\n");
    assert!(!Path::new("/tmp/own").exists());
}

#[test]
fn numbers_of_processes_begin_anywhere() {
    let numbers: Vec<String> = (0..3).map(|_| Slot::new(Containment::Namespaces).run("echo $$").1).collect();
    assert!(numbers.iter().any(|number| *number != numbers[0]), "{numbers:?}");
}
