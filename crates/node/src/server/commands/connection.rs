//! Commands about the connection itself: its user, and its protocol.

use fondaco_metrics::Counter;
use fondaco_protocol::TraceContext;
use fondaco_protocol::proof::{self, Introduction};
use fondaco_resp::{Protocol, Reply, parse_integer};

use super::information::mode;
use super::{Call, NOT_AN_INTEGER, Refusal, SYNTAX_ERROR, keyword, wrong_number_of_arguments};
use crate::server::clients::Client;
use crate::server::session::{Replies, Session};
use crate::server::traced::Announced;
use crate::server::wrong_passwords::{self, WRONG_PASSWORDS_MAX};
use fondaco_resp::command::{CommandId, quoted};

/// The version of Redis whose commands and replies these are.
pub(super) const REDIS_VERSION: &str = "7.0.15";

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

pub(super) fn ping(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    match call.arguments[1..] {
        [] => reply.simple("PONG"),
        [message] => reply.bulk(message),
        _ => return Err(wrong_number_of_arguments("ping")),
    }
    Ok(())
}

/// `FONDACO.TRACE`: the context of the next request on data.
pub(super) fn trace(call: Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let parent = TraceContext::parse_traceparent(call.arguments[1]).map_err(|error| format!("ERR {error}"))?;
    // Nothing is traced without a collector.
    let is_on = call.context.shared.settings.traces_share().is_some();
    call.session.announced_trace = is_on.then(|| parent.map_or(Announced::Unsampled, Announced::Sampled));
    reply.ok();
    Ok(())
}

pub(super) fn select(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    match parse_integer(call.arguments[1]) {
        Some(0) => {
            reply.ok();
            Ok(())
        }
        Some(index) if i32::try_from(index).is_ok() => Err("ERR DB index is out of range".into()),
        Some(_) => Err(format!(
            "ERR value is out of range, value must between {} and {}",
            i32::MIN,
            i32::MAX
        )),
        None => Err(NOT_AN_INTEGER.into()),
    }
}

pub(super) async fn auth(mut call: Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (name, password) = match call.arguments {
        [_, password] => (None, password),
        [_, name, password] => (Some(*name), password),
        _ => return Err(SYNTAX_ERROR.into()),
    };
    log_in(&mut call, name, password).await?;
    reply.ok();
    Ok(())
}

async fn log_in(call: &mut Call<'_>, name: Option<&[u8]>, password: &[u8]) -> Result<(), Refusal> {
    let users = &call.context.shared.config.access;
    if users.load().is_open() {
        // As Redis has it: the default user without a password accepts any.
        return match name {
            None => Err(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                 your configuration is correct?"
                    .into(),
            ),
            Some(b"default") => Ok(()),
            Some(_) => Err(WRONG_PASSWORD.into()),
        };
    }
    match users.authenticate(name, password).await {
        Some(user) => {
            call.client.described().user = user.name.clone();
            call.session.log_in(user);
            Ok(())
        }
        None => Err(refuse_password(call, name).await),
    }
}

pub(super) fn challenge(call: Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let nonce = proof::nonce().map_err(|_| "ERR the system gives no random numbers")?;
    reply.array(2);
    reply.bulk(nonce.as_bytes());
    reply.bulk(call.context.shared.advertised().as_bytes());
    call.session.challenge = Some(nonce);
    Ok(())
}

pub(super) async fn prove(mut call: Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let &[_, user, client_nonce, proof] = call.arguments else {
        return Err(SYNTAX_ERROR.into());
    };
    let shared = &call.context.shared;
    let access = shared.config.access.load();
    if access.is_open() {
        return Err("ERR FONDACO.PROVE without any user configured here: no credentials are needed".into());
    }
    let Some(server_nonce) = call.session.challenge.take() else {
        return Err("ERR FONDACO.PROVE without FONDACO.NONCE before it: each proof needs one".into());
    };
    if !proof::is_nonce(client_nonce) {
        return Err("ERR FONDACO.PROVE needs a nonce of 32 hexadecimal digits".into());
    }
    let address = shared.advertised();
    let introduction = Introduction {
        server_nonce: server_nonce.as_bytes(),
        client_nonce,
        address: address.as_bytes(),
        user,
    };
    match access.prove(&introduction, proof) {
        Some((user, own)) => {
            call.client.described().user = user.name.clone();
            call.session.log_in(user.clone());
            reply.bulk(own.as_bytes());
            Ok(())
        }
        None => Err(refuse_password(&mut call, Some(user)).await),
    }
}

/// Counts and logs a wrong password, and lets the client wait for the answer.
async fn refuse_password(call: &mut Call<'_>, name: Option<&[u8]>) -> Refusal {
    let shared = &call.context.shared;
    call.context.metrics.add(Counter::AuthenticationFailures, 1);
    if let Some(count) = shared.wrong_passwords.note(shared.now_ms()) {
        // Only names that are known: people give their password in the place of the name, too.
        let access = shared.config.access.load();
        let user = access.known_name(name).unwrap_or("unknown");
        tracing::warn!(client = call.client.address, user, count, "wrong user or password");
    }
    call.session.wrong_passwords += 1;
    let count = call.session.wrong_passwords;
    tokio::time::sleep(wrong_passwords::pause(count)).await;
    if count < WRONG_PASSWORDS_MAX {
        return WRONG_PASSWORD.into();
    }
    call.session.closing = true;
    format!("{WRONG_PASSWORD} This was wrong for the {count}th time on this connection, which is closed now.")
}

pub(super) async fn hello(mut call: Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut arguments = call.arguments[1..].iter().copied();
    let protocol = match arguments.next() {
        None => call.session.protocol,
        Some(number) => {
            let number = parse_integer(number).ok_or("ERR Protocol version is not an integer or out of range")?;
            Protocol::from_number(number).ok_or("NOPROTO unsupported protocol version")?
        }
    };
    let mut name = None;
    while let Some(option) = arguments.next() {
        match keyword(option).as_str() {
            "AUTH" => {
                let (Some(user), Some(password)) = (arguments.next(), arguments.next()) else {
                    return Err(syntax_error_in_hello(option));
                };
                log_in(&mut call, Some(user), password).await?;
            }
            "SETNAME" => name = Some(arguments.next().ok_or_else(|| syntax_error_in_hello(option))?),
            _ => return Err(syntax_error_in_hello(option)),
        }
    }
    if !call.session.is_authenticated() {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                    AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                    version at the same time"
                .into(),
        );
    }
    if let Some(name) = name {
        set_name(call.client, name)?;
    }
    call.session.protocol = protocol;
    call.client.described().protocol = protocol.number();
    reply.version = protocol;
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"fondaco");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(protocol.number());
    reply.bulk(b"id");
    reply.integer(call.client.id as i64);
    reply.bulk(b"mode");
    reply.bulk(mode(&call.context.shared.catalog.load()).as_bytes());
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

fn syntax_error_in_hello(option: &[u8]) -> Refusal {
    format!("ERR Syntax error in HELLO option '{}'", quoted(option, usize::MAX))
}

pub(super) fn reset(call: Call<'_>, reply: &mut Reply<'_>) {
    let wrong_passwords = call.session.wrong_passwords;
    *call.session = Session::new(&call.context.shared);
    call.session.wrong_passwords = wrong_passwords;
    let mut described = call.client.described();
    described.name.clear();
    described.user = "default".into();
    described.protocol = call.session.protocol.number();
    reply.version = call.session.protocol;
    reply.simple("RESET");
}

pub(super) fn client(call: Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let shared = &call.context.shared;
    match call.command {
        CommandId::ClientId => reply.integer(call.client.id as i64),
        CommandId::ClientGetName => match call.client.described().name.as_str() {
            "" => reply.null(),
            name => reply.bulk(name.as_bytes()),
        },
        CommandId::ClientSetName => {
            set_name(call.client, call.arguments[2])?;
            reply.ok();
        }
        CommandId::ClientSetInfo => {
            let value = printable(call.arguments[3])
                .ok_or("ERR lib-name and lib-ver cannot contain spaces, newlines or special characters.")?;
            let mut described = call.client.described();
            match keyword(call.arguments[2]).as_str() {
                "LIB-NAME" => described.library_name = value,
                "LIB-VER" => described.library_version = value,
                option => return Err(format!("ERR Unrecognized option '{option}'")),
            }
            reply.ok();
        }
        CommandId::ClientInfo => reply.verbatim(&(call.client.line(shared.now_ms()) + "\n")),
        CommandId::ClientList => list(&call, reply)?,
        CommandId::ClientKill => kill(&call, reply)?,
        CommandId::ClientNoEvict | CommandId::ClientNoTouch => match keyword(call.arguments[2]).as_str() {
            // No client is evicted here, and nothing is touched by being read.
            "ON" | "OFF" => reply.ok(),
            _ => return Err(SYNTAX_ERROR.into()),
        },
        CommandId::ClientReply => match keyword(call.arguments[2]).as_str() {
            "ON" => {
                call.session.replies = Replies::On;
                reply.ok();
            }
            "OFF" => call.session.replies = Replies::Off,
            "SKIP" if call.session.replies != Replies::Off => call.session.replies = Replies::SkipNext,
            "SKIP" => {}
            _ => return Err(SYNTAX_ERROR.into()),
        },
        _ => return Err(SYNTAX_ERROR.into()),
    }
    Ok(())
}

fn list(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    if !call.session.may_administer() {
        return Err("NOPERM this user may not see other clients".into());
    }
    let shared = &call.context.shared;
    let ids: Option<Vec<i64>> = match call.arguments[2..] {
        [] => None,
        [option, kind] if keyword(option) == "TYPE" => match keyword(kind).as_str() {
            "NORMAL" => None,
            "MASTER" | "REPLICA" | "SLAVE" | "PUBSUB" => Some(Vec::new()),
            _ => return Err(format!("ERR Unknown client type '{}'", quoted(kind, usize::MAX))),
        },
        [option, ref ids @ ..] if keyword(option) == "ID" && !ids.is_empty() => {
            let ids: Option<Vec<i64>> = ids.iter().map(|id| parse_integer(id)).collect();
            Some(ids.ok_or("ERR Invalid client ID")?)
        }
        _ => return Err(SYNTAX_ERROR.into()),
    };
    let now_ms = shared.now_ms();
    let lines: String = shared
        .clients
        .all()
        .iter()
        .filter(|client| ids.as_ref().is_none_or(|ids| ids.contains(&(client.id as i64))))
        .map(|client| client.line(now_ms) + "\n")
        .collect();
    reply.verbatim(&lines);
    Ok(())
}

fn kill(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    if !call.session.may_administer() {
        return Err("NOPERM this user may not drop clients".into());
    }
    let clients = call.context.shared.clients.all();
    if let [_, _, address] = call.arguments {
        let named = clients.iter().find(|client| client.address.as_bytes() == *address);
        named.ok_or("ERR No such client")?.drop_connection();
        reply.ok();
        return Ok(());
    }
    let options = call.arguments[2..].chunks_exact(2);
    if !options.remainder().is_empty() {
        return Err(SYNTAX_ERROR.into());
    }
    let (mut chosen, mut skip_me) = (clients, true);
    for option in options {
        let value = String::from_utf8_lossy(option[1]);
        match keyword(option[0]).as_str() {
            "ID" => {
                let id = parse_integer(option[1]).ok_or("ERR client-id should be greater than 0")?;
                chosen.retain(|client| client.id as i64 == id);
            }
            "ADDR" => chosen.retain(|client| client.address == value),
            "LADDR" => chosen.retain(|client| client.local_address() == value),
            "USER" => chosen.retain(|client| client.described().user == value),
            "TYPE" if value.eq_ignore_ascii_case("normal") => {}
            "TYPE" => chosen.clear(),
            "SKIPME" if value.eq_ignore_ascii_case("yes") => skip_me = true,
            "SKIPME" if value.eq_ignore_ascii_case("no") => skip_me = false,
            _ => return Err(SYNTAX_ERROR.into()),
        }
    }
    chosen.retain(|client| !skip_me || client.id != call.client.id);
    reply.integer(chosen.len() as i64);
    chosen.iter().for_each(|client| client.drop_connection());
    Ok(())
}

fn set_name(client: &Client, name: &[u8]) -> Result<(), Refusal> {
    client.described().name =
        printable(name).ok_or("ERR Client names cannot contain spaces, newlines or special characters.")?;
    Ok(())
}

/// Text that can stand in a line of `CLIENT LIST`.
fn printable(text: &[u8]) -> Option<String> {
    const BYTES_MAX: usize = 256;
    (text.len() <= BYTES_MAX && text.iter().all(u8::is_ascii_graphic))
        .then(|| String::from_utf8_lossy(text).into_owned())
}
