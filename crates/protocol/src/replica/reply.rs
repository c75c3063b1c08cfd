//! The answers of a replica.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::request::KeyRecord;

/// The answer to a [`ReplicaRequest`](super::ReplicaRequest).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaReply {
    /// To `Get` and `GetOther`: the record of each key, in order.
    Records(Vec<Result<Held, ReplicaError>>),
    /// To `Put`: the resulting record, encoded, to be merged by the other replicas.
    Written(Bytes),
    /// To `Merge` and `Hint`: it is stored, as durably as the store's settings say.
    Done,
    /// To `Tree`: the hashes of its nodes.
    Hashes {
        /// How deep its leaves are.
        leaf_depth: u8,
        /// For each requested node, the hashes of its 16 descendants four levels below.
        nodes: Vec<[u64; 16]>,
        /// Whether the sender has everything that it has acknowledged.
        is_whole: bool,
    },
    /// To `Sync`: the differences.
    Differences {
        /// The records that the requester lacks: none of its digests has their keys' hashes.
        records: Vec<KeyRecord>,
        /// Keys with encoded contexts, of records that differ, or that the requester lacks if too many are lacking for
        /// one answer. The contexts show which side is behind.
        contexts: Vec<KeyRecord>,
        /// The requester's digests of records that the sender lacks.
        lacking: Vec<u64>,
        /// Whether the sender has everything that it has acknowledged, and can read all of it.
        is_whole: bool,
    },
    /// To `OldestHint`, in milliseconds since 1970.
    OldestHint {
        /// The sender's time.
        now_unix_ms: u64,
        /// The time of the oldest hint for another node, or an earlier one; `None` if there is no hint.
        oldest_unix_ms: Option<u64>,
    },
    /// To any: why the request was not carried out.
    Error(ReplicaError),
}

/// A replica's record of a key. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Nothing.
    Nothing,
    /// To `GetOther`: the requester has this record already.
    Same,
    /// The encoded record; or, if requested, its encoded context, or the 8 bytes of its digest, the highest first.
    Record(Bytes),
}

impl Held {
    /// The size of the answered part of the record.
    pub fn told_bytes(&self) -> usize {
        match self {
            Self::Record(record) => record.len(),
            Self::Nothing | Self::Same => 0,
        }
    }
}

impl From<Option<Bytes>> for Held {
    fn from(record: Option<Bytes>) -> Self {
        record.map_or(Self::Nothing, Self::Record)
    }
}

/// Why a replica did not carry out a request. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaError {
    /// The kind.
    pub code: ReplicaErrorCode,
    /// The failure, its subject and the remedy, without the code.
    pub message: Arc<str>,
}

/// The kinds of errors of replicas: the first words of their messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaErrorCode {
    /// `TIMEOUT`: the request timed out before it began.
    Timeout,
    /// `NOTHERE`: the replica does not have the partition.
    NotHere,
    /// `OLDTABLE`: the routing table of the request, or of the replica, is too old for it.
    OldTable,
    /// `BEHIND`: the replica has lost its data, or is a next owner, and answers no reads until anti-entropy has
    /// completed.
    Behind,
    /// `NOSTORE`: there is no such store, or it has another number.
    NoStore,
    /// `OVERLOADED`: too much is queued already.
    Overloaded,
    /// `DISKFULL`: there is no room for a write; reads are served.
    DiskFull,
    /// `KEYSFULL`: there is no memory for a new key; all other requests are served.
    KeysFull,
    /// `CONFLICT`: the stored record is not the one that the writer has seen.
    Conflict,
    /// `MORE`: the key was left out because the reply is full; request it again.
    More,
    /// `CORRUPT`: the stored record cannot be read.
    Corrupt,
    /// `NOPERM`, `NOAUTH`, `WRONGPASS`: the requester lacks permission. Others would refuse as well.
    Refused,
    /// `BADKEY`: no store can hold the key. Others would refuse as well.
    BadKey,
    /// `QUOTA`: the store's write quota is used up. Others would have some left, but not for long.
    Quota,
    /// Anything else.
    Other,
}

impl ReplicaErrorCode {
    /// The word before the message.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "TIMEOUT",
            Self::NotHere => "NOTHERE",
            Self::OldTable => "OLDTABLE",
            Self::Behind => "BEHIND",
            Self::NoStore => "NOSTORE",
            Self::Overloaded => "OVERLOADED",
            Self::DiskFull => "DISKFULL",
            Self::KeysFull => "KEYSFULL",
            Self::Conflict => "CONFLICT",
            Self::More => "MORE",
            Self::Corrupt => "CORRUPT",
            Self::Refused => "NOPERM",
            Self::BadKey => "BADKEY",
            Self::Quota => "QUOTA",
            Self::Other => "ERR",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "TIMEOUT" => Self::Timeout,
            "NOTHERE" => Self::NotHere,
            "OLDTABLE" => Self::OldTable,
            "BEHIND" => Self::Behind,
            "NOSTORE" => Self::NoStore,
            "OVERLOADED" | "BUSY" => Self::Overloaded,
            "DISKFULL" => Self::DiskFull,
            "KEYSFULL" => Self::KeysFull,
            "CONFLICT" => Self::Conflict,
            "MORE" => Self::More,
            "CORRUPT" => Self::Corrupt,
            "NOPERM" | "NOAUTH" | "WRONGPASS" => Self::Refused,
            "BADKEY" => Self::BadKey,
            "QUOTA" => Self::Quota,
            "ERR" => Self::Other,
            _ => return None,
        })
    }
}

impl ReplicaError {
    /// An error of this kind.
    pub fn new(code: ReplicaErrorCode, message: impl Into<Arc<str>>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Parses an error line. A line without a known code is kept whole.
    pub fn parse(line: &[u8]) -> Self {
        let line = String::from_utf8_lossy(line);
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match ReplicaErrorCode::of(word) {
            Some(code) => Self::new(code, rest),
            None => Self::new(ReplicaErrorCode::Other, &*line),
        }
    }
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for ReplicaError {}
