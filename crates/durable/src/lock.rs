//! The lock of a directory that belongs to one process at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// The file in the directory that is locked. It contains the pid of the process.
const LOCK_FILE: &str = "lock";

/// A locked directory. The lock ends with this value or with the process, however the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// A directory cannot be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process has it.
    Held {
        /// The pid of that process, or `unknown`.
        pid: String,
    },
    /// The operating system refused an action.
    Io {
        /// The action, as a verb.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
}

impl DirectoryLock {
    /// Locks a directory, which exists.
    ///
    /// # Errors
    /// [`LockError::Held`] if another process has it, or an error of the operating system.
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        let io = |action| move |source| LockError::Io { action, source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(dir.join(LOCK_FILE)).map_err(io("open"))?;
        match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // For the message only: if the pid cannot be read, the directory is still locked.
                let _ = file.read_to_string(&mut holder);
                return Err(LockError::Held {
                    pid: match holder.trim() {
                        "" => "unknown".to_owned(),
                        pid => pid.chars().take(20).collect(),
                    },
                });
            }
            Err(error) => return Err(io("lock")(error.into())),
        }
        let write_pid = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write_pid(&mut file).map_err(io("write"))?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_with_the_first_pid() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirectoryLock::take(dir.path()).unwrap();
        let Err(LockError::Held { pid }) = DirectoryLock::take(dir.path()) else {
            panic!("it was locked twice");
        };
        assert_eq!(pid, std::process::id().to_string());
        drop(first);
        DirectoryLock::take(dir.path()).unwrap();
    }
}
