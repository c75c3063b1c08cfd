//! The number of the protocol between the processes of a cluster.
//!
//! It counts changes that an older process does not understand: in requests between processes, in entries of the
//! coordination service, and in records that replicas exchange. During a rolling upgrade processes of two releases run
//! at once. So each process states its number in its entry, and writes only what the member with the lowest number
//! understands: see [`ClusterView::protocol`](crate::cluster::ClusterView::protocol).

/// The protocol of this build: it understands this one and all former ones.
pub const PROTOCOL: u32 = if cfg!(feature = "next") { 3 } else { 2 };

/// The protocol from which on all members know types of keys, types of values beside bytes, ids and graphs, records with times of
/// fields, and the time to live and the quota of writes of hybrid stores.
pub const PROTOCOL_OF_TYPES: u32 = 2;

/// The protocol of a process whose entry names none.
pub(crate) const fn first() -> u32 {
    1
}

/// Whether an entry need not name this protocol.
pub(crate) fn is_first(protocol: &u32) -> bool {
    *protocol == first()
}
