//! `SCAN`: all keys of all stores that the client may read, store by store.
//!
//! A cursor holds a store's number, a partition and the first bits of a hash: a place in the order of
//! hashes, which every version of a store shares. So a scan that meets a swap goes on in the new
//! version, and every key that both versions have is returned at least once.
//!
//! ```text
//! bits  63 … 52   51 … 38     37 … 0
//!       store     partition   first bits of the hash, rounded up
//! ```

use std::sync::Arc;

use fondaco_format::{ScanPosition, Version};
use fondaco_model::PartitionId;
use fondaco_resp::{Reply, glob_matches, parse_integer};

use super::{Call, NOT_AN_INTEGER, Refusal, SYNTAX_ERROR, keyword};
use crate::catalog::{Catalog, ServingStore, StoreId};
use crate::cold::on_a_thread;
use crate::server::window::{failure, no_right, no_store, no_version};

const HASH_BITS: u32 = 38;
const PARTITION_BITS: u32 = 14;
const COUNT_DEFAULT: usize = 10;
const COUNT_MAX: usize = 100_000;

/// What a `SCAN` asks for.
struct Request<'a> {
    cursor: Option<Cursor>,
    pattern: Option<&'a [u8]>,
    count: usize,
    strings_wanted: bool,
}

/// Where a scan goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    store: StoreId,
    position: ScanPosition,
}

impl Cursor {
    fn to_number(self) -> u64 {
        let shift = 64 - HASH_BITS;
        // Rounded up, so that it lies in the bucket that begins here and not in the one before: no
        // version has buckets as narrow as what is cut off.
        let hash = self.position.hash.div_ceil(1 << shift).min((1 << HASH_BITS) - 1);
        u64::from(self.store.get()) << (HASH_BITS + PARTITION_BITS)
            | u64::from(self.position.partition.get()) << HASH_BITS
            | hash
    }

    fn from_number(number: u64) -> Option<Self> {
        let store = StoreId::new((number >> (HASH_BITS + PARTITION_BITS)) as u16)?;
        let partition = PartitionId::new((number >> HASH_BITS) as u32 & ((1 << PARTITION_BITS) - 1));
        let hash = number << (64 - HASH_BITS);
        Some(Self {
            store,
            position: ScanPosition { partition, hash },
        })
    }
}

pub(super) async fn scan(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let request = parse(call.arguments)?;
    let catalog = Arc::clone(&call.context.shared.catalog.load());
    let only = only_store(&request, &catalog, call)?;
    let readable = |store: &&Arc<ServingStore>| match &only {
        Some(only) => store.id == *only,
        None => call.session.may_read(&store.name) && store.version().is_some(),
    };
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut met = 0;
    let mut cursor = request.cursor;
    let next = loop {
        let from = |store: &&Arc<ServingStore>| cursor.is_none_or(|cursor| store.id >= cursor.store);
        let Some(store) = catalog.stores().iter().filter(readable).find(from) else {
            break None;
        };
        let Some(version) = store.version() else { break None };
        let position = match cursor {
            Some(cursor) if cursor.store == store.id => cursor.position,
            _ => ScanPosition::START,
        };
        let (found, following) = keys_from(version, position, request.count - met).await?;
        met += found.len();
        if request.strings_wanted {
            let prefix = store.name.as_str().as_bytes();
            let wire_keys = found.iter().map(|key| [prefix, b":", key].concat());
            keys.extend(
                wire_keys.filter(|key| request.pattern.is_none_or(|pattern| glob_matches(pattern, key, false))),
            );
        }
        let store_after = || {
            catalog
                .stores()
                .iter()
                .filter(readable)
                .find(|other| other.id > store.id)
        };
        cursor = match following {
            Some(position) => Some(Cursor {
                store: store.id,
                position,
            }),
            None => store_after().map(|other| Cursor {
                store: other.id,
                position: ScanPosition::START,
            }),
        };
        if cursor.is_none() || met >= request.count {
            break cursor;
        }
    };
    reply.array(2);
    reply.bulk(next.map_or(0, Cursor::to_number).to_string().as_bytes());
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

async fn keys_from(
    version: &Arc<Version>,
    position: ScanPosition,
    count: usize,
) -> Result<(Vec<Vec<u8>>, Option<ScanPosition>), Refusal> {
    let version = Arc::clone(version);
    let (records, next) = on_a_thread(move || version.scan_from(position, count))
        .await
        .map_err(|error| failure(&error))?;
    Ok((records.into_iter().map(|(key, _)| key).collect(), next))
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

/// The store that a pattern confines the scan to, if it begins with a plain name and a colon.
fn only_store(request: &Request<'_>, catalog: &Catalog, call: &Call<'_>) -> Result<Option<StoreId>, Refusal> {
    let Some(pattern) = request.pattern else {
        return Ok(None);
    };
    let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\' | b':');
    let Some(end) = pattern.iter().position(special).filter(|&end| pattern[end] == b':') else {
        return Ok(None);
    };
    let name = &pattern[..end];
    let place = catalog.store_on_wire(name).ok_or_else(|| no_store(name))?;
    let store = &catalog.stores()[place as usize];
    if !call.session.may_read(&store.name) {
        return Err(no_right(store));
    }
    if store.version().is_none() {
        return Err(no_version(store));
    }
    Ok(Some(store.id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_comes_back_a_little_further_on(store in 1..=StoreId::MAX, partition in 0..16384u32, hash in 0..u64::MAX - (1 << 27)) {
            let cursor = Cursor {
                store: StoreId::new(store).unwrap(),
                position: ScanPosition { partition: PartitionId::new(partition), hash },
            };
            let back = Cursor::from_number(cursor.to_number()).unwrap();
            prop_assert_eq!((back.store, back.position.partition), (cursor.store, cursor.position.partition));
            prop_assert!(back.position.hash >= hash && back.position.hash - hash < 1 << 26);
        }
    }
}
