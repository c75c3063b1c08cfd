//! Requests that go out as one, and their answer divided among them.
//!
//! Of the requests that a connection takes from its queue at a time, those next to each other that ask for
//! the same version, with the same time left, are one request on the wire: so a node that many ask for a
//! key each is asked once for many keys, and what it does for a request, and what is done here for an
//! answer, is done once for all of them. The requests themselves know nothing of it. The invariant: answers
//! are divided in the order and by the numbers of keys that were asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_protocol::Envelope;
use fondaco_protocol::replica::ReplicaRequest;
use fondaco_resp::{Protocol, Reply, ReplyItem};
use smallvec::SmallVec;

use super::ask::Ask;
use crate::read::{Answer, BatchRequest, Element, Failure};

/// Requests go out as one while they have no more keys together: as many as a node looks up side by side.
/// With more, the first would wait longer than behind each other.
const KEYS_MAX: usize = 64;

/// Requests that are to go out as one.
#[derive(Default)]
pub(super) struct Coalesced {
    asks: Vec<Ask<BatchRequest>>,
    keys: usize,
    timeout_ms: u64,
}

/// Requests that went out and were not answered, in their order.
#[derive(Default)]
pub(super) struct Owed {
    sent: VecDeque<Sent>,
}

enum Sent {
    Coalesced {
        ask: Ask<BatchRequest>,
        /// Whether it is the last of those that went out as one.
        is_last: bool,
    },
    /// One that is never joined with others. Few are: the queue is not to be as wide as they are.
    Alone(Box<Ask<ReplicaRequest>>),
}

/// What a node answers to requests that went out as one.
enum Whole<'a> {
    /// One item for each key.
    Elements(&'a [ReplyItem]),
    /// An error for all keys.
    Error(Bytes),
}

impl Coalesced {
    /// Whether a request with so much time left may go out with those that are here.
    pub(super) fn fits(&self, ask: &Ask<BatchRequest>, timeout_ms: u64) -> bool {
        let Some(first) = self.asks.first() else { return true };
        self.keys + ask.request.keys().len() <= KEYS_MAX
            && self.timeout_ms == timeout_ms
            && (first.request.store_id, first.request.version) == (ask.request.store_id, ask.request.version)
            && first.request.store() == ask.request.store()
    }

    /// Adds a request that [fits](Self::fits).
    pub(super) fn push(&mut self, ask: Ask<BatchRequest>, timeout_ms: u64) {
        self.timeout_ms = timeout_ms;
        self.keys += ask.request.keys().len();
        self.asks.push(ask);
    }

    /// Writes the requests to the output, if there are any, and counts them as owed:
    /// `FONDACO.READ envelope store-id version store key …`.
    pub(super) fn encode(&mut self, output: &mut Vec<u8>, owed: &mut Owed) {
        let Some(first) = self.asks.first() else { return };
        let mut writer = Reply::new(output, Protocol::Resp2);
        writer.array(5 + self.keys);
        writer.bulk(b"FONDACO.READ");
        Envelope::with_timeout_ms(self.timeout_ms).write(&mut writer);
        writer.bulk_decimal(first.request.store_id.into());
        writer.bulk_decimal(first.request.version.get());
        writer.bulk(first.request.store().as_bytes());
        for ask in &self.asks {
            debug_assert_eq!(
                ask.request.store(),
                first.request.store(),
                "a request is about one store"
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

    /// Another one went out.
    pub(super) fn push_alone(&mut self, ask: Box<Ask<ReplicaRequest>>) {
        self.sent.push_back(Sent::Alone(ask));
    }

    /// Gives those that went out first what this reply says to them; false if it says nothing that was
    /// asked.
    pub(super) fn answer(&mut self, reply: &Bytes, items: &[ReplyItem]) -> bool {
        if let Some(Sent::Alone(ask)) = self.sent.pop_front_if(|sent| matches!(sent, Sent::Alone(_))) {
            return ask.answer_received(reply, items);
        }
        let mut whole = match items {
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
                let error = format!("ERR {} elements were answered for {keys} keys", elements.len());
                whole = Whole::Error(error.into());
            }
        }
        for sent in self.sent.drain(..=last) {
            // What goes out as one goes out without anything between.
            let Sent::Coalesced { ask, .. } = sent else {
                return false;
            };
            match &mut whole {
                Whole::Error(error) => ask.answer(Answer::Error(error.clone())),
                Whole::Elements(rest) => {
                    let (own, others) = rest.split_at(ask.request.keys().len());
                    *rest = others;
                    let own: Option<SmallVec<[Element; 1]>> = own.iter().map(|item| element(reply, item)).collect();
                    // Dropped without an answer, it is lost, as all behind it are: the connection ends.
                    let Some(own) = own else { return false };
                    ask.answer(Answer::Elements(own));
                }
            }
        }
        true
    }

    /// Nothing will come any more.
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
    /// How many keys it asks for, if it may be joined with others.
    fn keys(&self) -> usize {
        match self {
            Self::Coalesced { ask, .. } => ask.request.keys().len(),
            Self::Alone(_) => 0,
        }
    }
}

/// What an item says of its key; nothing if it is none of an answer to `FONDACO.READ`.
#[inline]
fn element(reply: &Bytes, item: &ReplyItem) -> Option<Element> {
    Some(match item {
        ReplyItem::Bulk(place) => Element::Value(Some(reply.slice(place.range()))),
        ReplyItem::Null => Element::Value(None),
        ReplyItem::Error(place) => Element::Error(reply.slice(place.range())),
        ReplyItem::Status(_) | ReplyItem::Integer(_) | ReplyItem::Array(_) => return None,
    })
}
