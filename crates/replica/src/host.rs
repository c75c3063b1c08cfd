//! The machine that replicas run on, except for engines and connections to other nodes: clocks, random numbers, the
//! incarnation file, and the free disk space. A simulation has its own implementation.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fondaco_protocol::now_unix_ms;

/// The incarnation file, in the directory of versioned stores.
const INCARNATION_FILE: &str = "incarnation.json";

/// The machine that replicas run on.
pub trait Host: fmt::Debug + Send + Sync + 'static {
    /// The time of a monotonic clock.
    fn now(&self) -> Instant;

    /// The time of the wall clock, in milliseconds since 1970.
    fn unix_ms(&self) -> u64;

    /// A random number.
    fn random(&self) -> u64;

    /// The path of the incarnation file, for error messages.
    fn incarnation_path(&self) -> PathBuf;

    /// The bytes of the incarnation file; `None` if there is no such file.
    ///
    /// # Errors
    /// The error of the operating system.
    fn read_incarnation(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the incarnation file as a whole. It is on the disk when this returns.
    ///
    /// # Errors
    /// The error of the operating system.
    fn replace_incarnation(&self, bytes: &[u8]) -> io::Result<()>;

    /// How many bytes are free on the disk; `None` if that is unknown.
    fn free_bytes(&self) -> Option<u64>;
}

/// This machine, with a directory for versioned stores.
#[derive(Debug)]
pub(crate) struct LocalHost {
    dir: PathBuf,
}

impl LocalHost {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }
}

impl Host for LocalHost {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn unix_ms(&self) -> u64 {
        now_unix_ms()
    }

    fn random(&self) -> u64 {
        // The operating system provides the keys of the hasher.
        RandomState::new().build_hasher().finish()
    }

    fn incarnation_path(&self) -> PathBuf {
        self.dir.join(INCARNATION_FILE)
    }

    fn read_incarnation(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.incarnation_path()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace_incarnation(&self, bytes: &[u8]) -> io::Result<()> {
        let path = self.incarnation_path();
        fondaco_durable::replace_file(&path, &path.with_extension("new"), bytes)
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.dir).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// A random number from 0 up to, but not including, 1.
pub(crate) fn random_fraction(host: &dyn Host) -> f64 {
    (host.random() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;

    /// This machine, for a test that needs no directory.
    pub(crate) fn any() -> Arc<dyn Host> {
        Arc::new(LocalHost::new(Path::new("/nonexistent")))
    }

    #[test]
    fn fractions_lie_between_0_and_1() {
        let host = any();
        let all: Vec<f64> = (0..1000).map(|_| random_fraction(&*host)).collect();
        assert!(all.iter().all(|fraction| (0.0..1.0).contains(fraction)));
        let mean = all.iter().sum::<f64>() / 1000.0;
        assert!((0.3..0.7).contains(&mean), "{mean}");
    }
}
