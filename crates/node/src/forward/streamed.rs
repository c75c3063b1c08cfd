//! Large batches of keys that other nodes have: their answers are taken as they come, so that the first values can be sent to the
//! client while others are still awaited.
//!
//! A batch is streamed only if its values are of the versions that are current in the catalog, since the window may answer
//! others of its keys from those. A router uses its cache, but no other request waits for the keys of such a batch.

use fondaco_catalog::Catalog;
use fondaco_client::ClientError;
use fondaco_client::read::HeldBudget;
use fondaco_metrics::Counter;

use super::cache::EntryRef;
use super::{Answered, Answers, Forwarder, Steered, StoreVersion, UnderWay, Wanted, error_reply, source_of, wire_keys};

/// The answers for a batch that are there, and those that are still awaited.
pub(crate) struct Begun {
    /// One for each key that has an answer: the place of the key, and the answer.
    pub(crate) answers: Vec<(usize, Answered)>,
    /// The room that their values take until they are sent.
    pub(crate) room: HeldBudget,
    /// The rest, if there is one.
    pub(crate) rest: Option<Streamed>,
}

/// The answers that are still awaited.
pub(crate) struct Streamed {
    /// `None` once all were taken.
    answers: Option<fondaco_client::Streamed>,
    /// The places of its keys.
    places: Vec<usize>,
    /// Whether the cache keeps them.
    is_kept: bool,
    /// `None` once all have come.
    under_way: Option<UnderWay>,
}

impl Forwarder {
    /// Reads the keys at these places from the nodes that have them, until there are answers to send. `wanted` knows the keys.
    pub(crate) async fn begin_streamed<'a>(
        &self,
        catalog: &Catalog,
        mut places: Vec<usize>,
        wanted: impl Fn(usize) -> Wanted<'a> + Copy,
        steered: Steered,
    ) -> Begun {
        let mut begun = Begun {
            answers: Vec::with_capacity(places.len()),
            room: self.value_room(),
            rest: None,
        };
        let mut asked: Vec<Wanted<'_>> = places.iter().copied().map(wanted).collect();
        let is_kept = self.may_cache(catalog, &asked);
        if is_kept {
            places = self.take_cached(catalog, places, wanted, &mut begun);
            if places.is_empty() {
                return begun;
            }
            asked = places.iter().copied().map(wanted).collect();
        }
        self.metrics.add(Counter::ForwardedLookups, asked.len() as u64);
        let under_way = Some(UnderWay::of(self, asked.len()));
        let answers = match self.stream(catalog, &asked, steered).await {
            Ok(mut answers) => {
                let is_over = answers.ready().await;
                if !is_over && is_current(catalog, &answers, &asked) {
                    let mut rest = Streamed {
                        answers: Some(answers),
                        places,
                        is_kept,
                        under_way,
                    };
                    rest.take(self, catalog, &mut begun, wanted);
                    begun.rest = Some(rest);
                    return begun;
                }
                answers.finish().await
            }
            Err(error) => Err(error),
        };
        let answers = match answers {
            Ok(reply) => self.answers(catalog, &asked, reply),
            Err(error) => {
                self.metrics.add(Counter::ForwardFailures, asked.len() as u64);
                Answers::failed(asked.len(), &error)
            }
        };
        begun.room.join(answers.room);
        for (at, answer) in places.into_iter().zip(answers.each) {
            if is_kept {
                self.keep(wanted(at).key, &answer);
            }
            begun.answers.push((at, answer));
        }
        begun
    }

    /// Takes the answers for keys that the cache has; returns the places of the others.
    fn take_cached<'a>(
        &self,
        catalog: &Catalog,
        places: Vec<usize>,
        wanted: impl Fn(usize) -> Wanted<'a>,
        begun: &mut Begun,
    ) -> Vec<usize> {
        let mut missing = Vec::new();
        for at in places {
            let Wanted { store, key } = wanted(at);
            let source = StoreVersion::current(catalog, store);
            let cached = source.and_then(|source| self.cached(EntryRef { source, key }));
            match cached {
                Some(value) if begun.room.take(value.as_ref().map_or(0, |value| value.len())).is_ok() => {
                    let value = Ok(value);
                    begun.answers.push((at, Answered { value, source }));
                }
                _ => missing.push(at),
            }
        }
        self.metrics.add(Counter::CacheHits, begun.answers.len() as u64);
        self.metrics.add(Counter::CacheMisses, missing.len() as u64);
        missing
    }

    async fn stream(
        &self,
        catalog: &Catalog,
        keys: &[Wanted<'_>],
        steered: Steered,
    ) -> Result<fondaco_client::Streamed, ClientError> {
        let options = steered.apply(self.read_options());
        self.client()?.read_streamed(wire_keys(catalog, keys)?, &options).await
    }
}

/// Whether all keys are read from the versions that are current in the catalog.
fn is_current(catalog: &Catalog, answers: &fondaco_client::Streamed, keys: &[Wanted<'_>]) -> bool {
    let stores = answers.stores();
    let mut last = None;
    keys.iter().all(|&Wanted { store, .. }| {
        // As a rule the same store as that of the key before.
        let is_known = last.replace(store) == Some(store);
        is_known
            || source_of(catalog, store, &stores)
                .is_some_and(|source| StoreVersion::current(catalog, store) == Some(source))
    })
}

impl Streamed {
    /// Waits for further answers; none if all have come. `wanted` knows the keys by their places.
    pub(crate) async fn next<'a>(
        &mut self,
        forwarder: &Forwarder,
        catalog: &Catalog,
        wanted: impl Fn(usize) -> Wanted<'a>,
    ) -> Begun {
        let mut begun = Begun {
            answers: Vec::new(),
            room: HeldBudget::default(),
            rest: None,
        };
        let Some(answers) = &mut self.answers else {
            return begun;
        };
        let is_over = answers.ready().await;
        self.take(forwarder, catalog, &mut begun, wanted);
        if is_over
            && let Some(answers) = self.answers.take()
            && let Ok(reply) = answers.finish().await
        {
            self.under_way = None;
            forwarder.count_requests(&reply);
        }
        begun
    }

    /// Waits until all answers have come. It may be dropped at any time.
    pub(crate) async fn over(&mut self) {
        if let Some(answers) = &mut self.answers {
            answers.over().await;
        }
        self.under_way = None;
    }

    fn take<'a>(
        &mut self,
        forwarder: &Forwarder,
        catalog: &Catalog,
        begun: &mut Begun,
        wanted: impl Fn(usize) -> Wanted<'a>,
    ) {
        let Some(answers) = &mut self.answers else { return };
        // Each key has its own errors.
        let Ok(Some(chunk)) = answers.take() else { return };
        let stores = answers.stores();
        let mut failures = 0;
        let (mut store, mut source) = (None, None);
        for (index, value) in chunk.answers {
            let at = self.places[index];
            let wanted = wanted(at);
            if store != Some(wanted.store) {
                (store, source) = (Some(wanted.store), source_of(catalog, wanted.store, &stores));
            }
            let answer = match value {
                Ok(value) => Answered {
                    value: Ok(value),
                    source,
                },
                Err(error) => {
                    failures += 1;
                    Answered::failed(error_reply(&error))
                }
            };
            if self.is_kept {
                forwarder.keep(wanted.key, &answer);
            }
            begun.answers.push((at, answer));
        }
        begun.room.join(chunk.room);
        forwarder.metrics.add(Counter::ForwardFailures, failures);
        forwarder.note_cache_bytes();
    }
}
