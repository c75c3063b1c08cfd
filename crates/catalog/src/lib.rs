//! The state that the control plane publishes and that the event loops of a process read without a lock:
//!
//! - [`Catalog`]: the stores that the process serves, replaced as a whole by a swap;
//! - [`Membership`]: the cluster that it is in, published with the catalog;
//! - [`Access`]: the users, and the stores that each may read and write;
//! - [`Settings`]: limits and times that may change while the process runs.
//!
//! It serves nothing, and decides nothing.

mod access;
mod canary;
mod catalog;
mod membership;
mod schemas;
mod settings;
mod streams;

pub use access::{Access, Password, PasswordDigest, PeerAccess, SharedAccess, User, hash_password};
pub use canary::{Canary, CanaryMeter};
pub use catalog::{
    Catalog, EventStore, NOT_OPEN, Serving, ServingStore, SharedCatalog, StoreId, StoreTypes, VersionedStore,
    WrittenStore,
};
pub use membership::{Member, Membership};
pub use schemas::StoreSchemas;
pub use settings::{SETTINGS, Setting, SettingError, SettingKind, SettingSpec, SettingValue, Settings, WHOLE_SHARE};
pub use streams::{StoreStream, StoreStreams};
