//! `XREAD`: follows the changes of a store. Its entries have the form of Redis' streams, with positions as their ids, so that clients of Redis
//! read them. A position is longer than an id of Redis: it covers all partitions.

use std::sync::Arc;
use std::time::Duration;

use fondaco_resp::{Protocol, Reply, parse_integer};

use super::{Call, NOT_AN_INTEGER, Refusal, SYNTAX_ERROR, keyword};
use crate::changes::{ChangesWanted, FollowedChange};

/// How many changes are answered unless the client says so, and at most.
const COUNT_DEFAULT: usize = 1000;
const COUNT_MAX: usize = 10_000;

/// How long a client is blocked at most: a client that is gone is noticed only then.
const BLOCK_MAX: Duration = Duration::from_secs(60);

/// The id of an entry after which the client cannot continue: only after the last one of the reply.
const NO_POSITION: &[u8] = b"-";

/// `XREAD [COUNT count] [BLOCK milliseconds] STREAMS store position`.
pub(super) async fn read(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (name, wanted) = parse(call)?;
    let catalog = Arc::clone(&call.context.shared.catalog.load());
    let place = call.session.readable_store(&catalog, name)?;
    // The quota is checked before, and charged once it is known with how much.
    call.context.forwarder.charge(&catalog, place, 0)?;
    let store = catalog.stores()[place as usize].name.clone();
    let changes = call.context.shared.config.changes.as_ref();
    let changes = changes.ok_or("ERR this process follows no stores: ask a node or a router with a control port")?;
    let found = changes.read(ChangesWanted { store, ..wanted }).await?;
    // Charged after the changes were read, so that what exceeds the quota delays the next request.
    let _ = call.context.forwarder.charge(&catalog, place, found.len());
    write(name, &found, call.session.protocol, reply);
    Ok(())
}

/// The name of the store, and what is wanted of it.
fn parse<'a>(call: &Call<'a>) -> Result<(&'a [u8], ChangesWanted), Refusal> {
    let (mut count, mut wait) = (COUNT_DEFAULT, Duration::ZERO);
    let mut rest = &call.arguments[1..];
    loop {
        let [option, value, others @ ..] = rest else {
            return Err(SYNTAX_ERROR.into());
        };
        let number = || parse_integer(value).and_then(|number| u64::try_from(number).ok());
        match &*keyword(option) {
            "COUNT" => {
                let given = number().ok_or(NOT_AN_INTEGER)?;
                // As Redis: 0 is no limit.
                count = match usize::try_from(given).unwrap_or(usize::MAX) {
                    0 => COUNT_MAX,
                    count => count.min(COUNT_MAX),
                };
            }
            "BLOCK" => {
                let block_ms = number().ok_or("ERR timeout is not an integer or out of range")?;
                wait = match block_ms {
                    0 => BLOCK_MAX,
                    block_ms => Duration::from_millis(block_ms).min(BLOCK_MAX),
                };
            }
            "STREAMS" => break,
            _ => return Err(SYNTAX_ERROR.into()),
        }
        rest = others;
    }
    match rest {
        [_, name, position] => {
            let from = String::from_utf8_lossy(position).into_owned();
            // The caller knows the store.
            let store = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            let store = store.ok_or_else(|| crate::server::refusal::no_store(name))?;
            Ok((
                name,
                ChangesWanted {
                    store,
                    from,
                    count,
                    wait,
                },
            ))
        }
        [_, others @ ..] if !others.is_empty() && others.len() % 2 == 0 => {
            Err("ERR XREAD follows one store at a time: use a connection for each".into())
        }
        _ => Err("ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.".into()),
    }
}

fn write(name: &[u8], changes: &[FollowedChange], protocol: Protocol, reply: &mut Reply<'_>) {
    if changes.is_empty() {
        return reply.null_array();
    }
    match protocol {
        Protocol::Resp2 => {
            reply.array(1);
            reply.array(2);
        }
        Protocol::Resp3 => reply.map(1),
    }
    reply.bulk(name);
    reply.array(changes.len());
    for change in changes {
        reply.array(2);
        reply.bulk(match change.position.as_bytes() {
            b"" => NO_POSITION,
            position => position,
        });
        let operation: &[u8] = match (&change.key[..], &change.after) {
            ([], _) => b"version",
            (_, Some(_)) => b"set",
            (_, None) => b"delete",
        };
        let version = change.version.to_string();
        let time = change.time_unix_ms.map(|time_unix_ms| time_unix_ms.to_string());
        let before = change.before.as_ref().and_then(Option::as_ref);
        let fields = [
            ("operation", Some(operation)),
            ("key", Some(&change.key[..]).filter(|key| !key.is_empty())),
            ("before", before.map(|before| &before[..])),
            ("after", change.after.as_deref()),
            ("version", Some(version.as_bytes())),
            ("time", time.as_ref().map(|time| time.as_bytes())),
        ];
        let fields = fields.iter().filter_map(|(name, value)| Some((name, (*value)?)));
        reply.array(2 * fields.clone().count());
        for (name, value) in fields {
            reply.bulk(name.as_bytes());
            reply.bulk(value);
        }
    }
}
