//! The changes of stores with versions: the events of the topic, as far as all nodes have read them, and comparisons of versions.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fondaco_api::{ChangesPart, OffsetsRead, PartChange};
use fondaco_model::cluster::StoreRecord;
use fondaco_model::{PartitionCount, PartitionId, VersionNumber};
use fondaco_node::FollowedChange;
use fondaco_stream::topic_partition;

use super::follow::{Begin, Step};
use super::owners::Owners;
use super::position::{Comparing, Place, Position, ViewPlace};
use super::too_far_behind;
use crate::app::App;
use crate::error::ApiError;

/// The current version of a store.
fn current(store: &StoreRecord) -> Result<VersionNumber, ApiError> {
    store.versions.current().ok_or_else(|| {
        let message = format!("store {:?} serves no version: push one first", store.definition.name);
        ApiError::new("nothing_served", message)
    })
}

/// The place of a follower that begins.
pub(super) async fn start(app: &App, store: &StoreRecord, begin: &Begin) -> Result<ViewPlace, ApiError> {
    let current = current(store)?;
    let (version, comparison) = match begin {
        Begin::Now | Begin::At(_) => (current, None),
        Begin::Beginning => (current, Some(None)),
        &Begin::Version(version) => (version, None),
        &Begin::Time(time_unix_ms) => {
            let kept = store.versions.kept();
            let built = kept.filter(|version| {
                let detail = store.details.get(version);
                detail.is_some_and(|detail| detail.built_unix_ms <= time_unix_ms)
            });
            let why = "no version that is kept was built by then";
            (built.max().ok_or_else(|| too_far_behind(store, why))?, None)
        }
    };
    check_kept(store, version)?;
    let time_unix_ms = match begin {
        Begin::Version(_) => store
            .details
            .get(&version)
            .and_then(|detail| Some(detail.events?.from_unix_ms)),
        &Begin::Time(time_unix_ms) => Some(time_unix_ms),
        _ => None,
    };
    let mut place = ViewPlace {
        version,
        comparison: comparison.map(|from| Comparing {
            from,
            partition: PartitionId::new(0),
            hash: 0,
        }),
        topic_mark: 0,
        offsets: BTreeMap::new(),
    };
    if store.definition.stream.is_some() {
        let owners = Owners::of(app, store)?;
        let time = time_unix_ms.map_or(String::new(), |time_unix_ms| format!("&time_unix_ms={time_unix_ms}"));
        let parts = owners.ask(app, store, &place, &format!("offsets{time}")).await?;
        if let Some(reason) = parts.iter().find_map(|part| part.waits_for.clone()) {
            return Err(ApiError::new("unavailable", reason));
        }
        place.topic_mark = parts.iter().map(|part| part.topic_mark).max().unwrap_or(0);
        place.offsets = least(&parts);
    }
    Ok(place)
}

fn check_kept(store: &StoreRecord, version: VersionNumber) -> Result<(), ApiError> {
    match store.versions.contains(version) {
        true => Ok(()),
        false => Err(too_far_behind(store, &format!("its version {version} is not kept"))),
    }
}

/// The next changes after a place.
pub(super) async fn step(app: &App, store: &StoreRecord, place: &ViewPlace) -> Result<Step, ApiError> {
    let (current, mut place) = (current(store)?, place.clone());
    check_kept(store, place.version)?;
    if place.comparison.is_none() && place.version != current {
        let start = Comparing {
            from: Some(place.version),
            partition: PartitionId::new(0),
            hash: 0,
        };
        (place.version, place.comparison) = (current, Some(start));
    }
    if let Some(from) = place.comparison.and_then(|comparing| comparing.from) {
        check_kept(store, from)?;
    }
    let owners = Owners::of(app, store)?;
    let mut step = Step {
        changes: Vec::new(),
        position: position_of(store, &place),
        lag_events: 0,
        waits_for: None,
        has_more: false,
    };
    if store.definition.stream.is_some() {
        let mut parts = owners.ask(app, store, &place, "events").await?;
        step.waits_for = parts.iter_mut().find_map(|part| part.waits_for.take());
        if step.waits_for.is_none() {
            step.follow_events(store, &mut place, parts);
        }
    }
    if let Some(comparing) = place.comparison {
        step.compare(app, store, &owners, &mut place, comparing).await?;
    }
    step.has_more = place.comparison.is_some();
    step.position = position_of(store, &place);
    Ok(step)
}

fn position_of(store: &StoreRecord, place: &ViewPlace) -> Position {
    Position {
        created_unix_ms: store.created_unix_ms,
        place: Place::View(place.clone()),
    }
}

/// The least offsets of all nodes: those up to which each of them has answered. A partition of the topic that a node has not heard of is left
/// for later.
pub(super) fn least(parts: &[ChangesPart]) -> BTreeMap<u32, OffsetsRead> {
    let is_known = |partition: u32| {
        let (topic, own) = topic_partition(partition);
        let counts = |part: &ChangesPart| part.topic_partitions.get(topic as usize).copied();
        parts.iter().all(|part| counts(part).is_some_and(|count| own < count))
    };
    let mut least = BTreeMap::<u32, OffsetsRead>::new();
    for (&partition, &read) in parts.iter().flat_map(|part| &part.offsets) {
        if is_known(partition) {
            let found = least.entry(partition).or_insert(read);
            found.next = found.next.min(read.next);
            found.seen = found.seen.max(read.seen);
        }
    }
    least
}

impl Step {
    fn push(&mut self, store: &StoreRecord, place: &ViewPlace, change: PartChange) {
        let bytes = |text: String| STANDARD.decode(text).unwrap_or_default();
        self.changes.push(FollowedChange {
            key: bytes(change.key),
            before: change.before.map(|before| before.map(bytes)),
            after: change.after.map(bytes),
            version: place.version.get(),
            time_unix_ms: change.time_unix_ms,
            position: position_of(store, place).encode(),
        });
    }

    /// Takes the events of the topic that all nodes have followed.
    fn follow_events(&mut self, store: &StoreRecord, place: &mut ViewPlace, parts: Vec<ChangesPart>) {
        let least = least(&parts);
        place.topic_mark = parts
            .iter()
            .map(|part| part.topic_mark)
            .max()
            .unwrap_or(0)
            .max(place.topic_mark);
        let behind = |(partition, read): (&u32, &OffsetsRead)| {
            let from = place.offsets.get(partition).map_or(0, |known| known.next);
            read.seen.saturating_sub(read.next.max(from))
        };
        self.lag_events = least.iter().map(behind).sum();
        let changes = parts.into_iter().flat_map(|part| part.changes);
        let mut changes: Vec<PartChange> = changes
            .filter(|change| {
                let read = u32::try_from(change.place[0])
                    .ok()
                    .and_then(|partition| least.get(&partition));
                read.is_some_and(|read| change.place[1] < read.next)
            })
            .collect();
        changes.sort_by_key(|change| change.place);
        let mut changes = changes.into_iter().peekable();
        for (partition, read) in least {
            let known = place.offsets.entry(partition).or_default();
            known.seen = known.seen.max(read.seen);
            while let Some(change) = changes.next_if(|change| change.place[0] == u64::from(partition)) {
                let known = place.offsets.entry(partition).or_default();
                known.next = change.place[1] + 1;
                self.push(store, place, change);
            }
            let known = place.offsets.entry(partition).or_default();
            known.next = known.next.max(read.next);
        }
    }

    /// Continues a comparison of versions.
    async fn compare(
        &mut self,
        app: &App,
        store: &StoreRecord,
        owners: &Owners,
        place: &mut ViewPlace,
        comparing: Comparing,
    ) -> Result<(), ApiError> {
        let built_for = |version: VersionNumber| store.details.get(&version).map(|detail| detail.partitions);
        let partitions = built_for(place.version).unwrap_or(owners.partitions);
        if let Some(former) = comparing.from.and_then(built_for)
            && former != partitions
        {
            let why = format!(
                "version {} has {partitions} partitions, and the version before it had {former}",
                place.version
            );
            return Err(too_far_behind(store, &why));
        }
        let mut part = owners
            .ask_owner(app, store, place, partitions, comparing.partition)
            .await?;
        if part.waits_for.is_some() {
            self.waits_for = part.waits_for.take();
            return Ok(());
        }
        let next = part.next;
        let mut changes = part.changes.into_iter().peekable();
        while let Some(change) = changes.next() {
            // The hash of the change that follows: so keys with one hash come together.
            let after = changes.peek().map(|next| next.place[0]);
            set_place(place, comparing, after.or(next), partitions);
            self.push(store, place, change);
        }
        set_place(place, comparing, next, partitions);
        Ok(())
    }
}

/// Sets where a comparison continues: at a hash, or in the next partition, if there is one.
fn set_place(place: &mut ViewPlace, comparing: Comparing, hash: Option<u64>, partitions: PartitionCount) {
    let next = PartitionId::new(comparing.partition.get() + 1);
    place.comparison = match hash {
        Some(hash) => Some(Comparing { hash, ..comparing }),
        None if next.get() < partitions.get() => Some(Comparing {
            partition: next,
            hash: 0,
            ..comparing
        }),
        None => None,
    };
}
