//! A scripted node as a replica of versioned stores: it keeps real records, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{DotSource, Over, Record, ReplicaId};
use fondaco_protocol::replica::{
    self, KeyRecord, Known, KnownKey, LocalReplica, OnReply, PutOver, RecordPart, ReplicaCommand, ReplicaError,
    ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest,
};
use parking_lot::Mutex;

/// A replica's records, and the requests to it.
#[derive(Debug)]
pub struct Held {
    pub records: BTreeMap<Bytes, Record>,
    /// By target node and key.
    pub hints: BTreeMap<(NodeId, Bytes), Record>,
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
        match request.operation {
            ReplicaOperation::Get { part, keys } => {
                let record = |key: &Bytes| {
                    let record = self.records.get(key)?;
                    Some(match part {
                        RecordPart::Full => record.to_bytes().into(),
                        RecordPart::Context => record.context().to_bytes().into(),
                        RecordPart::Members => unreachable!("no set is read here"),
                    })
                };
                ReplicaReply::Records(keys.iter().map(|key| Ok(record(key).into())).collect())
            }
            ReplicaOperation::GetOther { keys } => {
                let held = |KnownKey { key, known }: &KnownKey| {
                    let Some(record) = self.records.get(key) else {
                        return replica::Held::Nothing;
                    };
                    let record = Bytes::from(record.to_bytes());
                    let digest = Record::stated_digest(&record);
                    match known {
                        Known::Digest(known) if *known == digest => replica::Held::Same,
                        Known::Awaited => replica::Held::Record(digest.to_be_bytes().to_vec().into()),
                        Known::Digest(_) | Known::Nothing => replica::Held::Record(record),
                    }
                };
                let found: Vec<replica::Held> = keys.iter().map(held).collect();
                let not_told = found
                    .iter()
                    .zip(&keys)
                    .filter(|(held, key)| **held == replica::Held::Same || key.known == Known::Awaited);
                self.not_told += not_told.count();
                ReplicaReply::Records(found.into_iter().map(Ok).collect())
            }
            ReplicaOperation::Put {
                over,
                key,
                context,
                update,
                ..
            } => {
                let over = match over {
                    PutOver::Context => Over::Context(&context),
                    PutOver::All => Over::All(&context),
                    PutOver::Unchanged => Over::Unchanged(&context),
                };
                match Record::write(self.records.get(&key), &mut self.dots, over, update) {
                    Ok(record) => {
                        let bytes = record.to_bytes().into();
                        self.records.insert(key, record);
                        ReplicaReply::Written(bytes)
                    }
                    Err(error) => ReplicaReply::Error(ReplicaError::new(ReplicaErrorCode::Conflict, error.to_string())),
                }
            }
            ReplicaOperation::Merge { records } => {
                for KeyRecord { key, record } in records {
                    let held = self.records.entry(key).or_default();
                    *held = held.merge(&Record::decode(record).unwrap());
                }
                ReplicaReply::Done
            }
            ReplicaOperation::Hint { target, records } => {
                for KeyRecord { key, record } in records {
                    let held = self.hints.entry((target, key)).or_default();
                    *held = held.merge(&Record::decode(record).unwrap());
                }
                ReplicaReply::Done
            }
            ReplicaOperation::OldestHint => ReplicaReply::OldestHint {
                now_unix_ms: 1,
                oldest_unix_ms: None,
            },
            other => panic!("{other:?} is not a request of a client"),
        }
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
