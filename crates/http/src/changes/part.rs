//! `/v1/stores/{store}/changes/part`: the part of a store's changes that a node has. A process that follows the store asks for it.
//!
//! - A *comparison* of the views of two versions, from a hash of one partition on. A view is a version with the events on top, as the
//!   node has read them.
//! - *Events* of the topic, with their effects on keys of partitions that the node owns first.
//! - *Offsets* at which a follower may begin.
//! - *Records* of a versioned store: see `records`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fondaco_agent::AgentWork;
use fondaco_api::{ChangesPart, ErrorResource, OffsetsRead, PartChange};
use fondaco_format::{Comparison, FormatError, Version, key_hash};
use fondaco_model::cluster::StoreRecord;
use fondaco_model::{PartitionCount, PartitionId, PartitionSet, SlotPrefix, StoreName, VersionNumber};
use fondaco_stream::{Batch, Feed, Found, StreamError};
use serde::Deserialize;
use utoipa::IntoParams;

use super::position::{Comparing, Place, Position, ViewPlace};
use super::{records, too_far_behind};
use crate::app::App;
use crate::body::{QueryOf, StorePath};
use crate::error::ApiError;
use crate::first_owners::own_partitions;

/// About how many bytes of keys and values a part has; it has at least one change, if there is one.
const PART_BYTES: usize = 1 << 20;

/// How long a node compares for one part.
const PART_TIME_MAX: Duration = Duration::from_millis(300);

/// How many keys with events are compared at a time, while no events are applied to the former version.
const KEYS_AT_ONCE: usize = 2000;

/// How much of a topic partition is read at a time, in bytes.
const READ_BYTES: usize = 128 << 10;

/// How long is waited for events that are being applied.
const APPLIED_WAIT: Duration = Duration::from_millis(100);

/// How often it is tried to compare while no events are applied.
const TRIES_MAX: usize = 50;

/// The query of a request for a part.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// `comparison`, `events`, `offsets` or `records`.
    kind: String,
    /// The position of the follower.
    pub(super) position: String,
    /// The epoch of the routing table by which this node was chosen.
    epoch: u64,
    /// The numbers of absent nodes, joined by commas.
    #[serde(default)]
    without: String,
    /// Of offsets: a time in milliseconds since 1970. By default, those up to which events are applied.
    time_unix_ms: Option<u64>,
    /// Distinguishes readers of the topic: a reader that reads on is fastest.
    #[serde(default)]
    reader: u64,
    /// Of records: how many changes are wanted.
    #[serde(default)]
    pub(super) count: usize,
    /// Of records: how long to wait for changes, in milliseconds, up to 1000.
    #[serde(default)]
    pub(super) wait_ms: u64,
}

/// Read the part of a store's changes that this node has, from a position on. For processes that follow the store.
#[utoipa::path(get, path = "/v1/stores/{store}/changes/part", tag = "changes", params(("store" = String, Path, description = "The store"), Asked), responses(
    (status = 200, description = "The changes, and where to continue", body = ChangesPart),
    (status = "default", description = "An error: invalid_request, store_not_found, too_far_behind, not_followable, old_routing, unavailable", body = ErrorResource),
))]
pub(crate) async fn part(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(asked): QueryOf<Asked>,
) -> Result<Json<ChangesPart>, ApiError> {
    if asked.kind == "records" {
        return records::part(&app, &name, &asked).await.map(Json);
    }
    // Comparisons read the disk: clients get most of it. The semaphore is never closed.
    let _permit = app.limits.parts.acquire().await.ok();
    app.blocking(move |app| {
        let store = app.operator.store(&name)?;
        let invalid = || ApiError::invalid(format!("invalid position {:?}", asked.position));
        let Position {
            place: Place::View(place),
            ..
        } = Position::decode(&asked.position).ok_or_else(invalid)?
        else {
            return Err(invalid());
        };
        let agent = app.agent.as_ref().ok_or_else(|| not_here(&name))?;
        let source = Source {
            agent,
            store: &store,
            place: &place,
            reader: asked.reader,
        };
        match &*asked.kind {
            "comparison" => source.comparison(),
            "events" => source.events(own_partitions(app, &store, asked.epoch, &asked.without)?),
            "offsets" => source.offsets(
                own_partitions(app, &store, asked.epoch, &asked.without)?,
                asked.time_unix_ms,
            ),
            kind => Err(ApiError::invalid(format!(
                "invalid kind {kind:?}: use comparison, events, offsets or records"
            ))),
        }
    })
    .await
    .map(Json)
}

fn not_here(store: &StoreName) -> ApiError {
    let message = format!("this node does not have the versions of store {store:?} in these partitions yet");
    ApiError::new("unavailable", message)
}

fn waits(reason: impl Into<String>) -> ChangesPart {
    ChangesPart {
        waits_for: Some(reason.into()),
        ..ChangesPart::default()
    }
}

/// A store on this node, for a follower at a place.
struct Source<'a> {
    agent: &'a AgentWork,
    store: &'a StoreRecord,
    place: &'a ViewPlace,
    reader: u64,
}

/// The versions of a comparison.
struct Pair {
    before: Option<Arc<Version>>,
    after: Arc<Version>,
}

/// The feeds of the version that a follower is at, and of the former one.
struct Feeds {
    of_version: Arc<Feed>,
    of_former: Option<Arc<Feed>>,
}

impl Feeds {
    fn each(&self) -> impl Iterator<Item = &Arc<Feed>> {
        std::iter::once(&self.of_version).chain(&self.of_former)
    }

    /// The offsets before which all events are applied to these partitions in all versions; `None` if they do not answer yet.
    fn applied(&self, own: &PartitionSet) -> Result<Option<BTreeMap<u32, u64>>, ApiError> {
        let Some(mut applied) = self.of_version.applied(own)? else {
            return Ok(None);
        };
        if let Some(former) = &self.of_former {
            let Some(of_former) = former.applied(own)? else {
                return Ok(None);
            };
            for (partition, next) in of_former {
                let known = applied.entry(partition).or_insert(next);
                *known = next.min(*known);
            }
        }
        Ok(Some(applied))
    }
}

impl Source<'_> {
    fn name(&self) -> &StoreName {
        &self.store.definition.name
    }

    fn open(&self, version: VersionNumber) -> Result<Arc<Version>, ApiError> {
        let open = self.agent.open_version(self.name(), version);
        open.ok_or_else(|| not_here(self.name()))
    }

    fn feed(&self, version: VersionNumber) -> Result<Arc<Feed>, ApiError> {
        let feed = self.agent.streams().of_version(self.name(), version);
        feed.ok_or_else(|| not_here(self.name()))
    }

    /// The feeds of a hybrid store.
    fn feeds(&self) -> Result<Feeds, ApiError> {
        let former = self.place.comparison.and_then(|comparing| comparing.from);
        Ok(Feeds {
            of_version: self.feed(self.place.version)?,
            of_former: former.map(|former| self.feed(former)).transpose()?,
        })
    }

    /// Compares a partition from a hash on, for a while.
    fn comparison(&self) -> Result<ChangesPart, ApiError> {
        let comparing = self
            .place
            .comparison
            .ok_or_else(|| ApiError::invalid("the position is in no comparison"))?;
        let pair = Pair {
            before: comparing.from.map(|from| self.open(from)).transpose()?,
            after: self.open(self.place.version)?,
        };
        match self.store.definition.stream {
            None => pair.changes(comparing),
            Some(_) => self.compare_views(&pair, comparing),
        }
    }

    /// Compares views: the keys that differ between the versions, those that have events on top of either, and those with events that
    /// the follower has not had yet.
    fn compare_views(&self, pair: &Pair, comparing: Comparing) -> Result<ChangesPart, ApiError> {
        let feeds = self.feeds()?;
        let mut own = PartitionSet::EMPTY;
        own.insert(comparing.partition);
        let mut unread = Unread::default();
        for _ in 0..TRIES_MAX {
            let Some(former) = &feeds.of_former else {
                // Nothing was followed before, so that the view may be that of any moment.
                let applied = feeds.applied(&own)?;
                return match applied.is_some_and(|applied| self.is_seen(&applied)) {
                    true => pair.differing_views(&feeds, comparing, &unread.keys),
                    false => Ok(waits("the events of the topic are being read")),
                };
            };
            let (applied, of_version) = (former.applied(&own)?, feeds.of_version.applied(&own)?);
            let (Some(applied), Some(of_version)) = (applied, of_version) else {
                return Ok(waits("the events of the topic are being read"));
            };
            let is_ahead = applied
                .iter()
                .all(|(partition, next)| of_version.get(partition) >= Some(next));
            if !is_ahead || !self.is_seen(&applied) {
                std::thread::sleep(APPLIED_WAIT / 10);
                continue;
            }
            if !self.read_unread(&feeds, &applied, &mut unread)? {
                return Ok(waits("more events are followed before versions are compared"));
            }
            let compare = || pair.differing_views(&feeds, comparing, &unread.keys);
            // The former version is asked for no reads any more, so that its events may wait.
            if let Some(part) = former.overlay().while_still(&own, &applied, compare)? {
                return part;
            }
        }
        Ok(waits("the events of the topic are being applied"))
    }

    /// Whether all events are applied that the follower has seen the effects of.
    fn is_seen(&self, applied: &BTreeMap<u32, u64>) -> bool {
        let read = |partition| self.place.offsets.get(partition).map_or(0, |read| read.seen);
        applied.iter().all(|(partition, &next)| next >= read(partition))
    }

    /// Collects the keys of events between the follower's offsets and these. Returns whether it has them all.
    fn read_unread(&self, feeds: &Feeds, to: &BTreeMap<u32, u64>, unread: &mut Unread) -> Result<bool, ApiError> {
        let deadline = Instant::now() + APPLIED_WAIT * 10;
        for (&partition, &to) in to {
            let begin = self.place.offsets.get(&partition).map_or(0, |read| read.next);
            let next = unread.next.entry(partition).or_insert(begin);
            while *next < to {
                let batch = self.read_again(feeds, partition, *next, READ_BYTES)?;
                if batch.next == *next && Instant::now() > deadline || unread.bytes > PART_BYTES {
                    return Ok(false);
                }
                for record in &batch.records {
                    if let Ok(event) = &record.event {
                        unread.bytes += event.key.len();
                        unread.keys.insert(event.key.to_vec());
                    }
                }
                if batch.next == *next {
                    std::thread::sleep(Duration::from_millis(1));
                }
                *next = batch.next;
            }
        }
        Ok(true)
    }

    fn read_again(&self, feeds: &Feeds, partition: u32, offset: u64, bytes: usize) -> Result<Batch, ApiError> {
        let read = feeds.of_version.read_again(self.reader, partition, offset, bytes);
        read.map_err(|error| match error {
            StreamError::Lost { first, .. } => too_far_behind(
                self.store,
                &format!("its topic has deleted the events of partition {partition} from offset {offset} on, and begins at {first}"),
            ),
            StreamError::Unavailable { .. } => ApiError::new("unavailable", error.to_string()),
            error => error.into(),
        })
    }

    /// The effects of the next events on keys of these partitions.
    fn events(&self, (count, own): (PartitionCount, Vec<PartitionId>)) -> Result<ChangesPart, ApiError> {
        let feeds = self.feeds()?;
        let built_for = feeds.of_version.overlay().options().partitions;
        let mut own_of_version = PartitionSet::EMPTY;
        own.iter()
            .for_each(|&partition| own_of_version.insert(built_for.covering(partition, count)));
        let own: HashSet<PartitionId> = own.into_iter().collect();
        let mut part = self.part_of(&feeds)?;
        let Some(mut applied) = feeds.applied(&own_of_version)? else {
            part.waits_for = Some("the events of the topic are being read".into());
            return Ok(part);
        };
        if !self.is_seen(&applied) {
            part.waits_for = Some("this node has not read as many events as the follower".into());
            return Ok(part);
        }
        let slots = SlotPrefix::of(self.name());
        let (mut bytes, mut last_of) = (0, HashMap::<Bytes, usize>::new());
        for (partition, mut bound) in applied.clone() {
            let read = self.place.offsets.get(&partition).copied().unwrap_or_default();
            let mut next = read.next;
            while next < bound && bytes < PART_BYTES {
                let batch = self.read_again(&feeds, partition, next, READ_BYTES)?;
                if batch.next == next {
                    break;
                }
                // To read the same records again would take longer.
                let deadline = Instant::now() + APPLIED_WAIT;
                while bound < batch.next && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(1));
                    let now = feeds.applied(&own_of_version)?.unwrap_or_default();
                    bound = now.get(&partition).copied().unwrap_or(bound).max(bound);
                }
                for record in batch.records.iter().filter(|record| record.offset < bound) {
                    let Ok(event) = &record.event else { continue };
                    let slot = slots.slot(&event.key);
                    if !own.contains(&count.partition_of(slot)) {
                        continue;
                    }
                    let of_version = built_for.partition_of(slot);
                    let feed = match self.place.comparison {
                        Some(Comparing { from, partition, hash })
                            if (of_version, key_hash(&event.key)) >= (partition, hash) =>
                        {
                            match (from, &feeds.of_former) {
                                (Some(_), Some(former)) => former,
                                // It comes with the comparison.
                                _ => continue,
                            }
                        }
                        _ => &feeds.of_version,
                    };
                    let Some(effect) = feed.overlay().effect(event, record)? else {
                        continue;
                    };
                    bytes += event.key.len() + effect.value.as_ref().map_or(0, |value| value.len());
                    let change = PartChange {
                        key: STANDARD.encode(&event.key),
                        before: None,
                        after: effect.value.map(|value| STANDARD.encode(value)),
                        time_unix_ms: Some(effect.time_ms),
                        place: [partition.into(), record.offset],
                        position: None,
                    };
                    // Several updates may have been applied before the first of them is followed.
                    if let Some(&last) = last_of.get(&event.key)
                        && is_same(&part.changes[last], &change)
                    {
                        part.changes[last].key.clear();
                    }
                    last_of.insert(event.key.clone(), part.changes.len());
                    part.changes.push(change);
                }
                next = batch.next.min(bound);
            }
            applied.insert(partition, bound);
            part.offsets.insert(partition, OffsetsRead { next, seen: 0 });
        }
        // Read after the values: no value is of a later moment.
        let seen = feeds.applied(&own_of_version)?.unwrap_or(applied);
        for (partition, read) in &mut part.offsets {
            read.seen = seen.get(partition).copied().unwrap_or(read.next).max(read.next);
        }
        part.changes.retain(|change| !change.key.is_empty());
        Ok(part)
    }

    fn part_of(&self, feeds: &Feeds) -> Result<ChangesPart, ApiError> {
        let topic_partitions = feeds.of_version.topic_partitions()?;
        let topic_mark = feeds.of_version.topic_mark();
        if topic_mark != 0 && self.place.topic_mark != 0 && topic_mark != self.place.topic_mark {
            return Err(too_far_behind(self.store, "its topic was deleted and made again"));
        }
        Ok(ChangesPart {
            topic_partitions,
            topic_mark,
            ..ChangesPart::default()
        })
    }

    /// The offsets of the topic at a time, or those before which all events are applied.
    fn offsets(
        &self,
        (count, own): (PartitionCount, Vec<PartitionId>),
        time_unix_ms: Option<u64>,
    ) -> Result<ChangesPart, ApiError> {
        let feeds = self.feeds()?;
        let built_for = feeds.of_version.overlay().options().partitions;
        let mut of_version = PartitionSet::EMPTY;
        own.iter()
            .for_each(|&partition| of_version.insert(built_for.covering(partition, count)));
        let mut part = self.part_of(&feeds)?;
        let Some(applied) = feeds.applied(&of_version)? else {
            part.waits_for = Some("the events of the topic are being read".into());
            return Ok(part);
        };
        for (partition, applied) in applied {
            let mut next = applied;
            if let Some(time_unix_ms) = time_unix_ms {
                let (found, first) = feeds.of_version.offset_at(partition, time_unix_ms)?;
                if first > 0 && found <= first {
                    let why = format!("partition {partition} of its topic begins at offset {first}, after that time");
                    return Err(too_far_behind(self.store, &why));
                }
                next = found;
            }
            part.offsets.insert(partition, OffsetsRead { next, seen: next });
        }
        Ok(part)
    }
}

/// The keys of events that a follower has not had yet.
#[derive(Default)]
struct Unread {
    keys: HashSet<Vec<u8>>,
    bytes: usize,
    next: BTreeMap<u32, u64>,
}

fn is_same(one: &PartChange, other: &PartChange) -> bool {
    (&one.after, one.time_unix_ms) == (&other.after, other.time_unix_ms)
}

impl Pair {
    fn comparison(&self, comparing: Comparing) -> Result<Comparison<'_>, ApiError> {
        let Comparing { partition, hash, .. } = comparing;
        let compared = match &self.before {
            Some(before) => Comparison::new(before, &self.after, partition, hash, false),
            None => Comparison::with_nothing(&self.after, partition, hash),
        };
        compared.map_err(|error| match error {
            FormatError::NotHeld { .. } => not_here(&self.after.manifest().store),
            error => error.into(),
        })
    }

    /// The keys that differ between the versions.
    fn changes(&self, comparing: Comparing) -> Result<ChangesPart, ApiError> {
        let mut comparison = self.comparison(comparing)?;
        let (begun, mut bytes, mut changes) = (Instant::now(), 0, Vec::new());
        while let Some(found) = comparison.step()? {
            for compared in found {
                let length = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
                bytes += compared.key.len() + length(&compared.before) + length(&compared.after);
                changes.push(change(&compared.key, compared.before, compared.after));
            }
            if bytes >= PART_BYTES || begun.elapsed() >= PART_TIME_MAX {
                break;
            }
        }
        Ok(ChangesPart {
            changes,
            next: comparison.position(),
            ..ChangesPart::default()
        })
    }

    /// The keys whose values differ between the views, from a hash on, and those among `also`.
    fn differing_views(
        &self,
        feeds: &Feeds,
        comparing: Comparing,
        also: &HashSet<Vec<u8>>,
    ) -> Result<ChangesPart, ApiError> {
        let Comparing { partition, hash, .. } = comparing;
        let mut comparison = self.comparison(comparing)?;
        let found = comparison.step()?.unwrap_or_default();
        let mut next = comparison.position();
        let mut keys: BTreeMap<(u64, Vec<u8>), ()> = BTreeMap::new();
        keys.extend(
            found
                .into_iter()
                .map(|compared| ((key_hash(&compared.key), compared.key), ())),
        );
        for feed in feeds.each() {
            let to = PartitionId::new(partition.get() + 1);
            let (with_events, more) = feed.overlay().keys((partition, hash), Some((to, 0)), KEYS_AT_ONCE)?;
            keys.extend(
                with_events
                    .into_iter()
                    .map(|(key, _)| ((key_hash(&key), key.to_vec()), ())),
            );
            if let Some((_, hash)) = more {
                next = Some(next.map_or(hash, |next| next.min(hash)));
            }
        }
        let mut changes = Vec::new();
        let mut bytes = 0;
        for ((at, key), ()) in keys {
            if next.is_some_and(|next| at >= next) {
                break;
            }
            if bytes >= PART_BYTES {
                next = Some(at);
                break;
            }
            let before = match (&self.before, &feeds.of_former) {
                (Some(version), Some(feed)) => view(version, feed, &key)?,
                _ => None,
            };
            let after = view(&self.after, &feeds.of_version, &key)?;
            if before != after || also.contains(&key) {
                let length = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
                bytes += key.len() + length(&before) + length(&after);
                changes.push(change(&key, before, after));
            }
        }
        Ok(ChangesPart {
            changes,
            next,
            ..ChangesPart::default()
        })
    }
}

fn change(key: &[u8], before: Option<Vec<u8>>, after: Option<Vec<u8>>) -> PartChange {
    PartChange {
        key: STANDARD.encode(key),
        before: Some(before.map(|value| STANDARD.encode(value))),
        after: after.map(|value| STANDARD.encode(value)),
        time_unix_ms: None,
        place: [key_hash(key), 0],
        position: None,
    }
}

/// The value of a key in a version with the events on top of it.
fn view(version: &Version, feed: &Feed, key: &[u8]) -> Result<Option<Vec<u8>>, ApiError> {
    match feed.overlay().find(key)? {
        Found::Value(value) => Ok(Some(value.to_vec())),
        Found::Deleted => Ok(None),
        Found::Nothing => Ok(version.get_dated(key)?.map(|(value, _)| value)),
        Found::Unknown | Found::Behind => Err(not_here(&version.manifest().store)),
    }
}
