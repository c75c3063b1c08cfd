//! A scripted node as a replica of versioned stores: it keeps real records, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_model::NodeId;
use fondaco_model::versioned::{DotSource, ReplicaId};
use fondaco_protocol::replica::{
    self, Known, LocalReplica, OnReply, ReplicaCommand, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaReply,
    ReplicaRequest,
};
use parking_lot::Mutex;

use crate::records::{Hints, Records, carry_out};

/// A replica's records, and the requests to it.
#[derive(Debug)]
pub struct Held {
    pub records: Records,
    pub hints: Hints,
    dots: DotSource,
    pub asked: Vec<ReplicaCommand>,
    /// How many records it did not send because the requester had them.
    pub not_told: usize,
    /// The errors that it answers to these commands.
    pub refuses: BTreeMap<&'static str, ReplicaErrorCode>,
}

impl Default for Held {
    fn default() -> Self {
        Self::of(fastrand::u32(1..))
    }
}

impl Held {
    /// This number distinguishes its writes from those of other replicas.
    fn of(incarnation: u32) -> Self {
        let replica = ReplicaId {
            node: NodeId::FIRST,
            incarnation,
        };
        Self {
            records: BTreeMap::new(),
            hints: BTreeMap::new(),
            dots: DotSource::new(replica, 0),
            asked: Vec::new(),
            not_told: 0,
            refuses: BTreeMap::new(),
        }
    }

    pub fn answer(&mut self, request: ReplicaRequest) -> ReplicaReply {
        let command = request.operation.command();
        self.asked.push(command);
        if let Some(&code) = self.refuses.get(command.name()) {
            return ReplicaReply::Error(ReplicaError::new(code, "as the test says"));
        }
        if command == ReplicaCommand::OldestHint {
            return ReplicaReply::OldestHint {
                now_unix_ms: 1,
                oldest_unix_ms: None,
            };
        }
        if let ReplicaOperation::GetOther { keys } = &request.operation {
            self.not_told += keys.iter().filter(|key| key.known == Known::Awaited).count();
        }
        let (records, hints, dots) = (&mut self.records, &mut self.hints, &mut self.dots);
        let reply = carry_out(records, hints, dots, request.operation, None);
        if let ReplicaReply::Records(found) = &reply {
            self.not_told += found.iter().filter(|held| **held == Ok(replica::Held::Same)).count();
        }
        reply
    }

    /// How many of these requests it received.
    pub fn count(&self, command: ReplicaCommand) -> usize {
        self.asked.iter().filter(|asked| **asked == command).count()
    }
}

/// The command with this name, if it is a replica command.
pub fn command(name: &str) -> Option<ReplicaCommand> {
    let all = [
        ReplicaCommand::Get,
        ReplicaCommand::Put,
        ReplicaCommand::Merge,
        ReplicaCommand::Hint,
        ReplicaCommand::OldestHint,
    ];
    all.into_iter().find(|command| command.name() == name)
}

/// A replica in the client's process.
#[derive(Debug)]
pub struct Within {
    pub node: NodeId,
    pub held: Arc<Mutex<Held>>,
}

impl LocalReplica for Within {
    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn request(&self, request: ReplicaRequest, answer: OnReply) {
        let held = Arc::clone(&self.held);
        // As in a node: records in memory are answered at once, all others by another thread.
        if request.operation.command() == ReplicaCommand::Get {
            let reply = held.lock().answer(request);
            return answer(reply);
        }
        std::thread::spawn(move || {
            let reply = held.lock().answer(request);
            answer(reply);
        });
    }
}
