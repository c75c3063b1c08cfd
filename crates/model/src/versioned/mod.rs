//! Versioned stores as values: the record that a replica has of a key, how writes and replicas are reconciled, and all
//! decisions that need no network, no disk and no clock.
//!
//! - [`Record`]: what a replica stores under a key: [siblings](Sibling) with their [dots](Dot), and the
//!   [clock](VectorClock) of what has been seen. Records are [merged](Record::merge), and changed by
//!   [writes](Record::write);
//! - [`resolve`]: the value of a record for a reader of one value;
//! - [`VersionedSettings`]: the operator's settings of a store;
//! - [`HashTree`]: how replicas find the records in which they differ;
//! - [`hint_keepers`]: the nodes that store a hint for an absent replica;
//! - [`Horizon`]: when tombstones may be forgotten.
//!
//! It does not know where a record comes from: engines, replicas and coordinators are elsewhere.

mod catching_up;
mod clock;
mod codec;
mod collection;
mod counter;
mod error;
mod fields;
mod handoff;
mod quorums;
mod record;
mod replica;
mod resolution;
mod settings;
mod tree;
mod varint;
mod write;

pub use catching_up::{Compared, Other, has_all, has_enough};
pub use clock::{AHEAD_MS_MAX, COUNTER_GIVEN_MAX, Causality, ClockEntry, ContextError, ENTRIES_MAX, VectorClock};
pub use collection::{Horizon, Remembered};
pub use counter::{Count, Seen};
pub use error::RecordError;
pub use fields::{FIELDS_MAX, FieldTimes, MergeFields, merge_json};
pub use handoff::{KEEPERS_MAX, hint_keepers};
pub use quorums::Quorums;
pub use record::{RECORD_BYTES_MAX, Record, SHADOWED_BYTES_MAX, SIBLINGS_MAX, SUMS_MAX, Sibling};
pub use replica::{COUNTER_MAX, Dot, DotSource, ReplicaId};
pub use resolution::{Resolution, Resolved, resolve, resolve_with};
pub use settings::{
    Durability, EngineKind, Handoff, SettingsError, VersionedChange, VersionedSettings, owners_to_read,
};
pub use tree::{HashTree, LEAF_BITS_MAX, LEAF_BITS_MIN, LEAF_KEYS_MAX, record_hash};
pub use write::{Change, Over, TIME_UNIX_MS_MAX, Update, WriteError};
