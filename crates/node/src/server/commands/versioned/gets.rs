//! `GET`s of a versioned store that a client has sent one behind the other: those that memory tells of are looked up
//! together, so that it serves them at the same time, and their values go from there into the replies.

use fondaco_resp::command::{CommandId, resolve};
use fondaco_resp::{Arguments, Limits, Parse, Reply, parse_request};
use smallvec::SmallVec;

use super::admission::Admission;
use super::recall::readable;
use crate::server::window::OUTPUT_BYTES_MAX;

/// How many are looked up at once.
const TOGETHER_MAX: usize = 32;

/// Looks `GET`s up for one connection.
#[derive(Default)]
pub(in crate::server) struct Gets {
    /// How many of the next are looked up one by one: memory did not tell of one before them.
    alone: usize,
    arguments: Arguments,
}

/// `GET`s that were answered.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct AnsweredGets {
    /// How long they were, in bytes.
    pub(in crate::server) bytes: usize,
    pub(in crate::server) count: u64,
    /// How many of them found no value.
    pub(in crate::server) absent: u64,
}

impl Gets {
    /// Answers requests, of which the first is a `GET` with these arguments, and so long: it and those behind it that
    /// are like it, as far as the client may read the store, memory has all that there is to say, and `may_answer` says
    /// so of their keys on the wire. None if that is not so of the first: who carries out requests one by one finds out why.
    pub(in crate::server) fn answer(
        &mut self,
        (first, first_bytes): (&Arguments, usize),
        requests: &[u8],
        limits: &Limits,
        admission: &Admission<'_>,
        may_answer: impl Fn(&[u8]) -> bool,
        reply: &mut Reply<'_>,
    ) -> Option<AnsweredGets> {
        let wire_key = first.get(1, requests).filter(|key| may_answer(key))?;
        let (store, key) = readable(wire_key, admission)?;
        let mut keys = SmallVec::<[&[u8]; TOGETHER_MAX]>::new();
        let mut ends = SmallVec::<[usize; TOGETHER_MAX]>::new();
        keys.push(key);
        ends.push(first_bytes);
        let together_max = match self.alone.checked_sub(1) {
            Some(left) => {
                self.alone = left;
                1
            }
            None => TOGETHER_MAX,
        };
        let mut end = first_bytes;
        self.arguments.clear();
        while keys.len() < together_max
            && let rest = &requests[end..]
            && let Ok(Parse::Complete { consumed }) = parse_request(rest, limits, &mut self.arguments)
            && resolve(&self.arguments, rest).is_ok_and(|spec| spec.id == CommandId::Get)
            && let Some(wire_key) = self.arguments.get_in_buffer(1, rest).filter(|key| may_answer(key))
            && let Some((of, key)) = readable(wire_key, admission)
            && of.id == store.id
        {
            end += consumed;
            keys.push(key);
            ends.push(end);
        }

        let start = reply.buffer.len();
        let (mut count, mut absent) = (0, 0);
        admission
            .forwarder
            .recall_plain(admission.catalog, store, &keys, |value| {
                count += 1;
                match value {
                    Some(value) => reply.bulk(value),
                    None => {
                        absent += 1;
                        reply.null();
                    }
                }
                reply.buffer.len() - start <= OUTPUT_BYTES_MAX
            });
        if count < keys.len() {
            self.alone = keys.len() - count.max(1);
        }
        Some(AnsweredGets {
            bytes: *ends.get(count.checked_sub(1)?)?,
            count: count as u64,
            absent,
        })
    }
}
