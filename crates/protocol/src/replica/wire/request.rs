//! Requests as arguments of commands, and back. All begin with the envelope and the number of the store.

use bytes::Bytes;
use fondaco_model::versioned::{Update, VectorClock};
use fondaco_model::{KEY_BYTES_MAX, NodeId, PartitionCount, PartitionId, StoreName};
use fondaco_resp::{Reply, parse_integer};
use thiserror::Error;

use crate::envelope::{Envelope, EnvelopeError};
use crate::replica::request::{
    KeyRecord, Known, KnownKey, LeafDigests, PutOver, RecordPart, ReplicaCommand, ReplicaOperation, ReplicaRequest,
};
use crate::replica::wire::Splices;
use crate::trace::TraceContext;

/// Why arguments are not a valid [`ReplicaRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReplicaRequestError {
    /// The first argument is not a valid envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// Too few arguments, or half a pair at the end.
    #[error("wrong number of arguments: {command} takes {takes}")]
    Count {
        /// The command.
        command: &'static str,
        /// Its arguments.
        takes: &'static str,
    },
    /// An argument is invalid.
    #[error("invalid {what} {got:?}: use {allowed}")]
    Invalid {
        /// The name of the argument.
        what: &'static str,
        /// Its first bytes.
        got: Box<str>,
        /// The allowed values.
        allowed: &'static str,
    },
}

fn invalid(what: &'static str, got: &[u8], allowed: &'static str) -> ReplicaRequestError {
    ReplicaRequestError::Invalid {
        what,
        got: got[..got.len().min(80)].escape_ascii().to_string().into(),
        allowed,
    }
}

/// Replaces the requested part: only records that differ from the known ones are requested.
const OTHER: &[u8] = b"OTHER";

/// Replaces a known digest: the digest is requested.
const AWAITED: &[u8] = b"?";

/// The requested part of records.
enum Wanted {
    Part(RecordPart),
    Other,
}

impl RecordPart {
    const fn word(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Context => "CONTEXT",
            Self::Members => "MEMBERS",
        }
    }
}

impl PutOver {
    const fn word(self) -> &'static str {
        match self {
            Self::Context => "CONTEXT",
            Self::All => "ALL",
            Self::Unchanged => "UNCHANGED",
        }
    }
}

impl ReplicaRequest {
    /// Writes the request in this protocol, as an array of strings; long ones into `splices`. Its timeout is `timeout_ms`, not
    /// that of the request itself.
    pub fn write(
        &self,
        protocol: u32,
        timeout_ms: u64,
        trace: Option<TraceContext>,
        writer: &mut Reply<'_>,
        splices: &mut Splices,
    ) {
        let command = self.operation.command();
        let envelope = Envelope {
            timeout_ms: Some(timeout_ms),
            epoch: self.epoch,
            is_charged: matches!(self.operation, ReplicaOperation::Put { is_charged: true, .. }),
            wants_rate: false,
            reads_bits: false,
            trace,
        };
        let head = |writer: &mut Reply<'_>, rest: usize| {
            writer.array(3 + rest);
            writer.bulk(command.name().as_bytes());
            envelope.write(protocol, writer);
            writer.bulk_decimal(self.store_id.into());
        };
        let store = self.store.as_str().as_bytes();
        match &self.operation {
            ReplicaOperation::Get { part, keys } => {
                head(writer, 2 + keys.len());
                writer.bulk(part.word().as_bytes());
                writer.bulk(store);
                keys.iter().for_each(|key| writer.bulk(key));
            }
            ReplicaOperation::GetOther { keys } => {
                head(writer, 2 + 2 * keys.len());
                writer.bulk(OTHER);
                writer.bulk(store);
                for KnownKey { key, known } in keys {
                    writer.bulk(key);
                    match known {
                        Known::Nothing => writer.bulk(b""),
                        Known::Digest(digest) => writer.bulk(&digest.to_be_bytes()),
                        Known::Awaited => writer.bulk(AWAITED),
                    }
                }
            }
            ReplicaOperation::Put {
                over,
                key,
                context,
                update,
                is_charged: _,
            } => {
                head(writer, 5);
                writer.bulk(over.word().as_bytes());
                writer.bulk(store);
                writer.bulk(key);
                let mut bytes = context.to_bytes();
                writer.bulk(&bytes);
                bytes.clear();
                update.encode(&mut bytes);
                splices.bulk(&bytes.into(), writer);
            }
            ReplicaOperation::Merge { records } => {
                head(writer, 1 + 2 * records.len());
                writer.bulk(store);
                write_records(records, writer, splices);
            }
            ReplicaOperation::Hint { target, records } => {
                head(writer, 2 + 2 * records.len());
                writer.bulk(store);
                writer.bulk_decimal(target.get().into());
                write_records(records, writer, splices);
            }
            ReplicaOperation::Tree {
                partitions,
                partition,
                depth,
                nodes,
            } => {
                head(writer, 4 + nodes.len());
                writer.bulk(store);
                writer.bulk_decimal(partitions.get().into());
                writer.bulk_decimal(partition.get().into());
                writer.bulk_decimal((*depth).into());
                nodes.iter().for_each(|&node| writer.bulk_decimal(node.into()));
            }
            ReplicaOperation::Sync {
                partitions,
                partition,
                depth,
                leaves,
            } => {
                head(writer, 4 + 2 * leaves.len());
                writer.bulk(store);
                writer.bulk_decimal(partitions.get().into());
                writer.bulk_decimal(partition.get().into());
                writer.bulk_decimal((*depth).into());
                for LeafDigests { leaf, digests } in leaves {
                    writer.bulk_decimal(*leaf);
                    let bytes: Vec<u8> = digests.iter().flat_map(|digest| digest.to_be_bytes()).collect();
                    writer.bulk(&bytes);
                }
            }
            ReplicaOperation::OldestHint => {
                head(writer, 1);
                writer.bulk(store);
            }
        }
    }

    /// Parses the arguments after the name of the command. The result contains slices of them: copy a part that is kept
    /// for long.
    ///
    /// # Errors
    /// [`ReplicaRequestError`]: what is wrong with which argument. A node returns it after `ERR`.
    pub fn parse(command: ReplicaCommand, arguments: impl Iterator<Item = Bytes>) -> Result<Self, ReplicaRequestError> {
        let mut left = Left { command, arguments };
        let envelope = Envelope::parse(&left.next()?)?;
        let store_id = left.number("store-id", u16::MAX.into())? as u16;
        let wanted = match command {
            ReplicaCommand::Get => Some(left.wanted()?),
            _ => None,
        };
        let over = match command {
            ReplicaCommand::Put => Some(left.over()?),
            _ => None,
        };
        let store = left.store()?;
        let operation = match (command, wanted, over) {
            (ReplicaCommand::Put, _, Some(over)) => {
                let operation = ReplicaOperation::Put {
                    over,
                    key: left.key()?,
                    context: left.context()?,
                    update: left.update()?,
                    is_charged: envelope.is_charged,
                };
                left.end()?;
                operation
            }
            (ReplicaCommand::Get, Some(Wanted::Other), _) => {
                let mut keys = vec![left.known_key()?.ok_or_else(|| left.wrong_count())?];
                while let Some(key) = left.known_key()? {
                    keys.push(key);
                }
                ReplicaOperation::GetOther { keys }
            }
            (ReplicaCommand::Get, Some(Wanted::Part(part)), _) => {
                let mut keys = vec![left.key()?];
                while let Some(key) = left.another_key()? {
                    keys.push(key);
                }
                ReplicaOperation::Get { part, keys }
            }
            (ReplicaCommand::Hint, ..) => {
                let target = left.next()?;
                let number = parse_integer(&target).and_then(|number| u32::try_from(number).ok());
                let target = number
                    .and_then(NodeId::new)
                    .ok_or_else(|| invalid("target-node", &target, "the number of a node"))?;
                ReplicaOperation::Hint {
                    target,
                    records: left.records()?,
                }
            }
            (ReplicaCommand::Tree, ..) => {
                let (partitions, partition, depth) = left.place()?;
                let mut nodes = vec![left.number("node", u32::MAX.into())? as u32];
                while let Some(node) = left.another() {
                    nodes.push(number_of("node", &node, u32::MAX.into())? as u32);
                }
                ReplicaOperation::Tree {
                    partitions,
                    partition,
                    depth,
                    nodes,
                }
            }
            (ReplicaCommand::Sync, ..) => {
                let (partitions, partition, depth) = left.place()?;
                let mut leaves = Vec::new();
                while let Some(leaf) = left.another() {
                    leaves.push(LeafDigests {
                        leaf: number_of("leaf", &leaf, i64::MAX as u64)?,
                        digests: digests_of(&left.next()?)
                            .ok_or_else(|| invalid("digests", b"", "a string of 8 bytes for each"))?,
                    });
                }
                ReplicaOperation::Sync {
                    partitions,
                    partition,
                    depth,
                    leaves,
                }
            }
            (ReplicaCommand::OldestHint, ..) => {
                left.end()?;
                ReplicaOperation::OldestHint
            }
            _ => ReplicaOperation::Merge {
                records: left.records()?,
            },
        };
        Ok(Self {
            store_id,
            store,
            timeout_ms: envelope.timeout_ms.unwrap_or(u64::MAX),
            epoch: envelope.epoch,
            operation,
        })
    }
}

fn write_records(records: &[KeyRecord], writer: &mut Reply<'_>, splices: &mut Splices) {
    for KeyRecord { key, record } in records {
        writer.bulk(key);
        splices.bulk(record, writer);
    }
}

fn number_of(what: &'static str, text: &[u8], max: u64) -> Result<u64, ReplicaRequestError> {
    let number = parse_integer(text).and_then(|number| u64::try_from(number).ok());
    number
        .filter(|&number| number <= max)
        .ok_or_else(|| invalid(what, text, "a whole number that is not too large"))
}

/// Digests, eight bytes each; `None` if the last one is incomplete.
pub(super) fn digests_of(bytes: &[u8]) -> Option<Vec<u64>> {
    let (digests, rest) = bytes.as_chunks::<8>();
    let digests = digests.iter().map(|&digest| u64::from_be_bytes(digest));
    rest.is_empty().then(|| digests.collect())
}

/// Arguments that are not parsed yet.
struct Left<I> {
    command: ReplicaCommand,
    arguments: I,
}

impl<I: Iterator<Item = Bytes>> Left<I> {
    fn another(&mut self) -> Option<Bytes> {
        self.arguments.next()
    }

    fn next(&mut self) -> Result<Bytes, ReplicaRequestError> {
        self.another().ok_or_else(|| self.wrong_count())
    }

    fn wrong_count(&self) -> ReplicaRequestError {
        ReplicaRequestError::Count {
            command: self.command.name(),
            takes: match self.command {
                ReplicaCommand::Get => {
                    "envelope store-id FULL|CONTEXT|MEMBERS store key…, or … OTHER store (key known)…"
                }
                ReplicaCommand::Put => "envelope store-id CONTEXT|ALL|UNCHANGED store key context update",
                ReplicaCommand::Merge => "envelope store-id store (key record)…",
                ReplicaCommand::Hint => "envelope store-id store target-node (key record)…",
                ReplicaCommand::Tree => "envelope store-id store partitions partition depth node…",
                ReplicaCommand::Sync => "envelope store-id store partitions partition depth (leaf digests)…",
                ReplicaCommand::OldestHint => "envelope store-id store",
            },
        }
    }

    fn end(&mut self) -> Result<(), ReplicaRequestError> {
        match self.another() {
            None => Ok(()),
            Some(_) => Err(self.wrong_count()),
        }
    }

    fn number(&mut self, what: &'static str, max: u64) -> Result<u64, ReplicaRequestError> {
        number_of(what, &self.next()?, max)
    }

    fn wanted(&mut self) -> Result<Wanted, ReplicaRequestError> {
        let word = self.next()?;
        if word.eq_ignore_ascii_case(OTHER) {
            return Ok(Wanted::Other);
        }
        let parts = [RecordPart::Full, RecordPart::Context, RecordPart::Members];
        let part = parts
            .into_iter()
            .find(|part| word.eq_ignore_ascii_case(part.word().as_bytes()));
        part.map(Wanted::Part)
            .ok_or_else(|| invalid("part", &word, "FULL, CONTEXT, MEMBERS or OTHER"))
    }

    fn known_key(&mut self) -> Result<Option<KnownKey>, ReplicaRequestError> {
        let Some(key) = self.another_key()? else {
            return Ok(None);
        };
        let known = self.next()?;
        let known = match (&*known, <[u8; 8]>::try_from(&*known)) {
            (b"", _) => Known::Nothing,
            (AWAITED, _) => Known::Awaited,
            (_, Ok(digest)) => Known::Digest(u64::from_be_bytes(digest)),
            (_, Err(_)) => return Err(invalid("digest", &known, "8 bytes, ? or none")),
        };
        Ok(Some(KnownKey { key, known }))
    }

    fn over(&mut self) -> Result<PutOver, ReplicaRequestError> {
        let word = self.next()?;
        let overs = [PutOver::Context, PutOver::All, PutOver::Unchanged];
        let over = overs
            .into_iter()
            .find(|over| word.eq_ignore_ascii_case(over.word().as_bytes()));
        over.ok_or_else(|| invalid("condition", &word, "CONTEXT, ALL or UNCHANGED"))
    }

    fn store(&mut self) -> Result<StoreName, ReplicaRequestError> {
        let name = self.next()?;
        let store = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
        store.ok_or_else(|| invalid("store", &name, "the name of a store"))
    }

    fn key(&mut self) -> Result<Bytes, ReplicaRequestError> {
        match self.another_key()? {
            Some(key) => Ok(key),
            None => Err(self.wrong_count()),
        }
    }

    fn another_key(&mut self) -> Result<Option<Bytes>, ReplicaRequestError> {
        match self.another() {
            Some(key) if key.is_empty() || key.len() > KEY_BYTES_MAX => Err(invalid("key", &key, "1 to 65536 bytes")),
            key => Ok(key),
        }
    }

    fn context(&mut self) -> Result<VectorClock, ReplicaRequestError> {
        let bytes = self.next()?;
        VectorClock::decode(&bytes).map_err(|_| invalid("context", &bytes, "a context returned by a read"))
    }

    fn update(&mut self) -> Result<Update, ReplicaRequestError> {
        let bytes = self.next()?;
        let update = Update::decode(bytes.clone());
        update.map_err(|_| invalid("update", &bytes, "an encoded update"))
    }

    fn records(&mut self) -> Result<Vec<KeyRecord>, ReplicaRequestError> {
        let mut records = Vec::new();
        while let Some(key) = self.another_key()? {
            let record = self.next()?;
            records.push(KeyRecord { key, record });
        }
        match records.is_empty() {
            true => Err(self.wrong_count()),
            false => Ok(records),
        }
    }

    fn place(&mut self) -> Result<(PartitionCount, PartitionId, u8), ReplicaRequestError> {
        let text = self.next()?;
        let partitions = parse_integer(&text).and_then(|number| u32::try_from(number).ok());
        let partitions = partitions.and_then(|number| PartitionCount::try_from(number).ok());
        let partitions = partitions.ok_or_else(|| invalid("partitions", &text, "a power of two, 16384 at most"))?;
        let partition = self.number("partition", u32::MAX.into())? as u32;
        let depth = self.number("depth", u8::MAX.into())? as u8;
        Ok((partitions, PartitionId::new(partition), depth))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use fondaco_model::PROTOCOL;
    use fondaco_model::versioned::TIME_UNIX_MS_MAX;
    use fondaco_resp::{Arguments, Limits, Parse, Protocol, parse_request};
    use proptest::prelude::*;

    use super::*;

    /// Parses a written request.
    fn sent(request: &ReplicaRequest) -> Result<ReplicaRequest, ReplicaRequestError> {
        let (mut buffer, mut arguments) = (Vec::new(), Arguments::new());
        request.write(
            PROTOCOL,
            request.timeout_ms,
            None,
            &mut Reply::new(&mut buffer, Protocol::Resp2),
            &mut Splices::default(),
        );
        let parsed = parse_request(&buffer, &Limits::default(), &mut arguments);
        assert_eq!(parsed, Ok(Parse::Complete { consumed: buffer.len() }));
        let name = arguments.get(0, &buffer).unwrap();
        assert_eq!(name, request.operation.command().name().as_bytes());
        let arguments = arguments.iter(&buffer).skip(1).map(Bytes::copy_from_slice);
        ReplicaRequest::parse(request.operation.command(), arguments)
    }

    fn key() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 1..20).prop_map(Bytes::from)
    }

    fn records() -> impl Strategy<Value = Vec<KeyRecord>> {
        let record = prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        let pair = (key(), record).prop_map(|(key, record)| KeyRecord { key, record });
        prop::collection::vec(pair, 1..5)
    }

    fn operation() -> impl Strategy<Value = ReplicaOperation> {
        let part = prop_oneof![
            Just(RecordPart::Full),
            Just(RecordPart::Context),
            Just(RecordPart::Members)
        ];
        let known = prop_oneof![
            Just(Known::Nothing),
            Just(Known::Awaited),
            any::<u64>().prop_map(Known::Digest)
        ];
        let over = prop_oneof![Just(PutOver::Context), Just(PutOver::All), Just(PutOver::Unchanged)];
        let time = 0..TIME_UNIX_MS_MAX;
        let expires = prop::option::of(time.clone());
        let update = prop_oneof![
            (key(), time.clone(), expires.clone()).prop_map(|(value, at, expires)| Update::put(value, at, expires)),
            (any::<i64>(), time.clone(), expires).prop_map(|(by, at, expires)| Update::add(by, at, expires)),
            time.prop_map(Update::delete),
        ];
        let leaf = (0..1u64 << 48, prop::collection::vec(any::<u64>(), 0..5));
        let leaf = leaf.prop_map(|(leaf, digests)| LeafDigests { leaf, digests });
        let count = (0..15u32).prop_map(|bits| PartitionCount::try_from(1 << bits).unwrap());
        let place = (count, any::<u32>().prop_map(PartitionId::new), any::<u8>());
        prop_oneof![
            (part, prop::collection::vec(key(), 1..5)).prop_map(|(part, keys)| ReplicaOperation::Get { part, keys }),
            prop::collection::vec((key(), known), 1..5).prop_map(|keys| {
                let keys = keys.into_iter().map(|(key, known)| KnownKey { key, known });
                ReplicaOperation::GetOther { keys: keys.collect() }
            }),
            (over, key(), update, any::<bool>()).prop_map(|(over, key, update, is_charged)| ReplicaOperation::Put {
                over,
                key,
                context: VectorClock::default(),
                update,
                is_charged,
            }),
            records().prop_map(|records| ReplicaOperation::Merge { records }),
            (1u32.., records()).prop_map(|(target, records)| ReplicaOperation::Hint {
                target: NodeId::new(target).unwrap(),
                records,
            }),
            (place.clone(), prop::collection::vec(any::<u32>(), 1..5)).prop_map(
                |((partitions, partition, depth), nodes)| {
                    ReplicaOperation::Tree {
                        partitions,
                        partition,
                        depth,
                        nodes,
                    }
                }
            ),
            Just(ReplicaOperation::OldestHint),
            (place, prop::collection::vec(leaf, 0..5)).prop_map(|((partitions, partition, depth), leaves)| {
                ReplicaOperation::Sync {
                    partitions,
                    partition,
                    depth,
                    leaves,
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_written_request_is_parsed_again(
            store_id: u16,
            timeout_ms in 0..u64::MAX / 2,
            epoch in 0..u64::MAX / 2,
            operation in operation(),
        ) {
            let (store, epoch) = ("s".parse().unwrap(), NonZeroU64::new(epoch));
            let request = ReplicaRequest { store_id, store, timeout_ms, epoch, operation };
            prop_assert_eq!(sent(&request).unwrap(), request);
        }

        #[test]
        fn any_arguments_are_a_request_or_an_error(
            command in prop::sample::select(vec![
                ReplicaCommand::Get,
                ReplicaCommand::Put,
                ReplicaCommand::Merge,
                ReplicaCommand::Hint,
                ReplicaCommand::Tree,
                ReplicaCommand::Sync,
                ReplicaCommand::OldestHint,
            ]),
            arguments in prop::collection::vec(
                prop_oneof![
                    Just(b"v1;timeout=5".to_vec()),
                    Just(b"1".to_vec()),
                    Just(b"FULL".to_vec()),
                    Just(b"OTHER".to_vec()),
                    Just(b"?".to_vec()),
                    prop::collection::vec(any::<u8>(), 0..9),
                ],
                0..9,
            ),
        ) {
            // It must return without a panic.
            let _ = ReplicaRequest::parse(command, arguments.into_iter().map(Bytes::from));
        }
    }

    #[test]
    fn errors_name_the_argument() {
        let parse = |command, text: &str| {
            let refused = ReplicaRequest::parse(command, text.split(' ').map(|word| word.to_owned().into()));
            refused.unwrap_err().to_string()
        };
        assert_eq!(
            parse(ReplicaCommand::Get, "v1;timeout=50;epoch=7 1 SOME s k"),
            r#"invalid part "SOME": use FULL, CONTEXT, MEMBERS or OTHER"#
        );
        assert_eq!(
            parse(ReplicaCommand::Get, "v1;timeout=50;epoch=7 1 OTHER s k seven"),
            r#"invalid digest "seven": use 8 bytes, ? or none"#
        );
        assert!(
            parse(ReplicaCommand::Get, "v1;timeout=50;epoch=7 1 OTHER s k")
                .starts_with("wrong number of arguments: FONDACO.RGET")
        );
        assert!(parse(ReplicaCommand::Get, "v1 1 FULL s").ends_with("OTHER store (key known)…"));
        assert!(parse(ReplicaCommand::Merge, "v1 1 s key").starts_with("wrong number of arguments: FONDACO.RMERGE"));
        assert!(parse(ReplicaCommand::Hint, "v1 1 s 0 key record").starts_with(r#"invalid target-node "0""#));
        assert!(parse(ReplicaCommand::Tree, "1 50 0 s 0 0 0").starts_with(r#"invalid envelope "1""#));
        assert!(parse(ReplicaCommand::Tree, "v1 65536 s 0 0 0").starts_with(r#"invalid store-id "65536""#));
    }
}
