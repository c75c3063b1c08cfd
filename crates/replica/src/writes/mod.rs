//! Writes: collected by the batcher of each event loop ([`batcher`]) into a queue per shard ([`queue`]), from which one
//! thread ([`committer`]) commits them in groups ([`commit`]). Writes of keys that no other node owns need no
//! coordinator ([`direct`]).

pub(crate) mod answer;
pub(crate) mod batcher;
pub(crate) mod commit;
pub(crate) mod committer;
pub(crate) mod direct;
pub(crate) mod put;
pub(crate) mod queue;
