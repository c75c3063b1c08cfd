//! Faults of the reader's own machine: killed processes, damaged files, a full disk.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use fondaco_embedded::{Reader, State};
use fondaco_format::{Compression, Manifest};
use fondaco_model::VersionNumber;
use fondaco_testing::{SmallDisk, eventually, until};

use crate::follow::has;
use crate::node::{KEYS, Node, PARTITIONS, PATIENCE, wait_for_state};
use crate::versions::{built, built_with, key, options, value};

fn number(number: u64) -> VersionNumber {
    VersionNumber::new(number).unwrap()
}

/// The directories in a reader's directory whose names begin so.
fn dirs(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(prefix);
    entries.map(|entry| entry.path()).filter(is_it).collect()
}

/// The example program, as a process of its own.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    fn command(node: &Node) -> Command {
        let tests = std::env::current_exe().unwrap();
        let program = tests.parent().unwrap().with_file_name("examples").join("follow");
        assert!(program.exists(), "build {program:?}: cargo build --example follow");
        let mut command = Command::new(program);
        command.args([&node.http(), "cities", node.directory().to_str().unwrap()]);
        command
    }

    pub(crate) fn start(node: &Node, bytes_per_second: Option<u64>) -> Self {
        let mut command = Self::command(node);
        command.args(bytes_per_second.map(|rate| rate.to_string()));
        Self::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        // It ends with the program's output.
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    /// Looks a key up in the program: the version and the value.
    pub(crate) fn ask(&mut self, key: &str) -> String {
        writeln!(self.child.stdin.as_ref().unwrap(), "{key}").unwrap();
        self.line()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_killed_reader_continues_its_fetch_and_reads_whole_versions_only() {
    let node = Node::start();
    node.push(1);
    let mut program = Program::start(&node, None);
    assert_eq!(program.line(), "swapped to 1");
    assert_eq!(program.ask(&key(5)), format!("1: {}", value(5, 1)));
    program.kill();

    // Killed while it fetches: some files are complete, and the manifest is not there.
    node.push(2);
    let program = Program::start(&node, Some(30_000));
    assert_eq!(program.line(), "opened 1");
    let complete = eventually("a complete file", || {
        let dir = dirs(&node.directory(), "fetching-2-").pop()?;
        let files = fs::read_dir(dir).ok()?.flatten();
        files
            .map(|file| file.path())
            .find(|path| path.extension().is_some_and(|kind| kind == "data"))
    });
    let inode = fs::metadata(&complete).unwrap().ino();
    program.kill();
    assert!(dirs(&node.directory(), "version-2-").is_empty());

    // Without the cluster it has the last complete version.
    let mut offline = node.options();
    offline.endpoints = vec![fondaco_embedded::Endpoint::of_http("127.0.0.1:1")];
    let reader = Reader::follow(offline).unwrap();
    assert_eq!(reader.version(), Some(number(1)));
    has(&reader, 1);
    drop(reader);

    let mut program = Program::start(&node, None);
    assert_eq!(program.line(), "opened 1");
    assert_eq!(program.line(), "swapped to 2");
    assert_eq!(program.ask(&key(5)), format!("2: {}", value(5, 2)));
    let dir = dirs(&node.directory(), "version-2-").pop().unwrap();
    let kept = fs::metadata(dir.join(complete.file_name().unwrap())).unwrap();
    assert_eq!(kept.ino(), inode, "the file was not fetched again");
    program.kill();

    // Killed after the swap.
    let mut program = Program::start(&node, None);
    assert_eq!(program.line(), "opened 2");
    assert_eq!(program.ask("nothing"), "2: (absent)");
}

#[test]
fn a_process_with_a_low_limit_of_open_files_follows_a_version_of_many_chunks() {
    let node = Node::start();
    let mut build = options(node.dir.path(), PARTITIONS, KEYS, KEYS, 1);
    build.chunk_bytes_target = 2 << 10;
    node.push_from(&built_with(&build));
    let follow = Program::command(&node);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 40 && exec \"$0\" \"$@\""]);
    command.arg(follow.get_program()).args(follow.get_args());
    let mut program = Program::spawn(&mut command);
    assert_eq!(program.line(), "swapped to 1");
    assert_eq!(program.ask(&key(5)), format!("1: {}", value(5, 1)));
    let dir = dirs(&node.directory(), "version-1-").pop().unwrap();
    assert!(Manifest::read(&dir).unwrap().chunks.len() > 64);
}

#[test]
fn a_second_process_is_refused_with_the_first_pid() {
    let node = Node::start();
    let _first = node.reader();
    let output = Program::command(&node).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(&std::process::id().to_string()), "{error}");
}

#[test]
fn a_damaged_record_is_an_error_until_its_partition_is_fetched_again() {
    let node = Node::start();
    node.push(1);
    let reader = node.reader();
    reader.wait_for(number(1), PATIENCE).unwrap();
    let dir = dirs(&node.directory(), "version-1-").pop().unwrap();
    let text = value(42, 1).into_bytes();
    let manifest = Manifest::read(&dir).unwrap();
    let (path, at) = manifest
        .chunks
        .iter()
        .find_map(|chunk| {
            let path = dir.join(&chunk.data.name);
            let bytes = fs::read(&path).unwrap();
            let at = bytes.windows(text.len()).position(|window| window == text)?;
            Some((path, at))
        })
        .unwrap();
    let damaged = fs::metadata(&path).unwrap().ino();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(b"#", at as u64)
        .unwrap();
    let snapshot = reader.snapshot().unwrap();
    let error = snapshot.get_owned(key(42)).unwrap_err().to_string();
    assert!(error.contains("corrupt"), "{error}");
    until("the repair", || match reader.get(key(42)) {
        Ok(found) => {
            assert_eq!(found, Some(text.clone()));
            true
        }
        Err(error) => {
            assert!(error.to_string().contains("corrupt"), "{error}");
            false
        }
    });
    assert_ne!(fs::metadata(&path).unwrap().ino(), damaged);
    assert_eq!(wait_for_state(&reader, State::Current), None);
    assert_eq!(reader.version(), Some(number(1)));
    // The files that were open before stay as they were.
    snapshot.get_owned(key(42)).unwrap_err();
    has(&reader, 1);
}

#[test]
fn a_directory_that_was_damaged_while_no_process_had_it_is_repaired() {
    let node = Node::start();
    node.push(1);
    let reader = node.reader();
    reader.wait_for(number(1), PATIENCE).unwrap();
    drop(reader);
    for kind in ["index", "data", "json"] {
        let dir = dirs(&node.directory(), "version-1-").pop().unwrap();
        let files = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let of_kind = files
            .into_iter()
            .find(|path| path.extension().is_some_and(|found| found == kind));
        let path = of_kind.unwrap();
        let bytes = fs::read(&path).unwrap();
        // A header, or the middle of the manifest.
        let at = if kind == "json" { bytes.len() / 2 } else { 20 };
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .write_all_at(b"\xff", at as u64)
            .unwrap();
        let reader = node.reader();
        assert_eq!(reader.version(), None, "{kind}");
        reader.wait_for(number(1), PATIENCE).unwrap();
        has(&reader, 1);
        drop(reader);
        assert_eq!(fs::read(&path).unwrap().len(), bytes.len());
    }
}

#[test]
fn a_full_disk_keeps_the_version_before_until_there_is_room() {
    let Some(disk) = SmallDisk::temporary(8 << 20) else {
        return;
    };
    let node = Node::start();
    let mut options = node.options();
    options.directory = disk.path().join("reader");
    options.retry_max = std::time::Duration::from_millis(100);
    let reader = Reader::follow(options).unwrap();
    node.push(1);
    reader.wait_for(number(1), PATIENCE).unwrap();

    disk.fill_up_to(32 << 10);
    node.push_from(&built(node.dir.path(), PARTITIONS, KEYS, 2, Compression::None));
    let error = wait_for_state(&reader, State::Retrying).unwrap();
    assert!(error.contains("not enough space"), "{error}");
    assert_eq!(reader.version(), Some(number(1)));
    has(&reader, 1);
    disk.make_room();
    reader.wait_for(number(2), PATIENCE).unwrap();
    has(&reader, 2);
    assert_eq!(reader.status().error, None);
}
