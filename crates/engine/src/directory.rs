//! The directory of an engine on disk: only one process may use it at a time.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::EngineError;
use crate::failure;

/// How long to wait for a lock: a child process that is being started shares the locks of its parent until it executes
/// its own program.
const LET_GO_MAX: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(5);

/// Creates the directory if it does not exist, and locks it until the file is closed.
pub(crate) fn lock(dir: &Path) -> Result<File, EngineError> {
    fondaco_durable::create_directory(dir).map_err(|error| failure::io("create", dir, error))?;
    let path = dir.join("engine.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| failure::io("create", &path, error))?;
    let deadline = Instant::now() + LET_GO_MAX;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(POLL),
            Err(TryLockError::WouldBlock) => return Err(EngineError::Locked { dir: dir.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(failure::io("lock", &path, error)),
        }
    }
}

pub(crate) use fondaco_durable::sync_directory as sync;

/// The disk space of the files in a directory, in bytes. Ignores files that disappear during the walk.
pub(crate) fn used_bytes(dir: &Path) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let used = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => used_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * BLOCK_BYTES,
        Err(_) => 0,
    };
    entries.flatten().map(used).sum()
}
