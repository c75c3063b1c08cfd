//! The Redis commands over the wire, as clients send them, in both versions of the protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;

use redis::{Connection, Value};

use super::node::Dev;

/// Two stores: `a` of 2000 keys, `b` of one.
fn with_stores() -> Dev {
    let dev = Dev::start();
    dev.push("a", (0..2000).map(|n| (format!("k{n}"), format!("value of {n}"))));
    dev.push("b", [("only".to_owned(), "This is a string".to_owned())]);
    dev
}

fn ask(redis: &mut Connection, words: &[&str]) -> Result<Value, redis::RedisError> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query(redis)
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn error(redis: &mut Connection, words: &[&str]) -> String {
    let error = ask(redis, words).expect_err(&words.join(" "));
    format!(
        "{} {}",
        error.code().unwrap_or("ERR"),
        error.detail().unwrap_or_default()
    )
}

#[test]
fn every_read_command_answers_as_redis_does() {
    let dev = with_stores();
    for mut redis in [dev.redis(), dev.redis_resp3()] {
        let cases: [(&[&str], Value); 19] = [
            (&["GET", "b:only"], bulk("This is a string")),
            (&["get", "b:none"], Value::Nil),
            (
                &["MGET", "a:k1", "b:only", "a:none"],
                Value::Array(vec![bulk("value of 1"), bulk("This is a string"), Value::Nil]),
            ),
            (&["EXISTS", "a:k1", "a:k1", "a:none", "b:only"], Value::Int(3)),
            (&["STRLEN", "b:only"], Value::Int(16)),
            (&["STRLEN", "b:none"], Value::Int(0)),
            (&["GETRANGE", "b:only", "-6", "-1"], bulk("string")),
            (&["SUBSTR", "b:only", "0", "3"], bulk("This")),
            (&["TYPE", "b:only"], Value::SimpleString("string".into())),
            (&["TYPE", "b:none"], Value::SimpleString("none".into())),
            (&["TTL", "b:only"], Value::Int(-1)),
            (&["PTTL", "b:none"], Value::Int(-2)),
            (&["DBSIZE"], Value::Int(2001)),
            (&["PING", "hello"], bulk("hello")),
            (&["ECHO", "hello"], bulk("hello")),
            (&["SELECT", "0"], Value::Okay),
            (&["CLIENT", "SETNAME", "me"], Value::Okay),
            (&["CLIENT", "GETNAME"], bulk("me")),
            (&["CLIENT", "REPLY", "ON"], Value::Okay),
        ];
        for (words, expected) in cases {
            assert_eq!(ask(&mut redis, words).unwrap(), expected, "{words:?}");
        }
        assert_eq!(
            ask(&mut redis, &["RESET"]).unwrap(),
            Value::SimpleString("RESET".into())
        );
        let Value::Int(commands) = ask(&mut redis, &["COMMAND", "COUNT"]).unwrap() else {
            panic!("COMMAND COUNT is a number");
        };
        assert!(commands > 20);
    }
}

#[test]
fn every_error_has_its_code_and_a_remedy() {
    let dev = with_stores();
    dev.done(&["store", "create", "empty"]);
    let mut redis = dev.redis();
    let cases: [(&[&str], &str, &str); 13] = [
        (&["GET", "nocolon"], "BADKEY", "store:key"),
        (&["GET", "b:"], "BADKEY", "at least one byte"),
        (&["GET", "none:1"], "NOSTORE", "fondaco store"),
        (&["MGET", "b:only", "none:1"], "NOSTORE", "\"none\""),
        (&["GET", "empty:1"], "NOVERSION", "push one"),
        (&["SET", "b:only", "x"], "READONLY", "fondaco push"),
        (&["DEL", "b:only"], "READONLY", "\"b\" is a batch store"),
        (&["FLUSHALL"], "ERR", "fondaco store drop"),
        (
            &["NONSENSE", "x", "y"],
            "ERR",
            "unknown command 'NONSENSE', with args beginning with: 'x' 'y'",
        ),
        (&["GET"], "ERR", "wrong number of arguments for 'get' command"),
        (&["GETRANGE", "b:only", "x", "1"], "ERR", "not an integer"),
        (&["SELECT", "1"], "ERR", "out of range"),
        (&["SCAN", "x"], "ERR", "invalid cursor"),
    ];
    for (words, code, advice) in cases {
        let text = error(&mut redis, words);
        assert!(text.starts_with(code) && text.contains(advice), "{words:?}: {text}");
    }
    // The connection still works after an error.
    assert_eq!(ask(&mut redis, &["GET", "b:only"]).unwrap(), bulk("This is a string"));
}

#[test]
fn a_long_pipeline_of_mixed_commands_is_answered_in_order() {
    let dev = with_stores();
    let mut socket = dev.socket();
    let mut request = Vec::new();
    let mut expected = Vec::new();
    for n in 0..1000 {
        match n % 5 {
            0 => {
                let key = format!("a:k{n}");
                write!(request, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).unwrap();
                let value = format!("value of {n}");
                write!(expected, "${}\r\n{value}\r\n", value.len()).unwrap();
            }
            1 => {
                request.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
                expected.extend_from_slice(b"+PONG\r\n");
            }
            2 => {
                request.extend_from_slice(b"GET b:none\r\n");
                expected.extend_from_slice(b"$-1\r\n");
            }
            3 => {
                request.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$3\r\nb:x\r\n$1\r\n1\r\n");
                expected.extend_from_slice(
                    b"-READONLY SET writes, and \"b\" is a batch store: its data comes by push, see fondaco push\r\n",
                );
            }
            _ => {
                request.extend_from_slice(b"EXISTS b:only b:none\r\n");
                expected.extend_from_slice(b":1\r\n");
            }
        }
    }
    socket.write_all(&request).unwrap();
    let mut answer = vec![0; expected.len()];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), String::from_utf8_lossy(&expected));
}

#[test]
fn inline_commands_may_have_quotes() {
    let dev = with_stores();
    let mut socket = dev.socket_saying(b"PING\r\n\r\nget \"b:only\"\nECHO 'a b'\r\nGET \"b\r\n");
    let mut lines = BufReader::new(&mut socket).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "+PONG");
    assert_eq!((next(), next()), ("$16".into(), "This is a string".into()));
    assert_eq!((next(), next()), ("$3".into(), "a b".into()));
    assert_eq!(next(), "-ERR Protocol error: unbalanced quotes in request");
    assert!(lines.next().is_none(), "the connection ends after a protocol error");
}

#[test]
fn keys_and_values_may_have_any_bytes_and_lengths() {
    let dev = Dev::start();
    let long_key = "k".repeat(60_000);
    let long_value = "v".repeat(3_000_000);
    dev.push(
        "s",
        [
            (long_key.clone(), "short".to_owned()),
            ("empty".to_owned(), String::new()),
            ("schlüssel".to_owned(), "wert-ü".to_owned()),
            ("long".to_owned(), long_value.clone()),
        ],
    );
    let mut redis = dev.redis();
    assert_eq!(
        ask(&mut redis, &["GET", &format!("s:{long_key}")]).unwrap(),
        bulk("short")
    );
    assert_eq!(ask(&mut redis, &["GET", "s:empty"]).unwrap(), bulk(""));
    assert_eq!(ask(&mut redis, &["GET", "s:schlüssel"]).unwrap(), bulk("wert-ü"));
    assert_eq!(ask(&mut redis, &["GET", "s:long"]).unwrap(), bulk(&long_value));
    assert_eq!(dev.done(&["get", "s:schlüssel"]), "wert-ü");
    assert_eq!(dev.done(&["get", "s:long"]).len(), long_value.len());
}

#[test]
fn redis_cli_works_as_it_does_with_redis() {
    let dev = with_stores();
    let port = dev.resp.rsplit(':').next().unwrap();
    let cli = |arguments: &[&str]| {
        let output = Command::new("redis-cli")
            .args(["-p", port])
            .args(arguments)
            .output()
            .ok()?;
        assert!(output.status.success(), "{arguments:?}");
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let Some(value) = cli(&["GET", "b:only"]) else {
        return println!("skipped: there is no redis-cli (apt-get install redis-tools)");
    };
    assert_eq!(value, "This is a string\n");
    assert_eq!(
        cli(&["-3", "MGET", "b:only", "b:none"]).unwrap(),
        "This is a string\n\n"
    );
    // The source of its completion and hints.
    let documents = cli(&["COMMAND", "DOCS", "GET"]).unwrap();
    assert!(
        documents.contains("summary") && documents.contains("arguments"),
        "{documents}"
    );
    assert_eq!(cli(&["--scan", "--pattern", "b:*"]).unwrap(), "b:only\n");
    assert!(cli(&["INFO", "server"]).unwrap().contains("fondaco_version"));
    assert_eq!(cli(&["DBSIZE"]).unwrap(), "2001\n");
}

#[test]
fn redis_benchmark_runs_unmodified() {
    let dev = Dev::start();
    // The key that its own GET test reads.
    dev.push("key", [("__rand_int__".to_owned(), "xxx".to_owned())]);
    let port = dev.resp.rsplit(':').next().unwrap();
    let output = Command::new("redis-benchmark")
        .args(["-p", port, "-n", "10000", "-P", "16", "-q", "-t", "get"])
        .output();
    let Ok(output) = output else {
        return println!("skipped: there is no redis-benchmark (apt-get install redis-tools)");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text} {errors}");
    assert!(text.contains("GET:") && text.contains("requests per second"), "{text}");
    assert!(!text.contains("ERR") && !errors.contains("ERR"), "{text} {errors}");
}
