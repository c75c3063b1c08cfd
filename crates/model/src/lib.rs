//! The vocabulary and the pure logic of fondaco.
//!
//! Everything here is a value or a function of values: no I/O, no clock, no randomness, no runtime.
//! Time, where it matters, is passed in. So it can be tested by properties, and a simulated cluster
//! can drive it.

mod definition;
mod limits;
mod name;
mod partition;
mod slot;
mod version;

pub use definition::{StoreDefinition, StoreKind};
pub use limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use name::{NameError, StoreName};
pub use partition::{PartitionCount, PartitionCountError, PartitionId};
pub use slot::{SLOT_COUNT, Slot, slot_of_key, slot_of_wire_key};
pub use version::{VersionNumber, VersionNumberError};
