//! Writes of keys that no other node has: handed to this node's replica without a coordinator, those that all
//! connections of a loop begin in one turn together.
//!
//! What the replica will not take so is carried out through the coordinator after all, as long as nothing of it was
//! written.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fondaco_model::versioned::{Record, Update};
use fondaco_replica::{DirectEnd, DirectPlace, DirectWrites, Replicas};
use tokio::sync::Notify;

use super::coordinate;
use super::effect::{Change, Circumstances};
use super::operation::{Answer, Operation};
use super::pipeline::Part;
use super::telling::Teller;
use crate::catalog::Catalog;
use crate::forward::UnderWay;
use crate::resolved::{Current, value_of};
use crate::server::event_loop::LoopContext;
use crate::settings::Setting;

/// How many writes are handed over together without waiting for more connections. Few, so that they still lie in the
/// core's caches when they are committed.
const BATCH_ENOUGH: usize = 32;
/// How many are handed over together, at most.
const BATCH_MAX: usize = 256;
/// How many bytes, but for the last.
const BATCH_BYTES_MAX: usize = 96 * 1024;

/// The direct writes of one event loop.
pub(in crate::server) struct DirectWriter {
    replicas: Option<Arc<Replicas>>,
    gathered: RefCell<Vec<Batch>>,
    /// Something was gathered.
    begun: Notify,
    ended: Arc<Ended>,
    /// The number of the next batch that is handed over.
    next: Cell<u64>,
    under_way: RefCell<HashMap<u64, UnderWay>>,
}

/// Writes that go to one shard, of one store.
struct Batch {
    of: (usize, u16),
    bytes: usize,
    places: Vec<DirectPlace>,
    writes: Vec<Write>,
}

/// A write, who waits for it, and what it is answered with once it is made.
struct Write {
    part: Part,
    teller: Teller,
    answer: Answer,
}

/// What shards hand back to a loop.
#[derive(Default)]
struct Ended {
    batches: Mutex<Vec<(HandedOver, Vec<DirectEnd>)>>,
    told: Notify,
}

/// A batch that a shard has.
struct HandedOver {
    number: u64,
    writes: Vec<Write>,
    value_bytes_max: usize,
    ended: Arc<Ended>,
}

impl DirectWriter {
    pub(in crate::server) fn new(replicas: Option<Arc<Replicas>>) -> Self {
        Self {
            replicas,
            gathered: RefCell::default(),
            begun: Notify::new(),
            ended: Arc::default(),
            next: Cell::new(0),
            under_way: RefCell::default(),
        }
    }

    /// Begins a write whose [place](Self::place_of) is this.
    pub(super) fn begin(context: &Rc<LoopContext>, place: DirectPlace, part: Part, teller: Teller) {
        let write = Write {
            part,
            teller,
            answer: Answer::Ok,
        };
        if let Some(full) = context.direct.gather(place, write) {
            full.hand_over(context);
        }
    }

    /// Puts a write to the others that are to be handed over. Those that have become as many as there may be.
    fn gather(&self, place: DirectPlace, write: Write) -> Option<Batch> {
        let mut gathered = self.gathered.borrow_mut();
        if gathered.is_empty() {
            // Whoever has been woken before hands it over later than all connections that are ready now.
            self.begun.notify_one();
        }
        let of = place.batch();
        let at = gathered.iter().position(|batch| batch.of == of).unwrap_or_else(|| {
            gathered.push(Batch {
                of,
                bytes: 0,
                places: Vec::with_capacity(BATCH_ENOUGH),
                writes: Vec::with_capacity(BATCH_ENOUGH),
            });
            gathered.len() - 1
        });
        let batch = &mut gathered[at];
        batch.bytes += write.part.wire_key.len() + write.part.operation.value_bytes();
        batch.places.push(place);
        batch.writes.push(write);
        let is_full = batch.writes.len() >= BATCH_MAX || batch.bytes >= BATCH_BYTES_MAX;
        is_full.then(|| gathered.swap_remove(at))
    }

    /// The place of what is asked, if it is a write that this node makes alone.
    pub(super) fn place_of(&self, part: &Part, catalog: &Catalog) -> Option<DirectPlace> {
        if !part.operation.is_of_value() {
            return None;
        }
        let store = &part.store;
        let partitions = catalog.membership()?.topology().partitions;
        let partition = partitions.partition_of(store.slot(&part.wire_key));
        let key = part.wire_key.slice(store.name.as_str().len() + 1..);
        self.replicas.as_ref()?.direct_place(store.id.get(), partition, key)
    }

    /// Hands over what was gathered, again and again.
    pub(in crate::server) async fn hand_over(context: Rc<LoopContext>) {
        loop {
            context.direct.begun.notified().await;
            Self::hand_over_all(&context);
        }
    }

    /// Hands over what was gathered, if it is enough. To be called between the requests of two connections, so that those
    /// of one are answered together.
    pub(in crate::server) fn hand_over_enough(context: &Rc<LoopContext>) {
        let is_enough = |batch: &Batch| batch.writes.len() >= BATCH_ENOUGH;
        if context.direct.gathered.borrow().iter().any(is_enough) {
            Self::hand_over_all(context);
        }
    }

    fn hand_over_all(context: &Rc<LoopContext>) {
        let gathered = context.direct.gathered.take();
        gathered.into_iter().for_each(|batch| batch.hand_over(context));
    }

    /// Tells connections what came of their writes, again and again.
    pub(in crate::server) async fn tell(context: Rc<LoopContext>) {
        loop {
            context.direct.ended.told.notified().await;
            Self::tell_ended(&context);
        }
    }

    fn tell_ended(context: &Rc<LoopContext>) {
        let ended = std::mem::take(&mut *context.direct.ended.batches());
        for (batch, ends) in ended {
            context.direct.under_way.borrow_mut().remove(&batch.number);
            let count = |is: fn(&DirectEnd) -> bool| ends.iter().filter(|&end| is(end)).count() as u64;
            context.metrics.quorums.count_alone(
                count(|end| matches!(end, DirectEnd::Done)),
                count(|end| matches!(end, DirectEnd::Unknown(_))),
            );
            for (write, end) in batch.writes.into_iter().zip(ends) {
                write.tell(end, context);
            }
        }
    }
}

impl Batch {
    fn hand_over(self, context: &Rc<LoopContext>) {
        let direct = &context.direct;
        let Some(replicas) = &direct.replicas else { return };
        let settings = &context.shared.settings;
        let timeout = Duration::from_millis(settings.get(Setting::ForwardTimeoutMs));
        let number = direct.next.replace(direct.next.get() + 1);
        let under_way = context.forwarder.under_way(self.writes.len());
        direct.under_way.borrow_mut().insert(number, under_way);
        let writes = HandedOver {
            number,
            writes: self.writes,
            value_bytes_max: settings.get(Setting::BulkBytesMax) as usize,
            ended: Arc::clone(&direct.ended),
        };
        replicas.write_directly(self.places, self.bytes, timeout, Box::new(writes));
        // What this thread has written itself.
        DirectWriter::tell_ended(context);
    }
}

impl Write {
    fn tell(self, end: DirectEnd, context: &Rc<LoopContext>) {
        match end {
            DirectEnd::Done => self.teller.answer(self.answer),
            // It is found out, and said, why.
            DirectEnd::Refused(_) => coordinate::begin_part(context, self.part, self.teller),
            DirectEnd::Unknown(error) => {
                let error = format!("NOQUORUM 0 of 1 writes: this node said {:?}", error.to_string());
                self.teller.answer(Answer::Error(error));
            }
        }
    }
}

impl DirectWrites for HandedOver {
    fn looks(&self, at: usize) -> bool {
        let write = self.writes.get(at);
        write.is_some_and(|write| write.part.operation.unconditional().is_none())
    }

    fn decide(&mut self, at: usize, current: &Record, now_unix_ms: u64) -> Option<Update> {
        let Write { part, answer, .. } = self.writes.get_mut(at)?;
        let settings = &part.store.settings;
        let here = Circumstances {
            now_unix_ms,
            ttl_ms: settings.ttl_ms,
            value_bytes_max: self.value_bytes_max,
        };
        if let Some(set) = part.operation.unconditional() {
            let expires_unix_ms = here.end_of(set.lifetime, None);
            return Some(Update::put(set.value.clone(), now_unix_ms, expires_unix_ms));
        }
        match value_of(current, settings.resolution, now_unix_ms) {
            Ok(current) => {
                let change;
                (change, *answer) = part.operation.apply(current.as_ref(), &here);
                match change {
                    Change::None => None,
                    Change::Delete => Some(Update::delete(now_unix_ms)),
                    Change::Write(Current { value, expires_unix_ms }) => {
                        Some(Update::put(value, now_unix_ms, expires_unix_ms))
                    }
                }
            }
            Err(error) => {
                *answer = Answer::Error(error);
                None
            }
        }
    }

    fn decide_damaged(&mut self, at: usize, now_unix_ms: u64) -> Option<Update> {
        let Write { part, answer, .. } = self.writes.get_mut(at)?;
        match part.operation {
            Operation::Delete => {
                // There was something, whatever it was.
                *answer = Answer::Integer(1);
                Some(Update::delete(now_unix_ms))
            }
            _ if part.operation.unconditional().is_some() => self.decide(at, &Record::default(), now_unix_ms),
            _ => None,
        }
    }

    fn end(self: Box<Self>, ends: Vec<DirectEnd>) {
        let ended = Arc::clone(&self.ended);
        let is_first = {
            let mut batches = ended.batches();
            batches.push((*self, ends));
            batches.len() == 1
        };
        // Waking another thread costs a system call.
        if is_first {
            ended.told.notify_one();
        }
    }
}

impl Ended {
    fn batches(&self) -> std::sync::MutexGuard<'_, Vec<(HandedOver, Vec<DirectEnd>)>> {
        // A list, whole whoever panicked.
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Operation {
    /// Whether it is a write that needs no more than the one value of its key.
    fn is_of_value(&self) -> bool {
        !self.is_read() && !matches!(self, Self::PutOver { .. } | Self::DeleteOver { .. })
    }

    /// The bytes of the value that comes with it.
    fn value_bytes(&self) -> usize {
        match self {
            Self::Set(set) => set.value.len(),
            Self::Append(tail) => tail.len(),
            Self::SetRange(_, part) => part.len(),
            _ => 0,
        }
    }
}
