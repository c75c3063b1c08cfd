//! The look-ups of a connection that other nodes have to answer.
//!
//! They are asked for together, before the first reply of the window is written: so the replies can still
//! be made of one version of each store, when a node that answered has swapped before this one, or after.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fondaco_client::read::HeldBudget;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::Connection;
use super::input::INPUT_ROOM_MAX;
use crate::catalog::Catalog;
use crate::forward::{KeyAnswer, StoreVersion, ValueAnswer, Wanted};
use crate::metrics::Counter;
use crate::server::event_loop::LoopContext;
use crate::server::loop_memory::INPUT_BYTES;
use crate::server::window::{Window, WindowCursor};

/// What other nodes have answered for the keys of a window: nothing where none was asked.
#[derive(Default)]
pub(super) struct Others {
    answers: Vec<Option<KeyAnswer>>,
    /// What their values take until they are sent, and those of versioned stores.
    room: HeldBudget,
}

/// How long a client that sends no more is taken to wait for replies still.
const HALF_CLOSED_GRACE: Duration = Duration::from_millis(100);

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Answers a window with keys that are not held here.
    pub(super) async fn run_split(&mut self, catalog: Arc<Catalog>, started: Instant) -> io::Result<()> {
        // What the disk is needed for goes on meanwhile.
        let reads = self.look_ahead(&catalog, &Others::default());
        let input_bytes = self.input.len();
        let (others, held) = tokio::select! {
            biased;
            answers = ask_all(&self.context, &self.window, &catalog) => answers,
            // The answer is not wanted any more: what is under way for it is given up.
            error = gone(&mut self.stream, &mut self.input, &self.context) => return Err(error),
        };
        self.naming.unnamed += self.input.len() - input_bytes;
        self.window.answer_held(held);
        let place = WindowCursor::default();
        self.run_waiting(catalog, place, reads, others, started).await
    }
}

/// What other nodes answer for keys of batch stores, and what replicas answer for those of versioned ones.
async fn ask_all(context: &LoopContext, window: &Window, catalog: &Catalog) -> (Others, Vec<ValueAnswer>) {
    let others = async {
        match window.has_elsewhere() {
            true => ask_others(context, window, catalog).await,
            false => Others::default(),
        }
    };
    let held = async {
        let keys: Vec<usize> = window.unanswered().collect();
        match keys[..] {
            [] => (Vec::new(), HeldBudget::default()),
            _ => context.forwarder.read_versioned(catalog, &wanted(window, &keys)).await,
        }
    };
    let (mut others, (held, room)) = tokio::join!(others, held);
    others.room.join(room);
    (others, held)
}

/// Waits until the client is gone. What it sends meanwhile is kept for later.
async fn gone<S: AsyncRead + Unpin>(stream: &mut S, input: &mut BytesMut, context: &LoopContext) -> io::Error {
    while input.len() < INPUT_ROOM_MAX {
        input.reserve(INPUT_BYTES);
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

/// What other nodes answer for the keys of a window that they have to be asked for; and for all keys of a
/// store, where one version of it can only be had so.
async fn ask_others(context: &LoopContext, window: &Window, catalog: &Catalog) -> Others {
    let forwarder = &context.forwarder;
    let keys: Vec<usize> = (0..window.key_count()).filter(|&at| window.is_elsewhere(at)).collect();
    let answers = forwarder.read(catalog, &wanted(window, &keys)).await;
    let mut room = answers.room;
    if keys.len() == window.key_count() && answers.is_pinned {
        return Others {
            answers: answers.each.into_iter().map(Some).collect(),
            room,
        };
    }
    let mut others: Vec<Option<KeyAnswer>> = (0..window.key_count()).map(|_| None).collect();
    for (&at, answer) in keys.iter().zip(answers.each) {
        others[at] = Some(answer);
    }
    let keys = keys_of_several_versions(window, catalog, &others);
    if !keys.is_empty() {
        context.metrics.add(Counter::ForwardRepeats, keys.len() as u64);
        let answers = forwarder.read_anew(catalog, &wanted(window, &keys)).await;
        room.join(answers.room);
        for (&at, answer) in keys.iter().zip(answers.each) {
            others[at] = Some(answer);
        }
    }
    Others { answers: others, room }
}

impl Others {
    /// The answer for the key at a place; nothing if no other node was asked for it.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&KeyAnswer> {
        self.answers.get(at)?.as_ref()
    }
}

fn wanted<'a>(window: &'a Window, keys: &[usize]) -> Vec<Wanted<'a>> {
    let wanted = |&at: &usize| {
        let (key, store) = window.key(at);
        Wanted { store, key }
    };
    keys.iter().map(wanted).collect()
}

/// All keys of those stores that are about to be answered from more than one version: this node is to
/// look some up in its own, and others have answered from theirs.
fn keys_of_several_versions(window: &Window, catalog: &Catalog, others: &[Option<KeyAnswer>]) -> Vec<usize> {
    let mut sources: Vec<(u16, StoreVersion)> = Vec::new();
    let mut mixed: Vec<u16> = Vec::new();
    for at in window.unpinned() {
        let (_, store) = window.key(at);
        let source = match &others[at] {
            None => StoreVersion::current(catalog, store),
            Some(Ok(found)) => Some(found.source),
            Some(Err(_)) => None,
        };
        let Some(source) = source else { continue };
        match sources.iter().find(|(known, _)| *known == store) {
            None => sources.push((store, source)),
            Some(&(_, first)) if first == source || mixed.contains(&store) => {}
            Some(_) => mixed.push(store),
        }
    }
    match mixed[..] {
        [] => Vec::new(),
        _ => window
            .unpinned()
            .filter(|&at| mixed.contains(&window.key(at).1))
            .collect(),
    }
}
