//! Loads beside other work: in a thread of their own, while this one or other clients do something.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use anyhow::{Result, anyhow, ensure};

use crate::machine::prefer_thread;

/// Does some work in this thread while another one, with higher priority, generates a load.
///
/// # Errors
/// Those of the load, and those of the work.
pub fn beside<T, L: Send>(work: impl FnOnce() -> Result<T>, load: impl FnOnce() -> Result<L> + Send) -> Result<(T, L)> {
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            prefer_thread();
            load()
        });
        let done = work();
        let loaded = client.join().map_err(|_| anyhow!("the load generator panicked"))??;
        Ok((done?, loaded))
    })
}

/// Generates a load while threads of other clients do something until they are told to stop. Returns the sum of what these
/// have counted.
///
/// # Errors
/// Those of the load, and of the other clients, which must have counted something.
pub fn beside_clients<T>(
    clients: u64,
    client: impl Fn(u64, &AtomicBool) -> Result<u64> + Sync,
    load: impl FnOnce() -> Result<T>,
) -> Result<(T, u64)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (client, stop) = (&client, &stop);
        let others: Vec<_> = (0..clients)
            .map(|number| scope.spawn(move || client(number, stop)))
            .collect();
        let done = load();
        stop.store(true, Relaxed);
        let mut counted = 0;
        for other in others {
            counted += other.join().map_err(|_| anyhow!("another client panicked"))??;
        }
        ensure!(counted > 0, "the other clients were not answered once");
        Ok((done?, counted))
    })
}
