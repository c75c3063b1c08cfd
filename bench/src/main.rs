//! Benchmarks of fondaco against its peers, in one run on one machine.
//!
//! `fondaco-bench run` measures the rows of the table and writes `results.json`, `results.md` and plots; `bench/run`
//! calls it after installing the peers and building everything. The other subcommands are the processes of a run.
//! `docs/benchmarks.md` describes the method.
//!
//! It is not a test: it fails only if a row could not be measured, never because a target was missed.

mod bench;
mod child;
mod dataset;
mod engines;
mod guards;
mod load;
mod machine;
mod peers;
mod report;
mod rows;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use bench::Bench;
use child::Child;
use load::arguments::{self as load_arguments, LoadArguments};
use machine::description::Description;
use machine::disk;
use report::Report;

/// The most that the temporary files of the whole table take.
const TEMPORARY_BYTES: u64 = 45_000_000_000;

/// The allocator of the server program, since engines that are called directly must use the same one.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The options of the server program.
// SAFETY: no other symbol has this name, and the value is a C string, as jemalloc expects.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static ALLOCATOR_OPTIONS: Option<&'static u8> =
    Some(&b"thp:always,metadata_thp:auto,percpu_arena:percpu,narenas:1024\0"[0]);

#[derive(Parser)]
#[command(about = "Benchmarks of fondaco against its peers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure rows of the table and write the results.
    Run(RunArguments),
    /// Compare two builds of the server in alternating rounds, and print the ratios.
    Guards(guards::GuardArguments),
    /// Generate load on a server with the benchmark's keys, and print latencies.
    Load(LoadArguments),
    /// Do a task of another process of this program, given as JSON.
    #[command(hide = true)]
    Child { task: String },
}

#[derive(Args)]
struct RunArguments {
    /// Measure only these rows; their results replace those of earlier runs.
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// A smoke run: small data, one round; the figures have no meaning.
    #[arg(long)]
    quick: bool,
    /// Run the swap row with 10 GB instead of 2.
    #[arg(long)]
    full: bool,
    /// The directory of the results: bench/results by default, target/bench-quick for a smoke run.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The directory of the rows.
    #[arg(long, value_name = "DIR", default_value = "bench/rows")]
    rows: PathBuf,
    /// Print the names of the rows, and measure nothing.
    #[arg(long)]
    list: bool,
    /// The directory for temporary files: up to 45 GB.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    temporary: PathBuf,
    /// The server program.
    #[arg(long, value_name = "FILE", default_value = "target/release/fondaco")]
    fondaco: PathBuf,
    /// Start no further row after this many minutes.
    #[arg(long, default_value_t = 180)]
    minutes_max: u64,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Guards(arguments) => guards::run(&arguments),
        Command::Load(arguments) => load_arguments::run(&arguments).map(|()| true),
        Command::Child { task } => Child::run(&task).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all rows could be measured.
fn run(arguments: &RunArguments) -> Result<bool> {
    let rows = rows::all(&arguments.rows)?;
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    if let Some(unknown) = arguments.only.iter().find(|only| !names.contains(&only.as_str())) {
        anyhow::bail!("unknown row {unknown:?}: use one of {}", names.join(", "));
    }
    if arguments.list {
        rows.iter().for_each(|row| println!("{:12} {}", row.name, row.work));
        return Ok(true);
    }
    let default_output = if arguments.quick {
        "target/bench-quick"
    } else {
        "bench/results"
    };
    let output = arguments.output.clone().unwrap_or_else(|| default_output.into());
    if arguments.only.is_empty() && !arguments.quick {
        let (dir, free) = (&arguments.temporary, disk::available_bytes(&arguments.temporary)?);
        anyhow::ensure!(
            free >= TEMPORARY_BYTES,
            "{dir:?} has {} GB free, and the whole table needs up to 45: free some, choose another directory with --temporary, or \
             measure rows one by one with --only",
            free / 1_000_000_000
        );
    }
    let started = Instant::now();
    let work = tempfile::Builder::new()
        .prefix("fondaco-bench-")
        .tempdir_in(&arguments.temporary)
        .with_context(|| format!("could not create a directory in {:?}", arguments.temporary))?;
    let fondaco = std::path::absolute(&arguments.fondaco)?;
    let bench = Bench::new(work.path().to_owned(), fondaco, arguments.quick, arguments.full)?;
    let mut report = Report::begin(Description::of_this_machine(work.path()), &output);
    let mut all_measured = true;
    for spec in &rows {
        if !arguments.only.is_empty() && !arguments.only.contains(&spec.name) {
            continue;
        }
        if started.elapsed() > Duration::from_secs(60 * arguments.minutes_max) {
            eprintln!("{}: skipped, {} minutes are over", spec.name, arguments.minutes_max);
            all_measured = false;
            continue;
        }
        eprintln!("{}: {}", spec.name, spec.work);
        let row = spec.measure(&bench);
        match &row.failure {
            Some(failure) => eprintln!("  not measured: {failure}"),
            None => eprintln!("  measured in {:.0} s", row.took_s),
        }
        all_measured &= row.failure.is_none();
        report.put(row, &names);
        report.write(&output)?;
    }
    eprintln!("results: {}", output.join(report::MARKDOWN_FILE).display());
    Ok(all_measured)
}
