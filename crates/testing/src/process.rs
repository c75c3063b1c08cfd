//! A server that ends with the test, however the test ends.
//!
//! Each server has a guard: a shell that reads from a pipe held only by the test. When the test ends, even by a kill,
//! the pipe is closed, and the guard kills the server.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running server. Dropping it kills it.
pub struct ServerProcess {
    name: String,
    log: PathBuf,
    server: Child,
    guard: Child,
}

impl ServerProcess {
    /// Starts a command; its output goes to a log.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Self {
        let output = File::options().create(true).append(true).open(log);
        let output = output.unwrap_or_else(|error| panic!("cannot write the log {log:?}: {error}"));
        let errors = output.try_clone().expect("a file can be opened twice");
        let started = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let server = started.unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}; install it"));
        let guard = Command::new("sh")
            .args(["-c", "read -r _; kill -9 \"$0\" 2>/dev/null", &server.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start a shell: {error}"));
        Self {
            name: name.to_owned(),
            log: log.to_owned(),
            server,
            guard,
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.server.id()
    }

    /// Pauses it, as a machine that hangs.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes it after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Fails the test if the server has exited.
    ///
    /// # Panics
    /// If it has exited; with the end of its log.
    pub fn check_alive(&mut self) {
        if let Ok(Some(status)) = self.server.try_wait() {
            panic!("{} ended with {status}: {}", self.name, self.log_end());
        }
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn signal(&self, signal: Signal) {
        // The child was not waited for, so its process id is still its own.
        let pid = Pid::from_child(&self.server);
        kill_process(pid, signal).unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.name));
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The guard first: after the server has ended, another process could have its id.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(id: u32) -> bool {
        Path::new(&format!("/proc/{id}")).exists()
    }

    #[test]
    fn a_dropped_server_is_gone() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let server = ServerProcess::start("sleep", Command::new("sleep").arg("600"), log.path());
        let id = server.id();
        assert!(runs(id));
        drop(server);
        assert!(!runs(id));
    }

    #[test]
    #[should_panic(expected = "some last words")]
    fn an_exited_server_fails_the_test_with_its_log() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("sh");
        let mut server = ServerProcess::start(
            "a server",
            command.args(["-c", "echo some last words; exit 3"]),
            log.path(),
        );
        loop {
            server.check_alive();
            std::thread::yield_now();
        }
    }
}
