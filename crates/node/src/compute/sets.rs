//! Computing over keys of one store: here over those that are here, through the client library over the others.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_catalog::{Catalog, NOT_OPEN, Setting};
use fondaco_client::graph::Keys;
use fondaco_client::{ClientError, Computed, PinnedStore, ReadOptions, SetOptions, What};
use fondaco_format::{Value, Version};
use fondaco_graph::Selection;
use fondaco_ids::{Budget, Computation, IdSet, IdsError, SetAnswer, SetQuery};
use fondaco_protocol::WireKey;
use fondaco_stream::{Found, Overlay};

use super::Stop;
use crate::forward;
use crate::server::ServerState;
use crate::server::refusal;

/// After this many keys it is asked whether to go on, and whether too much was read.
const KEYS_BETWEEN_CHECKS: usize = 64;

/// The answers for keys, one element for each.
type Elements = Vec<Option<Bytes>>;

/// How much may be read and answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The most ids of partial and of merged results.
    pub(crate) ids_max: usize,
    /// The most bytes of values that one request reads here.
    pub(crate) input_bytes_max: usize,
}

/// Computes over keys of one store, in one catalog.
#[derive(Clone)]
pub(crate) struct Sets {
    shared: Arc<ServerState>,
    catalog: Arc<Catalog>,
    store: u16,
    pub(crate) limits: Limits,
    stop: Stop,
}

impl Limits {
    /// The limits of the settings.
    pub(crate) fn of(shared: &ServerState) -> Self {
        Self {
            ids_max: shared.settings.get(Setting::ComputeIdsMax) as usize,
            input_bytes_max: shared.settings.get(Setting::ComputeInputBytesMax) as usize,
        }
    }

    /// Checks that a computation does not answer more than is allowed: for each key, this many flags.
    ///
    /// # Errors
    /// The error to answer with.
    pub(crate) fn check_flags(&self, keys: usize, candidates: usize) -> Result<(), String> {
        match keys.saturating_mul(candidates) <= self.ids_max {
            true => Ok(()),
            false => Err(format!(
                "LIMIT {candidates} ids for each of {keys} keys are over the limit of {}: ask for fewer, or raise compute-ids-max",
                self.ids_max
            )),
        }
    }
}

impl Sets {
    pub(crate) fn new(shared: Arc<ServerState>, catalog: Arc<Catalog>, store: u16, stop: Stop) -> Self {
        Self {
            limits: Limits::of(&shared),
            shared,
            catalog,
            store,
            stop,
        }
    }

    async fn at_other_nodes(&self, keys: &[Bytes], what: &What, asking: &ReadOptions) -> Result<Computed, String> {
        if self.catalog.versioned(self.store).is_none() {
            refusal::check_other_nodes(&self.catalog, self.store)?;
        }
        let found = async {
            let store = &self.catalog.stores()[self.store as usize].name;
            let keys: Result<Vec<WireKey>, _> = keys.iter().map(|key| WireKey::new(store, key)).collect();
            let options = SetOptions {
                read: ReadOptions {
                    deadline: self.stop.left(),
                    ..asking.clone()
                },
                ids_max: self.limits.ids_max,
            };
            self.shared
                .compute
                .client(&self.shared)?
                .find(keys?, what, &options)
                .await
        };
        found
            .await
            .map_err(|error: ClientError| match self.stop.left().is_zero() {
                // Answers that are missing at the deadline say nothing about their nodes.
                true => "TIMEOUT the nodes have not answered in time: ask for less, or allow more time".to_owned(),
                false => forward::refusal(error),
            })
    }

    /// The store and its version that keys found here are of.
    fn pinned(&self) -> Option<PinnedStore> {
        let store = &self.catalog.stores()[self.store as usize];
        Some(PinnedStore {
            name: store.name.clone(),
            id: store.id.get(),
            version: self.catalog.current_number(self.store)?,
        })
    }

    /// The answer of later events for a key, if the store is hybrid and there are any.
    fn event(&self, overlay: Option<&Arc<Overlay>>, key: &[u8]) -> Result<Option<Option<Bytes>>, String> {
        match overlay.map_or(Ok(Found::Nothing), |overlay| overlay.find(key)) {
            Ok(Found::Nothing) => Ok(None),
            Ok(Found::Value(value)) => Ok(Some(Some(value))),
            Ok(Found::Deleted) => Ok(Some(None)),
            Ok(Found::Behind | Found::Unknown) => Err(refusal::behind(&self.catalog, self.store)),
            Err(error) => Err(format!("CORRUPT {error}")),
        }
    }

    /// Computes over keys of the version at an index, which is open here, and its later events. Dense unions are bits if the caller
    /// merges the answer and reads them.
    ///
    /// # Errors
    /// The error to answer with.
    pub(crate) fn here(&self, version: u16, keys: &[Bytes], what: &What, reads_bits: bool) -> Result<Elements, String> {
        let (overlay, version) = (self.catalog.overlay(version), self.catalog.version(version));
        loop {
            let mut may_go_on = || self.stop.may_go_on();
            let mut budget = Budget::new(self.limits.ids_max, &mut may_go_on);
            let event = |key: &Bytes| self.event(overlay, key);
            let asked = (what, reads_bits);
            if let Some(done) = over_version(version, keys, event, asked, self.limits.input_bytes_max, &mut budget)? {
                return Ok(done);
            }
        }
    }
}

impl Keys for Sets {
    /// Computes over keys: here over those that are here, at other nodes over the others.
    async fn find(&self, keys: &[Bytes], what: &What, asking: &ReadOptions) -> Result<Computed, String> {
        let version = self.catalog.current(self.store);
        let open = (version != NOT_OPEN).then_some(version);
        let is_here = |key: &Bytes| {
            open.is_some_and(|version| {
                let overlay = self.catalog.overlay(version);
                self.catalog.version(version).probe(key).is_held() && overlay.is_none_or(|overlay| overlay.answers(key))
            })
        };
        let (here, remote): (Vec<usize>, Vec<usize>) = (0..keys.len()).partition(|&at| is_here(&keys[at]));
        let of = |places: &[usize]| places.iter().map(|&at| keys[at].clone()).collect::<Vec<_>>();
        let part = |places: &[usize]| what.of_part(places.first() == Some(&0));
        let others = async {
            match remote[..] {
                [] => Ok(Computed::default()),
                _ => self.at_other_nodes(&of(&remote), &part(&remote), asking).await,
            }
        };
        let own = async {
            match open.filter(|_| !here.is_empty()) {
                Some(version) => self.here(version, &of(&here), &part(&here), true),
                None => Ok(Elements::new()),
            }
        };
        // The others are asked first, and answer meanwhile.
        let (others, own) = tokio::join!(biased; others, own);
        let (others, own) = (others?, own?);
        let pinned = self.pinned();
        if !here.is_empty() && others.pinned.is_some() && others.pinned != pinned {
            // A swap came in between: one version of all keys can be had from others alone.
            return self.at_other_nodes(keys, what, asking).await;
        }
        let mut elements = vec![None; keys.len()];
        for (at, element) in here.iter().zip(own).chain(remote.iter().zip(others.elements)) {
            elements[*at] = element;
        }
        Ok(Computed {
            elements,
            pinned: if here.is_empty() { others.pinned } else { pinned },
            requests: others.requests,
        })
    }

    fn merge(&self, query: &SetQuery, elements: &[Option<Bytes>]) -> Result<SetAnswer, String> {
        let mut may_go_on = || self.stop.may_go_on();
        let merged = query.merge(elements, &mut Budget::new(self.limits.ids_max, &mut may_go_on));
        merged.map_err(refused)
    }
}

/// The value of a key.
enum KeyValue<'a> {
    Version(Value<'a>),
    Event(Bytes),
}

impl KeyValue<'_> {
    /// The build encoded those of the version, and their checksums are right. An event of a graph may have any value under the key of a
    /// set.
    fn set(&self) -> Result<IdSet<'_>, IdsError> {
        match self {
            Self::Version(value) => IdSet::open(value),
            Self::Event(value) => IdSet::parse(value),
        }
    }

    fn is_intact(&self) -> bool {
        match self {
            Self::Version(value) => value.is_intact(),
            Self::Event(_) => true,
        }
    }
}

impl Deref for KeyValue<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Version(value) => value,
            Self::Event(value) => value,
        }
    }
}

/// Computes over keys of a version and their later events; `None` if a page of its files became unreadable meanwhile: then it is to be tried
/// again.
fn over_version(
    version: &Version,
    keys: &[Bytes],
    event: impl Fn(&Bytes) -> Result<Option<Option<Bytes>>, String>,
    (what, reads_bits): (&What, bool),
    input_bytes_max: usize,
    budget: &mut Budget<'_>,
) -> Result<Option<Elements>, String> {
    let mut values: Vec<Option<KeyValue<'_>>> = Vec::with_capacity(keys.len());
    let mut bytes = 0;
    for some in keys.chunks(KEYS_BETWEEN_CHECKS) {
        let mut failed = None;
        let first = values.len();
        let mut rest = Vec::with_capacity(some.len());
        for (at, key) in some.iter().enumerate() {
            let event = event(key)?;
            if event.is_none() {
                rest.push(at);
            }
            let value = event.flatten();
            bytes += value.as_ref().map_or(0, Bytes::len);
            values.push(value.map(KeyValue::Event));
            if bytes > input_bytes_max {
                break;
            }
        }
        values.resize_with(first + some.len(), || None);
        let rest_keys: Vec<&Bytes> = rest.iter().map(|&at| &some[at]).collect();
        version.get_many(&rest_keys, |at, found| match found {
            Ok(value) => {
                bytes += value.as_deref().map_or(0, <[u8]>::len);
                values[first + rest[at]] = value.map(KeyValue::Version);
            }
            Err(error) => failed = Some(error),
        });
        if let Some(error) = failed {
            return Err(refusal::failure(&error));
        }
        if bytes > input_bytes_max {
            return Err(format!(
                "LIMIT the values of these keys have more than {input_bytes_max} bytes: ask for fewer keys, or raise \
                 compute-input-bytes-max"
            ));
        }
        budget.check().map_err(refused)?;
    }
    let is_set = |value: &KeyValue<'_>| matches!(value, KeyValue::Version(_)) || IdSet::parse(value).is_ok();
    if matches!(what, What::Sets) && !values.iter().flatten().all(is_set) {
        return Err("CORRUPT an event has a value that is no set under the key of a set".into());
    }
    let elements = match what {
        What::Values | What::Sets => Ok(values
            .iter()
            .map(|value| value.as_deref().map(Bytes::copy_from_slice))
            .collect()),
        What::Computation(Computation::Select(selection)) => select(&values, selection),
        What::Computation(computation) => over_sets(version, &values, computation, reads_bits, budget),
    };
    match values.iter().flatten().all(KeyValue::is_intact) {
        true => elements.map(Some),
        false => Ok(None),
    }
}

fn over_sets(
    version: &Version,
    values: &[Option<KeyValue<'_>>],
    computation: &Computation,
    reads_bits: bool,
    budget: &mut Budget<'_>,
) -> Result<Elements, String> {
    let manifest = version.manifest();
    if !manifest.value_type.has_sets() {
        return Err(format!(
            "WRONGTYPE the values of version {:?} are not sets of ids",
            manifest.store
        ));
    }
    let sets = values.iter().map(|value| value.as_ref().map(KeyValue::set).transpose());
    let partial = sets.collect::<Result<Vec<_>, _>>().and_then(|sets| match reads_bits {
        true => computation.apply_for_merge(&sets, budget),
        false => computation.apply(&sets, budget),
    });
    let partial = partial.map_err(refused)?;
    Ok(partial.into_iter().map(|element| element.map(Bytes::from)).collect())
}

/// Those values of vertices that a selection wants.
fn select(values: &[Option<KeyValue<'_>>], selection: &[u8]) -> Result<Elements, String> {
    let selection = Selection::parse(selection).map_err(|error| format!("ERR {error}"))?;
    let wanted = |value: &Option<KeyValue<'_>>| match value.as_deref() {
        Some(record) => selection.apply(record).map_err(|error| format!("WRONGTYPE {error}")),
        None => Ok(None),
    };
    values.iter().map(wanted).collect()
}

/// The error to answer with. Its code says whether another node would answer otherwise.
pub(crate) fn refused(error: IdsError) -> String {
    let code = match error {
        IdsError::Stopped => "TIMEOUT",
        IdsError::TooMany { .. } => "LIMIT",
        _ => "ERR",
    };
    format!("{code} {error}")
}
