//! `fondaco hook local`: a hook for machines on demand that starts and stops nodes on this machine.
//!
//! Each node has a directory with its data, its log and a file with its facts, named by the request for it. A request that is
//! repeated finds that directory: so a number starts one node, however often it is carried out.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::build::parse_bytes;
use super::hook_group::Group;
use crate::output::Results;

/// How long a node may take to stop before it is killed.
const STOPS_WITHIN: Duration = Duration::from_secs(20);

/// How often it is looked at meanwhile.
const TICK: Duration = Duration::from_millis(20);

/// The longest call, in bytes.
const CALL_BYTES_MAX: u64 = 64 << 10;

/// `fondaco hook`.
#[derive(Debug, Subcommand)]
pub enum HookCommand {
    /// Start, enlarge and stop nodes on this machine
    #[command(after_help = "\
The leading controller calls it: hook-command in [machines] of its configuration. It reads what is asked for from standard
input, and answers on standard output. docs/operations.md says how to write a hook for other machines.

Example:
  [machines]
  hook-command = [\"fondaco\", \"hook\", \"local\", \"--config\", \"/etc/fondaco.toml\", \"--directory\", \"/var/lib/fondaco-nodes\"]
  nodes-max = 5")]
    Local(LocalOptions),
}

/// `fondaco hook local`.
#[derive(Debug, Args)]
pub struct LocalOptions {
    /// The configuration file of the nodes; addresses and the data directory are given by flags
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// The directory below which each node has one
    #[arg(long, value_name = "DIRECTORY")]
    directory: PathBuf,

    /// The address that nodes listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    address: IpAddr,

    /// How many processors a node may use, by a control group
    #[arg(long, value_name = "NUMBER")]
    cores: Option<f64>,

    /// The most processors that a node can be enlarged to
    #[arg(long, value_name = "NUMBER", requires = "cores")]
    cores_max: Option<f64>,

    /// How much memory a node may use, by a control group
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,

    /// The most memory that a node can be enlarged to
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "memory")]
    memory_max: Option<u64>,
}

/// The request of the controller.
#[derive(Deserialize)]
struct Call {
    action: String,
    request: String,
    machine: Option<String>,
    http: Option<String>,
    resource: Option<String>,
    zone: Option<String>,
    group: Option<String>,
}

/// The answer.
#[derive(Serialize)]
struct Answer {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// The facts of a node that was started.
#[derive(Serialize, Deserialize)]
struct Facts {
    http: String,
    resp: String,
    zone: Option<String>,
    group: Option<String>,
    cores: Option<f64>,
    memory: Option<u64>,
    /// The last request to enlarge it that was carried out.
    #[serde(default)]
    enlarged: Option<String>,
}

/// Runs `fondaco hook`.
pub fn run(command: HookCommand) -> anyhow::Result<()> {
    let HookCommand::Local(options) = command;
    let mut text = String::new();
    io::stdin().take(CALL_BYTES_MAX).read_to_string(&mut text)?;
    let call: Call = serde_json::from_str(&text).context("standard input has no call of a controller")?;
    fs::create_dir_all(&options.directory).with_context(|| format!("cannot make {:?}", options.directory))?;
    // A controller that was killed may have left a call under way.
    let lock = File::create(options.directory.join("lock"))?;
    lock.lock()?;
    let done = match call.action.as_str() {
        "request" => start(&options, &call).map(Some),
        "enlarge" => enlarge(&options, &call).map(|()| None),
        "return" => take_back(&options, &call).map(|()| None),
        other => Err(anyhow!("{other:?} is not request, enlarge or return")),
    };
    let answer = match done {
        Ok(http) => Answer {
            state: "done",
            http,
            message: None,
        },
        Err(error) => Answer {
            state: "failed",
            http: None,
            message: Some(format!("{error:#}")),
        },
    };
    writeln!(Results::begin(), "{}", serde_json::to_string(&answer)?)?;
    Ok(())
}

/// Starts the node of a request, unless it runs. Returns its HTTP address.
fn start(options: &LocalOptions, call: &Call) -> anyhow::Result<String> {
    let dir = dir_of(options, &call.request)?;
    let facts = match read(&dir)? {
        Some(facts) => facts,
        None => {
            let free = || TcpListener::bind((options.address, 0)).and_then(|listener| listener.local_addr());
            Facts {
                resp: free().context("there is no free port")?.to_string(),
                http: free().context("there is no free port")?.to_string(),
                zone: call.zone.clone(),
                group: call.group.clone(),
                cores: options.cores,
                memory: options.memory,
                enlarged: None,
            }
        }
    };
    if let Some(pid) = process_of(&dir) {
        // The call that started it may have been killed before this.
        confine(&facts, pid.as_raw_nonzero().get().unsigned_abs(), &call.request)?;
        return Ok(facts.http);
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {dir:?}"))?;
    // The ports are kept before the process is started: it is found again if this one is killed now.
    write(&dir, &facts)?;
    let log = File::options().create(true).append(true).open(dir.join("log"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("server").arg("--config").arg(&options.config);
    command.arg("--data").arg(dir.join("data"));
    command.args(["--resp", &facts.resp, "--http", &facts.http]);
    for (flag, value) in [("--zone", &facts.zone), ("--group", &facts.group)] {
        command.args(value.iter().flat_map(|value| [flag, value.as_str()]));
    }
    // In a group of its own: it lives on when this process, or the controller, is killed.
    let node = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0);
    let pid = node.spawn().context("cannot start the node")?.id();
    // A failed call means that no node runs.
    match confine(&facts, pid, &call.request) {
        Ok(()) => Ok(facts.http),
        Err(error) => {
            stop(&dir);
            Err(error)
        }
    }
}

/// Puts a node into its control group, if it has limits.
fn confine(facts: &Facts, pid: u32, request: &str) -> anyhow::Result<()> {
    if facts.cores.is_none() && facts.memory.is_none() {
        return Ok(());
    }
    let group = Group::of(request);
    group.limit(facts.cores, facts.memory)?;
    group.enter(pid)
}

/// Doubles the limits of a node, up to the largest ones.
fn enlarge(options: &LocalOptions, call: &Call) -> anyhow::Result<()> {
    let (dir, mut facts) = find(options, call)?.context("the node was not started by this hook")?;
    if facts.enlarged.as_ref() == Some(&call.request) {
        return Ok(());
    }
    match call.resource.as_deref() {
        Some("cpu") => {
            let cores = facts.cores.context("its processors have no limit")?;
            let most = options.cores_max.unwrap_or(cores);
            if cores >= most {
                bail!("it has {cores} processors already, and --cores-max is {most}");
            }
            facts.cores = Some((2.0 * cores).min(most));
        }
        Some("memory") => {
            let memory = facts.memory.context("its memory has no limit")?;
            let most = options.memory_max.unwrap_or(memory);
            if memory >= most {
                bail!("it has {memory} bytes of memory already, and --memory-max is {most}");
            }
            facts.memory = Some((2 * memory).min(most));
        }
        other => bail!("nodes on one machine share its {}", other.unwrap_or("resources")),
    }
    Group::of(&name_of(&dir)).limit(facts.cores, facts.memory)?;
    facts.enlarged = Some(call.request.clone());
    write(&dir, &facts)
}

/// Stops a node, and deletes its files. An unknown one was stopped earlier.
fn take_back(options: &LocalOptions, call: &Call) -> anyhow::Result<()> {
    let Some((dir, _)) = find(options, call)? else {
        return match call.machine {
            Some(_) => Ok(()),
            None => Err(anyhow!("the node was not started by this hook")),
        };
    };
    stop(&dir);
    if let Some(pid) = process_of(&dir) {
        bail!("process {} does not end", pid.as_raw_nonzero());
    }
    Group::of(&name_of(&dir)).remove();
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {dir:?}"))
}

/// The directory and the facts of the node that a call names.
fn find(options: &LocalOptions, call: &Call) -> anyhow::Result<Option<(PathBuf, Facts)>> {
    if let Some(machine) = &call.machine {
        let dir = dir_of(options, machine)?;
        return Ok(read(&dir)?.map(|facts| (dir, facts)));
    }
    for entry in fs::read_dir(&options.directory)? {
        let dir = entry?.path();
        if let Some(facts) = read(&dir)?.filter(|facts| call.http.as_ref() == Some(&facts.http)) {
            return Ok(Some((dir, facts)));
        }
    }
    Ok(None)
}

fn dir_of(options: &LocalOptions, request: &str) -> anyhow::Result<PathBuf> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if request.is_empty() || !request.chars().all(is_name) {
        bail!("{request:?} is no name of a request");
    }
    Ok(options.directory.join(request))
}

fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(dir: &Path) -> anyhow::Result<Option<Facts>> {
    let path = dir.join("node.json");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(serde_json::from_str(&text).with_context(|| format!("{path:?}"))?)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {path:?}")),
    }
}

fn write(dir: &Path, facts: &Facts) -> anyhow::Result<()> {
    let (path, next) = (dir.join("node.json"), dir.join("node.json.next"));
    fs::write(&next, serde_json::to_vec(facts)?)?;
    fs::rename(&next, &path).with_context(|| format!("cannot write {path:?}"))
}

/// The process of a node, if it runs: found by its arguments, since this program may have been killed before it wrote down the
/// number.
fn process_of(dir: &Path) -> Option<Pid> {
    let data = dir.join("data");
    let is_its = |pid: i32| {
        // A process that has ended and was not waited for has no arguments.
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments);
        arguments.split('\0').any(|argument| Path::new(argument) == data)
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|&pid| is_its(pid)).and_then(Pid::from_raw)
}

fn stop(dir: &Path) {
    let begun = Instant::now();
    for (signal, within) in [(Signal::TERM, STOPS_WITHIN), (Signal::KILL, 2 * STOPS_WITHIN)] {
        let Some(pid) = process_of(dir) else { return };
        // It may end by itself in between.
        let _ = kill_process(pid, signal);
        while process_of(dir).is_some() && begun.elapsed() < within {
            std::thread::sleep(TICK);
        }
    }
}
