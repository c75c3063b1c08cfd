//! Canaries of stores: what reads of the new and of the current version cost, and whether both versions have the same for the keys that
//! clients ask for.
//!
//! Keys that the new version has answered are looked up in both versions by a thread, behind the event loops. How many may wait for it is
//! bounded, and so is its rate: the rest is not compared.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fondaco_catalog::{Catalog, NOT_OPEN};
use fondaco_model::CanaryCounts;
use fondaco_os::priority;
use fondaco_stream::Found;
use smallvec::SmallVec;

use super::window::{KeyPlace, Window};

/// How many keys may wait to be compared.
const WAITING_MAX: usize = 1024;
/// After this many comparisons the thread pauses: 20 000 keys a second at most.
const AT_ONCE: usize = 100;
/// The pause of the thread.
const PAUSE: Duration = Duration::from_millis(5);

/// The comparisons of a server.
#[derive(Default)]
pub(crate) struct Comparisons {
    /// The way to the thread, which is started by the first canary; `None` if it cannot be.
    thread: OnceLock<Option<SyncSender<Comparison>>>,
}

/// A key to compare.
struct Comparison {
    catalog: Arc<Catalog>,
    store: u16,
    key: Box<[u8]>,
}

/// The reads of a window in a store with a canary: how many of the new version, and of the current one.
#[derive(Clone, Copy, Default)]
struct Reads {
    store: u16,
    new: u64,
    current: u64,
}

impl Comparisons {
    /// Counts the look-ups of a window in stores with a canary, as far as they were answered here, and has those of the new version
    /// compared.
    #[inline]
    pub(in crate::server) fn note_window(&self, window: &Window, catalog: &Arc<Catalog>) {
        if let Some(since) = window.watched_since() {
            self.note_watched(window, since, catalog);
        }
    }

    #[cold]
    fn note_watched(&self, window: &Window, since: Instant, catalog: &Arc<Catalog>) {
        let mut all = SmallVec::<[Reads; 2]>::new();
        for at in 0..window.key_count() {
            let (key, store) = window.key(at);
            let (Some(canary), KeyPlace::Version { version, .. }) = (catalog.canary(store), window.place(at)) else {
                continue;
            };
            let place = all.iter().position(|reads| reads.store == store).unwrap_or_else(|| {
                all.push(Reads {
                    store,
                    ..Reads::default()
                });
                all.len() - 1
            });
            if version == canary.place {
                all[place].new += 1;
                self.offer(catalog, store, key);
            } else if version == catalog.current(store) {
                all[place].current += 1;
            }
        }
        let is_one = all.len() == 1 && !window.is_split();
        let (requests, took_us) = (window.request_count() as u64, since.elapsed().as_micros() as u64);
        for reads in all {
            let Some(canary) = catalog.canary(reads.store) else {
                continue;
            };
            canary.meter().count(|counts| {
                counts.reads += reads.new;
                counts.current_reads += reads.current;
                // A window is measured as a whole.
                match (reads.new, reads.current) {
                    (1.., 0) if is_one => {
                        counts.timed += requests;
                        counts.latency_us += requests * took_us;
                    }
                    (0, 1..) if is_one => {
                        counts.current_timed += requests;
                        counts.current_latency_us += requests * took_us;
                    }
                    _ => {}
                }
            });
        }
    }

    fn offer(&self, catalog: &Arc<Catalog>, store: u16, key: &[u8]) {
        if let Some(thread) = self.thread.get_or_init(start) {
            // If too many wait, the key is not compared.
            let _ = thread.try_send(Comparison {
                catalog: Arc::clone(catalog),
                store,
                key: key.into(),
            });
        }
    }
}

fn start() -> Option<SyncSender<Comparison>> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("canary".into());
    match thread.spawn(move || run(&receiver)) {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::error!(%error, "cannot start the thread that compares versions: canaries are not compared here");
            None
        }
    }
}

fn run(comparisons: &Receiver<Comparison>) {
    priority::let_loops_go_first();
    for (number, comparison) in comparisons.iter().enumerate() {
        comparison.run();
        if number % AT_ONCE == AT_ONCE - 1 {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Comparison {
    /// Looks the key up in both versions, unless one of them is not here, or later events answer for the key.
    fn run(&self) {
        let (catalog, key) = (&self.catalog, &*self.key);
        let Some(canary) = catalog.canary(self.store) else {
            return;
        };
        let places = [canary.place, catalog.current(self.store)];
        let is_here = |&place: &u16| {
            let has_no_events = |place| {
                let overlay = catalog.overlay(place);
                overlay.is_none_or(|overlay| matches!(overlay.find(key), Ok(Found::Nothing)))
            };
            place != NOT_OPEN && catalog.version(place).probe(key).is_held() && has_no_events(place)
        };
        if !places.iter().all(is_here) {
            return;
        }
        let [new, current] = places.map(|place| catalog.version(place).get_owned(key));
        canary.meter().count(|counts: &mut CanaryCounts| {
            counts.compared += 1;
            match (new, current) {
                (_, Err(_)) => counts.current_errors += 1,
                (Err(_), Ok(_)) => counts.errors += 1,
                (Ok(None), Ok(Some(_))) => counts.missing += 1,
                (Ok(Some(_)), Ok(None)) => counts.added += 1,
                (Ok(new), Ok(current)) => counts.changed += u64::from(new != current),
            }
        });
    }
}
