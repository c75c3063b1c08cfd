//! Our descriptions of commands and our errors are those of a real Redis 7.0.

mod redis_server;

use fondaco_resp::command::{CommandSpec, Group, all, answer_command, find_by_full_name, resolve};
use fondaco_resp::{Arguments, Limits, Parse, Protocol, Reply, parse_request};
use redis::{Value, parse_redis_value};
use redis_server::RedisServer;

fn multibulk(arguments: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        bytes.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
    }
    bytes.into_bytes()
}

/// Our reply to a request, in bytes: an error if the command is unknown.
fn our_bytes(request: &[&str], version: Protocol) -> Vec<u8> {
    let bytes = multibulk(request);
    let mut arguments = Arguments::new();
    parse_request(&bytes, &Limits::default(), &mut arguments).unwrap();
    let mut buffer = Vec::new();
    let mut reply = Reply::new(&mut buffer, version);
    match resolve(&arguments, &bytes) {
        Ok(spec) => {
            let owned: Vec<_> = arguments.iter(&bytes).collect();
            assert!(answer_command(spec.id, &owned, &mut reply), "{request:?}");
        }
        Err(error) => reply.error(&error),
    }
    buffer
}

fn our_value(request: &[&str], version: Protocol) -> Value {
    parse_redis_value(&our_bytes(request, version)).unwrap()
}

/// All commands and subcommands that Redis 7.0 also has.
fn shared_commands() -> impl Iterator<Item = &'static CommandSpec> {
    all()
        .flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
        .filter(|spec| !spec.since.starts_with("7.2") && spec.group != Group::Own)
}

fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Array(elements) | Value::Set(elements) => elements,
        other => panic!("not an array: {other:?}"),
    }
}

/// The pairs of a map, which in version 2 is a flat array.
fn pairs(value: Value) -> Vec<(String, Value)> {
    let pairs: Vec<_> = match value {
        Value::Map(pairs) => pairs,
        Value::Array(flat) => {
            let mut flat = flat.into_iter();
            std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect()
        }
        other => panic!("not a map: {other:?}"),
    };
    let named = pairs.into_iter().map(|(name, value)| (text(name), value));
    named.collect()
}

fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).unwrap(),
        Value::SimpleString(text) => text,
        other => panic!("not a text: {other:?}"),
    }
}

fn in_both_versions(check: impl Fn(&RedisServer, Protocol, &mut redis_server::Connection)) {
    let Some(server) = RedisServer::start() else {
        return;
    };
    for version in [Protocol::Resp2, Protocol::Resp3] {
        let mut connection = server.connect();
        let hello = version.number().to_string();
        connection.value(&multibulk(&["HELLO", &hello])).unwrap();
        check(&server, version, &mut connection);
    }
}

#[test]
fn a_command_is_described_as_redis_describes_it() {
    in_both_versions(|_, version, connection| {
        for spec in shared_commands() {
            let request = ["COMMAND", "INFO", spec.name];
            let theirs = connection.value(&multibulk(&request)).unwrap();
            let mut theirs = elements(elements(theirs).remove(0));
            let mut ours = elements(elements(our_value(&request, version)).remove(0));
            // The order of subcommands varies, and we do not have all of them; each one is compared separately.
            let their_subcommands = theirs.pop().unwrap();
            let our_subcommands = ours.pop().unwrap();
            let their_keys = theirs.pop().map(key_facts);
            assert_eq!(ours.pop().map(key_facts), their_keys, "{} in {version:?}", spec.name);
            assert_eq!(ours, theirs, "{} in {version:?}", spec.name);
            let kind = std::mem::discriminant(&their_subcommands);
            assert_eq!(std::mem::discriminant(&our_subcommands), kind, "{}", spec.name);
        }
    });
}

/// Key specifications without the notes for people, which Redis has for one of our commands.
fn key_facts(keys: Value) -> Vec<Vec<(String, Value)>> {
    let one = |keys| pairs(keys).into_iter().filter(|(name, _)| name != "notes").collect();
    elements(keys).into_iter().map(one).collect()
}

#[test]
fn a_command_is_documented_in_the_shape_of_redis() {
    in_both_versions(|_, version, connection| {
        for spec in shared_commands() {
            let request = ["COMMAND", "DOCS", spec.name];
            let theirs = pairs(connection.value(&multibulk(&request)).unwrap());
            let ours = pairs(our_value(&request, version));
            let [(their_name, theirs)] = theirs.try_into().unwrap();
            let [(our_name, ours)] = ours.try_into().unwrap();
            assert_eq!(our_name, their_name);
            assert_eq!(facts(ours, spec), facts(theirs, spec), "{} in {version:?}", spec.name);
        }
    });
}

/// Our documentation differs on purpose: the kinds of replicas, and the arguments of `GETKEYS`.
const ARGUMENTS_OF_OUR_OWN: [&str; 3] = ["client|kill", "client|list", "command|getkeys"];

/// The parts of a command's documentation that are facts and not wording.
fn facts(docs: Value, spec: &CommandSpec) -> Vec<String> {
    let mut facts = Vec::new();
    for (name, value) in pairs(docs) {
        match name.as_str() {
            "history" | "subcommands" => {}
            "arguments" if ARGUMENTS_OF_OUR_OWN.contains(&spec.name) => {}
            "arguments" => facts.push(format!("arguments {:?}", argument_facts(value))),
            "summary" | "complexity" | "replaced_by" => {
                assert!(!text(value).is_empty());
                facts.push(name);
            }
            _ => facts.push(format!("{name} {value:?}")),
        }
    }
    facts
}

fn argument_facts(arguments: Value) -> Vec<Vec<String>> {
    let one = |argument| {
        let known = pairs(argument).into_iter().filter(|(name, _)| name != "since");
        let facts = known.map(|(name, value)| match name.as_str() {
            "arguments" => format!("{:?}", argument_facts(value)),
            _ => format!("{name} {value:?}"),
        });
        facts.collect()
    };
    elements(arguments).into_iter().map(one).collect()
}

#[test]
fn questions_about_commands_are_answered_alike() {
    let requests: &[&[&str]] = &[
        &["COMMAND", "INFO", "nosuch"],
        &["COMMAND", "INFO", "client|nosuch", "get|x", "GET"],
        &["COMMAND", "DOCS", "nosuch"],
        &["COMMAND", "LIST", "FILTERBY", "MODULE", "any"],
        &["COMMAND", "LIST", "FILTERBY", "ACLCAT", "nosuch"],
        &["COMMAND", "LIST", "FILTERBY", "PATTERN", "G?T[r-s]*E"],
        &["COMMAND", "LIST", "FILTERBY", "PATTERN"],
        &["COMMAND", "LIST", "nosuch"],
        &["COMMAND", "LIST", "filterby", "nosuch", "x"],
        &["COMMAND", "GETKEYS", "get", "a"],
        &["COMMAND", "GETKEYS", "MGET", "a", "b", "c"],
        &["COMMAND", "GETKEYS", "mset", "a", "b", "c", "d"],
        &["COMMAND", "GETKEYS", "mset", "a", "b", "c"],
        &["COMMAND", "GETKEYS", "copy", "a", "b", "DB", "1"],
        &["COMMAND", "GETKEYS", "get", "a", "b"],
        &["COMMAND", "GETKEYS", "ping", "a"],
        &["COMMAND", "GETKEYS", "client", "id"],
        &["COMMAND", "GETKEYS", "client", "nosuch"],
        &["COMMAND", "GETKEYS", "nosuch", "x"],
        &["COMMAND", "GETKEYS", "get"],
        &["COMMAND", "COUNT", "x"],
        &["COMMAND", "nosuch"],
        &["CLIENT"],
        &["CLIENT", "ID", "x"],
        &["CLUSTER"],
        &["CLUSTER", "nosuch"],
        &["CLUSTER", "KEYSLOT"],
        &["READONLY", "x"],
        &["CONFIG", "nosuch", "\r\nx"],
        &["GET"],
        &["get", "a", "b"],
        &["nosuch"],
        &["NoSuch", "a", "", "b c"],
        &["with\r\nlines", "\n"],
    ];
    in_both_versions(|_, version, connection| {
        for request in requests {
            let theirs = connection.value(&multibulk(request));
            let ours = parse_redis_value(&our_bytes(request, version));
            assert_eq!(ours.map_err(|error| error.to_string()), theirs, "{request:?}");
        }
    });
}

#[test]
fn invalid_requests_get_the_same_errors_as_in_redis() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let streams: &[&[u8]] = &[
        b"*x\r\n",
        b"*\r\n",
        b"*01\r\n",
        b"*3000000000\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$\r\n",
        b"*1\r\n$01\r\n",
        b"*1\r\n$600000000\r\n",
        b"*2\r\n$4\r\nECHO\r\nx\r\n",
        b"*1\r\nfoo\r\n",
        b"ECHO \"x\r\n",
        b"ECHO 'x'y\r\n",
    ];
    let long: Vec<Vec<u8>> = vec![
        vec![b'x'; 70_000],
        vec![b'*'; 70_000],
        [&b"*1\r\n$"[..], &[b'1'; 70_000]].concat(),
    ];
    for stream in streams.iter().copied().chain(long.iter().map(Vec::as_slice)) {
        let theirs = server.connect().line(stream);
        let mut arguments = Arguments::new();
        let error = parse_request(stream, &Limits::default(), &mut arguments).expect_err("a refusal");
        assert_eq!(format!("-ERR {error}"), theirs);
    }
}

#[test]
fn unauthenticated_clients_get_the_same_errors_as_in_redis() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let password = multibulk(&["CONFIG", "SET", "requirepass", "secret"]);
    server.connect().value(&password).unwrap();
    let stranger = Limits::default().unauthenticated();
    for stream in [&b"*11\r\n"[..], b"*2\r\n$16385\r\n"] {
        let theirs = server.connect().line(stream);
        let error = parse_request(stream, &stranger, &mut Arguments::new()).expect_err("a refusal");
        assert_eq!(format!("-ERR {error}"), theirs);
    }
}

#[test]
fn quoted_words_are_parsed_like_in_redis() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let lines = [
        r#"ECHO "a b""#,
        r#"  echo   "\x41\x6a\n\r\t\b\a\"\\\q\x4\xzz"  "#,
        r"ECHO 'a\n\'b\\c'",
        r#"ECHO """#,
        "ECHO ''",
        r#"ECHO fo"o b""#,
        "ECHO fo'o b'",
        "EC\"HO\" x",
        "ECHO\t\x0ba\x0bb",
        "\"ECHO\" \"\\xff\\x00\"",
    ];
    let mut connection = server.connect();
    for line in lines {
        let line = format!("{line}\r\n");
        let theirs = connection.value(line.as_bytes()).unwrap();
        let mut arguments = Arguments::new();
        let parsed = parse_request(line.as_bytes(), &Limits::default(), &mut arguments);
        assert_eq!(parsed, Ok(Parse::Complete { consumed: line.len() }), "{line:?}");
        let ours = arguments
            .get(1, line.as_bytes())
            .map(|word| Value::BulkString(word.to_vec()));
        assert_eq!(ours, Some(theirs), "{line:?}");
    }
}

#[test]
fn every_command_has_an_entry_under_its_own_name() {
    for spec in all().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands)) {
        assert_eq!(find_by_full_name(spec.name.as_bytes()).unwrap().id, spec.id);
        assert!(!spec.summary.is_empty() && !spec.since.is_empty() && !spec.complexity.is_empty());
    }
}
