//! From bytes to requests. Each request is parsed once, and the table of commands and its keys say what the [`Source`] of its
//! answer is:
//!
//! - the [queue](crate::server::queue) of requests on versioned stores, of writes to hybrid stores, and of other nodes' requests to this one's replica:
//!   they are under way side by side, and look-ups that memory can answer are done together;
//! - the [window](crate::server::window) of look-ups in versions, which are done together, too;
//! - or the command itself, when all before it is answered.
//!
//! A request of the one kind waits until those of another kind before it are answered, so that replies are in order.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, BytesMut};
use fondaco_catalog::Catalog;
use fondaco_protocol::now_unix_ms;
use fondaco_protocol::replica::ReplicaCommand;
use fondaco_resp::command::{CommandId, CommandSpec, Flags, resolve};
use fondaco_resp::{Limits, Parse, Reply, parse_request};
use tokio::io::{AsyncRead, AsyncWrite};

use super::refusing::{is_for_no_store, note_moved, request_bytes_max};
use super::{Connection, Turn, note};
use crate::server::commands::lifetimes;
use crate::server::commands::look_ups::{self, LookUps};
use crate::server::commands::operation::{self, Combined, Request};
use crate::server::commands::transactions::runs_at_once;
use crate::server::commands::without_authentication;
use crate::server::queue::memory::answer_mget;
use crate::server::queue::{Accepted, replica_command};
use crate::server::session::{Admission, Replies};
use crate::server::window::{OUTPUT_BYTES_MAX, Run};

/// The error for requests as long as the list of stores is not known.
const LOADING: &str = "LOADING this node does not know its cluster and its stores yet: try again; GET /readyz on its control \
                       port says what it waits for";

/// Why no more requests are let into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// The input holds no further request.
    Starved,
    /// Enough is under way.
    Full,
    /// The next request is not for the queue, or breaks the protocol.
    Other,
    /// The client sends no more.
    Ended,
}

/// The source of the answer to a request.
pub(super) enum Source {
    /// The replicas of the keys of versioned stores, or this node's memory.
    Queue(Queued),
    /// The versions of stores, and all look-ups that are answered by an array.
    Window(LookUps),
    /// The version that `FONDACO.READ` names.
    Pinned,
    /// The command itself.
    Command,
    /// It is refused with this error, when it is its turn.
    Refused(String),
}

/// A request for the queue.
pub(super) enum Queued {
    /// Operations on keys of versioned stores, and writes of keys of hybrid ones.
    Operations(operation::Parser),
    /// Look-ups of keys of versioned stores.
    /// With the place in the catalog of the store of the first key.
    LookUps(LookUps, u16),
    /// A request of another node to this node's replica.
    Replica(ReplicaCommand),
}

/// The context that all requests of a turn share.
pub(super) struct Taking<'a> {
    /// One for all: a batch look-up never mixes two versions.
    pub(super) catalog: &'a Arc<Catalog>,
    limits: Limits,
    pub(super) began: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Takes requests from the input, and answers those among them that need not wait for anything, until something else has
    /// to be done.
    #[inline]
    pub(super) fn take_requests(&mut self, began: Instant) -> Turn {
        self.reads = self.context.loop_memory.reads();
        let turn = self.take_until_turn(began);
        debug_assert!(self.reads.is_empty());
        let reads = std::mem::take(&mut self.reads);
        self.context.loop_memory.give_back_reads(reads);
        turn
    }

    #[inline]
    fn take_until_turn(&mut self, began: Instant) -> Turn {
        self.session.follow_users(&self.context.shared.config.access);
        let catalog = self.context.shared.catalog.load();
        let taking = Taking {
            catalog: &catalog,
            limits: self.limits(),
            began,
        };
        if let Some(queue) = &mut self.queue {
            if self.has_ended {
                return Turn::Queue(Pause::Ended);
            }
            queue.follow(&mut self.output);
        }
        if self.skip.is_none() {
            self.name_default_store(&catalog, &taking.limits);
        }
        loop {
            if self.skip.is_some() {
                if !self.skip_request(&taking.limits) {
                    return Turn::Read;
                }
                // The requests behind it were not looked at yet.
                self.name_default_store(&catalog, &taking.limits);
            }
            let rest = &self.input[self.consumed..];
            if self.session.closing || rest.is_empty() {
                self.needed = 0;
                return self.pause(&taking);
            }
            if self.queue.as_ref().is_some_and(|queue| !queue.has_room()) {
                self.answer_reads(&taking);
                return Turn::Queue(Pause::Full);
            }
            if rest.len() < self.needed {
                return self.pause(&taking);
            }
            let parsed = parse_request(rest, &taking.limits, &mut self.arguments);
            self.needed = 0;
            let turn = match parsed {
                Ok(Parse::Complete { consumed }) => self.take_request(consumed, &taking),
                Ok(Parse::Empty { consumed }) => {
                    self.consumed += consumed;
                    None
                }
                Ok(Parse::Incomplete { needed }) => {
                    self.needed = needed;
                    return self.pause(&taking);
                }
                Ok(Parse::TooLong { consumed, skip }) => self.answer_before(&taking).or_else(|| {
                    self.consumed += consumed;
                    self.skip = Some(skip);
                    None
                }),
                Err(error) => self.answer_before(&taking).or_else(|| {
                    self.end_after(error);
                    None
                }),
            };
            if let Some(turn) = turn {
                return turn;
            }
            let is_answered = self.window.is_empty() && self.queue.is_none() && self.reads.is_empty();
            if self.output.len() > OUTPUT_BYTES_MAX && is_answered {
                return Turn::Write;
            }
        }
    }

    /// Takes the next request, of this many bytes, whose arguments are parsed; the turn that must go before, or follow, if one
    /// must.
    #[inline]
    fn take_request(&mut self, bytes: usize, taking: &Taking<'_>) -> Option<Turn> {
        let (spec, source) = match self.source(taking.catalog) {
            Ok(found) => found,
            Err(refusal) => {
                self.chosen = None;
                return self.refuse(bytes, &refusal, taking);
            }
        };
        let command = spec.id;
        if self.context.metrics.wants_load() {
            self.sample(spec, bytes, taking);
        }
        if self.session.transaction.is_some() && !runs_at_once(command) {
            self.keep_for_exec(command, bytes);
            return None;
        }
        if let Some(share) = self.context.shared.settings.traces_share()
            && self.is_chosen(spec, share)
        {
            return self.take_traced(spec, source, bytes, taking);
        }
        if let Source::Queue(queued) = source {
            let turn = self.run_window(taking.catalog);
            if turn.is_some() {
                return turn;
            }
            let is_added = matches!(&queued, Queued::LookUps(look_ups, place) if self.add_read((command, bytes), look_ups, *place, taking));
            if !is_added {
                self.push(spec, queued, bytes, taking);
            }
            return None;
        }
        if command == CommandId::MGet && self.answer_mget(command, bytes, taking) {
            return None;
        }
        self.answer_reads(taking);
        if self.queue.is_some() {
            return Some(Turn::Queue(Pause::Other));
        }
        self.take_look_up(command, source, bytes, taking)
    }

    /// Takes the next request if it is for the window, or runs it. All requests of the queue are answered.
    #[inline]
    fn take_look_up(&mut self, command: CommandId, source: Source, bytes: usize, taking: &Taking<'_>) -> Option<Turn> {
        if command == CommandId::FondacoMGet
            && let Some(turn) = self.run_window(taking.catalog)
        {
            // It has options of its own, and therefore a window of its own.
            return Some(turn);
        }
        match self.add_to_window(command, source, taking.catalog) {
            Ok(true) => {
                self.consumed += bytes;
                let is_ready = self.window.is_full() || self.session.replies != Replies::On;
                is_ready.then(|| self.run_window(taking.catalog)).flatten()
            }
            Ok(false) => self.run_window(taking.catalog).or_else(|| {
                if operation::parser(command).is_some()
                    && self.names_no_store(taking.catalog)
                    && self.may_await_stores()
                {
                    return Some(Turn::AwaitStores);
                }
                self.request_start = self.consumed;
                self.consumed += bytes;
                Some(Turn::Run(command))
            }),
            Err(refusal) if is_for_no_store(&refusal) && self.may_await_stores() => {
                Some(self.answer_before(taking).unwrap_or(Turn::AwaitStores))
            }
            Err(refusal) => self.refuse(bytes, &refusal, taking),
        }
    }

    /// Adds the next request to the window, if it is a look-up: `Ok(false)` if it is not.
    ///
    /// # Errors
    /// The error to answer instead.
    #[inline]
    pub(super) fn add_to_window(
        &mut self,
        command: CommandId,
        source: Source,
        catalog: &Catalog,
    ) -> Result<bool, String> {
        let admission = Admission::new(catalog, &self.session, &self.context);
        let rest = &self.input[self.consumed..];
        match source {
            Source::Window(look_ups) => self.window.add(command, look_ups, &self.arguments, rest, &admission),
            Source::Pinned => self.window.add_pinned(&self.arguments, rest, &admission),
            Source::Refused(refusal) => Err(refusal),
            Source::Queue(_) | Source::Command => return Ok(false),
        }
        .map(|()| true)
    }

    /// Whether the first key of the next request is of a store that is not known.
    pub(super) fn names_no_store(&self, catalog: &Catalog) -> bool {
        let wire_key = self.arguments.get(1, &self.input[self.consumed..]).unwrap_or_default();
        let colon = memchr::memchr(b':', wire_key);
        colon.is_some_and(|colon| catalog.store_on_wire(&wire_key[..colon]).is_none())
    }

    /// The command of the next request, and the source of its answer.
    ///
    /// # Errors
    /// The error to answer with: there is no such command, or the client may not give it now.
    #[inline]
    fn source(&self, catalog: &Catalog) -> Result<(&'static CommandSpec, Source), String> {
        let rest = &self.input[self.consumed..];
        let spec = resolve(&self.arguments, rest)?;
        let command = spec.id;
        if !self.session.is_authenticated() && !without_authentication(command) {
            return Err("NOAUTH Authentication required.".into());
        }
        if catalog.is_loading() && !spec.flags.contains(Flags::LOADING) {
            return Err(LOADING.into());
        }
        let versioned = |at| {
            let wire_key = self.arguments.get(at, rest).unwrap_or_default();
            // As a rule it is of the same store as the look-up before it.
            let is_known = self.window.is_of_last_store(wire_key, catalog);
            let place = (!is_known).then(|| catalog.place_on_wire(wire_key)).flatten();
            place.filter(|place| catalog.versioned(*place).is_some())
        };
        let is_written = || {
            let place = catalog.place_on_wire(self.arguments.get(1, rest).unwrap_or_default());
            place.is_some_and(|place| catalog.written(place).is_some())
        };
        let source = match look_ups::parse(command, &self.arguments, rest) {
            Ok(Some(look_ups)) => {
                // The keys of an array are looked up together, in a window.
                let mut keys = look_ups.keys.clone().filter(|_| look_ups.reply != Combined::Array);
                let first = keys.next().and_then(versioned);
                match first.filter(|_| keys.all(|at| versioned(at).is_some())) {
                    Some(place) => Source::Queue(Queued::LookUps(look_ups, place)),
                    None => {
                        let key = self.arguments.get(1, rest).unwrap_or_default();
                        match lifetimes::is_asked(look_ups.look_up, || catalog.place_on_wire(key), catalog) {
                            true => Source::Command,
                            false => Source::Window(look_ups),
                        }
                    }
                }
            }
            Err(refusal) => Source::Refused(refusal),
            Ok(None) => match (operation::parser(command), replica_command(command)) {
                (Some(parser), _) if is_written() => Source::Queue(Queued::Operations(parser)),
                (_, Some(asked)) => Source::Queue(Queued::Replica(asked)),
                _ if command == CommandId::FondacoRead => Source::Pinned,
                _ => Source::Command,
            },
        };
        Ok((spec, source))
    }

    /// Adds the next request to the look-ups that memory may answer, with the `GET`s behind it; false if memory may not.
    #[inline]
    fn add_read(&mut self, request: (CommandId, usize), look_ups: &LookUps, place: u16, taking: &Taking<'_>) -> bool {
        if look_ups.keys.len() != 1 || self.session.replies != Replies::On {
            return false;
        }
        if self.reads.are_of_another_store(place) {
            self.answer_reads(taking);
        }
        let admission = Admission::new(taking.catalog, &self.session, &self.context);
        let (queue, rest) = (&mut self.queue, &self.input[self.consumed..]);
        let is_free = |wire_key: &[u8]| queue.as_ref().is_none_or(|queue| queue.is_free(wire_key));
        let (arguments, limits) = (&mut self.arguments, &taking.limits);
        let added = self
            .reads
            .add(request, look_ups, place, arguments, rest, limits, &admission, is_free);
        if added.bytes == 0 {
            return false;
        }
        if let Some(queue) = queue
            && let Some(store) = self.reads.store(taking.catalog)
        {
            queue.push_reads(&mut self.reads, added.from, store.id, taking.began);
        }
        self.consumed += added.bytes;
        self.session.asking = false;
        if self.reads.is_full() {
            self.answer_reads(taking);
        }
        true
    }

    /// Answers the look-ups that wait for memory. Those that need more are then in the queue.
    #[inline]
    pub(super) fn answer_reads(&mut self, taking: &Taking<'_>) {
        if !self.reads.is_empty() {
            self.answer_reads_together(taking);
        }
    }

    fn answer_reads_together(&mut self, taking: &Taking<'_>) {
        let store = self.reads.store(taking.catalog).map(|store| store.id);
        if self.queue.is_none() {
            let admission = Admission::new(taking.catalog, &self.session, &self.context);
            let mut reply = Reply::new(&mut self.output, self.session.protocol);
            let answered = self.reads.answer(&admission, &mut reply);
            self.tally.add(answered.tally);
            for (command, count) in answered.commands {
                note(&mut self.answered, command, count);
                self.client.note_command(command);
            }
            if let Some(store) = store.filter(|_| answered.requests > 0) {
                note(&mut self.answered_of, store, answered.requests as u64);
            }
            if self.reads.is_empty() {
                self.reads.clear();
                return;
            }
        }
        self.begin_queue(taking);
        let admission = Admission::new(taking.catalog, &self.session, &self.context);
        if let Some(queue) = &mut self.queue {
            let tally = queue.answer_reads(&self.reads, &admission, self.session.protocol);
            self.tally.add(tally);
        }
        self.reads.clear();
    }

    /// Begins the queue, if it has not begun, with the look-ups that wait.
    #[inline]
    fn begin_queue(&mut self, taking: &Taking<'_>) {
        if self.queue.is_some() {
            return;
        }
        let mut queue = self.context.loop_memory.queue();
        queue.follow(&mut self.output);
        if let Some(store) = self.reads.store(taking.catalog) {
            queue.push_reads(&mut self.reads, 0, store.id, taking.began);
        }
        self.queue = Some(queue);
    }

    /// Answers the next request, an `MGET`, if memory has all that it asks for.
    fn answer_mget(&mut self, command: CommandId, bytes: usize, taking: &Taking<'_>) -> bool {
        if !self.window.is_empty() || self.session.replies != Replies::On {
            return false;
        }
        self.answer_reads(taking);
        let admission = Admission::new(taking.catalog, &self.session, &self.context);
        let (rest, protocol) = (&self.input[self.consumed..], self.session.protocol);
        let arguments = &self.arguments;
        let mget = match &mut self.queue {
            Some(queue) => {
                let accepted = Accepted {
                    command,
                    began: taking.began,
                    bytes,
                    is_muted: false,
                };
                queue.push_mget(accepted, |is_free, to| {
                    answer_mget(arguments, rest, &admission, is_free, &mut Reply::new(to, protocol))
                })
            }
            None => {
                let mut reply = Reply::new(&mut self.output, protocol);
                answer_mget(arguments, rest, &admission, |_| true, &mut reply)
            }
        };
        let Some(mget) = mget else { return false };
        self.consumed += bytes;
        self.tally.hot += mget.keys;
        self.tally.absent += mget.absent;
        self.session.asking = false;
        // The queue notes the requests that went through it.
        if self.queue.is_none() {
            note(&mut self.answered, command, 1);
            note(&mut self.answered_of, mget.store, 1);
            self.client.note_command(command);
        }
        true
    }

    /// Lets the next request into the queue.
    pub(super) fn push(&mut self, spec: &'static CommandSpec, queued: Queued, bytes: usize, taking: &Taking<'_>) {
        let accepted = Accepted {
            command: spec.id,
            began: taking.began,
            bytes,
            is_muted: self.session.replies != Replies::On,
        };
        self.begin_queue(taking);
        if matches!(queued, Queued::Replica(_)) {
            self.answer_reads(taking);
        }
        // Not copied: the parts of it that are kept for long are.
        self.input.advance(std::mem::take(&mut self.consumed));
        let request = Request {
            spec,
            bytes: self.input.split_to(bytes).freeze(),
            arguments: &self.arguments,
            // Other requests do not look at the clock.
            now_unix_ms: match queued {
                Queued::Operations(_) => now_unix_ms(),
                Queued::Replica(_) | Queued::LookUps(..) => 0,
            },
        };
        let Self {
            context,
            session,
            reads,
            queue,
            tally,
            ..
        } = self;
        let admission = Admission::new(taking.catalog, session, context);
        let Some(queue) = queue else { return };
        let pushed = match queued {
            Queued::Replica(asked) => admission
                .replica_request(asked, request.parts())
                .map(|request| queue.push_replica(accepted, request)),
            Queued::Operations(parse) => parse(&request).and_then(|asked| {
                // A look-up before a write of its key does not see the write.
                let is_of_others = matches!(&asked.keys[..], [(wire_key, _)] if !reads.contains(wire_key));
                if !reads.is_empty() && !is_of_others {
                    tally.add(queue.answer_reads(reads, &admission, session.protocol));
                    reads.clear();
                }
                admission.push(asked, accepted, queue)
            }),
            Queued::LookUps(look_ups, _) => admission.push(look_ups.asked(&request), accepted, queue),
        };
        if let Err(refusal) = pushed {
            note_moved(context, &refusal);
            queue.push_refused(accepted, refusal);
        }
        self.session.asking = false;
        if self.session.replies == Replies::SkipNext {
            self.session.replies = Replies::On;
        }
    }

    /// Keeps the next request until `EXEC`. All before it is answered: `MULTI` was carried out.
    #[cold]
    fn keep_for_exec(&mut self, command: CommandId, bytes: usize) {
        let Some(transaction) = &mut self.session.transaction else {
            return;
        };
        let request = &self.input[self.consumed..self.consumed + bytes];
        // A buffer that grows may become twice as long as it must.
        let has_room = self
            .charge
            .has_room_for((self.input.capacity() + 2 * (transaction.bytes() + bytes)) as u64);
        let bytes_max = match has_room {
            true => request_bytes_max(self.context.shared.config.buffers.bytes_max()),
            false => transaction.bytes(),
        };
        let kept = transaction.keep(command, request, bytes_max);
        self.consumed += bytes;
        self.charge_buffers();
        let start = self.output.len();
        match kept {
            Ok(()) => self.reply().simple("QUEUED"),
            Err(refusal) => self.reply().error(&refusal),
        }
        self.mute_from(start);
    }

    /// Puts requests in front of the input, to be taken next.
    pub(super) fn take_first(&mut self, mut requests: BytesMut) {
        requests.extend_from_slice(&self.input[self.consumed..]);
        (self.input, self.consumed, self.request_start) = (requests, 0, 0);
        self.charge_buffers();
    }

    /// Answers all requests that were taken; the turn that must go before, if one must.
    pub(super) fn answer_before(&mut self, taking: &Taking<'_>) -> Option<Turn> {
        self.answer_reads(taking);
        match self.queue {
            Some(_) => Some(Turn::Queue(Pause::Other)),
            None => self.run_window(taking.catalog),
        }
    }

    /// The turn when the input holds no further request.
    fn pause(&mut self, taking: &Taking<'_>) -> Turn {
        self.answer_reads(taking);
        match self.queue {
            Some(_) => Turn::Queue(Pause::Starved),
            None => self.run_window(taking.catalog).unwrap_or(Turn::Read),
        }
    }

    /// Answers the look-ups of the window; the turn that must follow, if one must.
    #[inline]
    pub(super) fn run_window(&mut self, catalog: &Arc<Catalog>) -> Option<Turn> {
        if self.window.is_empty() {
            return None;
        }
        self.window_start = self.output.len();
        self.window.find_events(catalog);
        if self.window.is_split() {
            return Some(Turn::Ask(Arc::clone(catalog)));
        }
        let mut reply = Reply::new(&mut self.output, self.session.protocol);
        match self.window.run(catalog, &mut reply, &mut self.tally) {
            Run::Done => {
                self.end_window(catalog);
                (self.output.len() > OUTPUT_BYTES_MAX).then_some(Turn::Write)
            }
            Run::Cold(place, read) => Some(Turn::Wait(Arc::clone(catalog), place, Some(read))),
            Run::Full(place) | Run::Long(place) => Some(Turn::Wait(Arc::clone(catalog), place, None)),
        }
    }

    pub(super) fn end_window(&mut self, catalog: &Arc<Catalog>) {
        self.mute_from(self.window_start);
        self.context.shared.comparisons.note_window(&self.window, catalog);
        let mut last = None;
        for (command, store) in self.window.commands(catalog) {
            last = Some(command);
            note(&mut self.answered, command, 1);
            if let Some(store) = store {
                note(&mut self.answered_of, store, 1);
            }
        }
        if let Some(command) = last {
            self.client.note_command(command);
        }
        self.session.asking = false;
        if let Some(trace) = self.trace.take() {
            trace.end_window(&self.window, self.tally);
        }
        self.window.clear();
    }
}
