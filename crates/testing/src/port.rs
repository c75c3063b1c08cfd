//! Free ports.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use parking_lot::Mutex;

/// Below the ephemeral ports of the system: an outgoing connection could take one of those between choice and use.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

const ATTEMPTS_MAX: usize = 1000;

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A free port of the loopback address that this process was not given before.
///
/// # Panics
/// If no port is free.
pub fn free_port() -> u16 {
    let mut given = GIVEN.lock();
    for attempt in 0..ATTEMPTS_MAX {
        // The random keys of a hash map are all the randomness that this needs.
        let random = RandomState::new().hash_one(attempt) % u64::from(PORTS.end - PORTS.start);
        let port = PORTS.start + random as u16;
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
    panic!("no free port among {PORTS:?} in {ATTEMPTS_MAX} attempts: end other servers");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: BTreeSet<_> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 50);
    }
}
