//! Replies as RESP values, and back.
//!
//! | to | reply |
//! |---|---|
//! | `RGET` | an array: for each key a string, null, or an error |
//! | `RPUT` | a string |
//! | `RMERGE`, `RHINT` | `OK` |
//! | `RTREE` | an array: the depth of the leaves, 1 if nothing is lost there or 0, then strings of 16 × 8 bytes |
//! | `RSYNC` | an array: a string of 8 bytes for each digest that is lacking, 1 if nothing is lost there or 0, the number of records, then keys and records in turn, then keys and contexts |
//! | `RHINTS` | an array: the time there, and an integer, or null |

use bytes::Bytes;
use fondaco_resp::{Reply, ReplyItem};

use super::request::digests_of;
use crate::replica::reply::{Held, ReplicaError, ReplicaReply};
use crate::replica::request::{KeyRecord, ReplicaCommand};

/// Replaces a record that the requester has already.
const SAME: &str = "SAME";

impl ReplicaReply {
    /// Writes the reply.
    pub fn write(&self, writer: &mut Reply<'_>) {
        match self {
            Self::Records(records) => {
                writer.array(records.len());
                for record in records {
                    match record {
                        Ok(Held::Record(record)) => writer.bulk(record),
                        Ok(Held::Nothing) => writer.null(),
                        Ok(Held::Same) => writer.simple(SAME),
                        Err(error) => writer.error(&error.to_string()),
                    }
                }
            }
            Self::Written(record) => writer.bulk(record),
            Self::Done => writer.ok(),
            Self::Hashes {
                leaf_depth,
                nodes,
                is_whole,
            } => {
                writer.array(2 + nodes.len());
                writer.integer((*leaf_depth).into());
                writer.integer((*is_whole).into());
                for children in nodes {
                    let bytes: Vec<u8> = children.iter().flat_map(|hash| hash.to_be_bytes()).collect();
                    writer.bulk(&bytes);
                }
            }
            Self::Differences {
                records,
                contexts,
                lacking,
                is_whole,
            } => {
                writer.array(3 + 2 * records.len() + 2 * contexts.len());
                let bytes: Vec<u8> = lacking.iter().flat_map(|digest| digest.to_be_bytes()).collect();
                writer.bulk(&bytes);
                writer.integer((*is_whole).into());
                writer.integer(records.len() as i64);
                for KeyRecord { key, record } in records.iter().chain(contexts) {
                    writer.bulk(key);
                    writer.bulk(record);
                }
            }
            Self::OldestHint {
                now_unix_ms,
                oldest_unix_ms,
            } => {
                let time = |unix_ms: u64| i64::try_from(unix_ms).unwrap_or(i64::MAX);
                writer.array(2);
                writer.integer(time(*now_unix_ms));
                match oldest_unix_ms {
                    Some(unix_ms) => writer.integer(time(*unix_ms)),
                    None => writer.null(),
                }
            }
            Self::Error(error) => writer.error(&error.to_string()),
        }
    }

    /// Parses a received reply to a command; `None` if it is not a valid reply to it. The result contains slices of
    /// `received`.
    pub fn parse(command: ReplicaCommand, received: &Bytes, items: &[ReplyItem]) -> Option<Self> {
        let bulk = |item: &ReplyItem| match item {
            ReplyItem::Bulk(place) => Some(received.slice(place.range())),
            _ => None,
        };
        let (first, elements) = items.split_first()?;
        if let ReplyItem::Error(place) = first {
            return Some(Self::Error(ReplicaError::parse(&received[place.range()])));
        }
        match (command, first) {
            (ReplicaCommand::Get, ReplyItem::Array(_)) => {
                let record = |item: &ReplyItem| match item {
                    ReplyItem::Bulk(place) => Some(Ok(Held::Record(received.slice(place.range())))),
                    ReplyItem::Null => Some(Ok(Held::Nothing)),
                    ReplyItem::Status(place) if received[place.range()] == *SAME.as_bytes() => Some(Ok(Held::Same)),
                    ReplyItem::Error(place) => Some(Err(ReplicaError::parse(&received[place.range()]))),
                    _ => None,
                };
                let records: Option<Vec<_>> = elements.iter().map(record).collect();
                records.map(Self::Records)
            }
            (ReplicaCommand::Put, item) => bulk(item).map(Self::Written),
            (ReplicaCommand::Merge | ReplicaCommand::Hint, ReplyItem::Status(_)) => Some(Self::Done),
            (ReplicaCommand::Tree, ReplyItem::Array(_)) => {
                let children = |item: &ReplyItem| {
                    let digests = digests_of(&bulk(item)?)?;
                    <[u64; 16]>::try_from(digests).ok()
                };
                let ([ReplyItem::Integer(leaf_depth), ReplyItem::Integer(is_whole)], nodes) =
                    elements.split_first_chunk::<2>()?
                else {
                    return None;
                };
                let nodes: Option<Vec<_>> = nodes.iter().map(children).collect();
                Some(Self::Hashes {
                    leaf_depth: u8::try_from(*leaf_depth).ok()?,
                    nodes: nodes?,
                    is_whole: *is_whole == 1,
                })
            }
            (ReplicaCommand::Sync, ReplyItem::Array(_)) => {
                let ([lacking, ReplyItem::Integer(is_whole), ReplyItem::Integer(count)], pairs) =
                    elements.split_first_chunk::<3>()?
                else {
                    return None;
                };
                let (pairs, rest) = pairs.as_chunks::<2>();
                let record = |[key, record]: &[ReplyItem; 2]| {
                    Some(KeyRecord {
                        key: bulk(key)?,
                        record: bulk(record)?,
                    })
                };
                let pairs: Option<Vec<_>> = pairs.iter().map(record).collect();
                let mut records = pairs.filter(|_| rest.is_empty())?;
                let count = usize::try_from(*count).ok().filter(|&count| count <= records.len())?;
                let contexts = records.split_off(count);
                Some(Self::Differences {
                    records,
                    contexts,
                    lacking: digests_of(&bulk(lacking)?)?,
                    is_whole: *is_whole == 1,
                })
            }
            (ReplicaCommand::OldestHint, ReplyItem::Array(_)) => {
                let [ReplyItem::Integer(now), oldest] = elements else {
                    return None;
                };
                Some(Self::OldestHint {
                    now_unix_ms: u64::try_from(*now).ok()?,
                    oldest_unix_ms: match oldest {
                        ReplyItem::Integer(unix_ms) => Some(u64::try_from(*unix_ms).ok()?),
                        ReplyItem::Null => None,
                        _ => return None,
                    },
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use fondaco_resp::{Limits, Protocol, ReplyItems, ReplyParse, parse_reply};

    use super::*;
    use crate::replica::reply::ReplicaErrorCode;

    fn received(command: ReplicaCommand, bytes: Vec<u8>) -> Option<ReplicaReply> {
        let mut items = ReplyItems::new();
        let parsed = parse_reply(&bytes, &Limits::default(), &mut items);
        assert_eq!(parsed, Ok(ReplyParse::Complete { consumed: bytes.len() }));
        ReplicaReply::parse(command, &bytes.into(), items.as_slice())
    }

    fn written(reply: &ReplicaReply) -> Vec<u8> {
        let mut bytes = Vec::new();
        reply.write(&mut Reply::new(&mut bytes, Protocol::Resp2));
        bytes
    }

    fn replies() -> Vec<(ReplicaCommand, ReplicaReply)> {
        let record = Bytes::from_static(b"\x01record\r\n");
        let error = ReplicaError::new(ReplicaErrorCode::NotHere, "partition 3 is not held here");
        let pair = KeyRecord {
            key: Bytes::from_static(b"k"),
            record: record.clone(),
        };
        vec![
            (
                ReplicaCommand::Get,
                ReplicaReply::Records(vec![
                    Ok(Held::Record(record.clone())),
                    Ok(Held::Nothing),
                    Ok(Held::Same),
                    Err(error.clone()),
                ]),
            ),
            (ReplicaCommand::Put, ReplicaReply::Written(record)),
            (ReplicaCommand::Merge, ReplicaReply::Done),
            (ReplicaCommand::Hint, ReplicaReply::Done),
            (
                ReplicaCommand::Tree,
                ReplicaReply::Hashes {
                    leaf_depth: 7,
                    nodes: vec![[u64::MAX; 16], [1; 16]],
                    is_whole: true,
                },
            ),
            (
                ReplicaCommand::Sync,
                ReplicaReply::Differences {
                    records: vec![pair.clone(), pair.clone()],
                    contexts: vec![pair],
                    lacking: vec![1, u64::MAX],
                    is_whole: false,
                },
            ),
            (ReplicaCommand::OldestHint, oldest(Some(1 << 62))),
            (ReplicaCommand::OldestHint, oldest(None)),
            (ReplicaCommand::Put, ReplicaReply::Error(error)),
        ]
    }

    fn oldest(oldest_unix_ms: Option<u64>) -> ReplicaReply {
        ReplicaReply::OldestHint {
            now_unix_ms: 1 << 61,
            oldest_unix_ms,
        }
    }

    #[test]
    fn a_written_reply_is_parsed_again() {
        for (command, reply) in replies() {
            assert_eq!(received(command, written(&reply)), Some(reply));
        }
    }

    #[test]
    fn a_malformed_reply_is_refused() {
        for (command, reply) in [
            (ReplicaCommand::Get, ReplicaReply::Done),
            (ReplicaCommand::Put, ReplicaReply::Done),
            (
                ReplicaCommand::Merge,
                ReplicaReply::Written(Bytes::from_static(b"record")),
            ),
            (
                ReplicaCommand::Tree,
                ReplicaReply::Written(Bytes::from_static(b"record")),
            ),
            (
                ReplicaCommand::Tree,
                ReplicaReply::Records(vec![Ok(Held::Record(Bytes::from_static(b"short")))]),
            ),
            (ReplicaCommand::OldestHint, ReplicaReply::Done),
            (ReplicaCommand::Sync, ReplicaReply::Records(vec![Ok(Held::Nothing)])),
            (ReplicaCommand::Sync, ReplicaReply::Records(vec![])),
            (
                ReplicaCommand::Sync,
                ReplicaReply::Records(vec![Ok(Held::Record(Bytes::new())), Ok(Held::Record(Bytes::new()))]),
            ),
        ] {
            assert_eq!(received(command, written(&reply)), None, "{reply:?} to {command:?}");
        }
    }

    #[test]
    fn errors_keep_their_code_and_unknown_ones_their_text() {
        let parse = |line: &str| ReplicaError::parse(line.as_bytes());
        assert_eq!(parse("DISKFULL 3 bytes are left").code, ReplicaErrorCode::DiskFull);
        assert_eq!(parse("KEYSFULL 3 keys take").code, ReplicaErrorCode::KeysFull);
        assert_eq!(parse("NOAUTH Authentication required.").code, ReplicaErrorCode::Refused);
        assert_eq!(parse("WHAT is this").to_string(), "ERR WHAT is this");
    }
}
