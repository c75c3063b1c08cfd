//! The input of a connection: read into memory of the [loop's](crate::server::loop_memory::LoopMemory), and given back when all of it was
//! taken. A connection that waits for the first byte of a request has none.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{self, Poll};
use std::time::Instant;

use bytes::{Buf, BufMut, BytesMut};
use fondaco_metrics::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::task::yield_now;

use super::{Connection, TURN_BYTES};
use crate::server::clients::Phase;
use crate::server::loop_memory::{INPUT_BYTES, INPUT_BYTES_MAX};

/// How much of the rest of one request is read at once, at most. Longer buffers than this are not kept by who has the
/// beginning of a request.
pub(super) const INPUT_ROOM_MAX: usize = 1024 * 1024;

/// A buffer in which less is left is replaced by another.
const SPARE_BYTES_MIN: usize = 4 * 1024;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Reads until there may be a new request.
    pub(super) async fn read(&mut self) -> io::Result<()> {
        loop {
            let rest = self.input.len();
            if rest > 0 {
                let missing = self.needed.saturating_sub(rest);
                let room = missing.clamp(self.input_room, INPUT_ROOM_MAX);
                if self.input.capacity() - rest < room {
                    self.wait_for_room(rest + room).await;
                    self.input.reserve(room);
                    self.charge_buffers();
                }
            }
            let read = poll_fn(|context| {
                let read = self.poll_read(context);
                // A connection that waits needs no memory.
                if self.input.is_empty() {
                    self.give_back_input();
                }
                read
            });
            let count = read.await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.note_read(count);
            if self.input.len() >= self.needed {
                return Ok(());
            }
            self.client.note(Phase::Sending, self.context.shared.now_ms());
            if count >= TURN_BYTES {
                yield_now().await;
            }
        }
    }

    /// Reads as much as there is room for; there is some of the loop's where there was none.
    pub(super) fn poll_read(&mut self, context: &mut task::Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.capacity() == 0 {
            self.input = self.context.loop_memory.input(self.input_room);
        }
        pin!(self.stream.read_buf(&mut (&mut self.input).limit(TURN_BYTES))).poll(context)
    }

    /// So much was read at once.
    pub(super) fn note_read(&mut self, count: usize) {
        self.context.metrics.add(Counter::BytesIn, count as u64);
        self.naming.unnamed += count;
        if count >= self.input_room {
            self.input_room = INPUT_BYTES_MAX;
        } else if count < self.input_room / 4 {
            self.input_room = INPUT_BYTES;
        }
    }

    /// Drops the requests that were taken from the input.
    pub(super) fn keep_rest(&mut self, now: Instant) {
        if self.consumed > 0 {
            // A request was taken. The next one waits for memory as those of others do.
            self.charge.end_exemption();
        }
        self.drop_taken();
        let phase = if self.input.is_empty() {
            self.give_back_input();
            Phase::Idle
        } else {
            Phase::Sending
        };
        self.client.note(phase, self.context.shared.ms_at(now));
    }

    /// Drops the requests that were taken from the input, and makes room for more behind what is left, while requests are under way that
    /// are parts of it.
    pub(super) fn make_room(&mut self) {
        self.drop_taken();
        // The rest of the buffer is used up, so that requests of a few bytes do not hold a buffer each.
        let spare = self.input.capacity() - self.input.len();
        if !self.input.try_reclaim(self.input_room) && spare < SPARE_BYTES_MIN {
            match self.input.is_empty() {
                true => self.input = BytesMut::new(),
                false => self.input.reserve(self.input_room),
            }
        }
    }

    fn give_back_input(&mut self) {
        self.context
            .loop_memory
            .give_back_input(std::mem::take(&mut self.input));
        self.charge_buffers();
    }

    fn drop_taken(&mut self) {
        self.input.advance(std::mem::take(&mut self.consumed));
        let kept = match self.input_room {
            INPUT_BYTES => 2 * INPUT_BYTES,
            _ => INPUT_ROOM_MAX,
        };
        if self.input.capacity() > kept.max(self.needed) {
            self.input = BytesMut::from(&self.input[..]);
        }
        self.charge_buffers();
    }
}
