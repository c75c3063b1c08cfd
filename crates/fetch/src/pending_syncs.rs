//! Complete files that wait to become durable.
//!
//! Each file needs a sync of its own, and on a busy disk each sync takes many milliseconds. But the file system
//! serves concurrent syncs by one write of its journal. So files wait here, and are synced in parallel. A file gets
//! its own name after its sync, and not before.

use std::fs::{self, File};
use std::path::PathBuf;

use fondaco_os::priority::let_loops_go_first;
use parking_lot::Mutex;

use crate::error::FetchError;
use crate::pace::FetchControl;
use crate::source::drop_pages;

/// How many syncs run in parallel.
const SYNCS_AT_ONCE: usize = 32;

/// How many files wait at most: each is open.
const WAITING_MAX: usize = 256;

/// A complete and verified file.
pub(crate) struct Complete {
    pub(crate) file: File,
    /// Its temporary name.
    pub(crate) temporary: PathBuf,
    /// Its final name.
    pub(crate) path: PathBuf,
    /// The offset and length of the pages that are given back once they are written.
    pub(crate) drops: Option<(u64, u64)>,
}

/// The waiting files of a fetch.
pub(crate) struct PendingSyncs<'a> {
    control: &'a FetchControl,
    waiting: Mutex<Vec<Complete>>,
}

impl<'a> PendingSyncs<'a> {
    pub(crate) fn new(control: &'a FetchControl) -> Self {
        Self {
            control,
            waiting: Mutex::default(),
        }
    }

    /// Adds a file; if too many are waiting, the caller makes them durable.
    pub(crate) fn add(&self, complete: Complete) -> Result<(), FetchError> {
        let full = {
            let mut waiting = self.waiting.lock();
            waiting.push(complete);
            (waiting.len() >= WAITING_MAX).then(|| std::mem::take(&mut *waiting))
        };
        full.map_or(Ok(()), |files| self.sync(files))
    }

    /// Makes all added files durable and gives them their names.
    pub(crate) fn finish(&self) -> Result<(), FetchError> {
        let files = std::mem::take(&mut *self.waiting.lock());
        self.sync(files)
    }

    fn sync(&self, files: Vec<Complete>) -> Result<(), FetchError> {
        let threads = files.len().min(SYNCS_AT_ONCE);
        let files = Mutex::new(files.into_iter());
        let work = || {
            let_loops_go_first();
            loop {
                let next = files.lock().next();
                let Some(complete) = next else { return Ok(()) };
                self.control.check()?;
                self.settle_one(&complete)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    fn settle_one(&self, complete: &Complete) -> Result<(), FetchError> {
        let Complete {
            file,
            temporary,
            path,
            drops,
        } = complete;
        file.sync_all().map_err(FetchError::io("write back", temporary))?;
        if let Some((from, bytes)) = *drops {
            drop_pages(file, from, bytes);
        }
        fs::rename(temporary, path).map_err(FetchError::io("rename", temporary))?;
        self.control.file_done();
        Ok(())
    }
}
