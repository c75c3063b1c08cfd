//! The cluster membership of a node: its stores and partitions ([`cluster_view`]), the routing tables that requests may
//! use ([`admitted()`](admitted::admitted)), and recovery after a loss of data ([`lost_writes`], [`losses`], [`incarnation`]).

pub(crate) mod admitted;
pub(crate) mod cluster_view;
pub(crate) mod dropped_stores;
pub(crate) mod incarnation;
pub(crate) mod losses;
pub(crate) mod lost_writes;
pub(crate) mod storage_rollback;
