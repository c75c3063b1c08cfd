//! Requests on versioned stores, and those for this node's replica: many of one connection are under way at a
//! time, while more are read.
//!
//! They are answered in the order in which they came. What is no such request ends the run: it is taken again
//! when all before it is answered.

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
use crate::server::commands::versioned::{self, Pipeline, Work};
use crate::server::window::OUTPUT_BYTES_MAX;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Begins what may be begun, writes the replies to what is done, and waits if there is neither. No more requests are let in
    /// for the reason that is given.
    pub(super) async fn run_pipeline(&mut self, pause: Pause, now: Instant) -> io::Result<()> {
        // What is under way when the client goes is carried out all the same, and not answered.
        let Some(mut pipeline) = self.pipeline.take() else {
            return Ok(());
        };
        self.hold(pipeline.held_bytes());
        pipeline.set_short_of_memory(!self.charge.has_room_for(self.buffer_bytes() + 1));
        self.begin_work(&mut pipeline);
        pipeline.take_done();
        self.answer_done(&mut pipeline);
        if self.output.len() + pipeline.due() > OUTPUT_BYTES_MAX {
            self.write_due(&mut pipeline, now).await?;
        }
        if pipeline.is_empty() && pause != Pause::Full {
            pipeline.give(&mut self.output);
            self.context.loop_memory.give_back_pipeline(pipeline);
            self.hold(0);
            return Ok(());
        }
        if !(pipeline.has_work() || pipeline.has_answer() || pipeline.is_empty()) {
            self.wait(&mut pipeline, pause, now).await?;
        }
        self.pipeline = Some(pipeline);
        Ok(())
    }

    fn begin_work(&self, pipeline: &mut Pipeline) {
        if !pipeline.has_work() {
            return;
        }
        while let Some(work) = pipeline.next_work() {
            let is_replicas = matches!(work, Work::Replica(..));
            let tracing = pipeline.tracing_of(&work);
            call_within(tracing.as_ref(), || versioned::begin(&self.context, work));
            if is_replicas {
                // It may be answered by now, with more than is to wait.
                pipeline.take_done();
            }
        }
        if let Some(batcher) = &self.context.replica {
            batcher.hand_over_enough();
        }
    }

    /// Waits until something is done, or more is read, if more may be let in.
    async fn wait(&mut self, pipeline: &mut Pipeline, pause: Pause, now: Instant) -> io::Result<()> {
        // What is ready is sent together with what is done by the end of this turn of the loop, as most writes are; it does
        // not wait for longer.
        if self.output.len() + pipeline.due() > 0 {
            tokio::select! {
                biased;
                () = pipeline.next_done() => return Ok(()),
                () = tokio::task::yield_now() => {}
            }
        }
        self.write_due(pipeline, now).await?;
        // The rest of a long request is read when all before it is answered: it may have to wait for memory.
        if pause != Pause::Starved || self.input.len() as u64 >= FREE_BYTES {
            pipeline.next_done().await;
            return Ok(());
        }
        self.make_room();
        self.charge_buffers();
        tokio::select! {
            biased;
            () = pipeline.next_done() => {}
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
    async fn write_due(&mut self, pipeline: &mut Pipeline, now: Instant) -> io::Result<()> {
        pipeline.give(&mut self.output);
        self.write(now).await?;
        self.client.note(Phase::Waiting, self.context.shared.ms_at(now));
        Ok(())
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
