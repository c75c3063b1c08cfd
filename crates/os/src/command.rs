//! Runs another program to its end: in a group of processes of its own, which is killed as a whole if the program takes too
//! long or is not wanted any more.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

/// How much of what a program writes is kept, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// How often a running program is looked at.
pub const TICK: Duration = Duration::from_millis(20);

/// How long the output of a program that has ended may be kept open by processes that it has left.
const OUTPUT_WITHIN: Duration = Duration::from_secs(1);

/// Runs a program with this input. Returns the beginning of its output. `stopped` returns the reason to end it early.
///
/// # Errors
/// Why it did not end with success.
pub fn run(
    command: &mut Command,
    input: &[u8],
    timeout: Option<Duration>,
    stopped: &dyn Fn() -> Option<&'static str>,
) -> Result<String, String> {
    let program = command.get_program().to_owned();
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = child.map_err(|error| format!("{program:?} cannot be started: {error}"))?;
    let output = Output::of(child.stdout.take());
    let errors = Output::of(child.stderr.take());
    if let Some(mut pipe) = child.stdin.take() {
        // A pipe takes a short input at once. A program that reads nothing may do its work all the same.
        let _ = pipe.write_all(input);
    }
    let status = wait(&mut child, timeout, stopped)?;
    if !status.success() {
        return Err(format!("{program:?} ended with {status}: {}", errors.text()));
    }
    Ok(output.text())
}

/// Waits for a program, and kills it with its group if it has to end.
fn wait(
    child: &mut Child,
    timeout: Option<Duration>,
    stopped: &dyn Fn() -> Option<&'static str>,
) -> Result<ExitStatus, String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(format!("it cannot be waited for: {error}")),
        }
        let late = timeout.filter(|timeout| begun.elapsed() >= *timeout);
        let late = late.map(|timeout| format!("no answer within {} s: it was killed", timeout.as_secs_f64()));
        if let Some(reason) = late.or_else(|| stopped().map(str::to_owned)) {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended a moment ago.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
            return Err(reason);
        }
        std::thread::sleep(TICK);
    }
}

/// The output of a program, read by a thread.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reading: Option<JoinHandle<()>>,
}

impl Output {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let theirs = Arc::clone(&bytes);
        let reading = pipe.and_then(|mut pipe| {
            let read = move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                    let mut bytes = theirs.lock();
                    let room = OUTPUT_BYTES_MAX.saturating_sub(bytes.len());
                    bytes.extend_from_slice(&buffer[..count.min(room)]);
                }
            };
            std::thread::Builder::new().name("output".to_owned()).spawn(read).ok()
        });
        Self { bytes, reading }
    }

    fn text(&self) -> String {
        let begun = Instant::now();
        let is_reading = || self.reading.as_ref().is_some_and(|reading| !reading.is_finished());
        while is_reading() && begun.elapsed() < OUTPUT_WITHIN {
            std::thread::sleep(TICK);
        }
        String::from_utf8_lossy(&self.bytes.lock()).into_owned()
    }
}
