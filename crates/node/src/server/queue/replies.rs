//! Replies of one connection that are written before it is their turn, one behind the other.
//!
//! They go in at one end and, in the same order, out at the other: into the replies that are sent. They begin as the end of
//! those, so that they need not be moved if all of them go. Replies that have gone take hardly more room than those that wait.

/// How much memory is kept when nothing waits.
const BYTES_KEPT: usize = 256 * 1024;
/// How much must be gone before the waiting replies are moved.
const BYTES_GONE_MIN: usize = 64 * 1024;

/// Such replies.
#[derive(Default)]
pub(super) struct WaitingReplies {
    buffer: Vec<u8>,
    /// How many bytes at its start are gone.
    gone: usize,
    /// How many at its start are gone, or taken and not given yet.
    taken: usize,
}

impl WaitingReplies {
    /// Whether none waits to be given.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Goes on behind replies that may be sent, if nothing waits: those are taken, and given together with what follows.
    pub(super) fn follow(&mut self, replies: &mut Vec<u8>) {
        if self.is_empty() {
            std::mem::swap(&mut self.buffer, replies);
            self.taken = self.buffer.len();
        }
    }

    /// Adds a reply.
    pub(super) fn push(&mut self, reply: &[u8]) {
        self.make_room();
        self.buffer.extend_from_slice(reply);
    }

    /// Adds what `write` writes, if it says what that is: this, and how long it is.
    pub(super) fn push_by<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Option<T>) -> Option<(T, usize)> {
        self.make_room();
        let start = self.buffer.len();
        let written = write(&mut self.buffer);
        if written.is_none() {
            self.buffer.truncate(start);
        }
        written.map(|written| (written, self.buffer.len() - start))
    }

    /// Drops the replies that are gone. Those that are left are moved for that, but seldom: when they are fewer bytes.
    fn make_room(&mut self) {
        if self.gone >= BYTES_GONE_MIN.max(self.buffer.len() / 2) {
            self.buffer.drain(..self.gone);
            self.taken -= self.gone;
            self.gone = 0;
        }
    }

    /// Takes the next bytes, to be given.
    pub(super) fn take(&mut self, length: usize) {
        self.taken += length;
    }

    /// How many are taken, and not given yet.
    pub(super) fn due(&self) -> usize {
        self.taken - self.gone
    }

    /// Puts the taken replies behind other bytes.
    pub(super) fn give(&mut self, to: &mut Vec<u8>) {
        if to.is_empty() && self.gone == 0 && self.taken >= self.buffer.len() / 2 {
            // Fewer bytes stay than go, or none.
            std::mem::swap(&mut self.buffer, to);
            self.buffer.extend_from_slice(&to[self.taken..]);
            to.truncate(self.taken);
            self.taken = 0;
        } else {
            to.extend_from_slice(&self.buffer[self.gone..self.taken]);
        }
        self.let_go();
    }

    /// Drops the next bytes, when all that was taken before is given.
    pub(super) fn skip(&mut self, length: usize) {
        self.taken += length;
        self.let_go();
    }

    fn let_go(&mut self) {
        self.gone = self.taken;
        if self.gone == self.buffer.len() {
            (self.gone, self.taken) = (0, 0);
            self.buffer.clear();
            self.buffer.shrink_to(BYTES_KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn replies_come_out_as_they_went_in_and_what_is_gone_takes_no_room() {
        let (mut replies, mut out) = (WaitingReplies::default(), Vec::new());
        let (mut waiting, mut expected) = (VecDeque::new(), Vec::new());
        let mut longest = 0;
        for round in 0..100_000_usize {
            if round % 13 == 0 {
                replies.follow(&mut out);
            }
            let reply = vec![(round % 251) as u8; round * 7 % 1_500];
            let added = replies.push_by(|buffer| {
                buffer.extend_from_slice(&reply);
                (round % 11 > 0).then_some(())
            });
            assert_eq!(added, (round % 11 > 0).then_some(((), reply.len())));
            if added.is_some() {
                waiting.push_back(reply);
            }
            if round % 7 == 0 {
                replies.push(b"+OK\r\n");
                waiting.push_back(b"+OK\r\n".to_vec());
            }
            // Mostly one waits all the time.
            while waiting.len() > usize::from(round % 200 > 0)
                && let Some(reply) = waiting.pop_front()
            {
                match round % 5 {
                    0 => {
                        replies.give(&mut out);
                        replies.skip(reply.len());
                    }
                    _ => {
                        replies.take(reply.len());
                        expected.extend(reply);
                    }
                }
            }
            if round % 3 == 0 {
                replies.give(&mut out);
                assert!(out == expected, "{round}");
                out.clear();
                expected.clear();
            }
            longest = longest.max(replies.buffer.len());
        }
        assert!(longest < 4 * BYTES_GONE_MIN, "{longest}");
    }
}
