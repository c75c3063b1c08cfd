//! The client library.
mod error;
mod key;
mod options;
pub mod read;
pub use error::ClientError;
pub use key::WireKey;
pub use options::{Partial, ReadOptions};
