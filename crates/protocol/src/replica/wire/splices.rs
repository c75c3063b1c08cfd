//! The long strings of a message, which are sent from where they are.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use fondaco_resp::Reply;

/// Shorter strings are copied: a system call of their own would cost more.
const SPLICED_BYTES_MIN: usize = 256 * 1024;

/// The long strings that belong into a buffer of requests, in their order. They are not copied into it.
#[derive(Debug, Default)]
pub struct Splices {
    /// Each with its place in the buffer. Line ends are between them.
    parts: VecDeque<(usize, Bytes)>,
}

impl Splices {
    /// Whether there are none, or all were sent.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Writes a string: its bytes into the buffer, or a long one here.
    pub(super) fn bulk(&mut self, bytes: &Bytes, writer: &mut Reply<'_>) {
        if bytes.len() < SPLICED_BYTES_MIN {
            return writer.bulk(bytes);
        }
        writer.bulk_length(bytes.len());
        self.parts.push_back((writer.buffer.len(), bytes.clone()));
        writer.buffer.extend_from_slice(b"\r\n");
    }

    /// The next bytes to be sent, after the first `sent` ones of the buffer.
    pub fn next<'a>(&'a self, buffer: &'a [u8], sent: usize) -> &'a [u8] {
        match self.parts.front() {
            Some((place, bytes)) if *place == sent => bytes,
            Some((place, _)) => &buffer[sent..*place],
            None => &buffer[sent..],
        }
    }

    /// Notes that this many of the [next](Self::next) bytes were sent.
    pub fn advance(&mut self, sent: &mut usize, count: usize) {
        match self.parts.front_mut() {
            Some((place, bytes)) if place == sent => {
                bytes.advance(count);
                if bytes.is_empty() {
                    self.parts.pop_front();
                }
            }
            _ => *sent += count,
        }
    }
}

#[cfg(test)]
mod tests {
    use fondaco_resp::Protocol;

    use super::*;

    #[test]
    fn what_is_sent_is_what_would_have_been_copied() {
        let strings: Vec<Bytes> = [
            3,
            SPLICED_BYTES_MIN,
            SPLICED_BYTES_MIN + 1,
            SPLICED_BYTES_MIN - 1,
            0,
            300_000,
        ]
        .iter()
        .map(|&length| (0..length).map(|at| (at % 251) as u8).collect())
        .collect();
        let (mut copied, mut buffer, mut splices) = (Vec::new(), Vec::new(), Splices::default());
        for string in &strings {
            Reply::new(&mut copied, Protocol::Resp2).bulk(string);
            splices.bulk(string, &mut Reply::new(&mut buffer, Protocol::Resp2));
        }
        assert!(buffer.len() < copied.len() - 3 * SPLICED_BYTES_MIN);
        let (mut sent, mut received) = (0, Vec::new());
        while sent < buffer.len() {
            let next = splices.next(&buffer, sent);
            let count = next.len().min(100_003);
            received.extend_from_slice(&next[..count]);
            splices.advance(&mut sent, count);
        }
        assert!(splices.is_empty() && received == copied);
    }
}
