//! Hints: records that wait for an absent node, a summary of them in memory ([`book`]), and the thread that delivers
//! them ([`handoff`]).

pub(crate) mod book;
pub(crate) mod handoff;
pub(crate) mod retries;
