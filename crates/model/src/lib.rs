//! The vocabulary and the pure logic of fondaco.
//!
//! Everything here is a value or a function of values: no I/O, no clock, no randomness, no runtime.
//! Time, where it matters, is passed in. So it can be tested by properties, and a simulated cluster
//! can drive it.

mod canary;
pub mod cluster;
mod compatibility;
mod data_center;
mod data_loss;
mod definition;
mod fan_out;
mod fetch_rate;
mod gate;
mod histogram;
mod key_type;
mod limits;
pub mod member;
mod name;
mod node;
mod partition;
mod partition_set;
mod placement;
mod protocol;
mod push;
mod registry_address;
mod retention;
mod routing;
mod slot;
mod store_option;
mod stream;
mod text_form;
mod value_type;
mod version;
pub mod versioned;
mod word;

pub use canary::{
    CanaryAction, CanaryBounds, CanaryCounts, CanaryError, CanaryReads, CanaryRecord, CanaryState, CanaryTerms,
    ReadCanary, Share, is_in_share,
};
pub use compatibility::Compatibility;
pub use data_center::{DataCenter, DataCenterError};
pub use data_loss::{DirectoryCounts, LastProcess};
pub use definition::{StoreChange, StoreDefinition, StoreKind};
pub use fan_out::{StoreFanOut, StoreFanOutError, StrategyName};
pub use fetch_rate::{AdaptiveRate, ReadLatencies, TokenBucket};
pub use gate::{DiffCounts, Gate, GateError, GateReport, Gates};
pub use histogram::{Histogram, HistogramSnapshot};
pub use key_type::{KeyPart, KeyType, KeyTypeError};
pub use limits::{KEY_BYTES_MAX, STORES_MAX, VALUE_BYTES_MAX};
pub use name::{NameError, StoreName};
pub use node::{Identity, IdentityError, NodeId, NodeIdError};
pub use partition::{PartitionCount, PartitionCountError, PartitionId};
pub use partition_set::{PartitionSet, PartitionSetError};
pub use placement::{Member, Move, Placement, PlacementError, Plan, Shares, place, rearrange, replan};
pub use protocol::{
    PROTOCOL, PROTOCOL_OF_CANARIES, PROTOCOL_OF_CENTERS, PROTOCOL_OF_CHANGES, PROTOCOL_OF_EVENT_WRITES,
    PROTOCOL_OF_GATES, PROTOCOL_OF_SERVING_WHILE_COPYING, PROTOCOL_OF_SETS, PROTOCOL_OF_TYPES, play_next_release,
    plays_next_release, protocol,
};
pub use push::{ConfirmationState, PushEvent, PushState, PushStateError};
pub use registry_address::{RegistryAddress, RegistryAddressError};
pub use retention::{VersionSet, VersionSetError};
pub use routing::{Copies, Counts, EVERYWHERE, RoutingTable, RoutingTableError, Stage, Steps, first_replicas};
pub use slot::{SLOT_BITS, SLOT_COUNT, Slot, SlotPrefix, slot_of_key, slot_of_wire_key};
pub use store_option::{OptionValue, StoreOption};
pub use stream::{Acknowledge, Partitioner, StreamChange, StreamSettings, StreamSource, StreamSourceError};
pub use value_type::ValueType;
pub use version::{VersionNumber, VersionNumberError};
pub use word::WordError;
