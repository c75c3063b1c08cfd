//! Benchmarks of fondaco against its peers, in one run on one machine.
//!
//! `fondaco-bench run` measures the rows of the table and writes `results.json`, `results.md` and plots; `bench/run`
//! calls it after installing the peers and building everything. The other subcommands are the processes of a run.
//! `docs/benchmarks.md` describes the method.
//!
//! It is not a test: it fails only if a row could not be measured, never because a target was missed.

mod bench;
mod dataset;
mod engines;
mod load;
mod machine;
mod peers;
mod report;
mod rows;
mod servers;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

use bench::Bench;
use dataset::Dataset;
use dataset::convert::Form;
use engines::{Candidate, mixed, trial};
use load::arguments::{self as load_arguments, LoadArguments};
use machine::description::Description;
use peers::{EngineKind, OpenSettings, ReadOnlyEngine, Reader, with_engine};
use report::Report;
use rows::ROWS;

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
    /// Load a Parquet file into an engine, and get one of its keys.
    #[command(hide = true)]
    LoadEngine {
        #[arg(long)]
        engine: EngineKind,
        #[arg(long)]
        parquet: PathBuf,
        #[arg(long)]
        dir: PathBuf,
    },
    /// Generate load on a server with the benchmark's keys, and print latencies.
    Load(LoadArguments),
    /// Answer the load generator's requests without any look-up.
    #[command(hide = true)]
    BareServer {
        #[arg(long)]
        resp: SocketAddr,
        #[arg(long)]
        prefix: String,
        #[arg(long)]
        value_bytes: usize,
    },
    /// Write the records of a Parquet file in the input format of another system.
    #[command(hide = true)]
    Convert {
        #[arg(long)]
        parquet: PathBuf,
        #[arg(long)]
        to: Form,
    },
    /// Open an engine and run tasks from standard input.
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        engine: EngineKind,
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        records: u64,
        #[arg(long)]
        cache_bytes: u64,
    },
    /// Read a topic of Kafka to its end, and print what that cost.
    #[command(hide = true)]
    Consume(rows::streams::applied::ConsumeArguments),
    /// Write to an engine and read from it, in an empty directory, and print the results.
    #[command(hide = true)]
    TryEngine {
        #[arg(long)]
        engine: Candidate,
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        records: u64,
        #[arg(long)]
        value_bytes: usize,
        #[arg(long)]
        cache_bytes: u64,
        #[arg(long)]
        milliseconds: u64,
    },
    /// Fill our engine in an empty directory, call it like a store, with the mixes on standard input (`0.05/40 1500`,
    /// `1/64s 5000`, `0.05/3z 1500`), and print the requests per second of CPU time.
    #[command(hide = true)]
    MixEngine {
        #[arg(long)]
        engine: Candidate,
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        records: u64,
        #[arg(long)]
        value_bytes: usize,
        #[arg(long)]
        cache_bytes: u64,
    },
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
    /// Print the names of the rows, and measure nothing.
    #[arg(long)]
    list: bool,
    /// The directory for temporary files: up to 60 GB.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    temporary: PathBuf,
    /// The server program.
    #[arg(long, value_name = "FILE", default_value = "target/release/fondaco")]
    fondaco: PathBuf,
    /// Start no further row after this many minutes.
    #[arg(long, default_value_t = 60)]
    minutes_max: u64,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::LoadEngine { engine, parquet, dir } => {
            with_engine!(engine, load_engine(&parquet, &dir)).map(|()| true)
        }
        Command::Load(arguments) => load_arguments::run(&arguments).map(|()| true),
        Command::BareServer {
            resp,
            prefix,
            value_bytes,
        } => servers::bare::serve(resp, &prefix, value_bytes).map(|()| true),
        Command::Convert { parquet, to } => dataset::convert::run(&parquet, to).map(|()| true),
        Command::Worker {
            engine,
            dir,
            records,
            cache_bytes,
        } => worker::run(engine, &dir, records, cache_bytes).map(|()| true),
        Command::Consume(arguments) => rows::streams::applied::consume(&arguments).map(|()| true),
        Command::TryEngine {
            engine,
            dir,
            records,
            value_bytes,
            cache_bytes,
            milliseconds,
        } => {
            let dataset = Dataset { records, value_bytes };
            let phase = Duration::from_millis(milliseconds);
            trial::run(engine, &dir, dataset, cache_bytes, phase).map(|()| true)
        }
        Command::MixEngine {
            engine,
            dir,
            records,
            value_bytes,
            cache_bytes,
        } => {
            let dataset = Dataset { records, value_bytes };
            mixed::run(engine, &dir, dataset, cache_bytes).map(|()| true)
        }
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
    let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    if let Some(unknown) = arguments.only.iter().find(|only| !names.contains(&only.as_str())) {
        anyhow::bail!("unknown row {unknown:?}: use one of {}", names.join(", "));
    }
    if arguments.list {
        ROWS.iter().for_each(|row| println!("{:12} {}", row.name, row.work));
        return Ok(true);
    }
    let default_output = if arguments.quick {
        "target/bench-quick"
    } else {
        "bench/results"
    };
    let output = arguments.output.clone().unwrap_or_else(|| default_output.into());
    let started = Instant::now();
    let work = tempfile::Builder::new()
        .prefix("fondaco-bench-")
        .tempdir_in(&arguments.temporary)
        .with_context(|| format!("could not create a directory in {:?}", arguments.temporary))?;
    let fondaco = std::path::absolute(&arguments.fondaco)?;
    let bench = Bench::new(work.path().to_owned(), fondaco, arguments.quick, arguments.full)?;
    let mut report = Report {
        machine: Description::of_this_machine(work.path()),
        rows: Report::read(&output).map_or_else(Vec::new, |old| old.rows),
    };
    let mut all_measured = true;
    for spec in &ROWS {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == spec.name) {
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

/// From a Parquet file to the first answer.
fn load_engine<E: ReadOnlyEngine>(parquet: &std::path::Path, dir: &std::path::Path) -> Result<()> {
    E::load(parquet, dir)?;
    let engine = E::open(dir, OpenSettings { cache_bytes: 64 << 20 })?;
    let first = engine
        .reader()?
        .get(&dataset::key(0), |value| dataset::is_value_of(0, value))?;
    ensure!(first == Some(true), "the first key is missing");
    Ok(())
}
