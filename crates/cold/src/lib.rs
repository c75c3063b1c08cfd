//! Reads from the disk, which must not delay other clients.
//!
//! An event loop never waits for the disk: a look-up that needs it returns a [`ColdRead`], which is passed to the
//! loop's own io_uring ([`ring`]) and completes as a future. If the kernel has no io_uring, or forbids it, blocking
//! threads do the read, always through the page cache.

mod ring;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fondaco_format::{ColdRead, ColdStep, FormatError, Value, Version, missing_error};
use tokio::sync::{Semaphore, oneshot};

use ring::Ring;

/// How many reads of one loop may wait for the sources of versions that are still fetched: a source that hangs must not take the
/// threads that read from the disk.
pub const READS_OF_SOURCES_MAX: usize = 32;

/// How long another read waits for one of these to end.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(3);

const TOO_MANY: &str = "it is still being fetched, and too many other requests wait for its sources";

/// The cold reads of one event loop.
pub struct ColdReads {
    ring: Option<Rc<Ring>>,
    of_sources: Arc<Semaphore>,
    under_way: Arc<AtomicU64>,
}

/// A cold read in flight. It has already begun; dropping it only abandons its result.
pub struct InFlight {
    read: ColdRead,
    bytes: Option<oneshot::Receiver<Result<Vec<u8>, FormatError>>>,
    under_way: Arc<AtomicU64>,
}

impl InFlight {
    /// How many bytes it reads at most.
    pub fn bytes(&self) -> usize {
        self.read.bytes()
    }

    /// How many of these bytes are being read before it is [finished](ColdReads::finish).
    pub fn bytes_under_way(&self) -> usize {
        match self.read.is_large() {
            true => 0,
            false => self.read.bytes(),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Relaxed);
    }
}

impl ColdReads {
    /// Counts the reads under way in a number that all loops share. Call it on the loop's own thread, within its runtime.
    pub fn new(under_way: Arc<AtomicU64>) -> Self {
        let ring = match Ring::start() {
            Ok(ring) => Some(ring),
            Err(error) => {
                tracing::info!(%error, "no io_uring: cold reads use threads");
                None
            }
        };
        Self {
            ring,
            of_sources: Arc::new(Semaphore::new(READS_OF_SOURCES_MAX)),
            under_way,
        }
    }

    /// Begins a read.
    pub fn start(&self, version: &Arc<Version>, read: ColdRead) -> InFlight {
        self.under_way.fetch_add(1, Relaxed);
        let read = match &self.ring {
            Some(_) => read,
            None => read.buffered(),
        };
        // A large read is done by `complete` itself, on a blocking thread.
        let bytes = (!read.is_large()).then(|| match &self.ring {
            _ if !version.is_here(&read) => self.read_from_sources(version, &read),
            Some(ring) => ring.read(version, &read),
            None => read_on_a_thread(version, &read),
        });
        InFlight {
            read,
            bytes,
            under_way: Arc::clone(&self.under_way),
        }
    }

    /// Reads bytes that are not on the disk yet, when few enough such reads are under way.
    fn read_from_sources(
        &self,
        version: &Arc<Version>,
        read: &ColdRead,
    ) -> oneshot::Receiver<Result<Vec<u8>, FormatError>> {
        let (sender, receiver) = oneshot::channel();
        let (version, read, room) = (Arc::clone(version), read.clone(), Arc::clone(&self.of_sources));
        tokio::task::spawn_local(async move {
            let permit = tokio::time::timeout(ROOM_WAIT_MAX, room.acquire_owned()).await;
            match permit {
                // The request has timed out meanwhile.
                _ if sender.is_closed() => {}
                Ok(permit) => {
                    tokio::task::spawn_blocking(move || {
                        let _ = sender.send(version.read_blocking(&read));
                        drop(permit);
                    });
                }
                Err(_) => {
                    let error = version.read_failed(&read, missing_error(TOO_MANY.to_owned()));
                    let _ = sender.send(Err(error));
                }
            }
        });
        receiver
    }

    /// Waits for a read and the reads that follow from it, and returns the result of the look-up.
    ///
    /// # Errors
    /// A file that cannot be read, or damaged data.
    pub async fn finish(
        &self,
        version: &Arc<Version>,
        key: &[u8],
        mut in_flight: InFlight,
    ) -> Result<Option<Value<'static>>, FormatError> {
        loop {
            let read = in_flight.read.clone();
            let step = match in_flight.bytes.take() {
                Some(bytes) => match bytes.await {
                    Ok(bytes) => version.complete(read, key, bytes?)?,
                    Err(_) => return Err(shutting_down("the read was given up")),
                },
                None => complete_on_a_thread(version, read, key).await?,
            };
            match step {
                ColdStep::Found(value) => return Ok(Some(value)),
                ColdStep::Absent => return Ok(None),
                ColdStep::Read(next) => in_flight = self.start(version, next),
            }
        }
    }
}

fn read_on_a_thread(version: &Arc<Version>, read: &ColdRead) -> oneshot::Receiver<Result<Vec<u8>, FormatError>> {
    let (sender, receiver) = oneshot::channel();
    let (version, read) = (Arc::clone(version), read.clone());
    tokio::task::spawn_blocking(move || {
        // If the client is gone, nothing waits for the result.
        let _ = sender.send(version.read_blocking(&read));
    });
    receiver
}

async fn complete_on_a_thread(version: &Arc<Version>, read: ColdRead, key: &[u8]) -> Result<ColdStep, FormatError> {
    let (version, key) = (Arc::clone(version), key.to_vec());
    on_a_thread(move || version.complete(read, &key, Vec::new())).await
}

/// Runs work that waits for the disk on a blocking thread.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FormatError> + Send + 'static,
) -> Result<T, FormatError> {
    tokio::task::spawn_blocking(work).await.map_err(shutting_down)?
}

fn shutting_down(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> FormatError {
    FormatError::Io {
        action: "read",
        path: Default::default(),
        source: io::Error::other(reason),
    }
}
