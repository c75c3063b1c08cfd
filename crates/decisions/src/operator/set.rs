//! Sets of stores, whose versions become current by one write: pushed together, cancelled, swapped and rolled back together.

use std::collections::BTreeMap;

use fondaco_model::cluster::{ClusterView, StoreRecord, VersionDetail, join};
use fondaco_model::{PROTOCOL_OF_SETS, StoreName, VersionNumber};

use super::version::{self, PUSHES_MAX, PushTerms, Pushed};
use super::{OperatorError, store};
use crate::change::{Change, Record};

/// A version that is pushed together with those of other stores.
#[derive(Debug, Clone)]
pub struct SetPush {
    /// The store.
    pub store: StoreName,
    /// The version.
    pub detail: VersionDetail,
    /// The conditions of its push.
    pub terms: PushTerms,
}

/// Begins the push of a store as [`push_once`](super::push_once) does, together with those of other stores: all of these versions
/// become current by one write, or none does. An earlier push answers the request only if it does so for each store.
///
/// # Errors
/// As [`push`](super::push), for any of the stores; a store that is named twice; members of an earlier release.
pub fn push_set(view: &ClusterView, pushes: &[SetPush], now_unix_ms: u64) -> Result<Pushed, OperatorError> {
    let Some((first, others)) = pushes.split_first() else {
        return Err(OperatorError::NoCluster);
    };
    let once = |push: &SetPush| {
        let SetPush { store, detail, terms } = push.clone();
        version::push_once(view, &store, detail, terms, now_unix_ms)
    };
    if others.is_empty() {
        return once(first);
    }
    check_set(view, &first.store, others.iter().map(|push| &push.store))?;
    let each = pushes.iter().map(once).collect::<Result<Vec<Pushed>, _>>()?;
    let is_known_run = each[0].is_repeated && first.terms.run.is_some() && each[0].change.is_none();
    if is_known_run || each.iter().all(|pushed| pushed.is_repeated) {
        let changes = each.iter().filter_map(|pushed| pushed.change.clone());
        return Ok(Pushed {
            change: changes.reduce(Change::and),
            ..each[0].clone()
        });
    }
    let pushing = view.stores.values().filter(|store| store.record.pushing().is_some());
    if pushing.count() + pushes.len() > PUSHES_MAX {
        return Err(OperatorError::TooManyPushes { max: PUSHES_MAX });
    }
    let mut change = Change::default();
    for push in pushes {
        let SetPush { store, detail, terms } = push.clone();
        change = change.and(version::push(view, &store, detail, terms, now_unix_ms)?);
    }
    let versions = change
        .stores_mut()
        .filter_map(|store| Some((store.definition.name.clone(), store.pushing()?)));
    let versions: BTreeMap<StoreName, VersionNumber> = versions.collect();
    for store in change.stores_mut() {
        if let Some(push) = &mut store.push {
            push.with.clone_from(&versions);
            push.with.remove(&store.definition.name);
        }
    }
    let push = change.store().and_then(|store| store.push.clone());
    let store = &first.store;
    Ok(Pushed {
        push: push.ok_or_else(|| OperatorError::PushNotFound { store: store.clone() })?,
        is_repeated: false,
        change: Some(change),
    })
}

/// Cancels a push as [`cancel_push`](super::cancel_push) does, and those of the stores that it is pushed with.
///
/// # Errors
/// As [`cancel_push`](super::cancel_push).
pub fn cancel_set(
    view: &ClusterView,
    name: &StoreName,
    version: Option<VersionNumber>,
    now_unix_ms: u64,
) -> Result<Change, OperatorError> {
    let mut change = version::cancel_push(view, name, version, now_unix_ms)?;
    let push = store(view, name)?.record.push.as_ref();
    for (other, &number) in push.iter().flat_map(|push| &push.with) {
        let of_other = version::cancel_push(view, other, Some(number), now_unix_ms);
        // The push of the other one may have ended by itself: then this one is about to fail.
        change = of_other.map_or(change.clone(), |of_other| change.and(of_other));
    }
    Ok(change)
}

/// Makes kept versions of stores current by one write, and with `held_until_unix_ms`, the time now, also those that the gates of their
/// pushes hold; `None` if each is current already. The view must have the reports of nodes.
///
/// # Errors
/// As [`swap`](super::swap), for any of the stores: none is swapped. Members of an earlier release.
pub fn swap_set(
    view: &ClusterView,
    versions: &BTreeMap<StoreName, VersionNumber>,
    held_until_unix_ms: Option<u64>,
) -> Result<Option<Change>, OperatorError> {
    let mut names = versions.keys();
    if let Some(first) = names.next() {
        check_set(view, first, names)?;
    }
    let swap = |(name, &version): (&StoreName, &VersionNumber)| match held_until_unix_ms {
        Some(now_unix_ms) => match version::swap_held(view, name, version, now_unix_ms)? {
            Some(change) => Ok(Some(change)),
            None => version::swap(view, name, version),
        },
        None => version::swap(view, name, version),
    };
    let swaps = versions.iter().map(swap).collect::<Result<Vec<_>, _>>()?;
    let change = swaps.into_iter().flatten().reduce(Change::and);
    Ok(change.map(|change| change.joined(view)))
}

/// Goes back as [`roll_back`](super::roll_back) does. If the current version was swapped in together with those of other stores,
/// `together` says whether those go back too, by the same write. With `if_current`, that version must be the current one.
///
/// # Errors
/// As [`roll_back`](super::roll_back), for any of the stores; [`OperatorError::SwappedTogether`] if there are others and `together` is not
/// said, or a version of one store is named for all of them; [`OperatorError::CurrentChanged`].
pub fn roll_back_set(
    view: &ClusterView,
    name: &StoreName,
    to: Option<VersionNumber>,
    together: Option<bool>,
    if_current: Option<VersionNumber>,
) -> Result<Option<Change>, OperatorError> {
    let record = &store(view, name)?.record;
    if let Some(version) = if_current.filter(|_| if_current != record.versions.current()) {
        let store = name.clone();
        return Err(OperatorError::CurrentChanged { store, version });
    }
    let others: Vec<&StoreRecord> = view.swapped_with(record).map(|store| &store.record).collect();
    match together {
        Some(false) => return version::roll_back(view, name, to),
        _ if others.is_empty() => return version::roll_back(view, name, to),
        Some(true) if to.is_none() => {}
        Some(true) | None => {
            return Err(OperatorError::SwappedTogether {
                store: name.clone(),
                others: others.iter().map(|other| other.definition.name.clone()).collect(),
            });
        }
    }
    let target = |record: &StoreRecord| Ok((record.definition.name.clone(), version::rollback_target(record)?));
    let all = std::iter::once(record).chain(others).map(target);
    swap_set(view, &all.collect::<Result<_, OperatorError>>()?, None)
}

/// Checks that the stores of a set are different ones, and that all members of the cluster know sets.
fn check_set<'a>(
    view: &ClusterView,
    first: &StoreName,
    mut others: impl Iterator<Item = &'a StoreName>,
) -> Result<(), OperatorError> {
    let in_force = view.protocol();
    match others.next() {
        Some(other) if in_force < PROTOCOL_OF_SETS => Err(OperatorError::NotYetSpoken {
            store: first.clone(),
            what: format!("--with {other}=…"),
            in_force,
        }),
        Some(other) if other == first || others.any(|other| other == first) => Err(OperatorError::InvalidDefinition {
            store: first.clone(),
            reason: "it is among the stores that it is swapped with: leave it out there".to_owned(),
        }),
        _ => Ok(()),
    }
}

impl Change {
    /// The writes of both changes, which are of different entries.
    fn and(mut self, other: Self) -> Self {
        self.writes.extend(other.writes);
        let more = other
            .unchanged
            .into_iter()
            .filter(|entry| !self.unchanged.contains(entry));
        let more: Vec<_> = more.collect();
        self.unchanged.extend(more);
        self
    }

    /// The records of stores that it writes.
    fn stores_mut(&mut self) -> impl Iterator<Item = &mut StoreRecord> {
        self.writes.iter_mut().filter_map(|write| match &mut write.record {
            Some(Record::Store(store)) => Some(&mut **store),
            _ => None,
        })
    }

    /// The same change, whose stores are marked as swapped by one write.
    pub(crate) fn joined(mut self, view: &ClusterView) -> Self {
        let mut records: Vec<StoreRecord> = self.stores_mut().map(|store| store.clone()).collect();
        join(view, &mut records);
        for (store, record) in self.stores_mut().zip(records) {
            *store = record;
        }
        self
    }
}
