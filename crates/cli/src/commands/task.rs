//! `fondaco task …`: a build in the tasks of an engine such as Spark. Rows are streams on standard input and output.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::Context;
use clap::{Args, Subcommand};
use fondaco_builder::Progress;
use fondaco_builder::task::{self, Spec};
use fondaco_push::{CancelToken, commit_task, write_task};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::WrongUsage;
use super::build::prepare_process;
use super::push_progress::with_job;
use crate::output::{Output, Results};

/// How long a read waits before it looks whether the program was asked to stop.
const STOP_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// `fondaco task`.
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Check a build and complete its description, before the first task: standard input is an Arrow stream with the schema of
    /// the rows, and standard output the description for all tasks
    Plan(SpecOptions),
    /// Make keys, values and positions of rows: standard input and output are Arrow streams
    Encode(SpecOptions),
    /// Write the files of some partitions: standard input is an Arrow stream of encoded rows in the order of their positions,
    /// and standard output a line of JSON for the commit
    Write(WriteOptions),
    /// Make a version of the files of all tasks: standard input is the line of each task
    Commit(SpecOptions),
    /// Delete the files of all tasks, unless they are a version
    Abort(SpecOptions),
}

/// The description of the build.
#[derive(Debug, Args)]
pub struct SpecOptions {
    /// The description of the build: a file, or the JSON document itself
    #[arg(long, value_name = "FILE|JSON")]
    spec: String,
}

/// `fondaco task write`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco task plan --spec spec.json < schema.arrows > plan.json
  fondaco task encode --spec plan.json < rows.arrows > encoded.arrows
  fondaco task write --spec plan.json --partitions 0,1,2,3 --attempt 1 < sorted.arrows > written.json
  fondaco task commit --spec plan.json < written.json")]
pub struct WriteOptions {
    #[command(flatten)]
    spec: SpecOptions,

    /// The partitions of the task: it writes all of them, also those without rows
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', required = true)]
    partitions: Vec<u32>,

    /// The id of this attempt, which no other attempt of any task of the build has
    #[arg(long, value_name = "ID")]
    attempt: String,
}

/// Runs `fondaco task`.
pub fn run(command: TaskCommand, output: &Output) -> anyhow::Result<()> {
    prepare_process();
    match command {
        TaskCommand::Plan(options) => {
            let planned = task::plan(&options.read()?, io::stdin().lock())?;
            print_line(&planned)
        }
        TaskCommand::Encode(options) => {
            let spec = options.read()?;
            task::encode(&spec, io::stdin().lock(), Results::begin(), &Progress::new())?;
            Ok(())
        }
        TaskCommand::Write(options) => {
            let spec = options.spec.read()?;
            // An engine shows the progress of its tasks itself.
            let written = with_job(&Output::new(output.is_json(), true), |job| {
                let rows = Rows { cancel: job.cancel };
                write_task(&spec, &options.partitions, &options.attempt, rows, job)
            })?;
            print_line(&written)
        }
        TaskCommand::Commit(options) => {
            let spec = options.read()?;
            let results = io::read_to_string(io::stdin().lock()).context("cannot read the results of tasks")?;
            print_line(&commit_task(&spec, &results)?)
        }
        TaskCommand::Abort(options) => Ok(task::abort(&options.read()?)?),
    }
}

impl SpecOptions {
    fn read(&self) -> anyhow::Result<Spec> {
        let text = match self.spec.trim_start().starts_with('{') {
            true => self.spec.clone(),
            false => std::fs::read_to_string(Path::new(&self.spec))
                .with_context(|| format!("cannot read the description of the build {:?}", self.spec))?,
        };
        Spec::from_json(&text).map_err(|error| WrongUsage(error.to_string()).into())
    }
}

/// Prints a result as one line of JSON, which programs read.
fn print_line<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let mut out = Results::begin();
    serde_json::to_writer(&mut out, value).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Standard input. A signal ends it with an error.
struct Rows<'a> {
    cancel: &'a CancelToken,
}

impl Read for Rows<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let stdin = io::stdin();
        loop {
            if self.cancel.is_cancelled() {
                return Err(io::Error::other("the task was asked to stop"));
            }
            let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut waited, Some(&STOP_INTERVAL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(rustix::io::read(stdin.as_fd(), &mut *buffer)?),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
