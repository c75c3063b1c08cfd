//! What a node has of the cluster: its stores and partitions ([`cluster_view`]), by which routing tables it may be asked
//! ([`admitted()`](admitted::admitted)), and what becomes of it when something was lost ([`losses`], [`catching_up`],
//! [`incarnation`]).

pub(crate) mod admitted;
pub(crate) mod catching_up;
pub(crate) mod cluster_view;
pub(crate) mod dropped_stores;
pub(crate) mod incarnation;
pub(crate) mod losses;
pub(crate) mod storage_rollback;
