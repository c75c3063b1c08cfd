//! Who is to be told what came of a write: one who waits, or several parts of one request that end on
//! several shards.

use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::sync::{Arc, Mutex, PoisonError};

use fondaco_client::quorum::{OnReply, ReplicaError, ReplicaReply};

/// Who is to be told.
pub(crate) enum Answer {
    /// Whoever asked.
    To(OnReply),
    /// Whoever asked, once all parts have ended.
    Part(Arc<Parts>),
}

/// A request that was split.
pub(crate) struct Parts {
    left: AtomicUsize,
    state: Mutex<(Option<ReplicaError>, Option<OnReply>)>,
}

impl Parts {
    /// So many parts, at least one.
    pub(crate) fn new(count: usize, answer: OnReply) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(count),
            state: Mutex::new((None, Some(answer))),
        })
    }

    fn end(&self, reply: ReplicaReply) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// Tells it.
    pub(crate) fn give(self, reply: ReplicaReply) {
        match self {
            Self::To(answer) => answer(reply),
            Self::Part(parts) => parts.end(reply),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use fondaco_client::quorum::ReplicaErrorCode;

    use super::*;

    fn parts(replies: Vec<ReplicaReply>) -> Vec<ReplicaReply> {
        let (sender, receiver) = mpsc::channel();
        let parts = Parts::new(replies.len(), Box::new(move |reply| drop(sender.send(reply))));
        for reply in replies {
            Answer::Part(Arc::clone(&parts)).give(reply);
        }
        drop(parts);
        receiver.iter().collect()
    }

    #[test]
    fn a_split_request_is_answered_once_and_fails_if_a_part_does() {
        let error = ReplicaReply::Error(ReplicaError::new(ReplicaErrorCode::DiskFull, "full"));
        assert_eq!(
            parts(vec![ReplicaReply::Done, ReplicaReply::Done]),
            [ReplicaReply::Done]
        );
        assert_eq!(parts(vec![error.clone(), ReplicaReply::Done]), [error]);
    }
}
