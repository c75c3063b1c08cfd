//! The look-ups of a connection that need the disk.
//!
//! The reads of several keys are under way at a time; the replies are still written in order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use fondaco_format::{ColdRead, FormatError, Lookup, Value};
use fondaco_resp::Reply;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Connection;
use crate::catalog::{Catalog, Serving};
use crate::cold::InFlight;
use crate::server::session::Replies;
use crate::server::window::{OUTPUT_BYTES_MAX, Place};

/// How many cold reads one client may have under way.
const READS_MAX: usize = 64;
/// How far ahead of the key that is being answered cold ones are looked for.
const KEYS_AHEAD: usize = 256;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Answers the rest of the window, waiting for the disk where it must, with the reads of several
    /// keys under way at a time.
    pub(super) async fn run_waiting(
        &mut self,
        catalog: Arc<Catalog>,
        mut place: Place,
        first: Option<ColdRead>,
        started: Instant,
    ) -> io::Result<()> {
        let first = first.and_then(|read| self.start(place.key, &catalog, read));
        let mut reads: VecDeque<_> = first.into_iter().collect();
        let mut ahead = place.key + reads.len();
        loop {
            let mut reply = Reply::new(&mut self.output, self.session.protocol);
            if !self.window.begin(&mut place, &mut reply) {
                break;
            }
            if self.output.len() > OUTPUT_BYTES_MAX {
                match self.session.replies {
                    Replies::On => self.write(started).await?,
                    Replies::Off | Replies::SkipNext => self.output.truncate(self.window_start),
                }
            }
            let end = self.window.key_count().min(place.key + KEYS_AHEAD);
            ahead = ahead.max(place.key);
            while ahead < end && reads.len() < READS_MAX {
                if let Ok(Lookup::Cold(read)) = self.window.look_up(ahead, &catalog) {
                    reads.extend(self.start(ahead, &catalog, read));
                }
                ahead += 1;
            }
            let under_way = match reads.front() {
                Some(&(at, _)) if at == place.key => reads.pop_front().map(|(_, read)| read),
                _ => None,
            };
            let found = match under_way {
                Some(read) => self.finish(place.key, &catalog, read).await,
                None => match self.window.look_up(place.key, &catalog) {
                    Ok(Lookup::Found(value)) => {
                        self.tally.hot += 1;
                        // Written at once: it lies in a mapping that may not be resident for long.
                        let mut reply = Reply::new(&mut self.output, self.session.protocol);
                        self.window.answer(&mut place, Ok(Some(&value)), &mut reply);
                        continue;
                    }
                    Ok(Lookup::Absent) => {
                        self.tally.hot += 1;
                        Ok(None)
                    }
                    // It was in memory when it was looked for ahead, and is no more.
                    Ok(Lookup::Cold(_)) => {
                        ahead = place.key;
                        reads.clear();
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            let mut reply = Reply::new(&mut self.output, self.session.protocol);
            match &found {
                Ok(value) => {
                    self.tally.absent += u64::from(value.is_none());
                    self.window.answer(&mut place, Ok(value.as_deref()), &mut reply);
                }
                Err(error) => {
                    self.tally.failed += 1;
                    self.window.answer(&mut place, Err(error), &mut reply);
                }
            }
        }
        self.end_window();
        Ok(())
    }

    /// Begins the read that a key waits for.
    fn start(&self, key: usize, catalog: &Catalog, read: ColdRead) -> Option<(usize, InFlight)> {
        let version = self.window.key(key, catalog).1.version()?;
        Some((key, self.context.cold.start(version, read)))
    }

    async fn finish(
        &mut self,
        key: usize,
        catalog: &Catalog,
        read: InFlight,
    ) -> Result<Option<Value<'static>>, FormatError> {
        self.tally.cold += 1;
        let (bytes, store) = self.window.key(key, catalog);
        match &store.serving {
            Serving::Version(_, version) => self.context.cold.finish(version, bytes, read).await,
            Serving::Nothing | Serving::Failed(..) => Ok(None),
        }
    }
}
