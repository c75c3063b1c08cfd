//! The `fondaco` program: every role and every command in one binary.
//!
//! It parses arguments, calls a library or the HTTP port of a node, and prints. Scripts may rely on: exit code 0 for
//! success, 1 for failure, 2 for wrong usage; results on standard output, everything else on standard error; `--json`
//! for programs.

mod allocator;
mod arguments;
mod commands;
mod control_port;
mod interrupt;
mod output;
mod progress;
mod refusal;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tikv_jemallocator::Jemalloc;

use arguments::{Arguments, Command};
use output::Output;

/// Values are usually a little over one KiB. The C library's allocator keeps chunks longer than 1 KiB in lists that it
/// searches, splits and merges. This took a quarter of the CPU time, over all nodes, of a write to three replicas.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Options that jemalloc reads from a symbol of this name:
///
/// - huge pages: records are looked up all over memory, and the TLB covers few pages;
/// - arenas per CPU, not per thread: memory that one thread frees is reused by another, and most records are replaced
///   by other threads than those that wrote them. The number of arenas must be given, or jemalloc warns where the
///   process may not run on all CPUs. Unused arenas are not created.
// SAFETY: no other symbol has this name, and the value is a C string, as jemalloc expects.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static ALLOCATOR_OPTIONS: Option<&'static u8> =
    Some(&b"thp:always,metadata_thp:auto,percpu_arena:percpu,narenas:1024\0"[0]);

fn main() -> ExitCode {
    // The client of ZooKeeper brings a second one into the program, and rustls chooses none of two by itself.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Tests of rolling upgrades link an unoptimised build to this name.
    if cfg!(debug_assertions)
        && std::env::args_os()
            .next()
            .is_some_and(|name| Path::new(&name).ends_with("fondaco-next"))
    {
        fondaco_model::play_next_release();
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse_arguments(&error),
    };
    let output = Output::new(arguments.json, arguments.quiet);
    match run(arguments, &output) {
        Ok(()) => ExitCode::SUCCESS,
        // `fondaco scan … | head`.
        Err(error) if output::is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = refusal::code(&error);
            output.failure(code, &output::told(&error));
            match code == refusal::WRONG_USAGE {
                true => ExitCode::from(2),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// Reports wrong arguments, or prints the help or the version.
fn refuse_arguments(error: &clap::Error) -> ExitCode {
    let is_json = std::env::args_os().any(|argument| argument == "--json");
    match is_json && error.use_stderr() {
        true => {
            let text = error.to_string();
            Output::new(true, false).failure(refusal::WRONG_USAGE, text.trim().trim_start_matches("error: "));
        }
        false => drop(error.print()),
    }
    ExitCode::from(error.exit_code() as u8)
}

fn run(arguments: Arguments, output: &Output) -> anyhow::Result<()> {
    match arguments.command {
        Command::Dev(options) => commands::roles::dev(options, output),
        Command::Server(options) => commands::roles::server(options, output),
        Command::Router(options) => commands::roles::router(options, output),
        Command::Controller(options) => commands::roles::controller(options, output),
        Command::Store(command) => commands::store::run(command, output),
        Command::Push(options) => commands::push::push(*options, output),
        Command::Build(options) => commands::build::build(options, output),
        Command::Task(command) => commands::task::run(command, output),
        Command::Deploy(options) => commands::deploy::deploy(options, output),
        Command::Cancel(options) => commands::push::cancel(&options, output),
        Command::Canary(options) => commands::canary::steer(&options, output),
        Command::Versions(options) => commands::versions::list(&options, output),
        Command::Diff(options) => commands::diff::diff(&options, output),
        Command::Rollback(options) => commands::versions::roll_back(&options, output),
        Command::Swap(options) => commands::versions::swap(&options, output),
        Command::Get(options) => commands::look_up::get(&options, output),
        Command::Mget(options) => commands::look_up::mget(&options, output),
        Command::Scan(options) => commands::scan::scan(&options, output),
        Command::Follow(options) => commands::follow::follow(options, output),
        Command::Mirror(options) => commands::mirror::mirror(options, output),
        Command::Export(options) => commands::export::export(options, output),
        Command::Graph(command) => commands::graph::run(command, output),
        Command::Status(options) => commands::status::status(&options, output),
        Command::Nodes(options) => commands::nodes::nodes(&options, output),
        Command::Cluster(command) => commands::cluster::run(command, output),
        Command::Rebalance(command) => commands::rebalance::run(command, output),
        Command::Balance(options) => commands::balance::balance(&options, output),
        Command::Why(options) => commands::why::why(&options, output),
        Command::Drain(options) => commands::drain::drain(options, output),
        Command::Maintenance(options) => commands::drain::maintenance(&options, output),
        Command::Schema(command) => commands::schema::run(command, output),
        Command::User(command) => commands::user::run(command, output),
        Command::Audit(options) => commands::user::audit(&options, output),
        Command::Repair(command) => commands::repair::run(command, output),
        Command::Backup(options) => commands::backup::back_up(&options, output),
        Command::Restore(options) => commands::backup::restore(&options, output),
        Command::Inspect(options) => commands::inspect::inspect(&options, output),
        Command::Config(command) => commands::config::run(command, output),
        Command::Hook(command) => commands::hook::run(command),
        Command::Completions(options) => commands::completions::completions(&options, Arguments::command()),
    }
}
