//! A wrong clock for one process: a small library in front of the C library's answers that time by the wall.

use crate::{Sandbox, could_not_run};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The seconds by which the clock is wrong.
const VARIABLE: &str = "WRONG_BY_SECONDS";

/// Rust asks `clock_gettime`; C programs may ask the others.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Seconds that have passed for all processes at once, whatever clock they look at. */
static volatile long *jumped(void) {
    static volatile long *page;
    static volatile long none;
    if (page) return page;
    const char *path = getenv("CLOCK_JUMP_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    return page = mapped == MAP_FAILED ? &none : mapped;
}

static long wrong_by(void) {
    const char *text = getenv("WRONG_BY_SECONDS");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*right)(clockid_t, struct timespec *);
    if (!right) right = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = right(which, now);
    if (code == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += wrong_by();
    if (code == 0 && which != CLOCK_PROCESS_CPUTIME_ID && which != CLOCK_THREAD_CPUTIME_ID) now->tv_sec += *jumped();
    return code;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec fine;
    int code = clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return code;
}

time_t time(time_t *also) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (also) *also = fine.tv_sec;
    return fine.tv_sec;
}
"#;

/// A library that makes clocks wrong, or lets them jump.
pub struct WrongClock {
    library: PathBuf,
    /// The seconds by which all its clocks have jumped, as the machine writes a number.
    jumped: PathBuf,
}

impl WrongClock {
    /// Builds it in a sandbox; None, and said so, where there is no C compiler, or it does not do here.
    pub fn build(sandbox: &Sandbox, what: &str) -> Option<WrongClock> {
        let (source, library) = (sandbox.write("clock.c", SOURCE), sandbox.path("clock.so"));
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let is_built = compile.stdin(Stdio::null()).status().is_ok_and(|status| status.success());
        if !is_built {
            could_not_run(what, "there is no C compiler (cc), which makes the library of the wrong clock");
            return None;
        }
        let jumped = sandbox.write("clock-jump", 0_i64.to_ne_bytes());
        let clock = WrongClock { library, jumped };
        // A program that is not linked to the C library at run time would not notice.
        let mut date = Command::new("date");
        clock.set(date.arg("+%Y"), 100 * 365 * 86_400);
        let said = date.output().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
        let is_wrong = said.ok().and_then(|year| year.parse::<u32>().ok()).is_some_and(|year| year > 2100);
        if !is_wrong {
            could_not_run(what, "a library that is loaded first does not change the clock here");
            return None;
        }
        Some(clock)
    }

    /// Makes the clock of a process wrong.
    pub fn set(&self, command: &mut Command, by_seconds: i64) {
        command.env("LD_PRELOAD", &self.library).env(VARIABLE, by_seconds.to_string());
        command.env("CLOCK_JUMP_FILE", &self.jumped);
    }

    /// For all processes whose clocks it sets so many seconds pass at once, also where they only measure how long something takes.
    pub fn jump(&self, seconds: u64) {
        let file = std::fs::File::options().write(true).open(&self.jumped).expect("our own file");
        let seconds = i64::try_from(seconds).expect("a time that a clock can show");
        std::os::unix::fs::FileExt::write_all_at(&file, &seconds.to_ne_bytes(), 0).expect("our own file");
    }
}
