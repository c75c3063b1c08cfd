//! Identities of clusters, nodes and routers.

use std::fs;
use std::io::Read;

use fondaco_model::Identity;

use crate::error::ClusterError;

/// A new, unique identity.
///
/// # Errors
/// The system gives no random numbers.
pub fn new_identity() -> Result<Identity, ClusterError> {
    const RANDOM: &str = "/dev/urandom";
    let mut bits = [0; 16];
    let mut source = fs::File::open(RANDOM).map_err(ClusterError::io("open", RANDOM))?;
    source.read_exact(&mut bits).map_err(ClusterError::io("read", RANDOM))?;
    Ok(Identity::of(u128::from_ne_bytes(bits)))
}
