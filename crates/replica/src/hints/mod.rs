//! Hints: records that wait for a node that is away, what is known of them without a look ([`book`]), and the thread that
//! hands them over ([`handoff`]).

pub(crate) mod book;
pub(crate) mod handoff;
pub(crate) mod retries;
