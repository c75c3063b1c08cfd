//! The look-ups of a connection that have to be waited for: because of the disk, or of a client that is
//! slow to take its replies.
//!
//! The reads of several keys are under way at a time; the replies are still written in order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_catalog::Catalog;
use fondaco_cold::InFlight;
use fondaco_format::{ColdRead, FormatError, Lookup, Value};
use fondaco_resp::Reply;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Connection;
use super::forward::Others;
use crate::server::session::Replies;
use crate::server::window::{Failure, KeyPlace, OUTPUT_BYTES_MAX, WindowCursor};

/// How many cold reads one client may have under way.
const READS_MAX: usize = 64;
/// How far ahead of the key that is being answered cold ones are looked for.
const KEYS_AHEAD: usize = 256;
/// Before the values of a large batch wait for the disk, those that are there are sent if they have this many bytes.
const EARLY_BYTES: usize = 16 * 1024;
/// The longest that a peer may say it waits, in milliseconds: a day.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// Cold reads under way, with the places of the keys that wait for them, in order; and up to where keys
/// were looked at.
pub(super) struct Reads {
    under_way: VecDeque<(usize, InFlight)>,
    /// How much they read together.
    bytes: usize,
    ahead: usize,
}

impl Reads {
    /// None, and keys were looked at up to this place.
    pub(super) fn none(ahead: usize) -> Self {
        Self {
            under_way: VecDeque::new(),
            bytes: 0,
            ahead,
        }
    }

    fn add(&mut self, at: usize, read: InFlight) {
        self.bytes += read.bytes_under_way();
        self.under_way.push_back((at, read));
    }

    /// The read of the key at a place, if it is under way. Those of keys before it are given up.
    fn take(&mut self, at: usize) -> Option<InFlight> {
        while let Some(&(next, _)) = self.under_way.front()
            && next <= at
        {
            let (next, read) = self.under_way.pop_front()?;
            self.bytes -= read.bytes_under_way();
            if next == at {
                return Some(read);
            }
        }
        None
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Answers the rest of the window, waiting for the disk where it must, with the reads of several
    /// keys under way at a time. `others` has the answers of other nodes.
    pub(super) async fn run_waiting(
        &mut self,
        catalog: Arc<Catalog>,
        mut place: WindowCursor,
        mut reads: Reads,
        mut others: Others,
        started: Instant,
    ) -> io::Result<()> {
        loop {
            let mut reply = Reply::new(&mut self.output, self.session.protocol);
            if !self.window.begin(&mut place, &mut reply) {
                break;
            }
            self.hold(reads.bytes);
            let at = place.key;
            if others.is_awaited(at, &self.window) {
                self.await_more(at, &mut others, &catalog, started).await?;
                continue;
            }
            if self.output.len() > OUTPUT_BYTES_MAX {
                others.meanwhile(self.send_so_far(started)).await?;
            }
            let known_bytes = self.known_bytes(&others, at);
            if !self.has_room_for_more(known_bytes) {
                others.meanwhile(self.make_room_for(known_bytes, started)).await?;
            }
            let mut reply = Reply::new(&mut self.output, self.session.protocol);
            if let Some(answer) = others.get(at).or_else(|| self.window.known(at)) {
                if matches!(self.window.place(at), KeyPlace::Replicas | KeyPlace::Known(_)) {
                    self.tally.count_replicas(answer);
                }
                self.window.answer_with(&mut place, answer, &mut reply);
                others.is_written(at, &self.window);
                continue;
            }
            self.read_ahead_from(&mut reads, at, &catalog, &others);
            let found = match reads.take(at) {
                Some(read) => {
                    // Its bytes are held until they are copied into the replies.
                    let bytes = read.bytes();
                    if self.output.len() >= EARLY_BYTES && self.window.is_streamed() {
                        others.meanwhile(self.send_so_far(started)).await?;
                    }
                    self.make_room_for(2 * bytes, started).await?;
                    self.hold(reads.bytes + bytes);
                    others.meanwhile(self.finish(&place, &catalog, read, started)).await
                }
                None => match self.window.look_up(at, &catalog) {
                    Ok(Lookup::Found(value)) if !self.has_room_for_more(value.len()) => {
                        let length = value.len();
                        drop(value);
                        self.make_room_for(length, started).await?;
                        continue;
                    }
                    Ok(Lookup::Found(value)) => {
                        // Written at once: it lies in a mapping that may not be resident for long.
                        let mut reply = Reply::new(&mut self.output, self.session.protocol);
                        if self.window.answer_found(&mut place, &value, &mut reply) {
                            self.tally.hot += 1;
                        }
                        continue;
                    }
                    Ok(Lookup::Absent) => {
                        self.tally.hot += 1;
                        Ok(None)
                    }
                    // It was in memory when it was looked for ahead, and is no more.
                    Ok(Lookup::Cold(_)) => {
                        reads = Reads::none(at);
                        continue;
                    }
                    Err(error) => Err(Unread::Failed(error)),
                },
            };
            self.answer_read(&mut place, &found);
        }
        self.hold(0);
        self.end_window(&catalog);
        Ok(())
    }

    /// Answers the key at a place with the value that was read for it.
    fn answer_read(&mut self, place: &mut WindowCursor, found: &Result<Option<Value<'static>>, Unread>) {
        let mut reply = Reply::new(&mut self.output, self.session.protocol);
        match found {
            Ok(value) => {
                self.tally.absent += u64::from(value.is_none());
                self.window.answer(place, Ok(value.as_deref()), &mut reply);
            }
            Err(Unread::Failed(error)) => {
                self.tally.failed += 1;
                self.window.answer(place, Err(&Failure(error)), &mut reply);
            }
            Err(Unread::TimedOut { timeout_ms }) => {
                let error = format!("TIMEOUT the disk took longer than {timeout_ms} ms");
                self.window.answer(place, Err(&error), &mut reply);
            }
        }
    }

    /// How long the value of a key is, if it is known.
    fn known_bytes(&self, others: &Others, at: usize) -> usize {
        let answer = others.get(at).or_else(|| self.window.known(at));
        let value = answer.and_then(|answer| answer.as_ref().ok()?.as_deref());
        value.map_or(0, <[u8]>::len)
    }

    /// Sends the replies that there are, if the client wants them.
    pub(super) async fn send_so_far(&mut self, started: Instant) -> io::Result<()> {
        match self.session.replies {
            Replies::On => self.write(started).await,
            Replies::Off | Replies::SkipNext | Replies::Skip => {
                self.output.truncate(self.window_start);
                Ok(())
            }
        }
    }

    /// Whether there is room for this many bytes besides what the connection has.
    fn has_room_for_more(&self, bytes: usize) -> bool {
        self.charge.has_room_for(self.buffer_bytes() + bytes as u64)
    }

    /// Waits until there is, when what there is to send is sent.
    async fn make_room_for(&mut self, bytes: usize, started: Instant) -> io::Result<()> {
        if !self.has_room_for_more(bytes) {
            self.send_so_far(started).await?;
            self.wait_for_room(self.buffer_bytes() as usize + bytes).await;
        }
        Ok(())
    }

    /// Begins the reads of the next keys that need the disk.
    pub(super) fn read_ahead(&mut self, catalog: &Arc<Catalog>, others: &Others) -> Reads {
        let mut reads = Reads::none(0);
        self.read_ahead_from(&mut reads, 0, catalog, others);
        reads
    }

    fn read_ahead_from(&mut self, reads: &mut Reads, at: usize, catalog: &Arc<Catalog>, others: &Others) {
        let end = self.window.key_count().min(at + KEYS_AHEAD);
        reads.ahead = reads.ahead.max(at);
        while reads.ahead < end
            && reads.under_way.len() < READS_MAX
            && (reads.under_way.is_empty() || self.has_room_for_more(1))
        {
            let key = reads.ahead;
            reads.ahead += 1;
            if others.get(key).is_none()
                && let Ok(Lookup::Cold(read)) = self.window.look_up(key, catalog)
                && let Some(read) = self.start(key, catalog, read)
            {
                reads.add(key, read);
                self.hold(reads.bytes);
            }
        }
    }

    /// Goes on from a key whose read is known already.
    pub(super) fn start_at(&mut self, at: usize, catalog: &Arc<Catalog>, read: Option<ColdRead>) -> Reads {
        let read = read.and_then(|read| self.start(at, catalog, read));
        let mut reads = Reads::none(at + usize::from(read.is_some()));
        if let Some(read) = read {
            reads.add(at, read);
        }
        reads
    }

    /// Begins the read that a key waits for.
    fn start(&self, at: usize, catalog: &Catalog, read: ColdRead) -> Option<InFlight> {
        let version = self.window.version(at, catalog)?;
        Some(self.context.cold.start(version, read))
    }

    async fn finish(
        &mut self,
        place: &WindowCursor,
        catalog: &Catalog,
        read: InFlight,
        started: Instant,
    ) -> Result<Option<Value<'static>>, Unread> {
        self.tally.cold += 1;
        let Some(version) = self.window.version(place.key, catalog) else {
            return Ok(None);
        };
        let (key, _) = self.window.key(place.key);
        let read = self.context.cold.finish(version, key, read);
        match self.window.timeout_ms(place) {
            None => read.await.map_err(Unread::Failed),
            Some(timeout_ms) => {
                let deadline = started + Duration::from_millis(timeout_ms.min(TIMEOUT_MS_MAX));
                match tokio::time::timeout_at(deadline.into(), read).await {
                    Ok(read) => read.map_err(Unread::Failed),
                    Err(_) => Err(Unread::TimedOut { timeout_ms }),
                }
            }
        }
    }
}

/// Why a key was not read.
enum Unread {
    Failed(FormatError),
    TimedOut { timeout_ms: u64 },
}
