//! `SCAN`: all keys of all stores that the client may read, store by store.
//!
//! A [cursor](Cursor) says where it goes on.
//!
//! Of versioned stores the records of one replica of each partition are listed, by the hash of the key: what the
//! replica has yet to hear of is missing, and deleted keys are not shown.
//!
//! Partitions that are not held here are listed by nodes that hold them, with `FONDACO.SCAN`. A client
//! that knows of slots scans every node, so it is given of each only the partitions that this node leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_catalog::{Catalog, NOT_OPEN, StoreId};
use fondaco_format::{ScanPosition, Version, key_hash};
use fondaco_model::{PartitionCount, PartitionId, SlotPrefix, StoreName, VersionNumber};
use fondaco_protocol::replica::ReplicaErrorCode;
use fondaco_resp::{Protocol, Reply, glob_matches, parse_integer};
use fondaco_stream::Overlay;

use super::scan_cursor::{Cursor, HASH_BITS};
use super::{Call, NOT_AN_INTEGER, Refusal, SYNTAX_ERROR, keyword};
use crate::server::refusal::{failure, no_version, version_gone};

/// The code of a refusal to count by another number of partitions than there are.
const OTHER_COUNT: &str = ReplicaErrorCode::OldTable.as_str();
/// After a split all nodes know of it within this time.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
const KNOWN_PAUSE: Duration = Duration::from_millis(20);
const COUNT_DEFAULT: usize = 10;
/// More keys are compared and encoded on another thread than the event loop's.
const FEW: usize = 50;
const COUNT_MAX: usize = 100_000;
/// How many bytes of keys a `SCAN` finds, about: then it ends, with fewer than were asked for.
const FOUND_BYTES_MAX: usize = 4 << 20;
/// How many times other nodes are asked for one `SCAN`: then it ends, with few keys or none.
const ASKED_MAX: usize = 16;

/// The arguments of a `SCAN`.
struct Request<'a> {
    cursor: Option<Cursor>,
    pattern: Option<&'a [u8]>,
    count: usize,
    strings_wanted: bool,
}

/// Keys, and where to go on in their store; `None` at its end.
pub(super) type Listed = (Vec<Vec<u8>>, Option<ScanPosition>);

pub(super) async fn scan(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let request = parse(call.arguments)?;
    let (next, shown) = once_all_know(|| scan_from(call, &request)).await?;
    reply.array(2);
    reply.bulk(next.map_or(0, Cursor::to_number).to_string().as_bytes());
    reply.array(shown.keys);
    reply.buffer.extend_from_slice(&shown.encoded);
    Ok(())
}

/// Tries again for a while if a node refuses because it, or this one, has yet to hear that partitions were split.
pub(super) async fn once_all_know<T>(try_it: impl AsyncFn() -> Result<T, Refusal>) -> Result<T, Refusal> {
    let deadline = Instant::now() + KNOWN_WITHIN;
    loop {
        match try_it().await {
            Err(error) if error.contains(OTHER_COUNT) && Instant::now() < deadline => {
                tokio::time::sleep(KNOWN_PAUSE).await;
            }
            done => return done,
        }
    }
}

/// Where to go on, and the keys from the cursor on.
async fn scan_from(call: &Call<'_>, request: &Request<'_>) -> Result<(Option<Cursor>, Shown), Refusal> {
    let catalog = Arc::clone(&call.context.shared.catalog.load());
    let confined = confined(request, &catalog, call)?;
    let default_store = default_store(&catalog, call);
    let readable = |store: StoreId, place: u16| match confined {
        Confined::Nowhere => false,
        Confined::Store(only) => store == only,
        Confined::Not => {
            let name = &catalog.stores()[place as usize].name;
            let has_keys = catalog.current_number(place).is_some() || catalog.versioned(place).is_some();
            call.session.may_read(name) && has_keys
        }
    };
    let places: Vec<(StoreId, u16)> = catalog.stores().iter().map(|store| store.id).zip(0..).collect();
    let next_store = |from: u16| {
        places
            .iter()
            .find(|&&(id, at)| id.get() >= from && readable(id, at))
            .copied()
    };
    let mut shown = Shown::default();
    let (mut met, mut met_bytes, mut asked) = (0, 0, 0);
    let mut cursor = request.cursor;
    let next = loop {
        let Some((store, place)) = next_store(cursor.map_or(1, |cursor| cursor.store.get())) else {
            break None;
        };
        let walk = Walk {
            call,
            catalog: &catalog,
            store: place,
        };
        let partitions = walk.count();
        let position = match cursor {
            Some(cursor) if cursor.store == store => cursor.position_among(partitions),
            _ => ScanPosition::START,
        };
        let (found, following) = walk.from(position, request.count - met, &mut asked).await?;
        // Many keys may have been deleted.
        asked += usize::from(found.is_empty());
        met += found.len();
        met_bytes += found.iter().map(Vec::len).sum::<usize>();
        if request.strings_wanted {
            let filter = Filter {
                store: catalog.stores()[place as usize].name.clone(),
                is_default: default_store == Some(store),
                pattern: request.pattern.map(<[u8]>::to_vec),
            };
            shown = match found.len() > FEW {
                true => blocking(move || Ok(filter.show(&found, shown))).await?,
                false => filter.show(&found, shown),
            };
        }
        cursor = match following {
            Some(position) => Some(Cursor {
                store,
                partitions,
                position,
            }),
            None => next_store(store.get() + 1).map(|(store, _)| Cursor::start_of(store)),
        };
        let is_enough = met >= request.count || met_bytes >= FOUND_BYTES_MAX || asked >= ASKED_MAX;
        if cursor.is_none() || is_enough {
            break cursor;
        }
    };
    Ok((next, shown))
}

/// The keys of a reply.
#[derive(Default)]
struct Shown {
    keys: usize,
    /// The keys, as elements of an array.
    encoded: Vec<u8>,
}

/// Whether a client sees the keys of a store.
struct Filter {
    store: StoreName,
    /// Clients write keys of the default store without its name.
    is_default: bool,
    pattern: Option<Vec<u8>>,
}

impl Filter {
    fn matches(&self, wire_key: &[u8], name_bytes: usize) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| {
            glob_matches(pattern, wire_key, false)
                || self.is_default && glob_matches(pattern, &wire_key[name_bytes..], false)
        })
    }

    /// Adds the keys that match, as clients write them.
    fn show(&self, keys: &[Vec<u8>], mut shown: Shown) -> Shown {
        let name_bytes = self.store.as_str().len() + 1;
        let mut reply = Reply::new(&mut shown.encoded, Protocol::Resp2);
        let mut wire_key = format!("{}:", self.store).into_bytes();
        for key in keys {
            wire_key.truncate(name_bytes);
            wire_key.extend_from_slice(key);
            if self.matches(&wire_key, name_bytes) {
                reply.bulk(&wire_key);
                shown.keys += 1;
            }
        }
        shown
    }
}

/// Calls a function on a thread that may wait for the disk.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(call).await;
    done.map_err(|error| format!("ERR the scan did not end: {error}"))?
}

/// `FONDACO.SCAN store partitions partition hash count`: where to go on in the partition of this many, or null at its end,
/// and keys.
pub(super) async fn scan_partition(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let [_, name, partitions, partition, hash, count] = call.arguments else {
        return Err(SYNTAX_ERROR.into());
    };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let (Some(partition), Some(hash), Some(count)) = (number(partition), number(hash), number(count)) else {
        return Err(NOT_AN_INTEGER.into());
    };
    let catalog = Arc::clone(&call.context.shared.catalog.load());
    let store = call.session.readable_store(&catalog, name)?;
    let partition = PartitionId::new(u32::try_from(partition).map_err(|_| NOT_AN_INTEGER)?);
    let partitions = number(partitions).and_then(|number| u32::try_from(number).ok());
    let partitions = partitions.and_then(|number| PartitionCount::try_from(number).ok());
    let partitions = partitions.ok_or("ERR the number of partitions is a power of two, 16384 at most")?;
    let position = ScanPosition { partition, hash };
    let walk = Walk {
        call,
        catalog: &catalog,
        store,
    };
    if walk.partitions() != Some(partitions) {
        return Err(format!(
            "{OTHER_COUNT} this node does not know of {partitions} partitions: ask again in a moment"
        ));
    }
    let count = count.clamp(1, COUNT_MAX as u64) as usize;
    let not_here = || format!("NOTHERE partition {partition} is not held here");
    let (keys, next) = match (catalog.versioned(store), catalog.current(store)) {
        (Some(versioned), _) => {
            let listed = keys_of_replica(call, versioned.id, partitions, position, count).await?;
            listed.ok_or_else(not_here)?
        }
        (None, NOT_OPEN) => return Err(version_gone(&catalog, store, None::<VersionNumber>)),
        (None, _) => walk.here(position, count).await?.ok_or_else(not_here)?,
    };
    reply.array(2);
    match next.filter(|next| next.partition == partition) {
        Some(next) => reply.bulk(next.hash.to_string().as_bytes()),
        None => reply.null(),
    }
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

/// A walk through the partitions of one store.
pub(super) struct Walk<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) catalog: &'a Catalog,
    /// The place of the store.
    pub(super) store: u16,
}

impl Walk<'_> {
    pub(super) fn store_name(&self) -> &StoreName {
        &self.catalog.stores()[self.store as usize].name
    }

    /// The next keys from a position on, of this node or of another one.
    pub(super) async fn from(
        &self,
        position: ScanPosition,
        count: usize,
        asked: &mut usize,
    ) -> Result<Listed, Refusal> {
        let partition = position.partition;
        if !self.is_wanted(partition) {
            return Ok((Vec::new(), self.start_of(partition.get() + 1)));
        }
        if let Some(versioned) = self.catalog.versioned(self.store)
            && let Some((keys, next)) = keys_of_replica(self.call, versioned.id, self.count(), position, count).await?
        {
            return Ok((keys, next.or_else(|| self.start_of(partition.get() + 1))));
        }
        if let Some((version, overlay)) = self.holder(partition) {
            let partitions = self.count_for(version);
            let later = partition.get() + 1..partitions.get();
            let end = later.clone().find(|&other| {
                let other = PartitionId::new(other);
                self.holder(other).is_none() || !self.is_wanted(other)
            });
            let end = PartitionId::new(end.unwrap_or(later.end));
            let (keys, next) = keys_between(version, overlay, partitions, position, end, count).await?;
            return Ok((keys, next.or_else(|| self.start_of(end.get()))));
        }
        *asked += 1;
        let forwarder = &self.call.context.forwarder;
        let (keys, hash) = forwarder.scan(self.catalog, self.store, position, count).await?;
        let next = match hash {
            Some(hash) => Some(ScanPosition { partition, hash }),
            None => self.start_of(partition.get() + 1),
        };
        Ok((keys, next))
    }

    /// The next keys of one partition from a position on, of this node alone; `None` if it does not have the partition.
    pub(super) async fn here(&self, position: ScanPosition, count: usize) -> Result<Option<Listed>, Refusal> {
        let partition = position.partition;
        if let Some(versioned) = self.catalog.versioned(self.store) {
            return keys_of_replica(self.call, versioned.id, self.count(), position, count).await;
        }
        let Some((version, overlay)) = self.holder(partition) else {
            return Ok(None);
        };
        let end = PartitionId::new(partition.get() + 1);
        let partitions = self.count_for(version);
        keys_between(version, overlay, partitions, position, end, count)
            .await
            .map(Some)
    }

    /// The current version with its later events, if it is open here with this partition.
    fn holder(&self, partition: PartitionId) -> Option<(&Arc<Version>, Option<&Arc<Overlay>>)> {
        let place = self.catalog.current(self.store);
        let version = (place != NOT_OPEN).then(|| self.catalog.version(place))?;
        // Without a cluster there is no other node to ask.
        let is_held = holds(version, self.count_for(version), partition);
        let overlay = self.catalog.overlay(place);
        let built_for = version.manifest().partitions;
        let covering = || built_for.covering(partition, self.count_for(version));
        let is_ready = overlay.is_none_or(|overlay| overlay.ready().contains(covering()));
        let is_alone = self.catalog.membership().is_none();
        (is_held && is_ready || is_alone).then_some((version, overlay))
    }

    /// How many partitions there are, if a version of the store is open.
    fn count_for(&self, version: &Version) -> PartitionCount {
        let membership = self.catalog.membership();
        membership.map_or(version.manifest().partitions, |membership| {
            membership.topology().partitions
        })
    }

    /// Whether the client wants a partition of this node.
    fn is_wanted(&self, partition: PartitionId) -> bool {
        match self.catalog.membership() {
            Some(membership) if self.call.session.follows_slots && !membership.is_router() => {
                membership.leads(partition)
            }
            _ => true,
        }
    }

    /// How many partitions there are; `None` if there is no cluster, and the store has no version here.
    pub(super) fn partitions(&self) -> Option<PartitionCount> {
        let place = self.catalog.current(self.store);
        match self.catalog.membership() {
            Some(membership) => Some(membership.topology().partitions),
            None if place == NOT_OPEN => None,
            None => Some(self.catalog.version(place).manifest().partitions),
        }
    }

    /// How many partitions there are; one without a cluster.
    fn count(&self) -> PartitionCount {
        self.partitions().unwrap_or(PartitionCount::ONE)
    }

    fn start_of(&self, partition: u32) -> Option<ScanPosition> {
        (partition < self.partitions()?.get()).then_some(ScanPosition {
            partition: PartitionId::new(partition),
            hash: 0,
        })
    }
}

/// Whether a version holds a partition of this many: if it was built for fewer, the one that has all its keys.
fn holds(version: &Version, partitions: PartitionCount, partition: PartitionId) -> bool {
    version.holds(version.manifest().partitions.covering(partition, partitions))
}

/// Keys of a version from a position among this many partitions on, none of the partition `end` or a later one; and where to
/// go on, if that is before the partition.
async fn keys_between(
    version: &Arc<Version>,
    overlay: Option<&Arc<Overlay>>,
    partitions: PartitionCount,
    position: ScanPosition,
    end: PartitionId,
    count: usize,
) -> Result<Listed, Refusal> {
    let (version, overlay) = (Arc::clone(version), overlay.cloned());
    blocking(move || {
        let built_for = version.manifest().partitions;
        let own = ScanPosition {
            partition: built_for.covering(position.partition, partitions),
            ..position
        };
        let listed = version.keys_from(own, count).map_err(|error| failure(&error))?;
        let (keys, next) = match &overlay {
            None => listed,
            Some(overlay) => with_events(&version, overlay, own, listed, count)?,
        };
        let slots = SlotPrefix::of(&version.manifest().store);
        let keys = keys.into_iter();
        let of = |key: &[u8]| slots.slot(key);
        if built_for == partitions {
            let keys = keys.take_while(|key| partitions.partition_of(of(key)) < end);
            return Ok::<Listed, Refusal>((keys.collect(), next.filter(|next| next.partition < end)));
        }
        // Its partition has keys of several, in the order of their hashes.
        let keys = keys.take_while(|key| built_for.partition_of(of(key)) == own.partition);
        let keys = keys.filter(|key| partitions.partition_of(of(key)) == position.partition);
        let next = match next.filter(|next| next.partition == own.partition) {
            Some(next) => ScanPosition {
                partition: position.partition,
                ..next
            },
            None => ScanPosition {
                partition: PartitionId::new(position.partition.get() + 1),
                hash: 0,
            },
        };
        Ok((keys.collect(), Some(next).filter(|next| next.partition < end)))
    })
    .await
}

/// The keys of a version with later events, given those of the version from a position on, in the same order.
fn with_events(
    version: &Version,
    overlay: &Overlay,
    from: ScanPosition,
    (keys, next): Listed,
    count: usize,
) -> Result<Listed, Refusal> {
    let to = next.map(|next| (next.partition, next.hash));
    // A cursor may have been rounded up; and the version lists what is before the position in the same bucket.
    let start = (from.partition, from.hash.saturating_sub((1 << (64 - HASH_BITS)) - 1));
    let changed = overlay.keys(start, to, count);
    let (changed, sooner) = changed.map_err(|error| format!("CORRUPT {error}"))?;
    let end = sooner.or(to);
    let slots = SlotPrefix::of(&version.manifest().store);
    let place = |key: &[u8]| {
        (
            version.manifest().partitions.partition_of(slots.slot(key)),
            key_hash(key),
        )
    };
    let changes: BTreeMap<&[u8], bool> = changed.iter().map(|(key, has_value)| (&key[..], *has_value)).collect();
    let unchanged = keys.iter().map(Vec::as_slice).filter(|key| !changes.contains_key(key));
    let with_values = changes.iter().filter(|(_, has_value)| **has_value);
    let all = unchanged.chain(with_values.map(|(key, _)| *key));
    let mut all: Vec<_> = all.map(|key| (place(key), key)).collect();
    all.retain(|(place, _)| *place >= start && end.is_none_or(|end| *place < end));
    all.sort_unstable();
    let next = end.map(|(partition, hash)| ScanPosition { partition, hash });
    Ok((all.into_iter().map(|(_, key)| key.to_vec()).collect(), next))
}

/// Keys of a partition of a versioned store from a position on, as this node's replica has them, and where to
/// go on in the partition; `None` if it has none.
async fn keys_of_replica(
    call: &Call<'_>,
    store: StoreId,
    partitions: PartitionCount,
    position: ScanPosition,
    count: usize,
) -> Result<Option<Listed>, Refusal> {
    let Some(replicas) = call.context.shared.config.replicas.clone() else {
        return Ok(None);
    };
    let ScanPosition { partition, hash } = position;
    let of = (partitions, partition);
    let listed = blocking(move || replicas.keys_from(store.get(), of, hash, count)).await?;
    let Some((keys, next)) = listed else { return Ok(None) };
    let keys = keys.into_iter().map(Vec::from).collect();
    Ok(Some((keys, next.map(|hash| ScanPosition { partition, hash }))))
}

fn parse<'a>(arguments: &[&'a [u8]]) -> Result<Request<'a>, Refusal> {
    let number = std::str::from_utf8(arguments[1])
        .ok()
        .and_then(|text| text.parse().ok());
    let number: u64 = number.ok_or("ERR invalid cursor")?;
    let mut request = Request {
        cursor: match number {
            0 => None,
            _ => Some(Cursor::from_number(number).ok_or("ERR invalid cursor")?),
        },
        pattern: None,
        count: COUNT_DEFAULT,
        strings_wanted: true,
    };
    let options = arguments[2..].chunks_exact(2);
    if !options.remainder().is_empty() {
        return Err(SYNTAX_ERROR.into());
    }
    for option in options {
        match keyword(option[0]).as_str() {
            "MATCH" => request.pattern = Some(option[1]),
            "COUNT" => match parse_integer(option[1]) {
                Some(count @ 1..) => request.count = (count as usize).min(COUNT_MAX),
                Some(_) => return Err(SYNTAX_ERROR.into()),
                None => return Err(NOT_AN_INTEGER.into()),
            },
            "TYPE" => request.strings_wanted = keyword(option[1]) == "STRING",
            _ => return Err(SYNTAX_ERROR.into()),
        }
    }
    Ok(request)
}

/// The stores that a pattern confines a scan to.
#[derive(Clone, Copy)]
enum Confined {
    Not,
    Store(StoreId),
    /// It begins with a name that no store has, so that it matches no key.
    Nowhere,
}

fn confined(request: &Request<'_>, catalog: &Catalog, call: &Call<'_>) -> Result<Confined, Refusal> {
    let Some(pattern) = request.pattern else {
        return Ok(Confined::Not);
    };
    let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\' | b':');
    let Some(end) = pattern.iter().position(special).filter(|&end| pattern[end] == b':') else {
        return Ok(Confined::Not);
    };
    let place = match call.session.readable_store(catalog, &pattern[..end]) {
        Ok(place) => place,
        Err(refusal) => {
            return match default_store(catalog, call) {
                Some(default) => Ok(Confined::Store(default)),
                None if refusal.starts_with("NOSTORE") => Ok(Confined::Nowhere),
                None => Err(refusal),
            };
        }
    };
    let store = &catalog.stores()[place as usize];
    if catalog.current_number(place).is_none() && catalog.versioned(place).is_none() {
        return Err(no_version(store));
    }
    Ok(Confined::Store(store.id))
}

/// The default store of the process, if it is there, and the client may read it.
fn default_store(catalog: &Catalog, call: &Call<'_>) -> Option<StoreId> {
    let name = call.context.shared.config.default_store.as_ref()?;
    let place = call.session.readable_store(catalog, name.as_str().as_bytes()).ok()?;
    Some(catalog.stores()[place as usize].id)
}
