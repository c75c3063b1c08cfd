//! Combines requests into one on the wire, and divides the answer among them.
//!
//! A connection takes several requests from its queue at a time. Neighbours that ask for the same version with the same
//! time left become one request on the wire. If many requests ask a node for one key each, the node is asked once for
//! many keys. So the cost per request at the node, and per answer here, is paid once for all of them. The requests
//! themselves do not notice. The invariant: answers are divided in the order and by the numbers of keys of the
//! requests.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_protocol::Envelope;
use fondaco_protocol::replica::ReplicaRequest;
use fondaco_resp::{Protocol, Reply, ReplyItem};
use smallvec::SmallVec;

use super::ask::Ask;
use crate::read::{Answer, BatchRequest, Element, Failure, NodeHealth};

/// The most keys of a combined request: as many as a node looks up in parallel. With more, the first request would wait
/// longer than in a queue behind the others.
const KEYS_MAX: usize = 64;

/// Requests to be combined.
#[derive(Default)]
pub(super) struct Coalesced {
    asks: Vec<Ask<BatchRequest>>,
    keys: usize,
    timeout_ms: u64,
}

/// Requests that were sent and not answered, in their order.
#[derive(Default)]
pub(super) struct Owed {
    sent: VecDeque<Sent>,
}

enum Sent {
    Coalesced {
        ask: Ask<BatchRequest>,
        /// Whether it is the last of a combined request.
        is_last: bool,
    },
    /// A request that is never combined. Boxed because such requests are rare and larger than the other entries of the
    /// queue.
    Alone(Box<Ask<ReplicaRequest>>),
}

/// A node's answer to a combined request.
enum Whole<'a> {
    /// One item for each key.
    Elements(&'a [ReplyItem]),
    /// An error for all keys.
    Error(Bytes),
}

impl Coalesced {
    /// Whether a request with this timeout may be combined with those that are here.
    pub(super) fn fits(&self, ask: &Ask<BatchRequest>, timeout_ms: u64) -> bool {
        let Some(first) = self.asks.first() else { return true };
        self.keys + ask.request.keys().len() <= KEYS_MAX
            && first.request.computation.is_none()
            && ask.request.computation.is_none()
            // A node carries out one that is traced by itself.
            && first.trace.is_none()
            && ask.trace.is_none()
            && self.timeout_ms == timeout_ms
            && (first.request.store_id, first.request.version) == (ask.request.store_id, ask.request.version)
            && first.request.store() == ask.request.store()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    /// Whether it is one request.
    pub(super) fn is_single(&self) -> bool {
        self.asks.len() == 1
    }

    /// Whether no other request can be combined with these.
    pub(super) fn is_full(&self) -> bool {
        self.keys >= KEYS_MAX
    }

    /// Fails all requests: the connection is over, and they were not sent.
    pub(super) fn fail(&mut self, reason: &Arc<str>) {
        self.keys = 0;
        for ask in self.asks.drain(..) {
            ask.fail(Failure::Unsent(Arc::clone(reason)));
        }
    }

    /// Adds a request that [fits](Self::fits).
    pub(super) fn push(&mut self, ask: Ask<BatchRequest>, timeout_ms: u64) {
        self.timeout_ms = timeout_ms;
        self.keys += ask.request.keys().len();
        self.asks.push(ask);
    }

    /// Writes the combined request to the output, if it is not empty, and adds its parts to the owed ones:
    /// `FONDACO.READ envelope store-id version store key …`, or, with a computation and its parameter before the keys,
    /// `FONDACO.COMPUTE`. If `wants_rate`, the node is asked for its rate of requests.
    pub(super) fn encode(&mut self, output: &mut Vec<u8>, owed: &mut Owed, protocol: u32, wants_rate: bool) {
        let Some(first) = self.asks.first() else { return };
        let mut writer = Reply::new(output, Protocol::Resp2);
        let computation = first.request.computation_of_part();
        match computation {
            None => {
                writer.array(5 + self.keys);
                writer.bulk(b"FONDACO.READ");
            }
            Some(_) => {
                writer.array(7 + self.keys);
                writer.bulk(b"FONDACO.COMPUTE");
            }
        }
        let envelope = Envelope {
            wants_rate,
            reads_bits: computation.is_some(),
            trace: first.trace.as_deref().copied(),
            ..Envelope::with_timeout_ms(self.timeout_ms)
        };
        envelope.write(protocol, &mut writer);
        writer.bulk_decimal(first.request.store_id.into());
        writer.bulk_decimal(first.request.version.get());
        writer.bulk(first.request.store().as_bytes());
        if let Some(computation) = computation {
            writer.bulk(computation.name().as_bytes());
            writer.bulk(&computation.parameter());
        }
        for ask in &self.asks {
            debug_assert_eq!(
                ask.request.store(),
                first.request.store(),
                "a request has keys of one store"
            );
            ask.request.keys().for_each(|key| writer.bulk(key.key()));
        }
        let last = self.asks.len() - 1;
        let sent = self.asks.drain(..).enumerate().map(|(at, ask)| Sent::Coalesced {
            ask,
            is_last: at == last,
        });
        owed.sent.extend(sent);
        self.keys = 0;
    }
}

impl Owed {
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Adds a request that was sent alone.
    pub(super) fn push_alone(&mut self, ask: Box<Ask<ReplicaRequest>>) {
        self.sent.push_back(Sent::Alone(ask));
    }

    /// Delivers this reply to the oldest requests, and what it says of its node; false if it answers none of them.
    pub(super) fn answer(&mut self, reply: &Bytes, items: &[ReplyItem], health: &NodeHealth) -> bool {
        if let Some(Sent::Alone(ask)) = self.sent.pop_front_if(|sent| matches!(sent, Sent::Alone(_))) {
            return ask.answer_received(reply, items);
        }
        let mut whole = match items {
            [ReplyItem::Array(_), ReplyItem::Integer(rate), elements @ ..] => {
                health.report_rate(u32::try_from(*rate).unwrap_or(0));
                Whole::Elements(elements)
            }
            [ReplyItem::Array(_), elements @ ..] => Whole::Elements(elements),
            [ReplyItem::Error(place)] => Whole::Error(reply.slice(place.range())),
            _ => return false,
        };
        let is_last = |sent: &Sent| matches!(sent, Sent::Coalesced { is_last: true, .. });
        let Some(last) = self.sent.iter().position(is_last) else {
            return false;
        };
        if let Whole::Elements(elements) = whole {
            let keys = self.sent.iter().take(last + 1).map(Sent::keys);
            let keys: usize = keys.sum();
            if elements.len() != keys {
                let error = format!("ERR {} elements were returned for {keys} keys", elements.len());
                whole = Whole::Error(error.into());
            }
        }
        for sent in self.sent.drain(..=last) {
            // The parts of a combined request are contiguous.
            let Sent::Coalesced { ask, .. } = sent else {
                return false;
            };
            match &mut whole {
                Whole::Error(error) => ask.answer(Answer::Error(error.clone())),
                Whole::Elements(rest) => {
                    let (own, others) = rest.split_at(ask.request.keys().len());
                    *rest = others;
                    let mut answers = SmallVec::<[Element; 1]>::with_capacity(own.len());
                    for item in own {
                        // Without an answer it is dropped and thereby lost, like all requests behind it: the connection
                        // ends.
                        let Some(answer) = element(reply, item) else {
                            return false;
                        };
                        answers.push(answer);
                    }
                    ask.answer(Answer::Elements(answers));
                }
            }
        }
        true
    }

    /// Fails all requests: the connection is over.
    pub(super) fn fail(&mut self, reason: &Arc<str>) {
        for sent in self.sent.drain(..) {
            let failure = Failure::Lost(Arc::clone(reason));
            match sent {
                Sent::Coalesced { ask, .. } => ask.fail(failure),
                Sent::Alone(ask) => ask.fail(failure),
            }
        }
    }
}

impl Sent {
    /// The number of its keys, if it may be combined with others.
    fn keys(&self) -> usize {
        match self {
            Self::Coalesced { ask, .. } => ask.request.keys().len(),
            Self::Alone(_) => 0,
        }
    }
}

/// Parses one element of a `FONDACO.READ` reply; `None` if it is malformed.
#[inline]
fn element(reply: &Bytes, item: &ReplyItem) -> Option<Element> {
    Some(match item {
        ReplyItem::Bulk(place) => Element::Value(Some(reply.slice(place.range()))),
        ReplyItem::Null => Element::Value(None),
        ReplyItem::Error(place) => Element::Error(reply.slice(place.range())),
        ReplyItem::Status(_) | ReplyItem::Integer(_) | ReplyItem::Array(_) => return None,
    })
}
