//! The codes of errors.

use fondaco_admin::AdminError;

use crate::commands::WrongUsage;

/// The code of an error, for programs: the code that the node returned, or one for a local failure.
pub fn code(error: &anyhow::Error) -> &str {
    match error.downcast_ref::<AdminError>() {
        Some(refused) => refused.code(),
        None if error.is::<WrongUsage>() => "wrong_usage",
        None => "failed",
    }
}

/// Whether a process refused with this code.
pub fn is_refused(error: &anyhow::Error, code: &str) -> bool {
    error
        .downcast_ref::<AdminError>()
        .is_some_and(|error| error.code() == code)
}
