//! Reads of sets whose members are records of their own: a scan of the range that they are in.

use std::time::Instant;

use fondaco_ids::Members;
use fondaco_model::member;
use fondaco_model::versioned::{Record, Resolution, resolve};
use fondaco_protocol::replica::{Held, ReplicaError, ReplicaErrorCode};

use crate::reads::scanning::{Found, RECORD_WIDTH, ReadableScan};
use crate::shared::Shared;
use crate::store::{HeldStore, Place};
use crate::table_key::{parse_record_key, range_of_set};
use crate::writes::commit::engine_error;

/// The most members of one set that are read.
const MEMBERS_MAX: usize = 1 << 24;

/// After this many records, the time is looked at.
const RECORDS_BETWEEN_CHECKS: usize = 1 << 10;

/// The members of the set with this key; nothing, if it never had any.
///
/// # Errors
/// `CORRUPT`: a record among them cannot be read, so that another replica is to be asked; `TIMEOUT`, or the error of the engine.
pub(super) fn read(
    shared: &Shared,
    store: &HeldStore,
    place: &Place,
    deadline: Option<Instant>,
) -> Result<Held, ReplicaError> {
    let failed = |error| engine_error(shared, &error);
    let (from, to) = range_of_set(store.slot(&place.key), &place.key);
    let now_unix_ms = shared.host.unix_ms();
    let (mut present, mut removed) = (Vec::new(), Vec::new());
    let scan = ReadableScan::begin(&store.table, &from, to.as_deref(), RECORD_WIDTH).map_err(failed)?;
    for (number, found) in scan.enumerate() {
        if number % RECORDS_BETWEEN_CHECKS == 0 && deadline.is_some_and(|deadline| deadline <= shared.host.now()) {
            let message = "the request timed out while a set was read: request fewer sets at a time";
            return Err(ReplicaError::new(ReplicaErrorCode::Timeout, message));
        }
        let (table_key, record) = match found.map_err(failed)? {
            Found::Record(table_key, record) => (table_key, record),
            Found::Damaged(_, error) => return Err(failed(error)),
            Found::Gap(gap) => return Err(failed(gap.error)),
        };
        let Some((_, key)) = parse_record_key(&table_key) else {
            continue;
        };
        let Some((_, id)) = member::parse(&key).filter(|(set, _)| *set == &place.key[..]) else {
            continue;
        };
        let record = Record::decode(record)
            .map_err(|error| ReplicaError::new(ReplicaErrorCode::Corrupt, format!("member {id}: {error}")))?;
        match resolve(&record, Resolution::Latest, now_unix_ms).value() {
            Some(_) => present.push(id),
            None => removed.push(id),
        }
        if present.len() + removed.len() > MEMBERS_MAX {
            let message = format!("the set has more than {MEMBERS_MAX} members");
            return Err(ReplicaError::new(ReplicaErrorCode::Other, message));
        }
    }
    if present.is_empty() && removed.is_empty() {
        return Ok(Held::Nothing);
    }
    present.sort_unstable();
    removed.sort_unstable();
    let members = Members { present, removed }.to_bytes();
    let members = members.map_err(|error| ReplicaError::new(ReplicaErrorCode::Other, error.to_string()))?;
    Ok(Held::Record(members.into()))
}
