//! Files that are fetched in parallel.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};

use fondaco_format::FileEntry;
use fondaco_os::priority::let_loops_go_first;
use parking_lot::Mutex;

use crate::error::FetchError;
use crate::file::{FAILURES_MAX, FileFetch, Shared};
use crate::pace::FetchControl;
use crate::pacer::Pacer;
use crate::pending_syncs::PendingSyncs;
use crate::plan::FetchPlan;
use crate::report::Findings;
use crate::source::PageCache;
use crate::sources::Sources;
use crate::space::{self, Reservation};

/// How many files are fetched at a time. One stream rarely saturates a disk; more than a few slow each other down.
const FILES_AT_ONCE_MAX: usize = 4;

/// Fetches the files of a plan.
pub(crate) struct Batch<'a> {
    plan: &'a FetchPlan,
    sources: &'a Sources,
    dir: &'a Path,
    reserve_bytes: u64,
    control: &'a FetchControl,
    findings: &'a Findings,
    pending_syncs: PendingSyncs<'a>,
    /// Space for copies, if files that looked linkable or clonable must be copied after all.
    for_copies: Mutex<Option<Reservation>>,
    /// The same for single files that another version of the store should have had.
    for_siblings: Mutex<Vec<Reservation>>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(
        plan: &'a FetchPlan,
        sources: &'a Sources,
        dir: &'a Path,
        reserve_bytes: u64,
        control: &'a FetchControl,
        findings: &'a Findings,
    ) -> Self {
        Self {
            plan,
            sources,
            dir,
            reserve_bytes,
            control,
            findings,
            pending_syncs: PendingSyncs::new(control),
            for_copies: Mutex::new(None),
            for_siblings: Mutex::default(),
        }
    }

    /// Fetches files, several at a time; after the first error it begins no more. All are durable when it returns.
    pub(crate) fn run(&self, files: &[FileEntry], cache: PageCache, pacer: &mut Pacer<'_>) -> Result<(), FetchError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = cores.clamp(2, FILES_AT_ONCE_MAX).min(files.len());
        let queue = Mutex::new(files.iter());
        let failed = AtomicBool::new(false);
        let (sender, results) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (sender, queue, failed) = (sender.clone(), &queue, &failed);
                scope.spawn(move || {
                    let_loops_go_first();
                    while !failed.load(Relaxed) {
                        let next = queue.lock().next();
                        let Some(entry) = next else { return };
                        let result = self.fetch(entry, cache);
                        failed.fetch_or(result.is_err(), Relaxed);
                        // The receiver lives as long as the scope.
                        let _ = sender.send(result);
                    }
                });
            }
            drop(sender);
            let mut outcome = Ok(());
            loop {
                match results.recv_timeout(pacer.until_next_turn()) {
                    Ok(Err(error)) if outcome.is_ok() => outcome = Err(error),
                    Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                pacer.turn();
            }
            outcome
        })?;
        self.pending_syncs.finish()
    }

    fn fetch(&self, entry: &FileEntry, cache: PageCache) -> Result<(), FetchError> {
        let file = FileFetch {
            sources: self.sources,
            relay: self.plan.relay_of(entry),
            failures_max: FAILURES_MAX,
            entry,
            dir: self.dir,
            control: self.control,
            cache,
            findings: self.findings,
            pending_syncs: &self.pending_syncs,
            partial: self.plan.partial_of(entry),
        };
        if let Some(sibling) = self.plan.sibling_of(entry) {
            if file.link(sibling)? {
                return Ok(());
            }
            self.reserve_copy(entry)?;
        }
        let mut corrupt = None;
        if let Some(source) = self.plan.shareable() {
            match file.share(source)? {
                Shared::Done => return Ok(()),
                Shared::Impossible => {}
                Shared::Corrupt(error) => corrupt = Some((source, error)),
            }
            self.reserve_copies()?;
        }
        match self.plan.rebuild_of(entry) {
            Some(rebuild) if file.rebuild(rebuild)? => Ok(()),
            _ => file.copy(corrupt),
        }
    }

    /// Reserves space for a file that looked linkable to that of another version.
    fn reserve_copy(&self, entry: &FileEntry) -> Result<(), FetchError> {
        let need = space::Need::new(self.dir, [entry])?;
        let reservation = space::reserve(need, self.reserve_bytes)?;
        self.for_siblings.lock().push(reservation);
        Ok(())
    }

    /// Reserves space for all files, which looked as if they need no copies.
    fn reserve_copies(&self) -> Result<(), FetchError> {
        let mut reservation = self.for_copies.lock();
        if reservation.is_none() {
            *reservation = Some(space::reserve(self.plan.need(self.dir, false)?, self.reserve_bytes)?);
        }
        Ok(())
    }
}
