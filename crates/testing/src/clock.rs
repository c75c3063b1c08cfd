//! A clock for one process, which can be set while the process runs.
//!
//! The process loads a small library before the C library (`LD_PRELOAD`), which adds an offset from a file to the time
//! of day. Monotonic clocks stay as they are: no Linux clock for measuring ever jumps.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static volatile int64_t *ahead_s;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    real = dlsym(RTLD_NEXT, "clock_gettime");
    int file = open(getenv("CLOCK_AHEAD_S"), O_RDONLY);
    void *map = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    if (file < 0 || map == MAP_FAILED) abort();
    ahead_s = map;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += *ahead_s;
    return result;
}
"#;

/// A clock that can be set. The process ends before it does.
pub struct Clock {
    dir: TempDir,
    ahead_s: File,
}

impl Clock {
    /// A clock without an offset; `None` where there is no C compiler.
    ///
    /// # Panics
    /// If its library cannot be made.
    pub fn right() -> Option<Self> {
        let dir = tempfile::tempdir().expect("temporary directories can be made");
        let source = dir.path().join("clock.c");
        fs::write(&source, LIBRARY).unwrap_or_else(|error| panic!("cannot write {source:?}: {error}"));
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(dir.path().join("clock.so"));
        let compiled = compiler.arg(&source).arg("-ldl").output().ok()?;
        let said = String::from_utf8_lossy(&compiled.stderr);
        assert!(
            compiled.status.success(),
            "the library of the clock cannot be compiled: {said}"
        );
        let ahead_s = File::create(dir.path().join("ahead-s"));
        let ahead_s = ahead_s.unwrap_or_else(|error| panic!("cannot write the clock: {error}"));
        let clock = Self { dir, ahead_s };
        clock.set_ahead_s(0);
        Some(clock)
    }

    /// A command that starts a program with this clock; add the program and its arguments.
    pub fn command(&self) -> Command {
        let variable = |name: &str, path: PathBuf| format!("{name}={}", path.display());
        let mut command = Command::new("env");
        command
            .arg(variable("LD_PRELOAD", self.dir.path().join("clock.so")))
            .arg(variable("CLOCK_AHEAD_S", self.dir.path().join("ahead-s")));
        command
    }

    /// Sets the clock this many seconds ahead, or back if negative.
    ///
    /// # Panics
    /// If it cannot be set.
    pub fn set_ahead_s(&self, seconds: i64) {
        // Eight bytes at once: a reader sees the old or the new value.
        let set = self.ahead_s.write_all_at(&seconds.to_ne_bytes(), 0);
        set.unwrap_or_else(|error| panic!("cannot set the clock: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn year(clock: &Clock) -> i32 {
        let output = clock.command().args(["date", "+%Y"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_clock_set_ahead_shows_another_year() {
        let Some(clock) = Clock::right() else {
            return println!("skipped: there is no C compiler");
        };
        let now = year(&clock);
        assert!(now > 2000);
        clock.set_ahead_s(10 * 366 * 86_400);
        assert!(year(&clock) >= now + 10);
        clock.set_ahead_s(-10 * 366 * 86_400);
        assert!(year(&clock) <= now - 10);
    }
}
