//! Drops versions that are no longer served, on a separate thread: unmapping and deleting gigabytes takes long, and
//! must not delay a swap or a reader.
//!
//! A version is dropped when no other thread holds it, so that the last reader never pays for it. Its directory is
//! deleted after that. Directories that remain after a crash are deleted at the next start.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use fondaco_catalog::SharedCatalog;
use fondaco_format::Version;

use crate::data_dir::delete_tree;

/// How often it checks whether readers have finished.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A version or directory to be dropped.
pub(crate) struct Remains {
    pub(crate) version: Option<Arc<Version>>,
    pub(crate) dir: Option<PathBuf>,
}

/// The thread. It ends when this is dropped, after it has deleted everything that it can delete by then.
pub(crate) struct Reaper {
    sender: Option<Sender<Remains>>,
    /// How many directories wait to be deleted.
    waiting: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    pub(crate) fn start(catalog: Arc<SharedCatalog>) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&waiting);
        let thread = std::thread::Builder::new()
            .name("reaper".into())
            .spawn(move || run(&catalog, &receiver, &theirs))?;
        Ok(Self {
            sender: Some(sender),
            waiting,
            thread: Some(thread),
        })
    }

    /// Takes remains to drop and delete. Also to be called after every change of the catalog, with nothing: the former
    /// catalog is to be dropped too.
    pub(crate) fn take(&self, remains: Remains) {
        if let Some(sender) = &self.sender {
            self.waiting.fetch_add(usize::from(remains.dir.is_some()), Relaxed);
            // The thread only ends after this is dropped.
            let _ = sender.send(remains);
        }
    }

    /// How many directories wait to be deleted.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }
}

impl Remains {
    /// The former catalog alone.
    pub(crate) const FORMER_CATALOG: Self = Self {
        version: None,
        dir: None,
    };
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // The thread printed its panic, if any; remaining directories are deleted at the next start.
            let _ = thread.join();
        }
    }
}

fn run(catalog: &SharedCatalog, receiver: &Receiver<Remains>, count: &AtomicUsize) {
    let mut waiting: Vec<Remains> = Vec::new();
    let mut former = 0;
    loop {
        let received = match waiting.is_empty() && former == 0 {
            true => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => receiver.recv_timeout(CHECK_INTERVAL),
        };
        match received {
            Ok(remains) => waiting.push(remains),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                catalog.reap();
                waiting.retain_mut(|remains| !bury(remains, count));
                return;
            }
        }
        former = catalog.reap();
        waiting.retain_mut(|remains| !bury(remains, count));
    }
}

/// Drops and deletes, if no other thread holds the version any more.
fn bury(remains: &mut Remains, count: &AtomicUsize) -> bool {
    // A count of one cannot rise again: there is no other reference to clone.
    if remains
        .version
        .as_ref()
        .is_some_and(|version| Arc::strong_count(version) > 1)
    {
        return false;
    }
    remains.version = None;
    if let Some(dir) = remains.dir.take() {
        match delete_tree(&dir) {
            Ok(()) => tracing::info!(?dir, "deleted"),
            Err(error) => tracing::warn!(?dir, %error, "could not delete, the next start will try again"),
        }
        count.fetch_sub(1, Relaxed);
    }
    true
}
