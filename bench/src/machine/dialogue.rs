//! A process that receives requests as lines on standard input, and answers each with a line on standard output.

use std::io::{BufRead, BufReader, Write};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::process::{Launch, Process};

/// The requesting side of such a process. Dropping it ends the process.
pub struct Dialogue {
    process: Process,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Dialogue {
    /// Starts the process.
    pub fn start(launch: &Launch) -> Result<Self> {
        let mut process = launch.start_piped()?;
        let stdin = process.child().stdin.take().context("a process without input")?;
        let stdout = process.child().stdout.take().context("a process without output")?;
        let (sender, answers) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // The receiver is dropped when no request waits any more.
            lines.for_each(|line| drop(sender.send(line)));
        });
        Ok(Self {
            process,
            stdin,
            answers,
        })
    }

    /// Sends a request, and waits for the answer.
    pub fn ask(&mut self, line: &str, limit: Duration) -> Result<String> {
        writeln!(self.stdin, "{line}")?;
        match self.answers.recv_timeout(limit) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => bail!("a process took more than {limit:?} for {line:?}"),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("a process ended during {line:?}{}", self.process.last_words())
            }
        }
    }
}
