//! Requests on versioned stores, and those for this node's replica: many of one connection are under way at a
//! time, while more are read.
//!
//! They are answered in the order in which they came. What is no such request ends the run: it is taken again
//! when all before it is answered.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use bytes::Buf;
use fondaco_resp::command::{CommandId, resolve};
use fondaco_resp::{Arguments, Parse, Reply, parse_request};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, slow};
use crate::catalog::Catalog;
use crate::metrics::Counter;
use crate::resolved::now_unix_ms;
use crate::server::buffers::FREE_BYTES;
use crate::server::clients::Phase;
use crate::server::commands::versioned::{
    self, Accepted, Admission, Answer, DirectWriter, First, Gets, Pipeline, Request, Work, is_look_up,
    is_on_versioned_store, is_on_versioned_stores, is_operation, recall, replica_command,
};
use crate::server::session::Replies;
use crate::server::window::OUTPUT_BYTES_MAX;

/// Why no more requests are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// The input holds no further request.
    Starved,
    /// Enough is under way.
    Full,
    /// The next request is none of ours, or breaks the protocol.
    Other,
    /// The client sends no more.
    Ended,
}

/// What is waited for.
enum Wake {
    Done,
    Input(usize),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Carries requests out until there is one of another kind, or none is left.
    pub(super) async fn run_pipeline(&mut self) -> io::Result<()> {
        // What is under way when the client goes is carried out all the same, and told to nobody.
        let mut pipeline = self.context.reused.pipeline();
        let mut has_ended = false;
        loop {
            let now = Instant::now();
            if !pipeline.has_written() {
                self.borrow_output();
                pipeline.follow(&mut self.output);
            }
            let pause = match has_ended {
                true => Pause::Ended,
                false => self.let_in(&mut pipeline, now),
            };
            self.hold(pipeline.held_bytes());
            pipeline.set_short_of_memory(!self.charge.has_room_for(self.buffer_bytes() + 1));
            if pipeline.has_work() {
                let catalog = self.context.shared.catalog.load();
                while let Some(work) = pipeline.next_work() {
                    let is_replicas = matches!(work, Work::Replica(..));
                    versioned::begin(&self.context, &catalog, work);
                    if is_replicas {
                        // It may be answered by now, with more than is to wait.
                        pipeline.take_done();
                    }
                }
                DirectWriter::hand_over_enough(&self.context);
            }
            pipeline.take_done();
            self.answer_done(&mut pipeline);
            if self.output.len() + pipeline.due() > OUTPUT_BYTES_MAX {
                self.write_due(&mut pipeline, now).await?;
            }
            if pipeline.is_empty() && pause != Pause::Full {
                pipeline.give(&mut self.output);
                break;
            }
            if pipeline.has_work() || pipeline.has_answer() || pipeline.is_empty() {
                continue;
            }
            // What is ready is sent together with what is done by the end of this turn of the loop, as most writes are;
            // it does not wait for longer.
            if self.output.len() + pipeline.due() > 0 {
                tokio::select! {
                    biased;
                    () = pipeline.next_done() => continue,
                    () = tokio::task::yield_now() => {}
                }
            }
            self.write_due(&mut pipeline, now).await?;
            let wake = match pause {
                // The rest of a long request is read when all before it is answered: it may have to wait for memory.
                Pause::Starved if (self.input.len() as u64) < FREE_BYTES => {
                    self.make_room();
                    self.charge_buffers();
                    tokio::select! {
                        biased;
                        () = pipeline.next_done() => Wake::Done,
                        count = poll_fn(|context| self.poll_read(context)) => Wake::Input(count?),
                    }
                }
                Pause::Starved | Pause::Full | Pause::Other | Pause::Ended => {
                    pipeline.next_done().await;
                    Wake::Done
                }
            };
            match wake {
                Wake::Done => {}
                Wake::Input(0) => has_ended = true,
                Wake::Input(count) => {
                    self.note_read(count);
                    self.client.note(Phase::Waiting, self.context.shared.now_ms());
                }
            }
        }
        self.context.reused.give_back_pipeline(pipeline);
        self.hold(0);
        Ok(())
    }

    /// Writes the replies that may be sent, while others are under way, which the client then waits for.
    async fn write_due(&mut self, pipeline: &mut Pipeline, now: Instant) -> io::Result<()> {
        pipeline.give(&mut self.output);
        self.write(now).await?;
        self.client.note(Phase::Waiting, self.context.shared.ms_at(now));
        Ok(())
    }

    /// Lets in requests of the input, as long as they are ours and there is room.
    fn let_in(&mut self, pipeline: &mut Pipeline, began: Instant) -> Pause {
        let context = Rc::clone(&self.context);
        let limits = self.limits();
        let catalog = context.shared.catalog.load();
        let now_unix_ms = now_unix_ms();
        loop {
            if self.consumed == self.input.len() {
                self.needed = 0;
                return Pause::Starved;
            }
            if !pipeline.has_room() {
                return Pause::Full;
            }
            let rest = &self.input[self.consumed..];
            if rest.len() < self.needed {
                return Pause::Starved;
            }
            let consumed = match parse_request(rest, &limits, &mut self.arguments) {
                Ok(Parse::Complete { consumed }) => consumed,
                Ok(Parse::Empty { consumed }) => {
                    self.needed = 0;
                    self.consumed += consumed;
                    continue;
                }
                Ok(Parse::Incomplete { needed }) => {
                    self.needed = needed;
                    return Pause::Starved;
                }
                Err(_) => return Pause::Other,
            };
            self.needed = 0;
            // How much is taken of the input that is still in it.
            let mut taken = consumed;
            let Ok(spec) = resolve(&self.arguments, rest) else {
                return Pause::Other;
            };
            let command = spec.id;
            let admission = Admission {
                catalog: &catalog,
                session: &self.session,
                forwarder: &context.forwarder,
            };
            let accepted = Accepted {
                command,
                began,
                bytes: consumed,
                is_muted: self.session.replies != Replies::On,
            };
            if Gets::answers(command)
                && !accepted.is_muted
                && let Some(gets) = pipeline.push_gets(accepted, |may_answer, written| {
                    let first = First {
                        command,
                        arguments: &self.arguments,
                        bytes: consumed,
                    };
                    let mut reply = Reply::new(written, self.session.protocol);
                    self.gets
                        .answer(first, rest, &limits, &admission, may_answer, &mut reply)
                })
            {
                taken = gets.bytes;
                self.tally.hot += gets.keys;
                self.tally.absent += gets.absent;
            } else if is_look_up(command)
                && pipeline.may_answer(self.arguments.get(1, rest).unwrap_or_default())
                && let Some((store, answer)) = recall(command, &self.arguments, rest, &admission)
            {
                self.tally.hot += 1;
                self.tally.absent += u64::from(answer == Answer::Null);
                pipeline.push_known(accepted, store, answer);
            } else if let Some(asked) = replica_command(command) {
                // Not copied: what is kept of it for long is.
                self.input.advance(std::mem::take(&mut self.consumed));
                let request = Request {
                    bytes: self.input.split_to(std::mem::take(&mut taken)).freeze(),
                    arguments: &self.arguments,
                };
                match admission.replica_request(asked, request.parts()) {
                    Ok(request) => pipeline.push_replica(accepted, request),
                    Err(refusal) => pipeline.push_refused(accepted, refusal),
                }
            } else if (is_operation(command) && is_on_versioned_store(&self.arguments, rest, &catalog))
                || (is_look_up(command) && is_on_versioned_stores(&self.arguments, rest, &catalog))
            {
                // Not copied: what is kept of it for long is.
                self.input.advance(std::mem::take(&mut self.consumed));
                let request = Request {
                    bytes: self.input.split_to(std::mem::take(&mut taken)).freeze(),
                    arguments: &self.arguments,
                };
                let admitted = versioned::parse(command, &request, now_unix_ms).and_then(|asked| match asked {
                    Some(asked) => {
                        let reply = asked.reply;
                        Ok((reply, admission.keys(asked)?))
                    }
                    None => Err(versioned::NOT_DONE.into()),
                });
                match admitted {
                    Ok((reply, keys)) => pipeline.push_keys(accepted, reply, keys.into_iter()),
                    Err(refusal) => {
                        if refusal.starts_with("MOVED ") {
                            context.metrics.add(Counter::Moved, 1);
                        }
                        pipeline.push_refused(accepted, refusal);
                    }
                }
            } else {
                return Pause::Other;
            }
            self.consumed += taken;
            self.session.asking = false;
            if self.session.replies == Replies::SkipNext {
                self.session.replies = Replies::On;
            }
        }
    }

    /// Writes the replies to those requests, from the first on, that are done, until there is enough to be sent.
    fn answer_done(&mut self, pipeline: &mut Pipeline) {
        if !pipeline.has_answer() {
            return;
        }
        let now = Instant::now();
        let Self {
            context,
            client,
            session,
            output,
            ..
        } = self;
        let slow_from = slow::threshold(&context.shared);
        let mut reply = Reply::new(output, session.protocol);
        pipeline.answer_done(OUTPUT_BYTES_MAX, &mut reply, |answered| {
            if answered.has_failed {
                context.metrics.record_error(answered.command);
            }
            let took = now - answered.began;
            if took >= slow_from {
                slow::keep(&context.shared, client, answered.command, answered.count, took);
            }
            context.metrics.record(answered.command, took, answered.count);
            if let Some(store) = answered.store {
                context.metrics.record_store(store, took, answered.count);
            }
            client.note_command(answered.command);
        });
    }
}

/// Whether a request begins a run of those that are carried out side by side.
pub(super) fn begins(command: CommandId, arguments: &Arguments, buffer: &[u8], catalog: &Catalog) -> bool {
    replica_command(command).is_some() || (is_operation(command) && is_on_versioned_store(arguments, buffer, catalog))
}
