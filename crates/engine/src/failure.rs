//! Maps errors of file operations to [`EngineError`].

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::error::EngineError;

/// Maps an error of the operating system.
pub(crate) fn io(action: &'static str, dir: &Path, source: io::Error) -> EngineError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::DiskFull { dir: dir.to_owned() },
        // The file is shorter than its content says.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => corrupt(dir, source.to_string()),
        _ => EngineError::Io {
            action,
            place: dir.display().to_string(),
            source,
        },
    }
}

/// Maps an error of reading a file. Data that the disk cannot read counts as damaged, like data with a wrong checksum.
pub(crate) fn reading(path: &Path, source: io::Error) -> EngineError {
    match is_damage(&source) {
        true => corrupt(path, format!("it cannot be read: {source}")),
        false => io("read", path, source),
    }
}

/// Whether the file is shorter than before, or a part of it cannot be read.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof || is_unreadable(error)
}

/// Whether the disk or the file system reports that its data is damaged: a retry does not help.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    const DAMAGED: [Errno; 5] = [Errno::IO, Errno::NODATA, Errno::BADMSG, Errno::UCLEAN, Errno::REMOTEIO];
    let code = error.raw_os_error();
    code.is_some_and(|code| DAMAGED.iter().any(|errno| errno.raw_os_error() == code))
}

pub(crate) fn corrupt(dir: &Path, reason: impl Into<String>) -> EngineError {
    EngineError::Corrupt {
        place: dir.display().to_string(),
        reason: reason.into(),
        key: None,
    }
}

pub(crate) fn stopped(dir: &Path, reason: impl Into<String>) -> EngineError {
    EngineError::Stopped {
        dir: dir.to_owned(),
        reason: reason.into(),
    }
}
