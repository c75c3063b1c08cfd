//! A replica in memory, which answers requests.

use std::collections::BTreeMap;

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{DotSource, Over, Record, WriteError};
use fondaco_protocol::replica::{
    Held, KeyRecord, Known, KnownKey, PutOver, RecordPart, ReplicaError, ReplicaErrorCode, ReplicaOperation,
    ReplicaReply,
};

/// The records of a replica.
pub type Records = BTreeMap<Bytes, Record>;

/// The hints of a replica, by target node and key.
pub type Hints = BTreeMap<(NodeId, Bytes), Record>;

/// Deliberate flaws of replicas, to prove that the checks notice them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// They acknowledge merges without merging.
    ForgetMerges,
    /// They answer empty contexts.
    HideContexts,
    /// They answer empty records.
    HideRecords,
    /// They claim to have the same record as the one whose digest they get.
    SayTheSame,
}

/// Carries out a request of a coordinator.
pub fn carry_out(
    records: &mut Records,
    hints: &mut Hints,
    dots: &mut DotSource,
    operation: ReplicaOperation,
    flaw: Option<Flaw>,
) -> ReplicaReply {
    match operation {
        ReplicaOperation::Get { part, keys } => {
            let record = |key: &Bytes| {
                let record = records.get(key)?;
                Some(match part {
                    RecordPart::Full if flaw == Some(Flaw::HideRecords) => return None,
                    RecordPart::Context if flaw == Some(Flaw::HideContexts) => return None,
                    RecordPart::Full => record.to_bytes().into(),
                    RecordPart::Context => record.context().to_bytes().into(),
                    RecordPart::Members => unreachable!("no set is read here"),
                })
            };
            ReplicaReply::Records(keys.iter().map(|key| Ok(record(key).into())).collect())
        }
        ReplicaOperation::GetOther { keys } => {
            let held = |KnownKey { key, known }: &KnownKey| {
                let record = records.get(key).filter(|_| flaw != Some(Flaw::HideRecords));
                let record = record.map(|record| Bytes::from(record.to_bytes()));
                let digest = record.as_deref().map(Record::stated_digest);
                match known {
                    Known::Digest(known) if digest == Some(*known) || flaw == Some(Flaw::SayTheSame) => Held::Same,
                    Known::Awaited => digest.map(|digest| digest.to_be_bytes().to_vec().into()).into(),
                    Known::Digest(_) | Known::Nothing => record.into(),
                }
            };
            ReplicaReply::Records(keys.iter().map(|key| Ok(held(key))).collect())
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
            match Record::write(records.get(&key), dots, over, update) {
                Ok(record) => {
                    let bytes = record.to_bytes().into();
                    records.insert(key, record);
                    ReplicaReply::Written(bytes)
                }
                Err(error) => {
                    let code = match error {
                        WriteError::Conflict => ReplicaErrorCode::Conflict,
                        _ => ReplicaErrorCode::Other,
                    };
                    ReplicaReply::Error(ReplicaError::new(code, error.to_string()))
                }
            }
        }
        ReplicaOperation::Merge { .. } if flaw == Some(Flaw::ForgetMerges) => ReplicaReply::Done,
        ReplicaOperation::Merge { records: told } => {
            for KeyRecord { key, record } in told {
                merge(records.entry(key).or_default(), record);
            }
            ReplicaReply::Done
        }
        ReplicaOperation::Hint { target, records } => {
            for KeyRecord { key, record } in records {
                merge(hints.entry((target, key)).or_default(), record);
            }
            ReplicaReply::Done
        }
        other => panic!("no coordinator asks {other:?}"),
    }
}

fn merge(held: &mut Record, told: Bytes) {
    *held = held.merge(&Record::decode(told).unwrap());
}
