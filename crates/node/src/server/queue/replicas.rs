//! The source *replicas*: operations on the replicas of a key, through the coordinator; and requests of other nodes to this
//! node's own replica.
//!
//! A plain write goes to replicas as it is. An operation that depends on the value reads it, and writes the new one on
//! condition that no other write came meanwhile; if one did, it begins again. Look-ups that begin together are one read.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fondaco_catalog::{Setting, VersionedStore};
use fondaco_client::ClientError;
use fondaco_client::quorum::{Edit, Expiry, Intent, Written};
use fondaco_client::read::HeldBudget;
use fondaco_client::trace::{Tracing, within};
use fondaco_metrics::Counter;
use fondaco_model::versioned::{Record, Resolution, Update, VectorClock};
use fondaco_protocol::WireKey;
use fondaco_protocol::now_unix_ms;
use fondaco_protocol::replica::{LocalReplica, ReplicaError, ReplicaErrorCode, ReplicaReply};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::completion::{Completer, LONG_BYTES, charged_bytes, no_room};
use super::{Part, Work, engine, events};
use crate::forward::{Forwarder, refusal};
use crate::server::buffers::Charge;
use crate::server::commands::expiry::Lifetime;
use crate::server::commands::operation::{Answer, Change, Circumstances, Operation};
use crate::server::commands::siblings::{Siblings, answer_siblings, parse_context, write_context};
use crate::server::commands::strings::Strings;
use crate::server::event_loop::LoopContext;
use crate::server::window::Tally;
use crate::single_value::{Current, value_of};

/// Begins work, whose end is reported to its connection. It is carried out even if the connection ends before.
pub(in crate::server) fn begin(context: &Rc<LoopContext>, work: Work) {
    match work {
        Work::Replica(request, completer) => {
            let budget = context.shared.config.buffers.clone();
            let answer = move |reply| completer.reply(reply, &budget);
            match &context.replica {
                Some(replica) => replica.request(request, Box::new(answer)),
                None => {
                    let message = "this process is a router, and holds no data";
                    answer(ReplicaReply::Error(ReplicaError::new(
                        ReplicaErrorCode::NotHere,
                        message,
                    )));
                }
            }
        }
        Work::Event(part, completer) => events::begin(context, part, completer),
        Work::Part(part, completer) => {
            if let Some((part, completer)) = engine::begin(context, part, completer) {
                begin_part(context, part, completer);
            }
        }
    }
}

/// Begins the operation on a key, through the coordinator.
pub(super) fn begin_part(context: &Rc<LoopContext>, part: Part, completer: Completer) {
    let Some(update) = plain_write(context, &part) else {
        return begin_charged(context, part, completer, None);
    };
    let (context, under_way) = (Rc::clone(context), context.forwarder.under_way(1));
    let key = match WireKey::parse(part.wire_key) {
        Ok(key) => key,
        Err(error) => return completer.answer(Answer::Error(refusal(error.into()))),
    };
    // One small task for a frequent request: it continues for replicas that are slow.
    let work = async move {
        let answer = |written: Result<Written, ClientError>| {
            drop(under_way);
            completer.answer(match written {
                Ok(_) => Answer::Ok,
                Err(error) => Answer::Error(refusal(error)),
            });
        };
        match context.forwarder.client() {
            Ok(client) => {
                let times = context.forwarder.write_times();
                client.write_to_the_end(key, Intent::All, update, times, answer).await;
            }
            Err(error) => answer(Err(error)),
        }
    };
    spawn(work);
}

/// Begins look-ups, of one key each, through the coordinator: as one read, which asks each node once. They may be aborted
/// when the client is gone.
pub(in crate::server) fn begin_reads(context: &Rc<LoopContext>, reads: Vec<(Part, Completer)>) -> Option<AbortHandle> {
    let keys = reads.iter().map(|(part, _)| WireKey::parse(part.wire_key.clone()));
    let keys: Vec<WireKey> = match keys.collect() {
        Ok(keys) => keys,
        // The error of the key that is invalid.
        Err(_) => {
            let each = reads.into_iter();
            each.for_each(|(part, completer)| begin_part(context, part, completer));
            return None;
        }
    };
    let (context, under_way) = (Rc::clone(context), context.forwarder.under_way(reads.len()));
    let task = tokio::task::spawn_local(async move {
        let records = read(&context.forwarder, keys).await;
        drop(under_way);
        // The room is held until long values are charged, or let go.
        let (mut records, _room) = match records {
            Ok((records, room)) => (records.into_iter(), room),
            Err(error) => {
                let error = refusal(error);
                context.metrics.add(Counter::FailedLookups, reads.len() as u64);
                reads
                    .into_iter()
                    .for_each(|(_, completer)| completer.answer(Answer::Error(error.clone())));
                return;
            }
        };
        // A look-up needs only the time.
        let here = Circumstances {
            now_unix_ms: now_unix_ms(),
            ttl_ms: None,
            value_bytes_max: 0,
        };
        let (mut tally, mut long) = (Tally::default(), Vec::new());
        for (part, completer) in reads {
            let record = records.next().unwrap_or(Ok(Record::default()));
            let answer = record.map_err(refusal).and_then(|record| {
                let current = value_of(&record, &part.store, here.now_unix_ms)?;
                tally.hot += 1;
                tally.absent += u64::from(current.is_none());
                Ok(part.operation.apply(current.as_ref(), &here).1)
            });
            tally.failed += u64::from(answer.is_err());
            let answer = answer.unwrap_or_else(Answer::Error);
            if answer.bytes() <= LONG_BYTES {
                completer.answer(answer);
                continue;
            }
            let (bytes, mut charge) = (charged_bytes(answer.bytes()), context.shared.config.buffers.charge());
            if charge.try_room_for(bytes) {
                charge.set(bytes);
                completer.answer_charged(answer, Some(charge));
            } else {
                long.push((part, completer, bytes));
            }
        }
        tally.count_in(&context.metrics);
        // They are read again, each when there is memory for its value.
        for (part, completer, bytes) in long {
            begin_charged(&context, part, completer, Some(bytes));
        }
    });
    Some(task.abort_handle())
}

/// The records of keys: the data that the replicas that were asked hold together. One for each key, in order; with the
/// room for them in the budget of values on their way to clients, to be held as long as they are.
async fn read(
    forwarder: &Forwarder,
    keys: Vec<WireKey>,
) -> Result<(Vec<Result<Record, ClientError>>, HeldBudget), ClientError> {
    forwarder.client()?.get_records(keys, &forwarder.read_options()).await
}

/// Begins a task, with the current tracing. Untraced work is not wrapped: it would take twice the room.
pub(super) fn spawn(work: impl Future<Output = ()> + 'static) {
    match Tracing::current() {
        None => drop(tokio::task::spawn_local(work)),
        tracing => drop(tokio::task::spawn_local(within(tracing, work))),
    }
}

/// The new value of a key, if it replaces all there are whatever they are.
fn plain_write(context: &LoopContext, part: &Part) -> Option<Update> {
    let set = part.operation.unconditional()?;
    let here = circumstances(context, &part.store);
    let is_counter = part.store.settings.resolution == Resolution::Counter;
    (!is_counter).then(|| Update::put(set.value.clone(), here.now_unix_ms, here.expiry_of(set.lifetime, None)))
}

fn circumstances(context: &LoopContext, store: &VersionedStore) -> Circumstances {
    Circumstances {
        now_unix_ms: now_unix_ms(),
        ttl_ms: store.settings.ttl_ms,
        value_bytes_max: context.shared.settings.get(Setting::BulkBytesMax) as usize,
    }
}

/// An operation on its key.
struct Carrying<'a> {
    context: &'a LoopContext,
    store: &'a Arc<VersionedStore>,
    key: WireKey,
}

/// Begins an operation that is no plain write, as a task. See [`carry_out_charged`].
fn begin_charged(context: &Rc<LoopContext>, part: Part, completer: Completer, known_bytes: Option<u64>) {
    let (context, under_way) = (Rc::clone(context), context.forwarder.under_way(1));
    spawn(async move {
        let _under_way = under_way;
        let (answer, charge) = carry_out_charged(&context, &part, known_bytes).await;
        completer.answer_charged(answer, charge);
    });
}

/// The answer, and its charge if it is long. A long value for which there is no room is let go, and read again
/// when there is; one whose charge is known waits for room before it is read.
async fn carry_out_charged(
    context: &LoopContext,
    part: &Part,
    mut known_bytes: Option<u64>,
) -> (Answer, Option<Charge>) {
    let budget = &context.shared.config.buffers;
    let mut waited: Option<Charge> = None;
    loop {
        if let Some(bytes) = known_bytes.take() {
            let mut charge = waited.take().unwrap_or_else(|| budget.charge());
            let timeout = Duration::from_millis(context.shared.settings.get(Setting::ForwardTimeoutMs));
            if tokio::time::timeout(timeout, charge.room_for(bytes)).await.is_err() {
                context.metrics.add(Counter::Overloads, 1);
                return (Answer::Error(format!("OVERLOADED {}", no_room(budget))), None);
            }
            waited = Some(charge);
        }
        let answer = carry_out(context, part).await.unwrap_or_else(Answer::Error);
        if answer.bytes() <= LONG_BYTES {
            return (answer, None);
        }
        let bytes = charged_bytes(answer.bytes());
        let mut charge = waited.take().unwrap_or_else(|| budget.charge());
        if !part.operation.is_read() || charge.has_room_for(bytes) {
            charge.set(bytes);
            return (answer, Some(charge));
        }
        (known_bytes, waited) = (Some(bytes), Some(charge));
    }
}

async fn carry_out(context: &LoopContext, part: &Part) -> Result<Answer, String> {
    let carrying = Carrying {
        context,
        store: &part.store,
        key: WireKey::parse(part.wire_key.clone()).map_err(|error| refusal(error.into()))?,
    };
    let is_counter = part.store.settings.resolution == Resolution::Counter;
    match &part.operation {
        Operation::Siblings(siblings) => carrying.siblings(siblings).await,
        Operation::Strings(Strings::Add(by)) if is_counter => carrying.count(*by).await,
        operation if operation.is_read() => carrying.look_up(operation).await,
        operation => carrying.change(operation).await,
    }
}

impl Carrying<'_> {
    fn here(&self) -> Circumstances {
        circumstances(self.context, self.store)
    }

    async fn read(&self) -> Result<Record, String> {
        let read = read(&self.context.forwarder, vec![self.key.clone()]).await;
        // One key has one record.
        let record = read.and_then(|(mut records, _room)| records.pop().unwrap_or(Ok(Record::default())));
        record.map_err(refusal)
    }

    async fn write(&self, intent: Intent, update: Update) -> Result<Written, String> {
        let forwarder = &self.context.forwarder;
        let client = forwarder.client().map_err(refusal)?;
        let written = client.write(self.key.clone(), intent, update, forwarder.write_times());
        written.await.map_err(refusal)
    }

    fn value_of(&self, record: &Record, here: &Circumstances) -> Result<Option<Current>, String> {
        value_of(record, self.store, here.now_unix_ms)
    }

    /// Reads all values, or writes over those that a client has read.
    async fn siblings(&self, siblings: &Siblings) -> Result<Answer, String> {
        let resolution = self.store.settings.resolution;
        let (context, update) = match siblings {
            Siblings::Get => return answer_siblings(&self.read().await?, self.store),
            // The client would have to know how far each sum had come.
            _ if resolution == Resolution::Counter => {
                let store = self.store.name.as_str().into();
                return Err(refusal(ClientError::ContextOfCounter { store }));
            }
            Siblings::Put {
                context,
                value,
                lifetime,
            } => {
                let here = self.here();
                let expires_unix_ms = here.expiry_of(*lifetime, None);
                (context, Update::put(value.clone(), here.now_unix_ms, expires_unix_ms))
            }
            Siblings::Delete { context } => (context, Update::delete(now_unix_ms())),
        };
        let written = self.write(Intent::Context(parse_context(context)?), update).await?;
        Ok(Answer::Bulk(write_context(&written.context)))
    }

    /// Answers a look-up.
    async fn look_up(&self, operation: &Operation) -> Result<Answer, String> {
        let here = self.here();
        let current = self.value_of(&self.read().await?, &here)?;
        let (change, answer) = operation.apply(current.as_ref(), &here);
        debug_assert!(matches!(change, Change::None), "{operation:?} is a read");
        Ok(answer)
    }

    /// Adds to a counter, which never conflicts. The counter is read only for the reply, and to see that it is a number.
    async fn count(&self, by: i64) -> Result<Answer, String> {
        let here = self.here();
        let current = self.value_of(&self.read().await?, &here)?;
        let (change, answer) = Strings::Add(by).apply(current.as_ref(), &here);
        if matches!(change, Change::Write(_)) {
            let expires_unix_ms = here.expiry_of(Lifetime::Kept, current.as_ref());
            let update = Update::add(by, here.now_unix_ms, expires_unix_ms);
            self.write(Intent::Context(VectorClock::default()), update).await?;
        }
        Ok(answer)
    }

    /// Writes the value that follows from the present one, if no other write comes meanwhile.
    async fn change(&self, operation: &Operation) -> Result<Answer, String> {
        let answered = Arc::new(Mutex::new(None));
        let decide = {
            let (operation, answered) = (operation.clone(), Arc::clone(&answered));
            let (store, here) = (Arc::clone(self.store), self.here());
            move |record: &Record, now_unix_ms| {
                let here = Circumstances { now_unix_ms, ..here };
                let (change, answer) = match value_of(record, &store, now_unix_ms) {
                    Ok(current) => operation.apply(current.as_ref(), &here),
                    Err(error) => (Change::None, Answer::Error(error)),
                };
                *answered.lock() = Some(answer);
                edit(change, operation.fields())
            }
        };
        let forwarder = &self.context.forwarder;
        let options = forwarder.edit_options(operation.added_meanwhile());
        let client = forwarder.client().map_err(refusal)?;
        let edited = client.edit(self.key.clone(), Box::new(decide), options).await;
        let updated = edited.map_err(refusal)?;
        if *operation == Operation::Strings(Strings::Delete) && updated.context.is_none() && !self.sees_all() {
            // Replicas may have values that were not seen: they are deleted unseen.
            self.write(Intent::All, Update::delete(now_unix_ms())).await?;
        }
        let answer = answered.lock().take();
        // The decision has set the answer.
        Ok(answer.unwrap_or(Answer::Null))
    }

    /// Whether a read sees every write that was acknowledged before it.
    fn sees_all(&self) -> bool {
        let settings = &self.store.settings;
        settings.reads + settings.writes > self.store.replicas && !settings.sloppy
    }
}

/// A change as the coordinator takes it.
fn edit(change: Change, fields: Option<Box<[Box<str>]>>) -> Edit {
    match change {
        Change::None => Edit::Keep,
        Change::Delete => Edit::Delete,
        Change::Write(Current { value, expires_unix_ms }) => {
            let expiry = match expires_unix_ms {
                Some(unix_ms) => Expiry::At { unix_ms },
                None => Expiry::Never,
            };
            match fields {
                Some(fields) => Edit::PutFields { value, fields, expiry },
                None => Edit::Put { value, expiry },
            }
        }
    }
}
