//! `FONDACO.GRAPH COMMON IDS` and `HASCOMMON IDS`, answered by the event loop: both lists are looked up like any key, here or at the
//! nodes that have them, and intersected. On the threads for computations, here and there, waking the threads takes several times
//! as long as the question.
//!
//! Long lists are intersected on those threads all the same, so that other clients do not wait. A question that is not usual is
//! left to them as a whole: of a graph that changes, of a type with an index, while versions change, of lists on the disk, and if a
//! node does not answer.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::Bytes;
use fondaco_catalog::{Catalog, StoreId};
use fondaco_format::Lookup;
use fondaco_graph::Relation;
use fondaco_ids::{Budget, IdSet, intersection};
use fondaco_model::StoreKind;

use crate::compute::{Limits, NoResult, Stop, refused};
use crate::forward::{Steered, StoreVersion, Wanted};
use crate::graph::{Answered, Listed, Operation, Question, id_of, limited};
use crate::server::ServerState;
use crate::server::commands::{Call, Refusal};
use crate::server::versions::place_of;
use crate::server::window::KeyPlace;

/// The most ids of two lists that the event loop intersects itself: some 50 µs.
const IDS_MAX: usize = 4096;

/// The lists of two vertices; `None` of a vertex without any.
type Lists = [Option<Bytes>; 2];

/// The answer; `None` if the question is left to the threads for computations.
pub(super) async fn answer(
    call: &Call<'_>,
    store: StoreId,
    question: &Question,
    deadline: Instant,
) -> Option<Result<Answered, Refusal>> {
    let is_common = matches!(question.operation, Operation::Common | Operation::HasCommon);
    if !is_common || !question.as_ids || question.explain {
        return None;
    }
    let shared = &call.context.shared;
    let catalog = Arc::clone(&shared.catalog.load());
    let place = catalog.stores().iter().position(|known| known.id == store)? as u16;
    let version = StoreVersion::current(&catalog, place)?;
    let keys = keys(shared, &catalog, (place, version), question)?;
    let lists = lists(call, &catalog, (place, version), &keys, deadline).await?;
    let metrics = &shared.metrics.graphs;
    metrics.queries.fetch_add(1, Relaxed);
    let answered = common(shared, lists, deadline)
        .await
        .and_then(|ids| match question.operation {
            Operation::HasCommon => Ok(Answered::Flag(!ids.is_empty())),
            _ => Ok(Answered::Vertices(Some(Listed::Ids(limited(ids, question)?)))),
        });
    metrics.failures.fetch_add(answered.is_err().into(), Relaxed);
    Some(answered)
}

/// The keys of both lists.
fn keys(
    shared: &ServerState,
    catalog: &Catalog,
    (place, version): (u16, StoreVersion),
    question: &Question,
) -> Option<[Bytes; 2]> {
    if catalog.stores()[place as usize].kind != StoreKind::Batch {
        return None;
    }
    let description = shared.graphs.described(version)?;
    let relation = Relation::of(&description, &question.edge_type, question.direction).ok()?;
    match &question.vertices[..] {
        [one, other] if !relation.edge_type.indexed => Some([relation.key(id_of(one)?), relation.key(id_of(other)?)]),
        _ => None,
    }
}

/// Looks both lists up, in one version.
async fn lists(
    call: &Call<'_>,
    catalog: &Catalog,
    (place, version): (u16, StoreVersion),
    keys: &[Bytes; 2],
    deadline: Instant,
) -> Option<Lists> {
    let mut lists = Lists::default();
    let mut remote = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        let KeyPlace::Version { version, probe } = place_of(key, place, catalog).ok()? else {
            remote.push(at);
            continue;
        };
        lists[at] = match catalog.version(version).lookup(&probe, key).ok()? {
            Lookup::Absent => None,
            Lookup::Cold(_) => return None,
            Lookup::Found(value) => {
                let list = Bytes::copy_from_slice(&value);
                if !value.is_intact() {
                    return None;
                }
                Some(list)
            }
        };
    }
    if !remote.is_empty() {
        let forwarder = &call.context.forwarder;
        forwarder.check_room(remote.len()).ok()?;
        let wanted = |&at: &usize| Wanted {
            store: place,
            key: &keys[at],
        };
        let wanted: Vec<Wanted<'_>> = remote.iter().map(wanted).collect();
        let left = deadline.saturating_duration_since(Instant::now());
        let steered = Steered::default().within(Some(left.as_millis() as u64));
        let answers = forwarder.read(catalog, &wanted, steered).await;
        for (at, answer) in remote.into_iter().zip(answers.each) {
            if answer.source != Some(version) {
                return None;
            }
            lists[at] = answer.value.ok()?;
        }
    }
    let bytes: usize = lists.iter().flatten().map(Bytes::len).sum();
    (bytes <= Limits::of(&call.context.shared).input_bytes_max).then_some(lists)
}

/// The ids that are in both lists.
async fn common(shared: &ServerState, [one, other]: Lists, deadline: Instant) -> Result<Vec<u64>, Refusal> {
    let (Some(one), Some(other)) = (one, other) else {
        return Ok(Vec::new());
    };
    let ids_max = Limits::of(shared).ids_max;
    let ids = |list: &Bytes| IdSet::open(list).map_or(0, |set| set.len());
    if ids(&one) + ids(&other) <= IDS_MAX {
        return in_both(&one, &other, &mut Budget::of_ids(ids_max));
    }
    let work = move |stop: Stop| async move {
        let mut may_go_on = || stop.may_go_on();
        in_both(&one, &other, &mut Budget::new(ids_max, &mut may_go_on))
    };
    shared.compute.run(deadline, work).await.map_err(NoResult::refusal)?
}

fn in_both(one: &[u8], other: &[u8], budget: &mut Budget<'_>) -> Result<Vec<u64>, Refusal> {
    let sets = [IdSet::open(one).map_err(refused)?, IdSet::open(other).map_err(refused)?];
    intersection(&sets, budget).map_err(refused)
}
