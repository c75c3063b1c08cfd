//! What a write that comes to a replica first makes of the record there. Without I/O.

use fondaco_model::versioned::{DotSource, Over, Record, Resolution, Update, VectorClock, WriteError};
use fondaco_protocol::replica::{PutOver, ReplicaError, ReplicaErrorCode};

/// The record after a write, with a new dot of this replica's.
///
/// # Errors
/// `CONFLICT` where a record was to be unchanged and is not, `OVERLOADED` where it has as many siblings as there may be.
pub fn written(
    mut local: Option<Record>,
    resolution: Resolution,
    dots: &mut DotSource,
    over: PutOver,
    context: &VectorClock,
    update: Update,
) -> Result<Record, ReplicaError> {
    // They are not read: many writers of one key at once find room.
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
