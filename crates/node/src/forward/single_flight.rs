//! Reads of keys that are under way: a request for one of them waits for it, instead of asking again.
//!
//! A thousand clients that want the same key at the moment when it leaves the cache make one request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::oneshot;

use super::Answered;
use super::cache::{EntryKey, EntryRef};

/// The keys of one event loop that are being read, with the requests that wait for each.
#[derive(Default, Clone)]
pub(super) struct SingleFlights(Rc<RefCell<HashMap<EntryKey, Vec<oneshot::Sender<Answered>>>>>);

/// The role of a request for a key.
pub(super) enum FlightPlace {
    /// Read it, and land the flight.
    First(Flight),
    /// Wait: another request reads it. An error means that it gave up.
    Waiting(oneshot::Receiver<Answered>),
}

/// A key that is being read. Dropping it tells the requests that wait that it is not read any more.
pub(super) struct Flight {
    single_flights: SingleFlights,
    key: EntryKey,
}

impl SingleFlights {
    /// Begins to read a key, or waits for the request that does already.
    pub(super) fn board(&self, key: EntryRef<'_>) -> FlightPlace {
        let mut under_way = self.0.borrow_mut();
        let key = key.to_owned();
        match under_way.get_mut(&key) {
            Some(waiting) => {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                FlightPlace::Waiting(receiver)
            }
            None => {
                under_way.insert(key.clone(), Vec::new());
                FlightPlace::First(Flight {
                    single_flights: self.clone(),
                    key,
                })
            }
        }
    }
}

impl Flight {
    /// Hands the answer to all requests that wait.
    pub(super) fn land(self, answer: &Answered) {
        let waiting = self.single_flights.0.borrow_mut().remove(&self.key).unwrap_or_default();
        for sender in waiting {
            // A request that was given up needs no answer.
            let _ = sender.send(answer.clone());
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.single_flights.0.borrow_mut().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::VersionNumber;

    use super::*;
    use crate::forward::StoreVersion;
    use fondaco_catalog::StoreId;

    fn source() -> StoreVersion {
        StoreVersion {
            store: StoreId::new(1).unwrap(),
            version: VersionNumber::FIRST,
        }
    }

    fn key() -> EntryRef<'static> {
        EntryRef {
            source: source(),
            key: b"hot",
        }
    }

    fn answer() -> Answered {
        Answered {
            value: Ok(None),
            source: Some(source()),
        }
    }

    #[test]
    fn those_who_come_later_get_the_answer_of_the_first() {
        let single_flights = SingleFlights::default();
        let FlightPlace::First(flight) = single_flights.board(key()) else {
            panic!("nobody reads it yet")
        };
        let FlightPlace::Waiting(mut second) = single_flights.board(key()) else {
            panic!("it is being read")
        };
        flight.land(&answer());
        assert_eq!(second.try_recv(), Ok(answer()));
        assert!(
            matches!(single_flights.board(key()), FlightPlace::First(_)),
            "it is over"
        );
    }

    #[test]
    fn who_gives_up_tells_those_who_wait() {
        let single_flights = SingleFlights::default();
        let first = single_flights.board(key());
        let FlightPlace::Waiting(second) = single_flights.board(key()) else {
            panic!("it is being read")
        };
        drop(first);
        assert!(second.blocking_recv().is_err());
        assert!(matches!(single_flights.board(key()), FlightPlace::First(_)));
    }
}
