//! Processes started by the benchmark: on chosen cores, within a memory limit, and always ended, by their id.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

const POLL: Duration = Duration::from_millis(2);
const TERMINATE_WAIT: Duration = Duration::from_secs(20);

/// A program to start, with its settings.
pub struct Launch {
    /// Programs that each become the next one, with their arguments.
    wrappers: Vec<OsString>,
    /// The program and its arguments.
    line: Vec<OsString>,
    log: Option<PathBuf>,
}

/// A running process, ended on drop.
pub struct Process {
    child: Child,
    title: String,
    log: Option<PathBuf>,
}

/// The CPU time of all threads of a process so far, including ended ones.
pub fn cpu_time_of(process: u32) -> Result<Duration> {
    cpu_time_by(process, &[USER_TIME, SYSTEM_TIME])
}

/// Indices of fields in `/proc/PID/stat`, after the name.
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const USER_TIME_OF_CHILDREN: usize = 13;
const SYSTEM_TIME_OF_CHILDREN: usize = 14;

/// A line of `/proc/PID/status` that is given in kilobytes, such as `VmRSS`; returned in bytes.
pub fn status_bytes_of(process: u32, line: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let found = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
    let kilobytes = found.and_then(|rest| rest.split_whitespace().next());
    let kilobytes = kilobytes.with_context(|| format!("no {line} in its status"))?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}

/// The CPU time of all processes that this one has started and waited for.
pub fn cpu_time_of_ended_children() -> Result<Duration> {
    cpu_time_by(std::process::id(), &[USER_TIME_OF_CHILDREN, SYSTEM_TIME_OF_CHILDREN])
}

fn cpu_time_by(process: u32, fields: &[usize]) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is a name in parentheses, which may contain any character.
    let after_name = stat.rsplit_once(')').context("an unusual /proc/PID/stat")?.1;
    let field = |at: usize| -> Result<u64> {
        let text = after_name
            .split_whitespace()
            .nth(at)
            .context("a short /proc/PID/stat")?;
        Ok(text.parse()?)
    };
    let ticks = fields.iter().map(|&at| field(at)).sum::<Result<u64>>()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64))
}

/// The resources that a process used, from start to end.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// The wall-clock time.
    pub wall: Duration,
    /// The peak resident memory, in bytes.
    pub resident_bytes_max: u64,
}

impl Launch {
    /// A program to start. It is killed when the thread that started it ends: start processes from the main thread.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            wrappers: ["setpriv", "--pdeathsig", "KILL"].map(OsString::from).into(),
            line: vec![program.as_ref().to_owned()],
            log: None,
        }
    }

    /// This program itself.
    pub fn own() -> Result<Self> {
        Ok(Self::new(std::env::current_exe()?))
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.line.extend(arguments.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Pins the process to a core.
    pub fn on_cpu(mut self, cpu: usize) -> Self {
        self.wrappers
            .extend(["taskset", "-c", &cpu.to_string()].map(OsString::from));
        self
    }

    /// Starts the process in the control group with this file of processes: a shell joins it, and becomes the next program.
    pub fn within(mut self, processes_file: Option<PathBuf>) -> Self {
        if let Some(file) = processes_file {
            let enter = ["sh", "-c", "echo $$ > \"$0\" && exec \"$@\""].map(OsString::from);
            self.wrappers.extend(enter);
            self.wrappers.push(file.into());
        }
        self
    }

    /// The file for its standard error, and for its standard output unless that is piped.
    pub fn log_to(mut self, log: impl Into<PathBuf>) -> Self {
        self.log = Some(log.into());
        self
    }

    fn log_stdio(&self) -> Result<Stdio> {
        Ok(match &self.log {
            Some(path) => File::options()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("could not open {path:?}"))?
                .into(),
            None => Stdio::null(),
        })
    }

    /// Starts it with standard output in its log.
    pub fn start(&self) -> Result<Process> {
        let stdout = self.log_stdio()?;
        self.spawn(Stdio::null(), stdout)
    }

    /// Starts it with standard input and output as pipes.
    pub fn start_piped(&self) -> Result<Process> {
        self.spawn(Stdio::piped(), Stdio::piped())
    }

    /// Starts it with these.
    pub fn spawn(&self, stdin: Stdio, stdout: Stdio) -> Result<Process> {
        // Each wrapper becomes the next program with exec, so that the program's id is that of the child.
        let mut line = self.wrappers.iter().chain(&self.line);
        let mut command = Command::new(line.next().context("a launch without a program")?);
        command.args(line).stdin(stdin).stdout(stdout).stderr(self.log_stdio()?);
        let title = Path::new(&self.line[0]).file_name().unwrap_or_default();
        let title = title.to_string_lossy().into_owned();
        Ok(Process {
            child: command.spawn().with_context(|| format!("could not start {title}"))?,
            title,
            log: self.log.clone(),
        })
    }

    /// Runs it to its end, which must be a success within `limit`, and returns its output.
    pub fn output(&self, limit: Duration) -> Result<String> {
        let mut process = self.spawn(Stdio::null(), Stdio::piped())?;
        let mut stdout = process.child.stdout.take().context("no output pipe")?;
        let reader = thread::spawn(move || std::io::read_to_string(&mut stdout));
        process.finish(Instant::now(), limit)?;
        // The process has ended, so its output is complete.
        reader
            .join()
            .map_err(|_| anyhow::anyhow!("the reader of its output panicked"))?
            .with_context(|| format!("could not read what {} printed", process.title))
    }

    /// Runs it to its end, which must be a success within `limit`.
    pub fn run(&self, limit: Duration) -> Result<Usage> {
        let started = Instant::now();
        self.start()?.finish(started, limit)
    }
}

impl Process {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The CPU time of all its threads so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        cpu_time_of(self.id())
    }

    /// The same, including the processes that it has started and waited for.
    pub fn cpu_time_with_children(&self) -> Result<Duration> {
        let fields = [USER_TIME, SYSTEM_TIME, USER_TIME_OF_CHILDREN, SYSTEM_TIME_OF_CHILDREN];
        cpu_time_by(self.id(), &fields)
    }

    /// How many bytes it has caused to be written to disk so far.
    pub fn written_bytes(&self) -> Result<u64> {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.id()))?;
        let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        Ok(bytes.context("no write_bytes in its /proc/PID/io")?.parse()?)
    }

    /// Stops it with SIGSTOP, like a machine that hangs.
    pub fn pause(&self) -> Result<()> {
        signal(self.id(), Signal::STOP)
    }

    /// Kills it, like a power failure.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// A line of its `/proc/PID/status` that is given in kilobytes, such as `VmRSS`; returned in bytes.
    pub fn status_bytes(&self, line: &str) -> Result<u64> {
        status_bytes_of(self.id(), line)
    }

    /// The number of its threads, and how often these were switched to another one so far.
    pub fn threads(&self) -> Result<(usize, u64)> {
        let (mut threads, mut switches) = (0, 0);
        for task in std::fs::read_dir(format!("/proc/{}/task", self.id()))? {
            // A thread may end meanwhile.
            let Ok(status) = std::fs::read_to_string(task?.path().join("status")) else {
                continue;
            };
            let counts = status
                .lines()
                .filter_map(|line| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok());
            switches += counts.sum::<u64>();
            threads += 1;
        }
        Ok((threads, switches))
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end, which must be a success within `limit` of `started`, and returns its resource usage. Its peak memory is
    /// polled while it runs, with a last reading up to [`POLL`] before the end.
    pub fn finish(&mut self, started: Instant, limit: Duration) -> Result<Usage> {
        let mut resident_bytes_max = 0;
        loop {
            // Until exec has replaced the shell, this is the memory of the shell, which is small.
            resident_bytes_max = self.status_bytes("VmHWM").unwrap_or(0).max(resident_bytes_max);
            if let Some(status) = self.ended()? {
                ensure!(
                    status.success(),
                    "{} ended with {status}{}",
                    self.title,
                    self.last_words()
                );
                return Ok(Usage {
                    wall: started.elapsed(),
                    resident_bytes_max,
                });
            }
            if started.elapsed() > limit {
                bail!("{} took more than {limit:?}{}", self.title, self.last_words());
            }
            thread::sleep(POLL);
        }
    }

    /// The end of its log, for an error message.
    pub fn last_words(&self) -> String {
        const LINES: usize = 6;
        let Some(text) = self.log.as_ref().and_then(|log| std::fs::read_to_string(log).ok()) else {
            return String::new();
        };
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n  ");
        format!(", having said:\n  {last}")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = signal(self.id(), Signal::TERM);
        let deadline = Instant::now() + TERMINATE_WAIT;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `work` while the process with this id is stopped for `pause` once in every `period`. It is always resumed at the end.
pub fn with_pauses<T>(id: u32, pause: Duration, period: Duration, work: impl FnOnce() -> Result<T>) -> Result<T> {
    thread::scope(|scope| {
        let (end, ended) = channel::<()>();
        let pauses = scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(period - pause) {
                signal(id, Signal::STOP)?;
                thread::sleep(pause);
                signal(id, Signal::CONT)?;
            }
            anyhow::Ok(())
        });
        let done = work();
        drop(end);
        pauses
            .join()
            .map_err(|_| anyhow!("the thread that stops a process panicked"))?
            .context("could not stop a process")?;
        done
    })
}

/// The process must be a child that was not waited for, so that its id was not reused.
fn signal(id: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(id as i32).context("a process without an id")?;
    Ok(kill_process(pid, signal)?)
}
