//! The life of processes below an init: nothing outlives its attempt, its slot or its engine.

use crate::slot::{Slot, mark, read_line, spawner_and_init, start, wait_until, with_argument};
use containment::{Containment, HoldersThen};
use rustix::process::{Pid, Signal};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;

const BOTH: [Containment; 2] = [Containment::Subreaper, Containment::Namespaces];

/// A script that leaves a process with this argument behind: in its own session, orphaned, deaf to SIGTERM.
fn leaves(mark: &str) -> String {
    format!("(setsid sh -c 'trap \"\" TERM HUP INT; echo up; while :; do sleep 1; done' sh {mark} &) ; :")
}

fn kill(pid: i32) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn exit_codes_and_signals_are_those_of_programs() {
    for containment in BOTH {
        let slot = Slot::new(containment);
        assert_eq!(slot.run("exit 7").0.code(), Some(7), "{containment:?}");
        for signal in [Signal::TERM, Signal::KILL, Signal::SEGV, Signal::PIPE] {
            let (status, _) = slot.run(&format!("ulimit -c 0; kill -{} $$", signal.as_raw()));
            assert_eq!(status.signal(), Some(signal.as_raw()), "{containment:?}");
        }
        // A writer whose reader has gone ends by SIGPIPE: `yes` would complain otherwise.
        assert_eq!(slot.run("yes | head -n 1; echo \"done\" >&2").1, "y\n", "{containment:?}");
        assert_eq!(slot.run("trap").1, "", "{containment:?}");
    }
}

#[test]
fn program_sees_three_descriptors_and_no_others() {
    for containment in BOTH {
        let slot = Slot::new(containment);
        let (_, listed) = slot.run("ls /proc/self/fd | tr '\\n' ' '");
        // The fourth is that of `ls` itself.
        assert_eq!(listed, "0 1 2 3 ", "{containment:?}");
    }
}

#[test]
fn writes_to_every_descriptor_harm_nothing() {
    for containment in BOTH {
        let slot = Slot::new(containment);
        let write = "import os
for number in [*range(3, 1024), *range(0, 3)]:
    try: os.write(number, b'\\x01\\xff' * 4096)
    except OSError: pass";
        slot.run(&format!("python3 -c \"{write}\" | head -c 1 > /dev/null"));
        assert_eq!(slot.run("echo next").1, "next\n", "{containment:?}");
        assert!(slot.spawner.new_init(containment).is_ok());
    }
}

#[test]
fn leftovers_end_with_the_attempt() {
    for containment in BOTH {
        let (slot, mark) = (Slot::new(containment), mark());
        let (program, line) = slot.start_until_line(&leaves(&mark));
        assert_eq!(line, "up");
        assert!(program.end.wait().unwrap().success());
        assert!(!with_argument(&mark).is_empty(), "{containment:?}");
        assert!(slot.init.end_others(None).unwrap());
        assert!(with_argument(&mark).is_empty(), "{containment:?}");
    }
}

#[test]
fn thousand_attempts_with_a_leftover_each() {
    for containment in BOTH {
        let (slot, mark) = (Slot::new(containment), mark());
        for _ in 0..1000 {
            let (status, _) =
                slot.run(&format!("(setsid sh -c 'exec sleep 3600' sh {mark} >/dev/null &); :"));
            assert!(status.success() && slot.init.end_others(None).unwrap());
        }
        assert!(with_argument(&mark).is_empty(), "{containment:?}");
    }
}

#[test]
fn kept_program_survives_its_leftovers() {
    for containment in BOTH {
        let (slot, mark) = (Slot::new(containment), mark());
        let script = format!("{}; echo ready; read line; sleep 3600", leaves(&mark));
        let mut program = slot.start(&script);
        let mut lines = [read_line(&mut program.output), read_line(&mut program.output)];
        lines.sort();
        assert_eq!(lines, ["ready", "up"]);
        // Its input is at its end.
        wait_until("it sleeps", || !slot.init.is_alone(program.pid));
        assert!(slot.init.end_others(Some(program.pid)).unwrap());
        assert!(with_argument(&mark).is_empty(), "{containment:?}");
        assert!(slot.init.memory_of(program.pid).is_some() || program.end.has_ended(crate::slot::SOON));
    }
}

#[test]
fn fork_storm_ends() {
    for containment in BOTH {
        let (slot, mark) = (Slot::new(containment), mark());
        // Three sessions that go on making orphans in sessions of their own.
        let storm = format!("while :; do (setsid sh -c 'sleep 3600; :' sh {mark} &); done");
        let sessions = format!("for i in 1 2 3; do setsid sh -c \"{storm}\" sh {mark} & done");
        let (program, line) = slot.start_until_line(&format!("{sessions}; sleep 0.2; echo up; wait"));
        assert_eq!(line, "up");
        assert!(with_argument(&mark).len() > 50, "{containment:?}");
        assert!(slot.init.end_others(None).unwrap(), "{containment:?}");
        assert_eq!(program.end.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        assert!(with_argument(&mark).is_empty(), "{containment:?}");
        assert_eq!(slot.run("echo next").1, "next\n");
    }
}

#[test]
fn nothing_outlives_init_spawner_and_engine() {
    for containment in BOTH {
        let mark = mark();
        let script = leaves(&mark);
        // The slot is let go.
        let slot = Slot::new(containment);
        slot.start_until_line(&script);
        drop(slot);
        wait_until("end of the slot", || with_argument(&mark).is_empty());
        // The init is killed.
        let slot = Slot::new(containment);
        let (program, _) = slot.start_until_line(&format!("{script}; sleep 3600"));
        let (spawner, init) = spawner_and_init();
        kill(init);
        program.end.wait().unwrap_err();
        wait_until("end after the init", || with_argument(&mark).is_empty());
        let again = slot.spawner.new_init(containment).unwrap();
        again.new_job(Default::default()).unwrap();
        let mut program = start(&again, &script);
        assert_eq!(read_line(&mut program.output), "up");
        let running = start(&again, "exec sleep 3600");
        // The spawner is killed. That is no failure of a program.
        kill(spawner);
        running.end.wait().unwrap_err();
        wait_until("end after the spawner", || with_argument(&mark).is_empty());
        assert!(slot.spawner.new_init(containment).is_err());
        wait_until("end of the spawner", || !slot.spawner.is_alive());
    }
}

#[test]
fn holders_of_a_pipe_are_named_and_ended() {
    for containment in BOTH {
        let slot = Slot::new(containment);
        let (program, line) = slot.start_until_line("(setsid sh -c 'echo up; exec sleep 3600' &); :");
        assert_eq!(line, "up");
        let output = program.output.as_fd();
        assert!(program.end.wait().unwrap().success());
        let ask = |then| slot.init.holders(output, then).unwrap();
        wait_until("it sleeps", || ask(HoldersThen::Live).iter().any(|holder| holder.name == "sleep"));
        assert_eq!(ask(HoldersThen::End).len(), 1, "{containment:?}");
        wait_until("it ends", || ask(HoldersThen::Live).is_empty());
    }
}
