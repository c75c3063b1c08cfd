//! What a request asks of one key of a versioned store, and what it is answered with.
//!
//! How the value is read and written on replicas is the coordinator's business; what the operation makes of it is
//! that of `effect`.

use bytes::Bytes;
use fondaco_client::quorum::AddedMeanwhile;
use fondaco_resp::Reply;

/// What is asked of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Operation {
    /// `GET`
    Get,
    /// `EXISTS`
    Exists,
    /// `STRLEN`
    StrLen,
    /// `TYPE`
    Type,
    /// `TTL`, `PTTL`: the time left.
    TimeLeft(Unit),
    /// `EXPIRETIME`, `PEXPIRETIME`: the time of the end, since 1970.
    End(Unit),
    /// `SET` and its kin.
    Set(Set),
    /// `DEL`, `UNLINK`
    Delete,
    /// `GETDEL`
    GetDelete,
    /// `GETEX`: what becomes of the value's end. It is checked where there is a value, as in Redis.
    GetExpire(Option<Result<Lifetime, String>>),
    /// `APPEND`
    Append(Bytes),
    /// `SETRANGE`: from this byte on.
    SetRange(usize, Bytes),
    /// `INCR` and its kin.
    Add(i64),
    /// `EXPIRE` and its kin.
    Expire(Expire),
    /// `PERSIST`
    Persist,
    /// `FONDACO.GET`: all values, with their context.
    Siblings,
    /// `FONDACO.PUT`: a value in the place of those that the context covers.
    PutOver {
        context: Bytes,
        value: Bytes,
        lifetime: Lifetime,
    },
    /// `FONDACO.DEL`: none in the place of those that the context covers.
    DeleteOver { context: Bytes },
}

/// A unit of time that clients count in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Unit {
    Seconds,
    Milliseconds,
}

/// A value to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Set {
    pub(in crate::server) value: Bytes,
    pub(in crate::server) condition: Condition,
    pub(in crate::server) lifetime: Lifetime,
    pub(in crate::server) reply: SetReply,
}

/// When a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

/// Until when a value lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Lifetime {
    /// As long as values of the store do unless told otherwise.
    Default,
    /// As long as the one before it.
    Kept,
    /// For ever.
    Endless,
    /// Until this moment.
    Until { unix_ms: i64 },
}

/// What a write is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum SetReply {
    /// `OK`, or null if it was not done.
    Ok,
    /// The value before.
    Former,
    /// 1 or 0.
    Number,
}

/// When a value is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) struct Expire {
    pub(in crate::server) unix_ms: i64,
    pub(in crate::server) only: ExpireOnly,
}

/// Which values are told when to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum ExpireOnly {
    Always,
    /// `NX`
    IfEndless,
    /// `XX`, with `GT` or `LT` or neither.
    IfEnding(Option<Than>),
    /// `GT` or `LT` alone.
    If(Than),
}

/// Which of two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Than {
    Later,
    Earlier,
}

/// What an operation is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Answer {
    Ok,
    Null,
    Integer(i64),
    Bulk(Bytes),
    Simple(&'static str),
    /// The causal context, and the values.
    Siblings(Bytes, Vec<Bytes>),
    Error(String),
}

impl Operation {
    /// Whether it changes nothing.
    pub(in crate::server) fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Get
                | Self::Exists
                | Self::StrLen
                | Self::Type
                | Self::TimeLeft(_)
                | Self::End(_)
                | Self::GetExpire(None)
                | Self::Siblings
        )
    }

    /// What becomes of what is added to a counter meanwhile, as far as it changes one.
    pub(in crate::server) fn added_meanwhile(&self) -> AddedMeanwhile {
        match self {
            Self::Delete | Self::Expire(_) | Self::Persist | Self::GetExpire(_) => AddedMeanwhile::Stays,
            Self::Set(set) if set.condition == Condition::Always && set.reply == SetReply::Ok => AddedMeanwhile::Stays,
            _ => AddedMeanwhile::Conflicts,
        }
    }

    /// Whether it may change nothing: whether it does depends on the value.
    pub(in crate::server) fn unconditional(&self) -> Option<&Set> {
        match self {
            Self::Set(set)
                if set.condition == Condition::Always
                    && set.reply == SetReply::Ok
                    && set.lifetime != Lifetime::Kept =>
            {
                Some(set)
            }
            _ => None,
        }
    }
}

impl Answer {
    /// How long the values in it are.
    pub(in crate::server) fn bytes(&self) -> usize {
        match self {
            Self::Bulk(value) => value.len(),
            Self::Siblings(context, values) => context.len() + values.iter().map(Bytes::len).sum::<usize>(),
            _ => 0,
        }
    }

    pub(in crate::server) fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::Ok => reply.ok(),
            Self::Null => reply.null(),
            Self::Integer(number) => reply.integer(*number),
            Self::Bulk(value) => reply.bulk(value),
            Self::Simple(text) => reply.simple(text),
            Self::Siblings(context, values) => {
                reply.array(2);
                reply.bulk(context);
                reply.array(values.len());
                values.iter().for_each(|value| reply.bulk(value));
            }
            Self::Error(error) => reply.error(error),
        }
    }
}
