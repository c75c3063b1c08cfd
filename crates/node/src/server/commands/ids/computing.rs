//! Computing over the sets of keys: here on threads for computations, elsewhere through the client library.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_format::{Value, Version};
use fondaco_ids::{Budget, Computation, IdSet};

use super::super::Refusal;
use super::told;
use crate::forward::{Answers, Steered, StoreVersion, Wanted};
use crate::server::event_loop::LoopContext;
use crate::server::refusal::failure;
use crate::server::session::Admission;
use crate::server::sources::{Batch, Located, Source, Versioned};
use crate::settings::Setting;

/// The longest that another node may say it waits, in milliseconds: a day.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// After so many keys a job asks whether it may go on, and has not read too much.
const KEYS_BETWEEN_CHECKS: usize = 64;

/// The answers of a step, one element for each of its keys.
type Elements = Vec<Option<Bytes>>;

/// The limits that a query is computed within.
pub(super) struct Computing<'a> {
    context: &'a LoopContext,
    deadline: Instant,
    /// The most ids of partial and of merged results.
    pub(super) ids_max: usize,
    input_bytes_max: usize,
    steered: Steered,
}

impl<'a> Computing<'a> {
    pub(super) fn new(context: &'a LoopContext, steered: Steered) -> Self {
        let setting = |setting| context.shared.settings.get(setting);
        Self {
            context,
            deadline: Instant::now() + Duration::from_millis(setting(Setting::ForwardTimeoutMs)),
            ids_max: setting(Setting::ComputeIdsMax) as usize,
            input_bytes_max: setting(Setting::ComputeInputBytesMax) as usize,
            steered,
        }
    }

    /// Ends it earlier, if that is earlier: so many milliseconds from now.
    pub(super) fn limit_ms(&mut self, timeout_ms: u64) {
        let timeout = Duration::from_millis(timeout_ms.min(TIMEOUT_MS_MAX));
        self.deadline = self.deadline.min(Instant::now() + timeout);
    }

    /// The time left.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Checks that a computation does not answer more than is allowed: for each key, so many flags.
    ///
    /// # Errors
    /// The error to answer with.
    pub(super) fn check_flags(&self, keys: usize, candidates: usize) -> Result<(), Refusal> {
        match keys.saturating_mul(candidates) <= self.ids_max {
            true => Ok(()),
            false => Err(format!(
                "LIMIT {candidates} ids for each of {keys} keys are over the limit of {}: ask for fewer, or raise compute-ids-max",
                self.ids_max
            )),
        }
    }

    /// Runs a job on a thread for computations.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let result = self.context.shared.compute.run(self.deadline, job).await;
        result.map_err(|none| none.refusal())
    }

    /// Computes over keys of a store: here over those that are here, elsewhere over the others. All are of one version of a
    /// batch store.
    pub(super) async fn over(
        &self,
        admission: &Admission<'_>,
        store: u16,
        keys: &[&[u8]],
        computation: &Computation,
    ) -> Result<Elements, Refusal> {
        let catalog = admission.catalog;
        if let Some(versioned) = catalog.versioned(store) {
            return self
                .over_values(admission, Versioned(versioned), store, keys, computation)
                .await;
        }
        let source = Batch { store };
        let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
        for (at, key) in keys.iter().enumerate() {
            match source.locate(key, admission)? {
                Located::Version { .. } => here.push(at),
                Located::Known(_) | Located::Replicas | Located::Nodes => elsewhere.push(at),
            }
        }
        let wanted = |places: &[usize]| -> Vec<Wanted<'_>> {
            let wanted = |&at: &usize| Wanted { store, key: keys[at] };
            places.iter().map(wanted).collect()
        };
        let part = |places: &[usize]| computation.of_part(places.first() == Some(&0));
        let own = async {
            match here[..] {
                [] => Ok(Elements::new()),
                _ => {
                    let version = Arc::clone(catalog.version(catalog.current(store)));
                    let own = here.iter().map(|&at| Bytes::copy_from_slice(keys[at])).collect();
                    self.here(version, own, part(&here).clone()).await
                }
            }
        };
        let others = async {
            match elsewhere[..] {
                [] => Ok((Elements::new(), None)),
                _ => {
                    let wanted = wanted(&elsewhere);
                    self.elsewhere(admission, &wanted, part(&elsewhere)).await
                }
            }
        };
        let (own, others) = tokio::join!(own, others);
        let (own, (others, source)) = (own?, others?);
        let is_of_another_version =
            !here.is_empty() && source.is_some_and(|source| Some(source) != StoreVersion::current(catalog, store));
        if is_of_another_version {
            // A swap came in between: one version of all keys can be had from others alone.
            let all: Vec<usize> = (0..keys.len()).collect();
            return Ok(self.elsewhere(admission, &wanted(&all), computation).await?.0);
        }
        let mut elements = vec![None; keys.len()];
        for (at, element) in here.into_iter().zip(own).chain(elsewhere.into_iter().zip(others)) {
            elements[at] = element;
        }
        Ok(elements)
    }

    async fn elsewhere(
        &self,
        admission: &Admission<'_>,
        keys: &[Wanted<'_>],
        computation: &Computation,
    ) -> Result<(Elements, Option<StoreVersion>), Refusal> {
        let Admission { catalog, forwarder, .. } = *admission;
        forwarder
            .compute(
                catalog,
                keys,
                computation.clone(),
                (self.ids_max, self.left()),
                self.steered,
            )
            .await
    }

    /// Computes over keys of a version that is open here.
    pub(super) async fn here(
        &self,
        version: Arc<Version>,
        keys: Vec<Bytes>,
        computation: Computation,
    ) -> Result<Elements, Refusal> {
        let (ids_max, input_bytes_max) = (self.ids_max, self.input_bytes_max);
        let job = move |may_go_on: &mut dyn FnMut() -> bool| loop {
            let mut budget = Budget::new(ids_max, may_go_on);
            if let Some(done) = over_version(&version, &keys, &computation, input_bytes_max, &mut budget)? {
                return Ok::<_, Refusal>(done);
            }
        };
        self.run(job).await?
    }

    /// Computes over the values of a versioned store, which are read from its replicas.
    async fn over_values(
        &self,
        admission: &Admission<'_>,
        source: Versioned<'_>,
        store: u16,
        keys: &[&[u8]],
        computation: &Computation,
    ) -> Result<Elements, Refusal> {
        let mut answers = Vec::with_capacity(keys.len());
        let mut asked = Vec::new();
        for &key in keys {
            match source.locate(key, admission)? {
                Located::Known(answer) => answers.push(Some(answer)),
                Located::Version { .. } | Located::Replicas | Located::Nodes => {
                    answers.push(None);
                    asked.push(Wanted { store, key });
                }
            }
        }
        admission.forwarder.check_room(asked.len())?;
        let read = match asked[..] {
            [] => Answers::default(),
            _ => Versioned::ask(admission.forwarder, admission.catalog, &asked, self.steered).await,
        };
        let mut read_answers = read.each.into_iter().map(|answered| answered.value);
        let mut values: Elements = Vec::with_capacity(keys.len());
        for answer in answers {
            let answer = answer.or_else(|| read_answers.next());
            // There is an answer for each key that was asked for.
            values.push(answer.unwrap_or(Ok(None)).map_err(|error| error.to_string())?);
        }
        let (ids_max, computation) = (self.ids_max, computation.clone());
        let partial = self.run(move |may_go_on| {
            let sets = values
                .iter()
                .map(|value| value.as_deref().map(IdSet::parse).transpose());
            let sets = sets.collect::<Result<Vec<_>, _>>()?;
            computation.apply(&sets, &mut Budget::new(ids_max, may_go_on))
        });
        let partial = partial.await?.map_err(told)?;
        Ok(partial.into_iter().map(|element| element.map(Bytes::from)).collect())
    }
}

/// Computes over keys of a version; `None` if a page of its files became unreadable meanwhile: then it is to be tried again.
fn over_version(
    version: &Version,
    keys: &[Bytes],
    computation: &Computation,
    input_bytes_max: usize,
    budget: &mut Budget<'_>,
) -> Result<Option<Elements>, Refusal> {
    if !version.manifest().value_type.has_sets() {
        return Err(format!(
            "WRONGTYPE the values of version {:?} are not sets of ids",
            version.manifest().store
        ));
    }
    let mut values: Vec<Option<Value<'_>>> = Vec::with_capacity(keys.len());
    let mut bytes = 0;
    for some in keys.chunks(KEYS_BETWEEN_CHECKS) {
        let mut failed = None;
        let first = values.len();
        values.resize_with(first + some.len(), || None);
        version.get_many(some, |at, found| match found {
            Ok(value) => {
                bytes += value.as_deref().map_or(0, <[u8]>::len);
                values[first + at] = value;
            }
            Err(error) => failed = Some(error),
        });
        if let Some(error) = failed {
            return Err(failure(&error));
        }
        if bytes > input_bytes_max {
            return Err(format!(
                "LIMIT the sets of these keys have more than {input_bytes_max} bytes: ask for fewer keys, or raise \
                 compute-input-bytes-max"
            ));
        }
        budget.check().map_err(told)?;
    }
    // The build encoded them, and their checksums are right.
    let sets = values.iter().map(|value| value.as_deref().map(IdSet::open).transpose());
    let partial = sets
        .collect::<Result<Vec<_>, _>>()
        .and_then(|sets| computation.apply(&sets, budget));
    match values.iter().flatten().all(Value::is_intact) {
        true => Ok(Some(
            partial
                .map_err(told)?
                .into_iter()
                .map(|element| element.map(Bytes::from))
                .collect(),
        )),
        false => Ok(None),
    }
}
