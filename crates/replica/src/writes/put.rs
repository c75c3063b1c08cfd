//! The new record of a write at the first replica. Without I/O.

use fondaco_model::versioned::{DotSource, Over, Record, Resolution, Update, VectorClock, WriteError};
use fondaco_protocol::replica::{PutOver, ReplicaError, ReplicaErrorCode};

/// The record after a write, with a new dot of this replica.
///
/// # Errors
/// `CONFLICT` if a record that had to be unchanged was changed, `OVERLOADED` if it has the maximum number of siblings.
pub fn written(
    mut local: Option<Record>,
    resolution: Resolution,
    dots: &mut DotSource,
    over: PutOver,
    context: &VectorClock,
    update: Update,
) -> Result<Record, ReplicaError> {
    // Its older siblings are never read: dropping them makes room for many concurrent writers of one key.
    if let (Resolution::Latest, Some(local)) = (resolution, &mut local) {
        local.forget_shadowed();
    }
    let over = match over {
        PutOver::Context => Over::Context(context),
        PutOver::All => Over::All(context),
        PutOver::Unchanged => Over::Unchanged(context),
    };
    Record::write(local.as_ref(), dots, over, update).map_err(|error| {
        let code = match error {
            WriteError::Conflict => ReplicaErrorCode::Conflict,
            WriteError::TooManySiblings { .. } | WriteError::TooManySums { .. } => ReplicaErrorCode::Overloaded,
            _ => ReplicaErrorCode::Other,
        };
        ReplicaError::new(code, error.to_string())
    })
}
