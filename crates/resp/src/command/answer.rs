//! `COMMAND` and its subcommands, answered from the table alone, without a server.

use super::describe::write_info;
use super::document::write_docs;
use super::flags::Categories;
use super::help::write_help;
use super::{CommandId, CommandSpec, all, find, find_by_full_name};
use crate::{Reply, glob_matches};

/// Answers `COMMAND` or one of its subcommands, after [`resolve`](super::resolve) has returned `id`. `arguments` is the
/// whole request. Returns false, and writes nothing, for any other command.
pub fn answer_command(id: CommandId, arguments: &[&[u8]], reply: &mut Reply<'_>) -> bool {
    let after_names = arguments.get(2..).unwrap_or_default();
    match id {
        CommandId::Command => write_infos(&[], reply),
        CommandId::CommandInfo => write_infos(after_names, reply),
        CommandId::CommandCount => reply.integer(all().count() as i64),
        CommandId::CommandDocs => write_all_docs(after_names, reply),
        CommandId::CommandList => write_list(after_names, reply),
        CommandId::CommandGetKeys => write_keys(after_names, reply),
        CommandId::CommandHelp => {
            if let Some(container) = find(b"command") {
                write_help(container, reply);
            }
        }
        _ => return false,
    }
    true
}

/// The commands with these names, null for unknown names; or all commands.
fn write_infos(names: &[&[u8]], reply: &mut Reply<'_>) {
    if names.is_empty() {
        reply.array(all().count());
        all().for_each(|spec| write_info(spec, reply));
        return;
    }
    reply.array(names.len());
    for name in names {
        match find_by_full_name(name) {
            Some(spec) => write_info(spec, reply),
            None => reply.null(),
        }
    }
}

/// The commands with these names, without unknown names; or all commands.
fn write_all_docs(names: &[&[u8]], reply: &mut Reply<'_>) {
    let found: Vec<_> = if names.is_empty() {
        all().collect()
    } else {
        names.iter().filter_map(|name| find_by_full_name(name)).collect()
    };
    reply.map(found.len());
    for spec in found {
        write_docs(spec, reply);
    }
}

/// The names of all commands and subcommands, or of those that match the filter.
fn write_list(filter: &[&[u8]], reply: &mut Reply<'_>) {
    match filter {
        [] => write_names(|_| true, reply),
        [by, kind, wanted] if by.eq_ignore_ascii_case(b"filterby") => {
            if kind.eq_ignore_ascii_case(b"module") {
                // There are no modules, so no command belongs to one.
                write_names(|_| false, reply);
            } else if kind.eq_ignore_ascii_case(b"aclcat") {
                let wanted = Categories::from_name(wanted);
                let is_in = |spec: &CommandSpec| wanted.is_some_and(|wanted| spec.categories().contains(wanted));
                write_names(is_in, reply);
            } else if kind.eq_ignore_ascii_case(b"pattern") {
                write_names(|spec| glob_matches(wanted, spec.name.as_bytes(), true), reply);
            } else {
                reply.error("ERR syntax error");
            }
        }
        _ => reply.error("ERR syntax error"),
    }
}

fn write_names(is_wanted: impl Fn(&CommandSpec) -> bool, reply: &mut Reply<'_>) {
    let with_subcommands = all().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    let names: Vec<_> = with_subcommands
        .filter(|spec| is_wanted(spec))
        .map(|spec| spec.name)
        .collect();
    reply.array(names.len());
    for name in names {
        reply.bulk(name.as_bytes());
    }
}

/// The keys in a request.
fn write_keys(request: &[&[u8]], reply: &mut Reply<'_>) {
    let name = request.first().copied().unwrap_or_default();
    let found = find(name).and_then(|spec| match request.get(1) {
        Some(name) if !spec.subcommands.is_empty() => spec.subcommand(name),
        _ => Some(spec),
    });
    let Some(spec) = found else {
        return reply.error("ERR Invalid command specified");
    };
    if spec.keys.is_empty() {
        return reply.error("ERR The command has no key arguments");
    }
    if !spec.accepts(request.len()) {
        return reply.error("ERR Invalid number of arguments specified for command");
    }
    let keys: Vec<_> = spec.key_places(request.len()).map(|place| request[place]).collect();
    reply.array(keys.len());
    for key in keys {
        reply.bulk(key);
    }
}
