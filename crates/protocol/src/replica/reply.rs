//! What a replica answers.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::request::KeyRecord;

/// What came of a [`ReplicaRequest`](super::ReplicaRequest).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaReply {
    /// To `Get` and `GetOther`: for each key in order what is held.
    Records(Vec<Result<Held, ReplicaError>>),
    /// To `Put`: the record that is held now, encoded, to be merged by the other replicas.
    Written(Bytes),
    /// To `Merge` and `Hint`: it is held now, as durably as the store's settings say.
    Done,
    /// To `Tree`: the hashes of its nodes.
    Hashes {
        /// How deep its leaves are.
        leaf_depth: u8,
        /// For each node that was asked about those of its 16 descendants four levels below.
        nodes: Vec<[u64; 16]>,
        /// Whether all is there that the one who answers has acknowledged.
        is_whole: bool,
    },
    /// To `Sync`: where the two differ.
    Differences {
        /// What the one who asked lacks: none of the digests sent has its keys' hashes.
        records: Vec<KeyRecord>,
        /// What the one who asked holds in another state, or lacks where too much is lacking for one answer: keys
        /// with encoded contexts. Who is behind follows from these.
        contexts: Vec<KeyRecord>,
        /// The digests, of those sent, of what the one who answers lacks.
        lacking: Vec<u64>,
        /// Whether all is there that the one who answers has acknowledged, and all of it can be read.
        is_whole: bool,
    },
    /// To `OldestHint`, in milliseconds since 1970.
    OldestHint {
        /// The time there.
        now_unix_ms: u64,
        /// The time of the oldest record that waits for another node, or an earlier one; nothing if none waits.
        oldest_unix_ms: Option<u64>,
    },
    /// To any: why nothing was done.
    Error(ReplicaError),
}

/// What a replica holds under a key. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Nothing.
    Nothing,
    /// To `GetOther`: what the one who asks has already.
    Same,
    /// The encoded record; or, where that was asked for, its encoded context, or the 8 bytes of its digest, the highest
    /// first.
    Record(Bytes),
}

impl Held {
    /// How much of the record is told.
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

/// Why a replica did not do what it was asked. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaError {
    /// The kind.
    pub code: ReplicaErrorCode,
    /// What failed, on what, and what to do, without the code.
    pub message: Arc<str>,
}

/// The kinds of errors of replicas: the first words of their messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaErrorCode {
    /// `TIMEOUT`: the time was over before it was begun.
    Timeout,
    /// `NOTHERE`: the replica does not hold the partition.
    NotHere,
    /// `OLDTABLE`: the routing table that the request goes by, or that of the replica, is too old for it.
    OldTable,
    /// `BEHIND`: the replica has lost what it held, or is only to own it, and does not answer reads until it was compared
    /// with others.
    Behind,
    /// `NOSTORE`: there is no such store, or it has another number.
    NoStore,
    /// `OVERLOADED`: too much is queued already.
    Overloaded,
    /// `DISKFULL`: there is no room for a write; reads go on.
    DiskFull,
    /// `KEYSFULL`: there is no memory for a key that is not there yet; all else goes on.
    KeysFull,
    /// `CONFLICT`: what is held is not what the writer has seen.
    Conflict,
    /// `MORE`: it is left out of an answer that has enough already, to be asked for anew.
    More,
    /// `CORRUPT`: what is held cannot be read.
    Corrupt,
    /// `NOPERM`, `NOAUTH`, `WRONGPASS`: the one who asks may not. Others would refuse as well.
    Refused,
    /// `BADKEY`: no store can hold the key. Others would refuse as well.
    BadKey,
    /// `QUOTA`: the store's quota of writes is used up. Others would have more of it to give, but not for long.
    Quota,
    /// Anything else.
    Other,
}

impl ReplicaErrorCode {
    /// The word that stands before the message.
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

    /// The error that a line of the wire says. What begins with no code that is known is kept whole.
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
