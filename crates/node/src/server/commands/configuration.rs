//! `CONFIG`: the live settings, by their own names and by those of Redis.

use fondaco_catalog::{SETTINGS, Settings};
use fondaco_resp::command::CommandId;
use fondaco_resp::{Reply, glob_matches};

use super::{Call, Refusal, SYNTAX_ERROR};

/// Parameters of Redis that clients and `redis-benchmark` ask for, with the values that hold for every fondaco.
const FIXED: [(&str, &str); 3] = [("appendonly", "no"), ("databases", "1"), ("save", "")];

pub(super) fn config(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    match call.command {
        CommandId::ConfigGet => get(call, reply),
        CommandId::ConfigSet => set(call, reply)?,
        // Counters only ever grow: a client that wants a difference computes it.
        CommandId::ConfigResetStat => {
            return Err("ERR counters are never reset: take the difference of two readings".into());
        }
        _ => return Err(SYNTAX_ERROR.into()),
    }
    Ok(())
}

fn get(call: &Call<'_>, reply: &mut Reply<'_>) {
    let settings = &call.context.shared.settings;
    let live = SETTINGS
        .iter()
        .flat_map(|spec| spec.names().map(|name| (name, settings.written(spec.setting))));
    let fixed = FIXED.iter().map(|&(name, value)| (name, value.to_owned()));
    let mut asked: Vec<_> = live.chain(fixed).collect();
    let patterns: Vec<_> = call.arguments[2..].to_vec();
    asked.retain(|(name, _)| {
        patterns
            .iter()
            .any(|pattern| glob_matches(pattern, name.as_bytes(), true))
    });
    reply.map(asked.len());
    for (name, value) in asked {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

fn set(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    if !call.session.may_administer() {
        return Err("NOPERM this user may not change settings".into());
    }
    let pairs = call.arguments[2..].chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(SYNTAX_ERROR.into());
    }
    let parse = |pair: &[&[u8]]| {
        let text = |at: usize| String::from_utf8_lossy(pair[at]).into_owned();
        Settings::parse(&text(0), &text(1)).map_err(|error| format!("ERR CONFIG SET failed - {error}"))
    };
    // All or nothing: every pair is checked before the first is set.
    let changes = pairs.map(parse).collect::<Result<Vec<_>, _>>()?;
    for (setting, value) in changes {
        call.context
            .shared
            .settings
            .apply(setting, &value)
            .map_err(|error| format!("ERR {error}"))?;
        tracing::info!(
            setting = SETTINGS[setting as usize].name,
            value = call.context.shared.settings.written(setting),
            "setting changed by CONFIG SET"
        );
    }
    reply.ok();
    Ok(())
}
