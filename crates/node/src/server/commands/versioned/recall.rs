//! Look-ups that are answered at once, in the middle of other requests of their connection: this node has the record
//! in memory, and need ask nobody else.

use fondaco_resp::Arguments;
use fondaco_resp::command::CommandId;

use super::admission::Admission;
use super::operation::Answer;
use super::telling::LONG_BYTES;
use crate::catalog::{StoreId, VersionedStore};

/// The store of a look-up of one key, and the answer, if memory has it and the client may read it. `None` for a request that
/// is to be refused, too: the admission of requests finds out why, and says so.
pub(in crate::server) fn recall(
    command: CommandId,
    arguments: &Arguments,
    buffer: &[u8],
    admission: &Admission<'_>,
) -> Option<(StoreId, Answer)> {
    let is_of_one = !matches!(command, CommandId::Exists | CommandId::Touch) || arguments.len() == 2;
    let wire_key = arguments.get(1, buffer).filter(|_| is_of_one)?;
    let (store, key) = readable(wire_key, admission)?;
    let answer = match (command, admission.forwarder.recall(admission.catalog, store, key)?) {
        (_, Err(error)) => Answer::Error((*error).to_owned()),
        // It may have to wait for memory.
        (CommandId::Get, Ok(Some(value))) if value.len() > LONG_BYTES => return None,
        (CommandId::Get, Ok(value)) => value.map_or(Answer::Null, Answer::Bulk),
        (CommandId::StrLen, Ok(value)) => Answer::Integer(value.map_or(0, |value| value.len() as i64)),
        (CommandId::Exists | CommandId::Touch, Ok(value)) => Answer::Integer(i64::from(value.is_some())),
        (CommandId::Type, Ok(value)) => Answer::Simple(if value.is_some() { "string" } else { "none" }),
        _ => return None,
    };
    Some((store.id, answer))
}

/// The store and the key of a key on the wire, if the client may read it.
pub(super) fn readable<'a>(wire_key: &'a [u8], admission: &Admission<'a>) -> Option<(&'a VersionedStore, &'a [u8])> {
    let (store, key) = admission.catalog.versioned_on_wire(wire_key)?;
    (!key.is_empty() && admission.session.may_read(&store.name)).then_some((store, key))
}
