//! Reads from the disk, which must not delay other clients.
//!
//! An event loop never waits for the disk: a look-up that needs it returns a [`ColdRead`], which is passed to the
//! loop's own io_uring ([`ring`]) and completes as a future. If the kernel has no io_uring, or forbids it, blocking
//! threads do the read.

mod ring;

use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_format::{ColdRead, ColdStep, FormatError, Value, Version};
use tokio::sync::oneshot;

use ring::Ring;

/// The cold reads of one event loop.
pub struct ColdReads {
    ring: Option<Rc<Ring>>,
    under_way: Arc<AtomicU64>,
}

/// A cold read in flight. It has already begun; dropping it only abandons its result.
pub struct InFlight {
    read: ColdRead,
    bytes: Option<oneshot::Receiver<io::Result<Vec<u8>>>>,
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
        Self { ring, under_way }
    }

    /// Begins a read.
    pub fn start(&self, version: &Arc<Version>, read: ColdRead) -> InFlight {
        self.under_way.fetch_add(1, Relaxed);
        // A large read is done by `complete` itself, on a blocking thread.
        let bytes = (!read.is_large()).then(|| match &self.ring {
            Some(ring) => ring.read(version, &read),
            None => read_on_a_thread(version, &read),
        });
        InFlight {
            read,
            bytes,
            under_way: Arc::clone(&self.under_way),
        }
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
                    Ok(Ok(bytes)) => version.complete(read, key, bytes)?,
                    Ok(Err(error)) => return Err(version.read_failed(&read, error)),
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

fn read_on_a_thread(version: &Arc<Version>, read: &ColdRead) -> oneshot::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = oneshot::channel();
    let (version, read) = (Arc::clone(version), read.clone());
    tokio::task::spawn_blocking(move || {
        let range = read.range();
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let result = version.cold_file(&read).read_exact_at(&mut bytes, range.start);
        // If the client is gone, nothing waits for the result.
        let _ = sender.send(result.map(|()| bytes));
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
