//! Maps errors of the server and the connection to [`EngineError`].

use std::path::PathBuf;

use mysql::Error;

use crate::error::EngineError;

/// Error codes of MySQL and MariaDB.
const DISK_FULL: [u16; 2] = [1021, 1114];
const ENGINE_FAILED: u16 = 1030;
const NO_SUCH_TABLE: u16 = 1146;
const PACKET_TOO_LARGE: u16 = 1153;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const RECORD_HAS_CHANGED: u16 = 1020;
/// Errors that a server sends before it closes the connection.
const LAST_WORDS: [u16; 4] = [1053, 1153, 1927, 4031];

/// The source of an error.
pub(super) struct Failure<'a> {
    pub(super) server: &'a str,
}

impl Failure<'_> {
    /// Maps an error.
    pub(super) fn name(&self, action: &'static str, error: Error) -> EngineError {
        let server = self.server.to_owned();
        match error {
            Error::MySqlError(error) => match error.code {
                code if DISK_FULL.contains(&code) => EngineError::DiskFull {
                    dir: PathBuf::from(server),
                },
                ENGINE_FAILED if error.message.contains("28") => EngineError::DiskFull {
                    dir: PathBuf::from(server),
                },
                NO_SUCH_TABLE => EngineError::NoTable { table: error.message },
                PACKET_TOO_LARGE => self.refused(action, "a value is larger than its max_allowed_packet: raise it"),
                _ => self.refused(action, &error.to_string()),
            },
            error if error.is_connectivity_error() => EngineError::Unreachable {
                server,
                reason: error.to_string(),
            },
            error => self.refused(action, &error.to_string()),
        }
    }

    pub(super) fn refused(&self, action: &'static str, reason: &str) -> EngineError {
        EngineError::Refused {
            server: self.server.to_owned(),
            action,
            reason: reason.to_owned(),
        }
    }
}

/// Whether a transaction failed because of concurrent transactions and may be retried.
pub(super) fn others_were_in_the_way(error: &Error) -> bool {
    let Error::MySqlError(error) = error else { return false };
    [LOCK_WAIT_TIMEOUT, DEADLOCK, RECORD_HAS_CHANGED].contains(&error.code)
}

/// Whether a table in a statement does not exist.
pub(super) fn is_without_table(error: &Error) -> bool {
    matches!(error, Error::MySqlError(error) if error.code == NO_SUCH_TABLE)
}

/// Whether the error makes its connection unusable.
pub(super) fn ends_the_connection(error: &Error) -> bool {
    match error {
        Error::MySqlError(error) => LAST_WORDS.contains(&error.code),
        error => error.is_connectivity_error(),
    }
}
