//! Writes to hybrid stores: the event that a command writes to the topic of the store.
//!
//! An event is written without a read of the value. So commands whose effect depends on the value are refused, except sums and
//! updates of fields, which nodes apply when they read the event.

use bytes::Bytes;
use fondaco_catalog::EventStore;
use fondaco_model::ValueType;
use fondaco_stream::Change;

use super::expiry::Lifetime;
use super::operation::Operation;
use super::siblings::Siblings;
use super::strings::{Condition, SetReply, Strings};
use super::{Refusal, values};
use crate::server::refusal;

/// An event to be written, and the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct EventWrite {
    pub(in crate::server) change: Change,
    pub(in crate::server) reply: EventReply,
}

/// The reply to a write of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum EventReply {
    /// `OK`.
    Ok,
    /// 1 if there was a value before, else 0.
    Existed,
    /// The number after the event was applied.
    Number,
    /// The value after the event was applied, as JSON.
    Shown,
}

impl EventReply {
    /// Whether it needs the value after the event.
    pub(in crate::server) fn reads_after(self) -> bool {
        matches!(self, Self::Number | Self::Shown)
    }
}

/// The event that an operation on a key of a hybrid store writes.
///
/// # Errors
/// The error to answer with: the operation depends on the value, or key or value are not of the store's types.
pub(in crate::server) fn of(operation: Operation, store: &EventStore, key: &[u8]) -> Result<EventWrite, Refusal> {
    let name = &store.name;
    let refuse = |what: &str| {
        Err(format!(
            "ERR {what} is not for {name:?}: writes to a hybrid store become events in its topic, and cannot depend on the value. Use SET \
             without options, DEL, INCRBY or FONDACO.UPDATE"
        ))
    };
    let lives_otherwise = || {
        Err(format!(
            "ERR {name:?} is a hybrid store: events have no expiry of their own, all keys expire after the time to live of the store. Leave the option \
             out, and set it for all: fondaco store alter {name} --ttl TIME"
        ))
    };
    match &operation {
        Operation::Strings(Strings::Set(set)) if set.lifetime != Lifetime::Default => return lives_otherwise(),
        Operation::Strings(Strings::Set(set)) if set.condition != Condition::Always => {
            return refuse("SET with NX or XX");
        }
        Operation::Strings(Strings::Set(set)) if set.reply != SetReply::Ok => return refuse("SET with GET"),
        Operation::Strings(Strings::GetDelete) => return refuse("GETDEL"),
        Operation::Strings(Strings::Append(_)) => return refuse("APPEND"),
        Operation::Strings(Strings::SetRange(..)) => return refuse("SETRANGE"),
        Operation::Update(update) if update.lifetime() != Lifetime::Kept => return lives_otherwise(),
        Operation::Lifetimes(_) => return lives_otherwise(),
        Operation::Siblings(Siblings::Get) => {
            return Err(format!(
                "ERR FONDACO.GET reads versioned stores, and {name:?} is not one: use GET"
            ));
        }
        Operation::Siblings(_) => return refuse("a write with a context"),
        _ => {}
    }
    if store.value_type == ValueType::Graph {
        return Err(refusal::is_a_graph(name));
    }
    let is_set = matches!(&operation, Operation::Strings(Strings::Set(_)));
    if is_set && store.stream.has_registry {
        return Err(format!(
            "ERR values of events of {name:?} begin with the number of a schema in a registry: send them to its topic with a serializer of Confluent"
        ));
    }
    let update = |change: Bytes, reply| {
        Ok(EventWrite {
            change: Change::Update(change),
            reply,
        })
    };
    match values::checked(operation, store, key)? {
        Operation::Strings(Strings::Set(set)) => Ok(EventWrite {
            change: Change::Put(set.value),
            reply: EventReply::Ok,
        }),
        Operation::Strings(Strings::Delete) => Ok(EventWrite {
            change: Change::Delete,
            reply: EventReply::Existed,
        }),
        Operation::Strings(Strings::Add(by)) => {
            let text = format!("{{\"increment\":{by}}}");
            fondaco_schema::Update::parse(text.as_bytes()).map_err(|_| {
                format!("ERR an increment of {by} is too large for {name:?}: events add up to 2^53 at a time")
            })?;
            update(text.into(), EventReply::Number)
        }
        Operation::Update(asked) => {
            asked.check_event(name)?;
            if asked.returns() && store.value_type == ValueType::Ids {
                return Err("ERR RETURN is not for sets of ids: ask with SMEMBERS".into());
            }
            let reply = match asked.returns() {
                true => EventReply::Shown,
                false => EventReply::Ok,
            };
            update(asked.document(), reply)
        }
        // Look-ups are answered elsewhere.
        _ => refuse("this command"),
    }
}
