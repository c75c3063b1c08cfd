//! Fields of values, and scores over them: `FONDACO.MGET … FIELDS` and `FONDACO.MSCORE`. Nodes carry them out over the keys that they
//! have, on threads for computations; keys of versioned stores are read at their quorums first, and computed over here.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_catalog::{Catalog, Setting};
use fondaco_client::read::HeldBudget;
use fondaco_client::{decode_query, encode_query};
use fondaco_resp::{Reply, parse_integer};
use fondaco_schema::{Evaluator, Form, Query, What};

use super::ids::{self, Keys};
use super::look_ups::{Limit, write_late};
use super::{Call, Refusal, SYNTAX_ERROR};
use crate::compute::NoResult;
use crate::compute::fields::{self, Fields};
use crate::forward::{Answers, Steered, StoreVersion, ValueAnswer, Wanted};
use crate::server::refusal;
use crate::server::session::Admission;
use crate::server::versions::{Pinned, place_of};
use crate::server::window::KeyPlace;

/// A query as a client asked it.
struct Asked {
    query: Query,
    /// The arguments that are its keys.
    keys: Range<usize>,
    steered: Steered,
    limit: Limit,
    /// How many keys with the highest scores are answered, if not all.
    top: Option<usize>,
}

/// The elements for keys, and the room that they take until they are sent.
struct Elements {
    each: Vec<ValueAnswer>,
    _room: HeldBudget,
}

/// `FONDACO.MGET [FANOUT groups] [STRATEGY name] [DEADLINE ms [PARTIAL]] FIELDS n field … [AS form] [SCHEMA id] [WHERE …] key …`
pub(super) async fn mget(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let asked = parse_mget(call.arguments)?;
    let elements = find(call, &asked).await?;
    let is_fragment = matches!(asked.query.what, What::Fields { form: Form::Pairs, .. });
    reply.array(elements.each.len() + usize::from(asked.limit.lists_late));
    let mut late = Late::default();
    for (at, element) in elements.each.iter().enumerate() {
        match element {
            Ok(Some(fields)) if is_fragment => reply.buffer.extend_from_slice(fields),
            Ok(Some(fields)) => reply.bulk(fields),
            Ok(None) => reply.null(),
            Err(error) => late.write(at, error, &asked.limit, reply),
        }
    }
    late.end(&asked.limit, reply);
    Ok(())
}

/// `FONDACO.MSCORE what [SCHEMA id] [WHERE …] [TOP k] [FANOUT groups] [STRATEGY name] [DEADLINE ms [PARTIAL]] KEYS key …`
pub(super) async fn mscore(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let asked = parse_mscore(call.arguments)?;
    let elements = find(call, &asked).await?;
    let what = &asked.query.what;
    let mut late = Late::default();
    let Some(count) = asked.top else {
        reply.array(elements.each.len() + usize::from(asked.limit.lists_late));
        for (at, element) in elements.each.iter().enumerate() {
            match element {
                Ok(Some(score)) => write_score(what, score, reply),
                Ok(None) => reply.null(),
                Err(error) => late.write(at, error, &asked.limit, reply),
            }
        }
        late.end(&asked.limit, reply);
        return Ok(());
    };
    let mut scores = Vec::new();
    for (at, element) in elements.each.iter().enumerate() {
        match element {
            Ok(Some(score)) => scores.push((rank(what, score), at)),
            Ok(None) => {}
            Err(error) if asked.limit.lists_late => late.note(at, error),
            // The best could be among those that are missing.
            Err(error) => return Err(error.to_string()),
        }
    }
    scores.retain(|(score, _)| !score.is_nan());
    // Equal scores in the order of their keys.
    scores.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    scores.truncate(count);
    reply.array(2 * scores.len() + usize::from(asked.limit.lists_late));
    for (_, at) in scores {
        reply.bulk(call.arguments[asked.keys.start + at]);
        if let Ok(Some(score)) = &elements.each[at] {
            write_score(what, score, reply);
        }
    }
    late.end(&asked.limit, reply);
    Ok(())
}

/// `FONDACO.COMPUTE envelope store-id version store fields query key …`: an array with an element for each key.
pub(super) async fn compute(
    call: &Call<'_>,
    pinned: &Pinned,
    parameter: &[u8],
    catalog: Arc<Catalog>,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let shared = &call.context.shared;
    let (protocol, query) = decode_query(parameter).map_err(|error| fields::refused(&error))?;
    let keys: Vec<Bytes> = call.arguments[7..]
        .iter()
        .map(|key| Bytes::copy_from_slice(key))
        .collect();
    let bytes_max = shared.settings.get(Setting::ComputeInputBytesMax) as usize;
    let Pinned { store, version, .. } = *pinned;
    let work = async move |stop| {
        let fields = Fields {
            catalog,
            store,
            query,
            protocol,
            bytes_max,
            stop,
        };
        fields.over_version(version, &keys)
    };
    let elements = shared.compute.run(ids::deadline(call, pinned.timeout_ms), work).await;
    let elements = elements.map_err(NoResult::refusal)??;
    reply.array(elements.len() + usize::from(pinned.wants_rate));
    if pinned.wants_rate {
        reply.integer(shared.metrics.request_rate().into());
    }
    for element in elements {
        match element {
            Ok(Some(element)) => reply.bulk(&element),
            Ok(None) => reply.null(),
            Err(error) => reply.error(&error),
        }
    }
    Ok(())
}

fn parse_mget(arguments: &[&[u8]]) -> Result<Asked, Refusal> {
    let (steered, at) = Steered::parse(|at| arguments.get(at).copied(), 1)?;
    let (limit, at) = Limit::parse(|at| arguments.get(at).copied(), at)?;
    let (query, at) = parse_query(arguments, at)?;
    if at == arguments.len() {
        return Err(SYNTAX_ERROR.into());
    }
    Ok(Asked {
        query,
        keys: at..arguments.len(),
        steered: steered.within(limit.deadline_ms),
        limit,
        top: None,
    })
}

fn parse_mscore(arguments: &[&[u8]]) -> Result<Asked, Refusal> {
    let is = |at: usize, word: &str| {
        let argument = arguments.get(at);
        argument.is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    };
    let (query, mut at) = parse_query(arguments, 1)?;
    if let What::Fields { .. } = query.what {
        return Err("ERR FIELDS is no score: use FONDACO.MGET FIELDS".into());
    }
    let mut top = None;
    if is(at, "TOP") {
        let count = arguments.get(at + 1).and_then(|count| parse_integer(count));
        let count = count
            .and_then(|count| usize::try_from(count).ok())
            .filter(|count| *count > 0);
        top = Some(count.ok_or("ERR TOP is how many keys are answered, 1 or more")?);
        at += 2;
        if let What::Hadamard(_) = query.what {
            return Err("ERR HADAMARD has no TOP: its results are vectors".into());
        }
    }
    let (steered, at) = Steered::parse(|at| arguments.get(at).copied(), at)?;
    let (limit, at) = Limit::parse(|at| arguments.get(at).copied(), at)?;
    if !is(at, "KEYS") || at + 1 >= arguments.len() {
        return Err("ERR syntax error: KEYS and the keys are expected at the end".into());
    }
    Ok(Asked {
        query,
        keys: at + 1..arguments.len(),
        steered: steered.within(limit.deadline_ms),
        limit,
        top,
    })
}

fn parse_query(arguments: &[&[u8]], at: usize) -> Result<(Query, usize), Refusal> {
    let parsed = Query::parse(arguments, at).map_err(|error| fields::refused(&error))?;
    parsed.ok_or_else(|| {
        let word = refusal::quoted(arguments.get(at).copied().unwrap_or_default());
        format!("ERR unknown operation {word}: use DOT, COSINE, HADAMARD or COUNT")
    })
}

/// Carries a query out: here over the keys that are here, at other nodes over theirs.
async fn find(call: &Call<'_>, asked: &Asked) -> Result<Elements, Refusal> {
    let (shared, forwarder) = (&call.context.shared, &call.context.forwarder);
    let catalog = Arc::clone(&shared.catalog.load());
    let admission = Admission::new(&catalog, call.session, call.context);
    let Keys { store, keys } = Keys::admit(&call.arguments[asked.keys.clone()], &admission)?;
    let (value_type, schemas) = fields::types(&catalog, store);
    let query = match schemas {
        Some(schemas) => asked.query.clone().with_schema_of(schemas),
        None => Ok(asked.query.clone()),
    };
    let query = query.map_err(|error| fields::refused(&error))?;
    Evaluator::new(&query, value_type, schemas).map_err(|error| fields::refused(&error))?;
    let begin = |stop| Fields {
        catalog: Arc::clone(&catalog),
        store,
        query: query.clone(),
        protocol: call.session.protocol,
        bytes_max: shared.settings.get(Setting::ComputeInputBytesMax) as usize,
        stop,
    };
    let longest = Duration::from_millis(shared.settings.get(Setting::ForwardTimeoutMs));
    let deadline = asked.steered.until.unwrap_or_else(|| Instant::now() + longest);
    let wanted = |places: &[usize]| -> Vec<Wanted<'_>> {
        let wanted = |&at: &usize| Wanted { store, key: &keys[at] };
        places.iter().map(wanted).collect()
    };
    let all: Vec<usize> = (0..keys.len()).collect();
    if catalog.versioned(store).is_some() {
        forwarder.check_room(keys.len())?;
        let read = forwarder.read_versioned(&catalog, &wanted(&all), asked.steered).await;
        let values = read.each.into_iter().map(|answer| answer.value).collect();
        let work = |stop| {
            let fields = begin(stop);
            async move { fields.over_values(values) }
        };
        let each = each(keys.len(), shared.compute.run(deadline, work).await);
        return Ok(Elements { each, _room: read.room });
    }
    let (mut here, mut remote, mut version) = (Vec::new(), Vec::new(), None);
    for (at, key) in keys.iter().enumerate() {
        match place_of(key, store, &catalog)? {
            KeyPlace::Version { version: open, .. } => {
                version = Some(open);
                here.push(at);
            }
            _ => remote.push(at),
        }
    }
    forwarder.check_room(remote.len())?;
    let computation = encode_query(call.session.protocol, &query);
    let ask = async |places: &[usize]| match places {
        [] => Answers::default(),
        places => {
            let keys = wanted(places);
            forwarder
                .compute(&catalog, &keys, computation.clone(), asked.steered)
                .await
        }
    };
    let own = async {
        let Some(version) = version else { return Vec::new() };
        let own: Vec<Bytes> = here.iter().map(|&at| keys[at].clone()).collect();
        let work = |stop| {
            let fields = begin(stop);
            async move { fields.over_version(version, &own) }
        };
        each(here.len(), shared.compute.run(deadline, work).await)
    };
    // The others are asked first, and answer meanwhile.
    let (mut others, mut own) = tokio::join!(biased; ask(&remote), own);
    let current = StoreVersion::current(&catalog, store);
    let mut sources = others.each.iter().filter_map(|answer| answer.source);
    if !here.is_empty() && sources.any(|source| Some(source) != current) {
        // A swap came in between: one version of all keys can be had from other nodes alone.
        others = ask(&all).await;
        (here, remote, own) = (Vec::new(), all, Vec::new());
    }
    let mut elements: Vec<ValueAnswer> = vec![Ok(None); keys.len()];
    let mut room = others.room;
    for (&at, answer) in remote.iter().zip(others.each) {
        elements[at] = answer.value;
    }
    let mut own_room = forwarder.value_room();
    for (&at, element) in here.iter().zip(own) {
        let bytes = element
            .as_ref()
            .map_or(0, |element| element.as_ref().map_or(0, Bytes::len));
        elements[at] = match own_room.take(bytes) {
            Ok(()) => element,
            Err(bytes_max) => Err(refusal::no_room(bytes_max).into()),
        };
    }
    room.join(own_room);
    Ok(Elements {
        each: elements,
        _room: room,
    })
}

/// The elements of keys, or the same error for each.
fn each(keys: usize, done: Result<Result<Vec<ValueAnswer>, String>, NoResult>) -> Vec<ValueAnswer> {
    match done.map_err(NoResult::refusal).flatten() {
        Ok(elements) => elements,
        Err(error) => vec![Err(error.into()); keys],
    }
}

/// The keys without an answer, of a request that lists them.
#[derive(Default)]
struct Late {
    places: Vec<usize>,
    reason: Option<Arc<str>>,
}

impl Late {
    fn note(&mut self, at: usize, error: &Arc<str>) {
        self.places.push(at);
        self.reason.get_or_insert_with(|| Arc::clone(error));
    }

    fn write(&mut self, at: usize, error: &Arc<str>, limit: &Limit, reply: &mut Reply<'_>) {
        match limit.lists_late {
            true => {
                self.note(at, error);
                reply.null();
            }
            false => reply.error(error),
        }
    }

    /// Ends a reply with the late keys, if the request lists them.
    fn end(&self, limit: &Limit, reply: &mut Reply<'_>) {
        if limit.lists_late {
            write_late(self.reason.as_deref(), &self.places, reply);
        }
    }
}

fn number(element: &[u8]) -> u64 {
    element.try_into().map_or(0, u64::from_le_bytes)
}

fn rank(what: &What, element: &[u8]) -> f64 {
    match what {
        What::Count { .. } => number(element) as f64,
        _ => f64::from_bits(number(element)),
    }
}

fn write_score(what: &What, element: &[u8], reply: &mut Reply<'_>) {
    match what {
        What::Count { .. } => reply.integer(number(element) as i64),
        What::Hadamard(_) => reply.bulk(element),
        _ => reply.double(f64::from_bits(number(element))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&[u8]> {
        text.split(' ').map(str::as_bytes).collect()
    }

    #[test]
    fn options_stand_before_the_keys() {
        let asked = parse_mget(&words(
            "FONDACO.MGET FANOUT 2 DEADLINE 50 PARTIAL FIELDS 2 a b AS JSON WHERE a > 5 s:1 s:2",
        ));
        let asked = asked.unwrap();
        assert_eq!(
            (asked.keys, asked.limit.deadline_ms, asked.limit.lists_late),
            (16..18, Some(50), true)
        );
        let text = "FONDACO.MSCORE DOT v VECTOR abcd WHERE a = x AND b < 5 TOP 10 DEADLINE 50 KEYS s:1";
        let asked = parse_mscore(&words(text)).unwrap();
        assert_eq!(
            (asked.keys, asked.top, asked.limit.deadline_ms),
            (18..19, Some(10), Some(50))
        );
        assert_eq!(asked.query.conditions.len(), 2);
    }

    #[test]
    fn malformed_queries_are_refused_by_name() {
        for (text, part) in [
            ("FONDACO.MSCORE SUM v KEYS s:1", "\"SUM\""),
            ("FONDACO.MSCORE DOT v VECTOR abc KEYS s:1", "3 bytes"),
            ("FONDACO.MSCORE DOT v VECTOR abcd s:1", "KEYS"),
            ("FONDACO.MSCORE DOT v VECTOR abcd KEYS", "KEYS"),
            ("FONDACO.MSCORE COUNT v TOP 0 KEYS s:1", "TOP"),
            ("FONDACO.MSCORE COUNT v TOP -1 KEYS s:1", "TOP"),
            ("FONDACO.MSCORE HADAMARD v VECTOR abcd TOP 1 KEYS s:1", "HADAMARD"),
            ("FONDACO.MSCORE FIELDS 1 a KEYS s:1", "FONDACO.MGET"),
            ("FONDACO.MSCORE COUNT v DEADLINE 0 KEYS s:1", "DEADLINE"),
        ] {
            let error = parse_mscore(&words(text)).err().unwrap();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, part) in [
            ("FONDACO.MGET FIELDS 1 a", "syntax"),
            ("FONDACO.MGET FIELDS 1000000 a s:1", "1024"),
            ("FONDACO.MGET FIELDS 1 a WHERE b ~ c s:1", "\"~\""),
        ] {
            let error = parse_mget(&words(text)).err().unwrap();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
