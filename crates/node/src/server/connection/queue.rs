//! Runs the [queue](crate::server::queue) of requests on versioned stores, and of those for this node's replica: many of one
//! connection are under way at a time, while more are read.
//!
//! They are answered in the order in which they came. Any other request ends the run: it is taken again when all before it
//! are answered.

use std::future::poll_fn;
use std::io;
use std::time::Instant;

use fondaco_client::trace::call_within;
use fondaco_resp::Reply;
use tokio::io::{AsyncRead, AsyncWrite};

use super::requests::Pause;
use super::{Connection, slow};
use crate::server::buffers::FREE_BYTES;
use crate::server::clients::Phase;
use crate::server::queue::{RequestQueue, Work, begin, begin_reads};
use crate::server::window::OUTPUT_BYTES_MAX;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Begins the work that may begin, writes the replies to finished requests, and waits if there is neither. No more requests are let in
    /// for the reason that is given.
    pub(super) async fn run_queue(&mut self, pause: Pause, now: Instant) -> io::Result<()> {
        // Writes that are under way when the client goes are carried out, and not answered; look-ups are aborted.
        let Some(mut queue) = self.queue.take() else {
            return Ok(());
        };
        self.hold(queue.held_bytes());
        queue.set_short_of_memory(!self.charge.has_room_for(self.buffer_bytes() + 1));
        self.begin_work(&mut queue);
        queue.take_done();
        self.answer_done(&mut queue);
        if self.output.len() + queue.due() > OUTPUT_BYTES_MAX {
            self.write_due(&mut queue, now).await?;
        }
        if queue.is_empty() && pause != Pause::Full {
            queue.give(&mut self.output);
            self.context.loop_memory.give_back_queue(queue);
            self.hold(0);
            return Ok(());
        }
        if !(queue.has_work() || queue.has_answer() || queue.is_empty()) {
            self.wait(&mut queue, pause, now).await?;
        }
        self.queue = Some(queue);
        Ok(())
    }

    fn begin_work(&self, queue: &mut RequestQueue) {
        if !queue.has_work() {
            return;
        }
        let mut reads = Vec::new();
        while let Some(work) = queue.next_work() {
            let is_replicas = matches!(work, Work::Replica(..));
            let tracing = queue.tracing_of(&work);
            match work {
                Work::Part(part, completer) if part.operation.is_look_up() && tracing.is_none() => {
                    reads.push((part, completer));
                }
                work => call_within(tracing.as_ref(), || begin(&self.context, work)),
            }
            if is_replicas {
                // It may be answered by now, with more than is to wait.
                queue.take_done();
            }
        }
        if !reads.is_empty() {
            queue.note_reads(begin_reads(&self.context, reads));
        }
        if let Some(batcher) = &self.context.replica {
            batcher.hand_over_enough();
        }
    }

    /// Waits until something is done, or more is read, if more may be let in.
    async fn wait(&mut self, queue: &mut RequestQueue, pause: Pause, now: Instant) -> io::Result<()> {
        // Replies that are ready are sent together with those of the work that ends in this turn of the loop, as most writes do; they do
        // not wait for longer.
        if self.output.len() + queue.due() > 0 {
            tokio::select! {
                biased;
                () = queue.next_done() => return Ok(()),
                () = tokio::task::yield_now() => {}
            }
        }
        self.write_due(queue, now).await?;
        // The rest of a long request is read when all before it is answered: it may have to wait for memory.
        if pause != Pause::Starved || self.input.len() as u64 >= FREE_BYTES {
            queue.next_done().await;
            return Ok(());
        }
        self.make_room();
        self.charge_buffers();
        tokio::select! {
            biased;
            () = queue.next_done() => {}
            count = poll_fn(|context| self.poll_read(context)) => {
                let count = count?;
                self.has_ended = count == 0;
                self.note_read(count);
                self.client.note(Phase::Waiting, self.context.shared.now_ms());
            }
        }
        Ok(())
    }

    /// Writes the replies that may be sent, while others are under way, which the client then waits for.
    async fn write_due(&mut self, queue: &mut RequestQueue, now: Instant) -> io::Result<()> {
        queue.give(&mut self.output);
        self.write(now).await?;
        self.client.note(Phase::Waiting, self.context.shared.ms_at(now));
        Ok(())
    }

    /// Writes the replies to those requests, from the first on, that are done, until there is enough to be sent.
    fn answer_done(&mut self, queue: &mut RequestQueue) {
        if !queue.has_answer() {
            return;
        }
        let now = Instant::now();
        let Self {
            context,
            client,
            session,
            output,
            unsent,
            ..
        } = self;
        let slow_from = slow::threshold(&context.shared);
        let mut reply = Reply::new(output, session.protocol);
        queue.answer_done(OUTPUT_BYTES_MAX, &mut reply, unsent, |answered| {
            if answered.has_failed {
                context.metrics.record_error(answered.command);
            }
            let took = now - answered.began;
            if took >= slow_from {
                slow::keep(&context.shared, client, answered.command, 1, took);
            }
            context.metrics.record(answered.command, took, 1);
            if let Some(store) = answered.store {
                context.metrics.record_store(store, took, 1);
            }
            client.note_command(answered.command);
        });
    }
}
