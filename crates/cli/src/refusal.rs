//! The codes of errors.

use fondaco_admin::AdminError;
use fondaco_builder::BuildError;
use fondaco_export::ExportError;
use fondaco_push::PushError;

use crate::commands::WrongUsage;

/// The code of wrong arguments.
pub const WRONG_USAGE: &str = "wrong_usage";

/// The code of an error, for programs: the code that the node returned, or one for a local failure.
pub fn code(error: &anyhow::Error) -> &str {
    if let Some(error) = error.downcast_ref::<PushError>() {
        return error.code();
    }
    if let Some(error) = error.downcast_ref::<ExportError>() {
        return error.code();
    }
    if let Some(error) = error.downcast_ref::<BuildError>() {
        return error.code();
    }
    match error.downcast_ref::<AdminError>() {
        Some(error) => error.code(),
        None if error.is::<WrongUsage>() => WRONG_USAGE,
        None => "failed",
    }
}
