//! Replies on their way to a client, and the memory that a connection is charged with.

use std::io;
use std::time::Instant;

use fondaco_metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;

use super::{Connection, TURN_BYTES};
use crate::server::clients::Phase;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Takes a buffer for replies, if there is none.
    pub(super) fn borrow_output(&mut self) {
        if self.output.capacity() == 0 {
            self.output = self.context.loop_memory.output();
        }
    }

    /// Writes all replies, and gives their buffer back. The client is taken to receive since then.
    pub(super) async fn write(&mut self, since: Instant) -> io::Result<()> {
        if !self.output.is_empty() {
            self.write_output(since).await?;
        }
        self.context
            .loop_memory
            .give_back_output(std::mem::take(&mut self.output));
        self.unsent.clear();
        self.charge_buffers();
        Ok(())
    }

    /// Charges the connection with the buffers that it has.
    #[inline]
    pub(super) fn charge_buffers(&mut self) {
        self.charge.set(self.buffer_bytes());
    }

    pub(super) fn buffer_bytes(&self) -> u64 {
        let kept_bytes = self
            .session
            .transaction
            .as_ref()
            .map_or(0, |transaction| transaction.bytes());
        (self.input.capacity() + self.output.capacity() + self.held_bytes + kept_bytes) as u64
    }

    /// Sets how many bytes are held from now on, besides the buffers: requests and answers under way.
    #[inline]
    pub(super) fn hold(&mut self, bytes: usize) {
        if bytes != self.held_bytes {
            self.held_bytes = bytes;
            self.charge_buffers();
        }
    }

    /// Waits until the connection may have buffers of this many bytes.
    #[inline]
    pub(super) async fn wait_for_room(&mut self, bytes: usize) {
        if !self.charge.has_room_for(bytes as u64) {
            // It waits for others: the client is not slow.
            self.client.note(Phase::Waiting, self.context.shared.now_ms());
            self.charge.room_for(bytes as u64).await;
        }
    }

    pub(super) async fn write_output(&mut self, since: Instant) -> io::Result<()> {
        self.charge_buffers();
        self.client.note(Phase::Receiving, self.context.shared.ms_at(since));
        let mut written = 0;
        while written < self.output.len() {
            let end = self.output.len().min(written + TURN_BYTES);
            let count = self.stream.write(&self.output[written..end]).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            written += count;
            if written < self.output.len() {
                self.client.note(Phase::Receiving, self.context.shared.now_ms());
                if count >= TURN_BYTES {
                    yield_now().await;
                }
            }
        }
        self.stream.flush().await?;
        self.context.metrics.add(Counter::BytesOut, written as u64);
        Ok(())
    }
}
