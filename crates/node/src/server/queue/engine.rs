//! The source *engine*: writes of keys that no other node has. They are handed to this node's replica without a coordinator, by the batcher of the loop.
//!
//! A write that the replica refuses is carried out through the coordinator after all: nothing of it was written.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fondaco_catalog::Setting;
use fondaco_model::versioned::{Record, Resolution, Update};
use fondaco_replica::{DirectEnd, DirectPlace, DirectWrite, WriteBatcher};

use super::completion::Completer;
use super::{Part, replicas};
use crate::forward::UnderWay;
use crate::server::commands::operation::{Answer, Change, Circumstances, Operation};
use crate::server::commands::strings::Strings;
use crate::server::event_loop::LoopContext;
use crate::single_value::{Current, value_of};

/// The writes of one event loop.
pub(in crate::server) type Batcher = WriteBatcher<Write>;

/// A write, the connection that waits for it, and the answer once it is made.
pub(in crate::server) struct Write {
    part: Part,
    completer: Completer,
    answer: Answer,
    value_bytes_max: usize,
    under_way: UnderWay,
}

/// Begins an operation as a direct write, if it is a write that this node makes alone. Otherwise it is given back.
pub(super) fn begin(context: &LoopContext, part: Part, completer: Completer) -> Option<(Part, Completer)> {
    let (Some(batcher), Some(place)) = (&context.replica, place_of(context, &part)) else {
        return Some((part, completer));
    };
    let settings = &context.shared.settings;
    let bytes = part.wire_key.len() + part.operation.value_bytes();
    let write = Write {
        part,
        completer,
        answer: Answer::Ok,
        value_bytes_max: settings.get(Setting::BulkBytesMax) as usize,
        under_way: context.forwarder.under_way(1),
    };
    let timeout = Duration::from_millis(settings.get(Setting::ForwardTimeoutMs));
    batcher.write(place, bytes, timeout, write);
    None
}

fn place_of(context: &LoopContext, part: &Part) -> Option<DirectPlace> {
    if !part.operation.is_of_value() {
        return None;
    }
    let store = &part.store;
    let slot = store.slot(&part.wire_key);
    let key = part.wire_key.slice(store.name.as_str().len() + 1..);
    let replicas = context.shared.config.replicas.as_ref()?;
    replicas.direct_place(store.id.get(), slot, key)
}

/// Tells connections, and what else asks this node's replica, what came of it, for ever.
pub(in crate::server) async fn tell(context: Rc<LoopContext>, batcher: Arc<Batcher>) {
    let ended = |writes: Vec<(Write, DirectEnd)>| {
        let count = |is: fn(&DirectEnd) -> bool| writes.iter().filter(|(_, end)| is(end)).count() as u64;
        context.metrics.quorums.count_alone(
            count(|end| matches!(end, DirectEnd::Done)),
            count(|end| matches!(end, DirectEnd::Unknown(_))),
        );
        for (write, end) in writes {
            write.tell(end, &context);
        }
    };
    batcher.tell(ended).await;
}

impl Write {
    fn tell(self, end: DirectEnd, context: &Rc<LoopContext>) {
        drop(self.under_way);
        match end {
            DirectEnd::Done => self.completer.answer(self.answer),
            // The coordinator finds out why, and says so.
            DirectEnd::Refused(_) => replicas::begin_part(context, self.part, self.completer),
            DirectEnd::Unknown(error) => {
                let error = format!(
                    "NOQUORUM 0 of 1 writes: this node said {:?}; it may have been written, and be read later",
                    error.to_string()
                );
                self.completer.answer(Answer::Error(error));
            }
        }
    }
}

impl DirectWrite for Write {
    fn looks(&self) -> bool {
        self.part.operation.unconditional().is_none()
    }

    fn decide(&mut self, current: &Record, now_unix_ms: u64) -> Option<Update> {
        let Self { part, answer, .. } = self;
        let settings = &part.store.settings;
        let here = Circumstances {
            now_unix_ms,
            ttl_ms: settings.ttl_ms,
            value_bytes_max: self.value_bytes_max,
        };
        if let Some(set) = part.operation.unconditional() {
            let expires_unix_ms = here.expiry_of(set.lifetime, None);
            return Some(Update::put(set.value.clone(), now_unix_ms, expires_unix_ms));
        }
        match value_of(current, &part.store, now_unix_ms) {
            Ok(known) => {
                let change;
                (change, *answer) = part.operation.apply(known.as_ref(), &here);
                match change {
                    Change::None => None,
                    Change::Delete => Some(Update::delete(now_unix_ms)),
                    Change::Write(Current { value, expires_unix_ms }) => {
                        let fields = part.operation.fields();
                        let fields = fields.filter(|_| settings.resolution == Resolution::Fields);
                        Some(match fields {
                            Some(fields) => Update::put_fields(current, value, &fields, now_unix_ms, expires_unix_ms),
                            None => Update::put(value, now_unix_ms, expires_unix_ms),
                        })
                    }
                }
            }
            Err(error) => {
                *answer = Answer::Error(error);
                None
            }
        }
    }

    fn decide_damaged(&mut self, now_unix_ms: u64) -> Option<Update> {
        match self.part.operation {
            Operation::Strings(Strings::Delete) => {
                // There was something, whatever it was.
                self.answer = Answer::Integer(1);
                Some(Update::delete(now_unix_ms))
            }
            _ if !self.looks() => self.decide(&Record::default(), now_unix_ms),
            _ => None,
        }
    }
}

impl Operation {
    /// Whether it is a write that needs no more than the one value of its key.
    fn is_of_value(&self) -> bool {
        matches!(self, Self::Strings(_) | Self::Lifetimes(_) | Self::Update(_))
    }

    /// The bytes of the value that comes with it.
    fn value_bytes(&self) -> usize {
        match self {
            Self::Strings(strings) => strings.value_bytes(),
            Self::Update(update) => update.bytes(),
            _ => 0,
        }
    }
}
