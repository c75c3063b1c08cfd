//! Writes: gathered by the batcher of each event loop ([`batcher`]), into a queue for each shard ([`queue`]), of which one
//! thread commits what waits ([`committer`]) in groups ([`commit`]). Writes of keys that no other node has need no
//! coordinator ([`direct`]).

pub(crate) mod answer;
pub(crate) mod batcher;
pub(crate) mod commit;
pub(crate) mod committer;
pub(crate) mod direct;
pub(crate) mod put;
pub(crate) mod queue;
