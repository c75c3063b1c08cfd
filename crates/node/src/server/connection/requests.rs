//! From bytes to requests. Each request is parsed once, and the table of commands and its keys say what answers it:
//!
//! - memory, at once: `GET`s and `MGET`s of a versioned store;
//! - the *pipeline*: operations on versioned stores, and what other nodes ask of this one's replica, side by side;
//! - the *window*: look-ups that are done together;
//! - or the command itself, when all before it is answered.
//!
//! What goes to one of them waits until what went to another is answered, so that replies are in order.

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
use crate::server::commands::look_ups::{self, LookUps};
use crate::server::commands::operation::{self, Combined, Request};
use crate::server::commands::transactions::runs_at_once;
use crate::server::commands::versioned::{Accepted, AnsweredGets, First, Gets, replica_command};
use crate::server::commands::without_authentication;
use crate::server::session::{Admission, Replies};
use crate::server::window::{OUTPUT_BYTES_MAX, Run};

/// What requests are answered with as long as it is not known which stores there are.
const LOADING: &str = "LOADING this node does not know its cluster and its stores yet: try again; GET /readyz on its control \
                       port says what it waits for";

/// Why no more requests are let into the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// The input holds no further request.
    Starved,
    /// Enough is under way.
    Full,
    /// The next request is not for the pipeline, or breaks the protocol.
    Other,
    /// The client sends no more.
    Ended,
}

/// What answers a request.
pub(super) enum Route {
    Pipeline(Piped),
    /// The window, if the request is a look-up; otherwise the command itself.
    WindowOrCommand,
}

/// What a request in the pipeline asks.
pub(super) enum Piped {
    /// Operations on keys of versioned stores.
    Operations(operation::Parser),
    /// Look-ups of keys of versioned stores.
    LookUps(LookUps),
    /// What another node asks of this node's replica.
    Replica(ReplicaCommand),
}

/// What is the same for all requests that are taken together.
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
        self.session.follow_users(&self.context.shared.config.access);
        let catalog = self.context.shared.catalog.load();
        let taking = Taking {
            catalog: &catalog,
            limits: self.limits(),
            began,
        };
        if let Some(pipeline) = &mut self.pipeline {
            if self.has_ended {
                return Turn::Pipeline(Pause::Ended);
            }
            pipeline.follow(&mut self.output);
        }
        if self.skip.is_none() {
            self.name_default_store(&catalog, &taking.limits);
        }
        loop {
            if self.skip.is_some() {
                if !self.skip_request(&taking.limits) {
                    return Turn::Read;
                }
                // What stands behind it was not looked at yet.
                self.name_default_store(&catalog, &taking.limits);
            }
            let rest = &self.input[self.consumed..];
            if self.session.closing || rest.is_empty() {
                self.needed = 0;
                return self.pause(&catalog);
            }
            if self.pipeline.as_ref().is_some_and(|pipeline| !pipeline.has_room()) {
                return Turn::Pipeline(Pause::Full);
            }
            if rest.len() < self.needed {
                return self.pause(&catalog);
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
                    return self.pause(&catalog);
                }
                Ok(Parse::TooLong { consumed, skip }) => self.answer_before(&catalog).or_else(|| {
                    self.consumed += consumed;
                    self.skip = Some(skip);
                    None
                }),
                Err(error) => self.answer_before(&catalog).or_else(|| {
                    self.end_after(error);
                    None
                }),
            };
            if let Some(turn) = turn {
                return turn;
            }
            if self.output.len() > OUTPUT_BYTES_MAX && self.window.is_empty() && self.pipeline.is_none() {
                return Turn::Write;
            }
        }
    }

    /// Takes the next request, of so many bytes, whose arguments are parsed; the turn that must go before, or follow, if one
    /// must.
    #[inline]
    fn take_request(&mut self, bytes: usize, taking: &Taking<'_>) -> Option<Turn> {
        let (spec, route) = match self.route(taking.catalog) {
            Ok(found) => found,
            Err(refusal) => {
                self.chosen = None;
                return self.refuse(bytes, &refusal, taking.catalog);
            }
        };
        let command = spec.id;
        if self.context.metrics.wants_load() {
            self.sample(spec, bytes, taking.catalog);
        }
        if self.session.transaction.is_some() && !runs_at_once(command) {
            self.keep_for_exec(command, bytes);
            return None;
        }
        if let Some(share) = self.context.shared.settings.traces_share()
            && self.is_chosen(spec, share)
        {
            return self.take_traced(spec, route, bytes, taking);
        }
        let is_for_memory = Gets::answers(command) && self.window.is_empty() && self.session.replies == Replies::On;
        if is_for_memory && let Some(gets) = self.answer_from_memory(command, bytes, taking) {
            self.note_gets(command, &gets);
            return None;
        }
        if let Route::Pipeline(piped) = route {
            let turn = self.run_window(taking.catalog);
            if turn.is_none() {
                self.push(spec, piped, bytes, taking);
            }
            return turn;
        }
        if self.pipeline.is_some() {
            return Some(Turn::Pipeline(Pause::Other));
        }
        if command == CommandId::FondacoMGet
            && let Some(turn) = self.run_window(taking.catalog)
        {
            // It has options of its own, and therefore a window of its own.
            return Some(turn);
        }
        let admission = Admission {
            catalog: taking.catalog,
            session: &self.session,
            forwarder: &self.context.forwarder,
        };
        let rest = &self.input[self.consumed..];
        match self.window.add(command, &self.arguments, rest, &admission) {
            Ok(true) => {
                self.consumed += bytes;
                let is_ready = self.window.is_full() || self.session.replies != Replies::On;
                is_ready.then(|| self.run_window(taking.catalog)).flatten()
            }
            Ok(false) => self.run_window(taking.catalog).or_else(|| {
                if operation::parser(command).is_some() && self.names_no_store(taking.catalog) && self.may_look_again()
                {
                    return Some(Turn::LookAgain);
                }
                self.request_start = self.consumed;
                self.consumed += bytes;
                Some(Turn::Run(command))
            }),
            Err(refusal) if is_for_no_store(&refusal) && self.may_look_again() => {
                Some(self.answer_before(taking.catalog).unwrap_or(Turn::LookAgain))
            }
            Err(refusal) => self.refuse(bytes, &refusal, taking.catalog),
        }
    }

    /// Whether the first key of the next request is of a store that is not known.
    pub(super) fn names_no_store(&self, catalog: &Catalog) -> bool {
        let wire_key = self.arguments.get(1, &self.input[self.consumed..]).unwrap_or_default();
        let colon = memchr::memchr(b':', wire_key);
        colon.is_some_and(|colon| catalog.store_on_wire(&wire_key[..colon]).is_none())
    }

    /// Which command the next request is, and what answers it.
    ///
    /// # Errors
    /// The error to answer with: there is no such command, or the client may not ask it now.
    #[inline]
    fn route(&self, catalog: &Catalog) -> Result<(&'static CommandSpec, Route), String> {
        let rest = &self.input[self.consumed..];
        let spec = resolve(&self.arguments, rest)?;
        let command = spec.id;
        if !self.session.is_authenticated() && !without_authentication(command) {
            return Err("NOAUTH Authentication required.".into());
        }
        if catalog.is_loading() && !spec.flags.contains(Flags::LOADING) {
            return Err(LOADING.into());
        }
        let is_versioned = |at| {
            let wire_key = self.arguments.get(at, rest).unwrap_or_default();
            catalog.versioned_on_wire(wire_key).is_some()
        };
        let route = if let Some(asked) = replica_command(command) {
            Route::Pipeline(Piped::Replica(asked))
        } else if let Some(parser) = operation::parser(command)
            && is_versioned(1)
        {
            Route::Pipeline(Piped::Operations(parser))
        } else if (self.pipeline.is_some() || look_ups::asks_expiry(command))
            // An error is told when it is its turn.
            && let Ok(Some(look_ups)) = look_ups::parse(command, &self.arguments, rest)
            // The keys of one are looked up together, in a window.
            && look_ups.reply != Combined::Array
            && look_ups.keys.clone().all(is_versioned)
        {
            Route::Pipeline(Piped::LookUps(look_ups))
        } else {
            Route::WindowOrCommand
        };
        Ok((spec, route))
    }

    /// Answers the next request, and those like it behind it, if memory has all that there is to say.
    fn answer_from_memory(&mut self, command: CommandId, bytes: usize, taking: &Taking<'_>) -> Option<AnsweredGets> {
        let admission = Admission {
            catalog: taking.catalog,
            session: &self.session,
            forwarder: &self.context.forwarder,
        };
        let first = First {
            command,
            arguments: &self.arguments,
            bytes,
        };
        let (gets, rest, protocol) = (&mut self.gets, &self.input[self.consumed..], self.session.protocol);
        let mut answer = |may_answer: &dyn Fn(&[u8]) -> bool, to: &mut Vec<u8>| {
            let mut reply = Reply::new(to, protocol);
            gets.answer(first, rest, &taking.limits, &admission, may_answer, &mut reply)
        };
        match &mut self.pipeline {
            Some(pipeline) => {
                let accepted = Accepted {
                    command,
                    began: taking.began,
                    bytes,
                    is_muted: false,
                };
                pipeline.push_gets(accepted, answer)
            }
            None => answer(&|_| true, &mut self.output),
        }
    }

    fn note_gets(&mut self, command: CommandId, gets: &AnsweredGets) {
        self.consumed += gets.bytes;
        self.tally.hot += gets.keys;
        self.tally.absent += gets.absent;
        self.session.asking = false;
        // The pipeline notes those that went through it.
        if self.pipeline.is_none() {
            note(&mut self.answered, command, gets.requests);
            note(&mut self.answered_of, gets.store, gets.requests);
            self.client.note_command(command);
        }
    }

    /// Lets the next request into the pipeline.
    pub(super) fn push(&mut self, spec: &'static CommandSpec, piped: Piped, bytes: usize, taking: &Taking<'_>) {
        let accepted = Accepted {
            command: spec.id,
            began: taking.began,
            bytes,
            is_muted: self.session.replies != Replies::On,
        };
        // Not copied: what is kept of it for long is.
        self.input.advance(std::mem::take(&mut self.consumed));
        let request = Request {
            spec,
            bytes: self.input.split_to(bytes).freeze(),
            arguments: &self.arguments,
            // Other requests do not look at the clock.
            now_unix_ms: match piped {
                Piped::Operations(_) => now_unix_ms(),
                Piped::Replica(_) | Piped::LookUps(_) => 0,
            },
        };
        let context = &self.context;
        let admission = Admission {
            catalog: taking.catalog,
            session: &self.session,
            forwarder: &context.forwarder,
        };
        let pipeline = self.pipeline.get_or_insert_with(|| {
            let mut pipeline = context.loop_memory.pipeline();
            pipeline.follow(&mut self.output);
            pipeline
        });
        let pushed = match piped {
            Piped::Replica(asked) => admission
                .replica_request(asked, request.parts())
                .map(|request| pipeline.push_replica(accepted, request)),
            Piped::Operations(parse) => parse(&request).and_then(|asked| admission.push(asked, accepted, pipeline)),
            Piped::LookUps(look_ups) => admission.push(look_ups.asked(&request), accepted, pipeline),
        };
        if let Err(refusal) = pushed {
            note_moved(context, &refusal);
            pipeline.push_refused(accepted, refusal);
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

    /// Answers all that was taken; the turn that must go before, if one must.
    pub(super) fn answer_before(&mut self, catalog: &Arc<Catalog>) -> Option<Turn> {
        match self.pipeline {
            Some(_) => Some(Turn::Pipeline(Pause::Other)),
            None => self.run_window(catalog),
        }
    }

    /// The turn when there is nothing to be taken.
    fn pause(&mut self, catalog: &Arc<Catalog>) -> Turn {
        match self.pipeline {
            Some(_) => Turn::Pipeline(Pause::Starved),
            None => self.run_window(catalog).unwrap_or(Turn::Read),
        }
    }

    /// Answers the look-ups of the window; the turn that must follow, if one must.
    #[inline]
    pub(super) fn run_window(&mut self, catalog: &Arc<Catalog>) -> Option<Turn> {
        if self.window.is_empty() {
            return None;
        }
        self.window_start = self.output.len();
        self.window.look_at_events(catalog);
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

    pub(super) fn end_window(&mut self, catalog: &Catalog) {
        self.mute_from(self.window_start);
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
