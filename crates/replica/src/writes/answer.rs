//! The receiver of the outcome of a write: one caller, or several parts of one request that end on several shards. Each
//! is answered once, whatever happens.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};

use fondaco_protocol::replica::{OnReply, ReplicaError, ReplicaErrorCode, ReplicaReply};

use crate::writes::direct::DirectAnswer;

/// The receiver; `None` once it was answered.
pub(crate) struct Answer(Option<Waiting>);

enum Waiting {
    /// The caller.
    One(OnReply),
    /// The batcher, with the outcome of each direct write.
    Direct(DirectAnswer),
}

/// A request that was split.
pub(crate) struct Parts {
    left: AtomicUsize,
    state: Mutex<(Option<ReplicaError>, Option<OnReply>)>,
}

impl Parts {
    /// `count` parts, at least one.
    pub(crate) fn new(count: usize, answer: OnReply) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(count),
            state: Mutex::new((None, Some(answer))),
        })
    }

    /// The receiver of one part: the caller is answered once all parts have ended.
    pub(crate) fn part(self: &Arc<Self>) -> OnReply {
        let parts = Arc::clone(self);
        Box::new(move |reply| parts.end(reply))
    }

    fn end(&self, reply: ReplicaReply) {
        let mut state = self.state.lock();
        if let ReplicaReply::Error(error) = reply {
            state.0.get_or_insert(error);
        }
        if self.left.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        let (error, answer) = (state.0.take(), state.1.take());
        drop(state);
        if let Some(answer) = answer {
            answer(error.map_or(ReplicaReply::Done, ReplicaReply::Error));
        }
    }
}

impl Answer {
    /// Answers the caller.
    pub(crate) fn to(answer: OnReply) -> Self {
        Self(Some(Waiting::One(answer)))
    }

    /// Answers the batcher of direct writes.
    pub(crate) fn direct(writes: DirectAnswer) -> Self {
        Self(Some(Waiting::Direct(writes)))
    }

    /// The direct writes, if it is about those.
    pub(crate) fn direct_writes(&mut self) -> Option<&mut DirectAnswer> {
        match &mut self.0 {
            Some(Waiting::Direct(writes)) => Some(writes),
            _ => None,
        }
    }

    /// Answers the receiver.
    pub(crate) fn give(mut self, reply: ReplicaReply) {
        self.tell(reply);
    }

    fn tell(&mut self, reply: ReplicaReply) {
        match self.0.take() {
            Some(Waiting::One(answer)) => answer(reply),
            Some(Waiting::Direct(writes)) => writes.give(match reply {
                ReplicaReply::Error(error) => Some(error),
                _ => None,
            }),
            None => {}
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.tell(ReplicaReply::Error(ReplicaError::new(
                ReplicaErrorCode::Other,
                "this replica failed during the write, and the outcome is unknown: see its log",
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use fondaco_protocol::replica::ReplicaErrorCode;

    use super::*;

    fn parts(replies: Vec<ReplicaReply>) -> Vec<ReplicaReply> {
        let (sender, receiver) = mpsc::channel();
        let parts = Parts::new(replies.len(), Box::new(move |reply| drop(sender.send(reply))));
        for reply in replies {
            Answer::to(parts.part()).give(reply);
        }
        drop(parts);
        receiver.iter().collect()
    }

    #[test]
    fn a_split_request_fails_once_if_any_part_fails() {
        let error = ReplicaReply::Error(ReplicaError::new(ReplicaErrorCode::DiskFull, "full"));
        assert_eq!(
            parts(vec![ReplicaReply::Done, ReplicaReply::Done]),
            [ReplicaReply::Done]
        );
        assert_eq!(parts(vec![error.clone(), ReplicaReply::Done]), [error]);
    }

    #[test]
    fn a_dropped_receiver_gets_an_error() {
        let (sender, receiver) = mpsc::channel();
        drop(Answer::to(Box::new(move |reply| drop(sender.send(reply)))));
        let [ReplicaReply::Error(error)] = &receiver.iter().collect::<Vec<_>>()[..] else {
            panic!("one answer")
        };
        assert_eq!(error.code, ReplicaErrorCode::Other);
    }
}
