//! Commands of monitors, exporters and graphical tools: the time of a server, its role, its users, its slow requests.

use std::time::{SystemTime, UNIX_EPOCH};

use fondaco_catalog::User;
use fondaco_resp::command::{
    Categories, CommandId, CommandSpec, all, find_by_full_name, quoted, subcommand_argument_error,
};
use fondaco_resp::{Reply, parse_integer};

use super::{Call, NOT_AN_INTEGER, Refusal, SYNTAX_ERROR, keyword};
use fondaco_model::HistogramSnapshot;

/// How many slow requests `SLOWLOG GET` lists unless it says how many.
const SLOW_REQUESTS_DEFAULT: usize = 10;

/// `TIME`: seconds, and microseconds of the second.
pub(super) fn time(reply: &mut Reply<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    reply.array(2);
    reply.bulk(now.as_secs().to_string().as_bytes());
    reply.bulk(now.subsec_micros().to_string().as_bytes());
}

/// `ROLE`: each process takes writes, and none follows another.
pub(super) fn role(reply: &mut Reply<'_>) {
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
}

/// `WAIT`: a write is answered when as many replicas have it as its store's `writes` says. Of the stores that the client
/// may write, the one with the fewest counts; there is nothing to wait for.
pub(super) fn wait(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (wanted, timeout) = (parse_integer(call.arguments[1]), parse_integer(call.arguments[2]));
    wanted.ok_or(NOT_AN_INTEGER)?;
    match timeout {
        None => return Err("ERR timeout is not an integer or out of range".into()),
        Some(..0) => return Err("ERR timeout is negative".into()),
        Some(_) => {}
    }
    let catalog = call.context.shared.catalog.load();
    let stores = (0..catalog.stores().len()).filter_map(|place| catalog.versioned(place as u16));
    let written = stores.filter(|store| call.session.may_write(&store.name));
    let others = written
        .map(|store| i64::from(store.settings.writes).saturating_sub(1))
        .min();
    reply.integer(others.unwrap_or(0).max(0));
    Ok(())
}

/// The refusal of `OBJECT FREQ` and `OBJECT IDLETIME`: accesses to single keys are not counted.
pub(super) fn object(call: &Call<'_>) -> Refusal {
    match call.command {
        CommandId::ObjectFreq => {
            "ERR accesses to single keys are not counted: INFO commandstats and GET /metrics count look-ups".into()
        }
        CommandId::ObjectIdleTime => {
            "ERR the last access to a key is not noted: TTL tells of keys that expire, and FONDACO.GET of versions"
                .into()
        }
        _ => SYNTAX_ERROR.into(),
    }
}

pub(super) fn slow_log(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    only_operators(call)?;
    let log = &call.context.shared.slow_log;
    match call.command {
        CommandId::SlowLogLen => reply.integer(log.count() as i64),
        CommandId::SlowLogReset => {
            log.reset();
            reply.ok();
        }
        CommandId::SlowLogGet => {
            let count = match call.arguments[2..] {
                [] => SLOW_REQUESTS_DEFAULT,
                [count] => match parse_integer(count) {
                    Some(-1) => usize::MAX,
                    Some(count @ 0..) => count as usize,
                    _ => return Err("ERR count should be greater than or equal to -1".into()),
                },
                _ => return Err(subcommand_argument_error("SLOWLOG", call.arguments[1])),
            };
            let latest = log.latest(count);
            reply.array(latest.len());
            for request in latest {
                reply.array(6);
                reply.integer(request.id);
                reply.integer(request.at_unix_seconds);
                reply.integer(request.took.as_micros() as i64);
                reply.array(request.arguments.len());
                request.arguments.iter().for_each(|argument| reply.bulk(argument));
                reply.bulk(request.client.as_bytes());
                reply.bulk(request.client_name.as_bytes());
            }
        }
        _ => return Err(SYNTAX_ERROR.into()),
    }
    Ok(())
}

pub(super) fn latency(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    only_operators(call)?;
    match call.command {
        CommandId::LatencyLatest => {
            let spikes = call.context.shared.slow_log.spikes();
            reply.array(spikes.len());
            for (command, spike) in spikes {
                reply.array(4);
                reply.bulk(command.as_bytes());
                reply.integer(spike.last_unix_seconds);
                reply.integer(spike.last.as_millis() as i64);
                reply.integer(spike.longest.as_millis() as i64);
            }
        }
        CommandId::LatencyHistogram => histograms(call, reply),
        _ => return Err(SYNTAX_ERROR.into()),
    }
    Ok(())
}

/// `LATENCY HISTOGRAM`: of each command that was called, how many calls took at most this many microseconds.
fn histograms(call: &Call<'_>, reply: &mut Reply<'_>) {
    let with_subcommands = all().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    let specs: Vec<&CommandSpec> = match call.arguments[2..] {
        [] => with_subcommands.collect(),
        ref names => {
            let named = names.iter().filter_map(|name| find_by_full_name(name));
            named
                .flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
                .collect()
        }
    };
    let metrics = &call.context.shared.metrics;
    let called: Vec<_> = specs
        .into_iter()
        .map(|spec| (spec.name, metrics.latency(spec.id)))
        .filter(|(_, latency)| latency.count() > 0)
        .collect();
    reply.map(called.len());
    for (name, latency) in called {
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(latency.count() as i64);
        reply.bulk(b"histogram_usec");
        let buckets = cumulative_microseconds(&latency);
        reply.map(buckets.len());
        for (up_to, count) in buckets {
            reply.integer(up_to as i64);
            reply.integer(count as i64);
        }
    }
}

pub(super) fn acl(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    match call.command {
        CommandId::AclWhoAmI => reply.bulk(call.client.described().user.as_bytes()),
        CommandId::AclList => {
            only_operators(call)?;
            let access = call.context.shared.config.access.load();
            let users = access.users();
            if users.is_empty() {
                reply.array(1);
                reply.bulk(b"user default on nopass ~* &* +@all");
                return Ok(());
            }
            reply.array(users.len());
            users.iter().for_each(|user| reply.bulk(user_line(user).as_bytes()));
        }
        CommandId::AclCat => match call.arguments[2..] {
            [] => {
                let names: Vec<_> = Categories::all_names().collect();
                reply.array(names.len());
                names.iter().for_each(|name| reply.bulk(name.as_bytes()));
            }
            [name] => {
                let Some(category) = Categories::from_name(name) else {
                    return Err(format!("ERR Unknown category '{}'", quoted(name, usize::MAX)));
                };
                let with_subcommands = all().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
                let names: Vec<_> = with_subcommands
                    .filter(|spec| spec.subcommands.is_empty() && spec.categories().contains(category))
                    .map(|spec| spec.name)
                    .collect();
                reply.array(names.len());
                names.iter().for_each(|name| reply.bulk(name.as_bytes()));
            }
            _ => return Err(subcommand_argument_error("ACL", call.arguments[1])),
        },
        _ => return Err(SYNTAX_ERROR.into()),
    }
    Ok(())
}

/// A user as `ACL LIST` shows it: patterns of the stores that it may read and write. Digests of passwords are not shown.
fn user_line(user: &User) -> String {
    let mut line = format!("user {} on", user.name);
    let mut grant = |right: &str, patterns: &[String]| {
        for pattern in patterns {
            line.push_str(&format!(" {right}~{pattern}:*"));
        }
    };
    grant("%R", &user.stores);
    grant("%RW", &user.writes);
    line.push_str(" +@all");
    if !user.admin {
        line.push_str(" -@admin");
    }
    line
}

fn only_operators(call: &Call<'_>) -> Result<(), Refusal> {
    match call.session.may_administer() {
        true => Ok(()),
        false => {
            let name = keyword(call.arguments[0]);
            Err(format!(
                "NOPERM this user may not use {name}: set admin = true for it in the configuration of the node"
            ))
        }
    }
}

/// How many calls took at most this many microseconds, in steps that double; those that add none are left out, as in Redis.
fn cumulative_microseconds(latency: &HistogramSnapshot) -> Vec<(u64, u64)> {
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    for (up_to, count) in latency.cumulative() {
        let microseconds = (up_to.as_nanos() as u64).div_ceil(1000);
        match buckets.last_mut() {
            Some((last, sum)) if *last == microseconds => *sum = count,
            Some((_, sum)) if *sum == count => {}
            None if count == 0 => {}
            _ => buckets.push((microseconds, count)),
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fondaco_model::Histogram;

    #[test]
    fn a_histogram_counts_calls_with_those_that_took_less() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_nanos(300), 2);
        histogram.record(Duration::from_micros(100), 3);
        histogram.record(Duration::from_millis(50), 1);
        let buckets = cumulative_microseconds(&histogram.snapshot());
        assert_eq!(buckets, [(1, 2), (132, 5), (67_109, 6)]);
        assert!(cumulative_microseconds(&HistogramSnapshot::default()).is_empty());
    }

    #[test]
    fn a_user_is_listed_with_its_patterns_and_without_its_password() {
        let user = User {
            name: "app".into(),
            password: fondaco_catalog::Password::Digest(fondaco_catalog::PasswordDigest::of(b"secret")),
            stores: vec!["pymk".into()],
            writes: vec!["cart-*".into()],
            admin: false,
        };
        assert_eq!(user_line(&user), "user app on %R~pymk:* %RW~cart-*:* +@all -@admin");
    }
}
