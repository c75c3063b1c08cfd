//! Commands, one file a family: adding one touches the file of its family and the table of commands.
//!
//! Commands on keys ([`look_ups`], [`strings`], [`expiry`], [`siblings`]) share the vocabulary of [`operation`], and are
//! carried out by the window of look-ups, or in the queue of requests. [`carry_out`] does all others.

mod applied;
mod changes;
mod cluster;
mod configuration;
mod connection;
pub(super) mod events;
pub(super) mod expiry;
mod fields;
mod graph;
pub(super) mod ids;
mod information;
mod keyspace;
pub(super) mod lifetimes;
pub(super) mod look_ups;
mod monitoring;
pub(super) mod operation;
mod scan;
mod scan_cursor;
pub(super) mod siblings;
pub(super) mod strings;
pub(super) mod transactions;
mod updates;
pub(in crate::server) mod values;

use std::rc::Rc;

use fondaco_catalog::WrittenStore;
use fondaco_resp::Reply;
use fondaco_resp::command::{CommandId, answer_command, find_by_full_name, write_help};

use super::clients::Client;
use super::event_loop::LoopContext;
use super::refusal;
use super::session::Session;

/// A command, and all that it may look at or change.
pub(super) struct Call<'a> {
    pub(super) context: &'a Rc<LoopContext>,
    pub(super) client: &'a Client,
    pub(super) session: &'a mut Session,
    pub(super) command: CommandId,
    /// The whole request, its name first.
    pub(super) arguments: &'a [&'a [u8]],
}

/// Whether a command succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Failed,
}

/// The error that a command is answered with, its code first.
pub(super) type Refusal = String;

/// Whether a command may be given before authentication.
pub(super) fn without_authentication(command: CommandId) -> bool {
    use CommandId::{Auth, FondacoNonce, FondacoProve, Hello, Quit, Reset};
    matches!(command, Auth | FondacoNonce | FondacoProve | Hello | Quit | Reset)
}

/// Carries a command out, and writes its reply.
pub(super) async fn carry_out(call: Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let done = match call.command {
        CommandId::Scan => scan::scan(&call, reply).await,
        CommandId::FondacoScan => scan::scan_partition(&call, reply).await,
        CommandId::Ttl | CommandId::PTtl | CommandId::ExpireTime | CommandId::PExpireTime => {
            lifetimes::look_up(&call, reply).await
        }
        CommandId::XRead => changes::read(&call, reply).await,
        CommandId::FondacoApplied => applied::applied(&call, reply).await,
        CommandId::FondacoExpiry => lifetimes::of_key(&call, reply).await,
        CommandId::RandomKey => keyspace::random_key(&call, reply).await,
        CommandId::ClusterCountKeysInSlot | CommandId::ClusterGetKeysInSlot => {
            keyspace::keys_in_slot(&call, reply).await
        }
        CommandId::SMembers
        | CommandId::SCard
        | CommandId::SIsMember
        | CommandId::SMIsMember
        | CommandId::SUnion
        | CommandId::SInter
        | CommandId::SDiff
        | CommandId::FondacoIds => ids::query(&call, reply).await,
        CommandId::FondacoCompute => ids::compute(&call, reply).await,
        CommandId::FondacoMGet => fields::mget(&call, reply).await,
        CommandId::FondacoMScore => fields::mscore(&call, reply).await,
        CommandId::GraphQuery | CommandId::GraphRoQuery => graph::query(&call, reply).await,
        CommandId::GraphExplain | CommandId::GraphProfile => graph::explain(&call, reply).await,
        CommandId::FondacoGraph => graph::own(&call, reply).await,
        CommandId::FondacoEdge => graph::edge(&call, reply).await,
        CommandId::FondacoVertex => graph::vertex(&call, reply).await,
        CommandId::DbSize => information::dbsize(&call, reply).await,
        CommandId::Info => information::info(&call, reply).await,
        CommandId::Auth => connection::auth(call, reply).await,
        CommandId::Hello => connection::hello(call, reply).await,
        CommandId::FondacoProve => connection::prove(call, reply).await,
        _ => carry_out_at_once(call, reply),
    };
    match done {
        Ok(()) => Outcome::Done,
        Err(refusal) => {
            reply.error(&refusal);
            Outcome::Failed
        }
    }
}

fn carry_out_at_once(call: Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    use CommandId as Id;
    match call.command {
        Id::Ping => return connection::ping(&call, reply),
        Id::Echo => reply.bulk(call.arguments[1]),
        Id::Select => return connection::select(&call, reply),
        Id::Reset => connection::reset(call, reply),
        Id::Quit => {
            call.session.closing = true;
            reply.ok();
        }
        Id::Client
        | Id::ClientId
        | Id::ClientGetName
        | Id::ClientSetName
        | Id::ClientSetInfo
        | Id::ClientInfo
        | Id::ClientList
        | Id::ClientKill
        | Id::ClientNoEvict
        | Id::ClientNoTouch
        | Id::ClientReply => return connection::client(call, reply),
        Id::ClientHelp => help(b"client", reply),
        Id::ConfigHelp => help(b"config", reply),
        Id::Config | Id::ConfigGet | Id::ConfigSet | Id::ConfigResetStat => {
            return configuration::config(&call, reply);
        }
        Id::Cluster
        | Id::ClusterSlots
        | Id::ClusterShards
        | Id::ClusterNodes
        | Id::ClusterInfo
        | Id::ClusterMyId
        | Id::ClusterMyShardId
        | Id::ClusterKeySlot
        | Id::ClusterReplicas
        | Id::ClusterSlaves
        | Id::ClusterLinks => return cluster::cluster(call, reply),
        Id::ClusterHelp => help(b"cluster", reply),
        Id::ReadOnly | Id::ReadWrite | Id::Asking => cluster::note(call, reply),
        Id::FondacoNonce => return connection::challenge(call, reply),
        Id::FondacoTrace => return connection::trace(call, reply),
        Id::FondacoTopology => cluster::topology(&call, reply),
        Id::FondacoSize => return information::size(&call, reply),
        Id::Multi => return transactions::multi(call.session, reply),
        Id::Exec => return transactions::exec(call, reply),
        Id::Discard => return transactions::discard(call.session, reply),
        Id::Time => monitoring::time(reply),
        Id::Role => monitoring::role(reply),
        Id::Wait => return monitoring::wait(&call, reply),
        Id::Object | Id::ObjectFreq | Id::ObjectIdleTime => return Err(monitoring::object(&call)),
        Id::ObjectHelp => help(b"object", reply),
        Id::SlowLog | Id::SlowLogGet | Id::SlowLogLen | Id::SlowLogReset => return monitoring::slow_log(&call, reply),
        Id::SlowLogHelp => help(b"slowlog", reply),
        Id::Latency | Id::LatencyHistogram | Id::LatencyLatest => return monitoring::latency(&call, reply),
        Id::LatencyHelp => help(b"latency", reply),
        Id::Acl | Id::AclWhoAmI | Id::AclList | Id::AclCat => return monitoring::acl(&call, reply),
        Id::AclHelp => help(b"acl", reply),
        Id::ModuleList => reply.array(0),
        Id::GraphList => graph::list(&call, reply),
        Id::ModuleHelp => help(b"module", reply),
        Id::MemoryHelp => help(b"memory", reply),
        command if answer_command(command, call.arguments, reply) => {}
        _ => return Err(no_writes(&call)),
    }
    Ok(())
}

fn help(container: &[u8], reply: &mut Reply<'_>) {
    if let Some(spec) = find_by_full_name(container) {
        write_help(spec, reply);
    }
}

/// The error for all commands that would write, where there is nothing that they write to.
fn no_writes(call: &Call<'_>) -> Refusal {
    if matches!(call.command, CommandId::FlushDb | CommandId::FlushAll) {
        return "ERR no command deletes all keys: fondaco store drop STORE deletes a store, and fondaco store create \
                STORE begins it anew"
            .into();
    }
    if let (CommandId::MSet | CommandId::MSetNx, 0) = (call.command, call.arguments.len() % 2) {
        return wrong_number_of_arguments(&keyword(call.arguments[0]).to_lowercase());
    }
    let name = String::from_utf8_lossy(call.arguments[0]).to_uppercase();
    let wire_key = call.arguments.get(1).copied().unwrap_or_default();
    let is_of_one_key = operation::parser(call.command).is_some();
    let Some(colon) = memchr::memchr(b':', wire_key) else {
        return match is_of_one_key {
            true => refusal::no_colon(wire_key),
            false => format!(
                "READONLY {name} writes more than a key: batch stores get their data by push, and hybrid and versioned stores key by \
                 key"
            ),
        };
    };
    let catalog = call.context.shared.catalog.load();
    let place = match call.session.readable_store(&catalog, &wire_key[..colon]) {
        Ok(place) => place,
        Err(refusal) => return refusal,
    };
    let store = &catalog.stores()[place as usize];
    if catalog.versioned(place).is_some() {
        use CommandId as Id;
        return match call.command {
            Id::Rename | Id::RenameNx | Id::Copy | Id::MSetNx => format!(
                "ERR versioned stores do what concerns one key, and {name} does more: write the keys one by one"
            ),
            _ => format!("ERR versioned stores have no {name}"),
        };
    }
    if let Some(WrittenStore::Hybrid(_)) = catalog.written(place) {
        return format!(
            "ERR hybrid stores do what concerns one key without its value, and {name} does more: use SET, DEL, INCRBY or FONDACO.UPDATE"
        );
    }
    if call.command == CommandId::FondacoGet {
        let store = &store.name;
        return format!("ERR {name} reads versioned stores, and {store:?} is not one: use GET");
    }
    format!("READONLY {name} writes, and {}", refusal::unwritten(store))
}

/// An argument as text, for comparing with keywords.
fn keyword(argument: &[u8]) -> String {
    String::from_utf8_lossy(argument).to_ascii_uppercase()
}

/// The error for a number of arguments that the table of commands allows, and the command does not.
fn wrong_number_of_arguments(command: &str) -> Refusal {
    format!("ERR wrong number of arguments for '{command}' command")
}

const SYNTAX_ERROR: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
