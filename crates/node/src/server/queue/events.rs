//! The source *topic*: writes to hybrid stores. An event is written to the topic of the store, and answered once the brokers have
//! acknowledged it; if the reply needs that, once reads through this process see it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_catalog::{Catalog, EventStore};
use fondaco_metrics::Counter;
use fondaco_model::Acknowledge;
use fondaco_protocol::now_unix_ms;
use fondaco_stream::{Change, Poison, WriteError, Written};
use tokio::sync::oneshot;

use super::completion::{Completer, Place};
use crate::server::commands::Refusal;
use crate::server::commands::events::{EventReply, EventWrite};
use crate::server::commands::operation::Answer;
use crate::server::event_loop::LoopContext;
use crate::server::versions::place_of;
use crate::server::window::KeyPlace;
use crate::server::{ServerState, events, refusal};

/// How long a client waits for the acknowledgement: a little longer than the producer, which may notice late that it has given up.
const ACKNOWLEDGED_MAX: Duration = Duration::from_secs(6);

/// The part of a request that writes an event of one key.
pub(in crate::server) struct EventPart {
    pub(super) place: Place,
    pub(super) store: Arc<EventStore>,
    /// With the name of the store before it.
    pub(super) wire_key: Bytes,
    pub(super) write: EventWrite,
}

/// Begins a write, as a task that continues when the connection ends.
pub(super) fn begin(context: &Rc<LoopContext>, part: EventPart, completer: Completer) {
    let (context, under_way) = (Rc::clone(context), context.forwarder.under_way(1));
    super::replicas::spawn(async move {
        let answer = carry_out(&context, &part).await;
        let counter = match &answer {
            Ok(_) => Counter::EventsWritten,
            Err(_) => Counter::EventWriteFailures,
        };
        context.metrics.add(counter, 1);
        drop(under_way);
        completer.answer(answer.unwrap_or_else(Answer::Error));
    });
}

async fn carry_out(context: &LoopContext, part: &EventPart) -> Result<Answer, Refusal> {
    let EventWrite { change, reply } = &part.write;
    let (store, key) = (&part.store, part.wire_key.slice(part.store.name.as_str().len() + 1..));
    let waits = reply.reads_after() || store.stream.acknowledge == Acknowledge::Applied;
    if waits {
        check_readable(context, store)?;
    }
    let existed = match reply {
        // It is written in any case: a key that cannot be read counts.
        EventReply::Existed => value(context, store, &key)
            .await
            .map_or(1, |value| i64::from(value.is_some())),
        _ => 0,
    };
    let written = log_event(&context.shared, store, key.clone(), change.clone())?.await?;
    if waits {
        applied(context, store, &key, written).await?;
    }
    match reply {
        EventReply::Ok => Ok(Answer::Ok),
        EventReply::Existed => Ok(Answer::Integer(existed)),
        EventReply::Number => number(value(context, store, &key).await?, store),
        EventReply::Shown => shown(value(context, store, &key).await?, store),
    }
}

/// Begins to write an event. The result is its place, once the brokers have acknowledged it, or the error to answer with.
///
/// # Errors
/// The error to answer with: it can be no event.
pub(crate) fn log_event(
    shared: &Arc<ServerState>,
    store: &EventStore,
    key: Bytes,
    change: Change,
) -> Result<impl Future<Output = Result<Written, Refusal>> + use<>, Refusal> {
    let now_ms = now_unix_ms();
    let topic = &store.stream.topic;
    let event = shared.config.events.event(topic, key, change, now_ms);
    event
        .check(now_ms, topic.clock_ahead_ms)
        .map_err(|Poison(reason)| format!("ERR {reason}; nothing was written"))?;
    let (written, acknowledged) = oneshot::channel();
    let (slot, stream) = (store.slots.slot(&event.key), Arc::clone(&store.stream));
    let (is_prompt, shared) = (shared.config.events.is_prompt(&stream.topic), Arc::clone(shared));
    let write = move || {
        // The receiver is gone if the request is.
        let on_written = Box::new(move |result| _ = written.send(result));
        shared
            .config
            .events
            .write(&stream.topic, slot, event, on_written, now_ms);
    };
    match is_prompt {
        true => write(),
        false => drop(tokio::task::spawn_blocking(write)),
    }
    Ok(async move {
        match tokio::time::timeout(ACKNOWLEDGED_MAX, acknowledged).await {
            Ok(Ok(written)) => written.map_err(|error| refused(&error)),
            // The producer is still trying, for a moment.
            Err(_) => Err("TIMEOUT the event may have been written, and may take effect later: no broker has acknowledged it in time".into()),
            Ok(Err(_)) => {
                Err("TIMEOUT the event may have been written, and may take effect later: the process is ending".into())
            }
        }
    })
}

/// The error to answer with. Its code says whether the event may have been written.
fn refused(error: &WriteError) -> Refusal {
    let code = match error {
        WriteError::NotWritten { .. } => "UNAVAILABLE",
        WriteError::Full { .. } => "OVERLOADED",
        WriteError::NoEvent { .. } => "CLOCK",
        WriteError::Unknown { .. } => "TIMEOUT",
    };
    format!("{code} {error}")
}

fn here(context: &LoopContext, store: &EventStore) -> Result<(Arc<Catalog>, u16), Refusal> {
    let catalog = Arc::clone(&context.shared.catalog.load());
    let place = catalog.store_on_wire(store.name.as_str().as_bytes());
    let place = place.filter(|&place| catalog.stores()[place as usize].id == store.id);
    let place = place.ok_or_else(|| refusal::no_store(store.name.as_str().as_bytes()))?;
    Ok((catalog, place))
}

/// Checks that an event can be seen at all: the store has a version.
fn check_readable(context: &LoopContext, store: &EventStore) -> Result<(), Refusal> {
    let (catalog, place) = here(context, store)?;
    match catalog.current_number(place) {
        Some(_) => Ok(()),
        None => Err(refusal::no_version(&catalog.stores()[place as usize])),
    }
}

/// Waits until reads through this process see an event: in the overlay here, or in those of all nodes that may be asked.
pub(in crate::server) async fn applied(
    context: &LoopContext,
    store: &EventStore,
    key: &[u8],
    written: Written,
) -> Result<(), Refusal> {
    let forwarder = &context.forwarder;
    let until = Instant::now() + forwarder.deadline();
    let (catalog, place) = here(context, store)?;
    let overlay = match place_of(key, place, &catalog) {
        Ok(KeyPlace::Version { version, .. }) => catalog.overlay(version),
        _ => None,
    };
    let is_applied = match overlay {
        Some(overlay) => {
            let applied = tokio::time::timeout_at(until.into(), overlay.sees(key, written)).await;
            applied.map_err(|_| "this node has not read it in time".to_owned())
        }
        None => forwarder.applied(&catalog, place, key, written, until).await,
    };
    is_applied.map_err(|reason| {
        format!(
            "TIMEOUT the event was written to the topic of {:?}, and reads may not see it yet: {reason}",
            store.name
        )
    })
}

/// The present value of a key, wherever it is.
async fn value(context: &LoopContext, store: &EventStore, key: &[u8]) -> Result<Option<Bytes>, Refusal> {
    let (catalog, place) = here(context, store)?;
    let value = match place_of(key, place, &catalog)? {
        KeyPlace::Version { version, .. } => match events::find(&catalog, place, version, key) {
            Some(found) => found
                .await
                .unwrap_or_else(|_| Err("ERR the node is shutting down".into())),
            None => Ok(None),
        },
        _ => {
            let wanted = crate::forward::Wanted { store: place, key };
            let answers = context
                .forwarder
                .read_anew(&catalog, &[wanted], Default::default())
                .await;
            // One key has one answer.
            answers
                .each
                .into_iter()
                .next()
                .map_or(Ok(None), |answered| answered.value)
        }
    };
    value.map_err(|error| error.to_string())
}

/// Beyond this number, a sum may not have been added, since it would not fit.
const SUM_MAX: u64 = i64::MAX as u64 - (1 << 53);

fn number(value: Option<Bytes>, store: &EventStore) -> Result<Answer, Refusal> {
    let number = value
        .as_deref()
        .and_then(|text| str::from_utf8(text).ok()?.parse::<i64>().ok());
    let number = number.filter(|number| number.unsigned_abs() <= SUM_MAX);
    number.map(Answer::Integer).ok_or_else(|| {
        format!(
            "ERR value is not an integer or out of range: the event is in the topic of {:?}, and has no effect if it did not fit",
            store.name
        )
    })
}

fn shown(value: Option<Bytes>, store: &EventStore) -> Result<Answer, Refusal> {
    let Some(value) = value else { return Ok(Answer::Null) };
    let shown = store
        .rules()
        .shown(&value)
        .map_err(|error| format!("WRONGTYPE {error}"))?;
    Ok(Answer::Bulk(shown.to_string().into()))
}
