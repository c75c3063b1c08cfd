//! `COMMAND DOCS`: descriptions of commands for people, which `redis-cli` uses for completion and hints.

use super::describe::write_statuses;
use super::{Argument, ArgumentKind, CommandSpec};
use crate::Reply;

/// One command: its full name, then a map of its properties.
pub(super) fn write_docs(spec: &CommandSpec, reply: &mut Reply<'_>) {
    let optional = [!spec.arguments.is_empty(), !spec.subcommands.is_empty()];
    let deprecation = if spec.deprecation.is_some() { 3 } else { 0 };
    reply.bulk(spec.name.as_bytes());
    reply.map(4 + deprecation + optional.into_iter().filter(|&present| present).count());
    write_pair("summary", spec.summary, reply);
    write_pair("since", spec.since, reply);
    write_pair("group", spec.group.name(), reply);
    write_pair("complexity", spec.complexity, reply);
    if let Some(deprecation) = spec.deprecation {
        reply.bulk(b"doc_flags");
        write_statuses(["deprecated"].into_iter(), "", reply);
        write_pair("deprecated_since", deprecation.since, reply);
        write_pair("replaced_by", deprecation.replaced_by, reply);
    }
    if !spec.arguments.is_empty() {
        write_arguments(spec.arguments, reply);
    }
    if !spec.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(spec.subcommands.len());
        for subcommand in spec.subcommands {
            write_docs(subcommand, reply);
        }
    }
}

fn write_pair(name: &str, value: &str, reply: &mut Reply<'_>) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

fn write_arguments(arguments: &[Argument], reply: &mut Reply<'_>) {
    reply.bulk(b"arguments");
    reply.array(arguments.len());
    for argument in arguments {
        write_argument(argument, reply);
    }
}

fn write_argument(argument: &Argument, reply: &mut Reply<'_>) {
    let flags = [
        argument.is_optional.then_some("optional"),
        argument.is_multiple.then_some("multiple"),
    ];
    let flags = flags.into_iter().flatten();
    let has_flags = argument.is_optional || argument.is_multiple;
    let has_parts = matches!(argument.kind, ArgumentKind::OneOf | ArgumentKind::Block);
    let present = [
        argument.key_spec.is_some(),
        argument.token.is_some(),
        has_flags,
        has_parts,
    ];
    reply.map(2 + present.into_iter().filter(|&present| present).count());
    write_pair("name", argument.name, reply);
    write_pair("type", argument.kind.name(), reply);
    if let Some(key_spec) = argument.key_spec {
        reply.bulk(b"key_spec_index");
        reply.integer(i64::from(key_spec));
    }
    if let Some(token) = argument.token {
        write_pair("token", token, reply);
    }
    if has_flags {
        reply.bulk(b"flags");
        write_statuses(flags, "", reply);
    }
    if has_parts {
        write_arguments(argument.arguments, reply);
    }
}
