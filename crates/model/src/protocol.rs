//! The number of the protocol between the processes of a cluster.
//!
//! It counts changes that an older process does not understand: in requests between processes, in entries of the
//! coordination service, and in records that replicas exchange. During a rolling upgrade processes of two releases run
//! at once. So each process states its number in its entry, and writes only what the member with the lowest number
//! understands: see [`ClusterView::protocol`](crate::cluster::ClusterView::protocol).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The protocol of this release: it understands this one and all former ones. A process speaks [`protocol`].
pub const PROTOCOL: u32 = 2;

/// Whether this process plays the next release.
static PLAYS_NEXT: AtomicBool = AtomicBool::new(false);

/// Makes this process play the next release from now on, for tests of rolling upgrades: its protocol is one higher, and so is the version
/// of the format that it writes. To be called before anything else.
pub fn play_next_release() {
    PLAYS_NEXT.store(true, Relaxed);
}

/// Whether this process [plays the next release](play_next_release).
pub fn plays_next_release() -> bool {
    PLAYS_NEXT.load(Relaxed)
}

/// The protocol of this process: [`PROTOCOL`], unless it [plays the next release](play_next_release).
pub fn protocol() -> u32 {
    PROTOCOL + u32::from(plays_next_release())
}

/// The protocol from which on all members know types of keys, types of values beside bytes, ids and graphs, records with times of
/// fields, and the time to live and the quota of writes of hybrid stores.
pub const PROTOCOL_OF_TYPES: u32 = 2;

/// The protocol from which on all members know the command by which nodes tell whether an event was applied, streams whose writes are
/// acknowledged only then, and sets of ids in hybrid stores.
pub const PROTOCOL_OF_EVENT_WRITES: u32 = 2;

/// The protocol from which on all members know records of stores that are pushed and swapped together.
pub const PROTOCOL_OF_SETS: u32 = 2;

/// The protocol from which on all members know canaries: in the record of a push, and in the reports of nodes.
pub const PROTOCOL_OF_CANARIES: u32 = 2;

/// The protocol from which on all members know gates, and pushes that are held.
pub const PROTOCOL_OF_GATES: u32 = 2;

/// The protocol from which on all members know streams of several topics, the name of a data center, and the bound of clocks that are ahead.
pub const PROTOCOL_OF_CENTERS: u32 = 2;

/// The protocol from which on all members answer processes that follow the changes of a store.
pub const PROTOCOL_OF_CHANGES: u32 = 2;

/// The protocol from which on all members know versions that are served while they are copied: in the record of a push, and in the
/// reports of nodes.
pub const PROTOCOL_OF_SERVING_WHILE_COPYING: u32 = 2;

/// The protocol of a process whose entry names none.
pub(crate) const fn first() -> u32 {
    1
}

/// Whether an entry need not name this protocol.
pub(crate) fn is_first(protocol: &u32) -> bool {
    *protocol == first()
}
