//! `COMMAND` and `COMMAND INFO`: descriptions of commands for programs.
//!
//! Writes a set, a status or a bulk exactly where Redis does: clients read the reply by position.

use super::{CommandSpec, KeySpec};
use crate::Reply;

/// One command: ten elements; the last one has the subcommands in the same form.
pub(super) fn write_info(spec: &CommandSpec, reply: &mut Reply<'_>) {
    let (first, last, step) = spec.key_range();
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.integer(i64::from(spec.arity));
    write_statuses(spec.flags.names(), "", reply);
    reply.integer(i64::from(first));
    reply.integer(i64::from(last));
    reply.integer(i64::from(step));
    write_statuses(spec.categories().names(), "@", reply);
    reply.set(spec.tips.len());
    for tip in spec.tips {
        reply.bulk(tip.as_bytes());
    }
    reply.set(spec.keys.len());
    for keys in spec.keys {
        write_key_spec(keys, reply);
    }
    // Redis writes no subcommands as an empty set, and some as an array.
    if spec.subcommands.is_empty() {
        reply.set(0);
    } else {
        reply.array(spec.subcommands.len());
    }
    for subcommand in spec.subcommands {
        write_info(subcommand, reply);
    }
}

/// A set of statuses, each with `prefix` before it.
pub(super) fn write_statuses(names: impl Iterator<Item = &'static str> + Clone, prefix: &str, reply: &mut Reply<'_>) {
    reply.set(names.clone().count());
    for name in names {
        reply.simple(&format!("{prefix}{name}"));
    }
}

fn write_key_spec(keys: &KeySpec, reply: &mut Reply<'_>) {
    reply.map(3);
    reply.bulk(b"flags");
    write_statuses(keys.access.names(), "", reply);
    reply.bulk(b"begin_search");
    write_search("index", &[("index", keys.first)], reply);
    reply.bulk(b"find_keys");
    let range = [("lastkey", keys.last), ("keystep", keys.step), ("limit", 0)];
    write_search("range", &range, reply);
}

fn write_search(kind: &str, spec: &[(&str, i32)], reply: &mut Reply<'_>) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(spec.len());
    for (name, value) in spec {
        reply.bulk(name.as_bytes());
        reply.integer(i64::from(*value));
    }
}
