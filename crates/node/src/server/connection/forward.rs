//! The look-ups of a connection that other nodes have to answer.
//!
//! They are asked for together, before the first reply of the window is written: so the replies can still
//! be made of one version of each store, when a node that answered has swapped before this one, or after.
//!
//! The values of a large batch are sent as they come, in the order of its keys. From the first one on, all keys are
//! read from the versions that the batch began with. As long as the client is slow to receive, values that come
//! take room as those of any batch.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fondaco_catalog::Catalog;
use fondaco_client::read::HeldBudget;
use fondaco_client::trace::within;
use fondaco_metrics::Counter;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::Connection;
use super::input::INPUT_ROOM_MAX;
use crate::forward::{Answered, Answers, Begun, Forwarder, StoreVersion, Streamed, ValueAnswer, Wanted};
use crate::server::clients::Phase;
use crate::server::event_loop::LoopContext;
use crate::server::events;
use crate::server::loop_memory::INPUT_BYTES;
use crate::server::window::{KeyPlace, Window, WindowCursor};

/// The answers of replicas and of other nodes for the keys of a window.
#[derive(Default)]
pub(super) struct Others {
    /// For each key of the window; `None` where none was asked.
    answers: Vec<Option<Answered>>,
    /// The room of their values, until they are sent.
    room: HeldBudget,
    /// The answers that are still awaited.
    rest: Option<Streamed>,
    /// Whether answers are dropped as soon as they are written.
    is_streamed: bool,
}

/// The error for a key that has no answer.
const UNANSWERED: &str = "ERR fewer keys were answered than asked for";

/// Meanwhile a client's input gets more room if less than this is left. Most clients send nothing before they have their replies.
const SPARE_BYTES_MIN: usize = INPUT_BYTES / 8;

/// How long a client that sends no more is taken to wait for replies still.
const HALF_CLOSED_GRACE: Duration = Duration::from_millis(100);

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Answers a window with keys that are not held here.
    pub(super) async fn run_split(&mut self, catalog: Arc<Catalog>, started: Instant) -> io::Result<()> {
        // Reads from the disk go on meanwhile.
        let reads = self.read_ahead(&catalog, &Others::default());
        let input_bytes = self.input.len();
        let tracing = self.trace.as_ref().and_then(|trace| trace.tracing());
        let others = {
            let asked = pin!(ask_all(&self.context, &self.window, &catalog));
            tokio::select! {
                biased;
                answers = within(tracing, asked) => answers,
                // The answer is not wanted any more: its requests are given up.
                error = gone(&mut self.stream, &mut self.input, &self.context) => return Err(error),
            }
        };
        self.naming.unnamed += self.input.len() - input_bytes;
        let place = WindowCursor::default();
        self.run_waiting(catalog, place, reads, others, started).await
    }

    /// Waits for further answers of other nodes, when the values before them are sent.
    #[cold]
    pub(super) async fn await_more(
        &mut self,
        at: usize,
        others: &mut Others,
        catalog: &Catalog,
        started: Instant,
    ) -> io::Result<()> {
        others.meanwhile(self.send_so_far(started)).await?;
        self.client.note(Phase::Waiting, self.context.shared.now_ms());
        let input_bytes = self.input.len();
        {
            let more = pin!(others.await_more(at, &self.context.forwarder, &self.window, catalog));
            tokio::select! {
                biased;
                () = more => {}
                error = gone(&mut self.stream, &mut self.input, &self.context) => return Err(error),
            }
        }
        self.naming.unnamed += self.input.len() - input_bytes;
        Ok(())
    }
}

/// Asks replicas and other nodes for the keys of a window that are with them; and other nodes for all keys of a store, where
/// one version of it can only be had so.
async fn ask_all(context: &LoopContext, window: &Window, catalog: &Catalog) -> Others {
    match window.is_with_nodes() {
        true => ask_nodes(context, window, catalog).await,
        false => ask_everywhere(context, window, catalog).await,
    }
}

/// Asks other nodes for all keys of a window, as a router does for most windows.
async fn ask_nodes(context: &LoopContext, window: &Window, catalog: &Catalog) -> Others {
    let places = 0..window.key_count();
    let keys: SmallVec<[Wanted<'_>; 1]> = places.map(|at| wanted_at(window, at)).collect();
    let Answers { each, room } = context.forwarder.read(catalog, &keys, window.steered()).await;
    let mut answers: Vec<Option<Answered>> = each.into_iter().map(Some).collect();
    answers.resize_with(keys.len(), || Some(Answered::failed(UNANSWERED.into())));
    let mut others = Others {
        answers,
        room,
        ..Others::default()
    };
    if keys.len() > 1 {
        read_again(context, window, catalog, &mut others).await;
    }
    others
}

/// Asks replicas, other nodes and the later events on the disk, each for the keys that are with them.
async fn ask_everywhere(context: &LoopContext, window: &Window, catalog: &Catalog) -> Others {
    let keys_with = |is: fn(KeyPlace) -> bool| -> Vec<usize> {
        let keys = 0..window.key_count();
        keys.filter(|&at| is(window.place(at))).collect()
    };
    let of_batch = keys_with(|place| matches!(place, KeyPlace::Nodes));
    let (of_canary, of_batch): (Vec<_>, Vec<_>) = of_batch.into_iter().partition(|&at| window.reads_canary(at));
    let of_events = keys_with(|place| matches!(place, KeyPlace::Events(_)));
    let of_versioned = keys_with(|place| matches!(place, KeyPlace::Replicas));
    let mut others = Others {
        answers: (0..window.key_count()).map(|_| None).collect(),
        ..Others::default()
    };
    let forwarder = &context.forwarder;
    let mut begun = None;
    let (batch, canary, versioned, events) = tokio::join!(
        async {
            match &of_batch[..] {
                [] => Answers::default(),
                keys if window.is_streamed() => {
                    let (keys, wanted) = (keys.to_vec(), |at| wanted_at(window, at));
                    begun = Some(forwarder.begin_streamed(catalog, keys, wanted, window.steered()).await);
                    Answers::default()
                }
                keys => forwarder.read(catalog, &wanted(window, keys), window.steered()).await,
            }
        },
        async {
            match &of_canary[..] {
                [] => Answers::default(),
                keys => {
                    let steered = window.steered().of_canary();
                    forwarder.read(catalog, &wanted(window, keys), steered).await
                }
            }
        },
        async {
            match &of_versioned[..] {
                [] => Answers::default(),
                keys => {
                    forwarder
                        .read_versioned(catalog, &wanted(window, keys), window.steered())
                        .await
                }
            }
        },
        events::read(forwarder, window, catalog, &of_events),
    );
    others.note(&of_events, events);
    others.note(&of_versioned, versioned);
    others.note(&of_canary, canary);
    match begun {
        None => others.note(&of_batch, batch),
        Some(begun) => others.note_begun(begun),
    }
    // A single key is of one version, and so are those that are still awaited.
    let is_all_here = of_batch.is_empty() && of_canary.is_empty();
    if !is_all_here && window.key_count() > 1 && others.rest.is_none() {
        read_again(context, window, catalog, &mut others).await;
    }
    others
}

/// Reads keys again whose answers are from versions that were not current together.
async fn read_again(context: &LoopContext, window: &Window, catalog: &Catalog, others: &mut Others) {
    let repeated = keys_of_several_versions(window, catalog, others);
    let (of_canary, of_current): (Vec<_>, Vec<_>) = repeated.into_iter().partition(|&at| window.reads_canary(at));
    let steered = window.steered();
    for (repeated, steered) in [(of_current, steered), (of_canary, steered.of_canary())] {
        if !repeated.is_empty() {
            context.metrics.add(Counter::ForwardRepeats, repeated.len() as u64);
            let keys = wanted(window, &repeated);
            let answers = context.forwarder.read_anew(catalog, &keys, steered).await;
            others.note(&repeated, answers);
        }
    }
}

/// Waits until the client is gone. Its input meanwhile is kept for later.
async fn gone<S: AsyncRead + Unpin>(stream: &mut S, input: &mut BytesMut, context: &LoopContext) -> io::Error {
    while input.len() < INPUT_ROOM_MAX {
        if input.capacity() - input.len() < SPARE_BYTES_MIN {
            input.reserve(INPUT_BYTES);
        }
        match stream.read_buf(input).await {
            Ok(0) => {
                tokio::time::sleep(HALF_CLOSED_GRACE).await;
                return io::ErrorKind::UnexpectedEof.into();
            }
            Ok(count) => context.metrics.add(Counter::BytesIn, count as u64),
            Err(error) => return error,
        }
    }
    std::future::pending().await
}

impl Others {
    fn note(&mut self, keys: &[usize], answers: Answers) {
        let mut each = answers.each.into_iter();
        for &at in keys {
            let answer = each.next().unwrap_or_else(|| Answered::failed(UNANSWERED.into()));
            self.answers[at] = Some(answer);
        }
        self.room.join(answers.room);
    }

    fn note_begun(&mut self, begun: Begun) {
        for (at, answer) in begun.answers {
            self.answers[at] = Some(answer);
        }
        self.room.join(begun.room);
        if begun.rest.is_some() {
            (self.rest, self.is_streamed) = (begun.rest, true);
        }
    }

    /// Whether the key at a place has no answer yet.
    #[inline]
    pub(super) fn is_awaited(&self, at: usize, window: &Window) -> bool {
        self.is_streamed && self.answers[at].is_none() && matches!(window.place(at), KeyPlace::Nodes)
    }

    async fn await_more(&mut self, at: usize, forwarder: &Forwarder, window: &Window, catalog: &Catalog) {
        if let Some(rest) = &mut self.rest {
            let begun = rest.next(forwarder, catalog, |at| wanted_at(window, at)).await;
            if !begun.answers.is_empty() {
                return self.note_begun(begun);
            }
        }
        self.rest = None;
        self.answers[at] = Some(Answered::failed(UNANSWERED.into()));
    }

    /// Does something else that takes time: answers that come meanwhile take room.
    pub(super) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Some(rest) = &mut self.rest {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = rest.over() => {}
            }
        }
        work.await
    }

    /// The answer for the key at a place is written.
    #[inline]
    pub(super) fn is_written(&mut self, at: usize, window: &Window) {
        if self.is_streamed
            && matches!(window.place(at), KeyPlace::Nodes)
            && let Some(Answered {
                value: Ok(Some(value)), ..
            }) = self.answers[at].take()
        {
            self.room.give_back(value.len());
        }
    }

    /// The answer for the key at a place; `None` if none was asked for it.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&ValueAnswer> {
        Some(&self.answers.get(at)?.as_ref()?.value)
    }
}

fn wanted<'a>(window: &'a Window, keys: &[usize]) -> Vec<Wanted<'a>> {
    keys.iter().map(|&at| wanted_at(window, at)).collect()
}

fn wanted_at(window: &Window, at: usize) -> Wanted<'_> {
    let (key, store) = window.key(at);
    Wanted { store, key }
}

/// The keys of batch and hybrid stores, if they are about to be answered from versions that were not current together: this node is to
/// look some up in its own, and others have answered from theirs. Stores may have been swapped together, so the keys of all are read
/// again.
fn keys_of_several_versions(window: &Window, catalog: &Catalog, others: &Others) -> Vec<usize> {
    // In a pipeline, some requests to a store may read its canary.
    let read = |at| (window.key(at).1, window.reads_canary(at));
    let mut sources: Vec<((u16, bool), StoreVersion)> = Vec::new();
    let (mut is_of_catalog, mut is_mixed) = (true, false);
    let mut last: Option<((u16, bool), Option<StoreVersion>)> = None;
    for at in window.unpinned() {
        let store = read(at);
        // As a rule the same store as that of the key before.
        let known = last.filter(|&(known, _)| known == store);
        let current = known.map_or_else(|| window.source(at, catalog), |(_, current)| current);
        last = Some((store, current));
        let source = match &others.answers[at] {
            None => current,
            Some(answer) => answer.source,
        };
        let Some(source) = source else { continue };
        is_of_catalog &= current == Some(source);
        match sources.iter().find(|(known, _)| *known == store) {
            None => sources.push((store, source)),
            Some(&(_, first)) => is_mixed |= first != source,
        }
    }
    let of_versions = |at: &usize| catalog.versioned(window.key(*at).1).is_none();
    match is_mixed || !is_of_catalog && sources.len() > 1 {
        false => Vec::new(),
        true => window.unpinned().filter(of_versions).collect(),
    }
}
