//! Access control: users and their stores, the token, TLS, and no unprotected port by mistake.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use fondaco_testing::Certificate;
use redis::{Client, TlsCertificates};

use super::node::{Node, fondaco, of_csv, write_csv};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// The SHA-256 of `secret`.
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
/// The SHA-256 of `operator-password`.
const OPERATOR: &str = "59d504b980f96034e3d89ad0ad13906be95eca50df5f72697dc371b5d400574b";

/// A configuration file; `more` follows the addresses.
fn configuration(dir: &Path, more: &str) -> PathBuf {
    let path = dir.join("fondaco.toml");
    let data = dir.join("data");
    let text = format!("data = {data:?}\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n{more}");
    fs::write(&path, text).unwrap();
    path
}

fn users() -> String {
    format!(
        "token = \"{TOKEN}\"\n\
         [[users]]\nname = \"reader\"\npassword-sha256 = \"{SECRET}\"\nstores = [\"a\"]\n\
         [[users]]\nname = \"default\"\npassword-sha256 = \"{OPERATOR}\"\nstores = [\"*\"]\nadmin = true\n"
    )
}

fn push(node: &Node, dir: &Path, store: &str, more: &[&str]) {
    let csv = dir.join("input.csv");
    write_csv(&csv, [("1".to_owned(), format!("value in {store}"))]);
    node.done(&of_csv("push", store, &csv, &[&["--create"], more].concat()));
}

fn get(redis: &mut redis::Connection, key: &str) -> Result<String, String> {
    let answer = redis::cmd("GET").arg(key).query(redis);
    answer.map_err(|error| error.code().unwrap_or_default().to_owned())
}

#[test]
fn a_user_reads_only_its_permitted_stores() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::server(&configuration(dir.path(), &users()));
    push(&node, dir.path(), "a", &["--token", TOKEN]);
    push(&node, dir.path(), "b", &["--token", TOKEN]);

    let mut stranger = node.redis();
    assert_eq!(get(&mut stranger, "a:1"), Err("NOAUTH".to_owned()));
    let login = |password| {
        Client::open(format!("redis://reader:{password}@{}", node.resp))
            .unwrap()
            .get_connection()
    };
    assert!(login("wrong").is_err());

    let mut reader = node.redis_as("reader:secret@");
    assert_eq!(get(&mut reader, "a:1"), Ok("value in a".to_owned()));
    assert_eq!(get(&mut reader, "b:1"), Err("NOPERM".to_owned()));
    let both: Result<Vec<String>, _> = redis::cmd("MGET").arg(&["a:1", "b:1"]).query(&mut reader);
    assert_eq!(both.unwrap_err().code(), Some("NOPERM"));
    let (_, keys): (u64, Vec<String>) = redis::cmd("SCAN").arg(0).query(&mut reader).unwrap();
    assert_eq!(keys, ["a:1"]);
    assert_eq!(redis::cmd("DBSIZE").query(&mut reader), Ok(1));
    let follow = |redis: &mut redis::Connection, store: &str| -> redis::RedisResult<redis::Value> {
        redis::cmd("XREAD").arg(&["STREAMS", store, "0"]).query(redis)
    };
    assert!(follow(&mut reader, "a").is_ok());
    assert_eq!(follow(&mut reader, "b").unwrap_err().code(), Some("NOPERM"));
    let set: redis::RedisResult<()> = redis::cmd("CONFIG").arg(&["SET", "maxclients", "5"]).query(&mut reader);
    assert_eq!(set.unwrap_err().code(), Some("NOPERM"));
    let others: redis::RedisResult<String> = redis::cmd("CLIENT").arg("LIST").query(&mut reader);
    assert_eq!(others.unwrap_err().code(), Some("NOPERM"));

    let mut operator = node.redis_as(":operator-password@");
    assert_eq!(get(&mut operator, "b:1"), Ok("value in b".to_owned()));
    let set: redis::RedisResult<()> = redis::cmd("CONFIG")
        .arg(&["SET", "maxclients", "50"])
        .query(&mut operator);
    assert_eq!(set, Ok(()));

    let scan = |more: &[&str]| node.run(&[&["scan", "a"], more].concat());
    assert!(!scan(&[]).status.success());
    assert_eq!(scan(&["--user", "reader", "--password", "secret"]).stdout, b"a:1\n");
}

#[test]
fn a_user_sees_only_its_permitted_graphs() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::server(&configuration(dir.path(), &users()));
    let edges = dir.path().join("edges.csv");
    fs::write(&edges, "from,to\nann,bob\nbob,cid\n").unwrap();
    for graph in ["a", "b"] {
        let arguments = ["push", graph, edges.to_str().unwrap(), "--edges", "from,to", "--create"];
        node.done(&[&arguments[..], &["--token", TOKEN]].concat());
    }
    let list = |redis: &mut redis::Connection| redis::cmd("GRAPH.LIST").query::<Vec<String>>(redis);
    let mut reader = node.redis_as("reader:secret@");
    let mut operator = node.redis_as(":operator-password@");
    assert_eq!(list(&mut reader), Ok(vec!["a".to_owned()]));
    assert_eq!(list(&mut operator), Ok(vec!["a".to_owned(), "b".to_owned()]));
    let all = "MATCH (a) RETURN count(a)";
    let commands: [(&[&str], &[&str]); 5] = [
        (&["GRAPH.QUERY"], &[all]),
        (&["GRAPH.RO_QUERY"], &[all]),
        (&["GRAPH.EXPLAIN"], &[all]),
        (&["GRAPH.PROFILE"], &[all]),
        (&["FONDACO.GRAPH", "NEIGHBOURS"], &["EDGE", "ann"]),
    ];
    for (command, rest) in commands {
        let ask = |redis: &mut redis::Connection, graph: &str| {
            let mut asked = redis::Cmd::new();
            let words = command.iter().chain([&graph]).chain(rest);
            words.for_each(|word| _ = asked.arg(word));
            asked.query::<redis::Value>(redis)
        };
        let code = |answer: redis::RedisResult<redis::Value>| answer.unwrap_err().code().map(str::to_owned);
        assert!(ask(&mut reader, "a").is_ok(), "{command:?}");
        assert!(ask(&mut operator, "b").is_ok(), "{command:?}");
        assert_eq!(code(ask(&mut reader, "b")).as_deref(), Some("NOPERM"), "{command:?}");
        // A store that is not there looks the same as one that the user may not read.
        assert_eq!(code(ask(&mut reader, "c")).as_deref(), Some("NOPERM"), "{command:?}");
        let unknown = code(ask(&mut node.redis(), "a"));
        assert_eq!(unknown.as_deref(), Some("NOAUTH"), "{command:?}");
    }
    for change in ["FONDACO.EDGE ADD a EDGE ann cid", "FONDACO.VERTEX REMOVE a ann"] {
        let make = |redis: &mut redis::Connection| {
            let mut command = redis::Cmd::new();
            change.split(' ').for_each(|word| _ = command.arg(word));
            command.query::<redis::Value>(redis).unwrap_err().to_string()
        };
        let refusal = make(&mut reader);
        assert!(refusal.contains("may not write"), "{change}: {refusal}");
    }
}

#[test]
fn the_control_port_requires_its_token_except_for_health_checks() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::server(&configuration(dir.path(), &users()));
    let error = node.refused(1, &["status"]);
    assert!(error.contains("--token"), "{error}");
    let error = node.refused(1, &["status", "--token", "0123456789abcdef0123456789abcdeF"]);
    assert!(error.contains("the token: it is wrong"), "{error}");
    node.done(&["status", "--token", TOKEN]);
    assert_eq!(node.http_get("/healthz")["alive"], true);
}

#[test]
fn with_tls_configured_both_ports_speak_only_tls() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = Certificate::make(dir.path(), "certificate", &["localhost", "127.0.0.1"]);
    let node = Node::server(&configuration(dir.path(), &certificate.section()));
    let ca = certificate.path.to_str().unwrap();
    push(&node, dir.path(), "a", &["--ca", ca]);
    assert_eq!(node.done(&["get", "a:1", "--ca", ca]), "value in a");
    assert_eq!(node.done(&["scan", "a", "--ca", ca]), "a:1\n");

    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(fs::read(&certificate.path).unwrap()),
    };
    let client = Client::build_with_tls(format!("rediss://{}", node.resp), certificates).unwrap();
    assert_eq!(
        get(&mut client.get_connection().unwrap(), "a:1"),
        Ok("value in a".to_owned())
    );
    // A client that does not trust the certificate does not connect.
    let error = node.refused(1, &["status", "--tls"]);
    assert!(error.contains("--ca"), "{error}");
    for command in [&["status"][..], &["scan", "a"]] {
        let error = node.refused(1, command);
        assert!(error.contains("speaks TLS: use --tls"), "{error}");
    }
    let mut plain = node.socket_saying(b"PING\r\n");
    let mut answer = Vec::new();
    // An alert or the end of the connection; a reset ends it too.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"+PONG"));
    let port = node.resp.rsplit(':').next().unwrap();
    if let Ok(output) = Command::new("redis-cli")
        .args(["-p", port, "--tls", "--cacert", ca, "GET", "a:1"])
        .output()
    {
        assert_eq!(
            output.stdout,
            b"value in a\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn all_commands_trust_a_self_signed_openssl_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let hosts = ["localhost", "127.0.0.1"];
    // An equivalent of the certificate of openssl, which stays if there is no openssl.
    let certificate = Certificate::make_authority(dir.path(), "certificate", &hosts);
    let request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost";
    let _ = Command::new("openssl")
        .args(request.split(' '))
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
        .arg(&certificate.key)
        .arg("-out")
        .arg(&certificate.path)
        .output();
    // The token comes before all tables.
    let node = Node::server(&configuration(dir.path(), &(users() + &certificate.section())));
    let ca = certificate.path.to_str().unwrap();
    let access = ["--ca", ca, "--token", TOKEN];
    push(&node, dir.path(), "a", &access);
    assert_eq!(node.done(&[&["get", "a:1"][..], &access].concat()), "value in a");
    let login = ["--user", "reader", "--password", "secret"];
    assert_eq!(node.done(&[&["scan", "a", "--ca", ca][..], &login].concat()), "a:1\n");
    let wrong = node.refused(1, &["scan", "a", "--ca", ca, "--user", "reader", "--password", "guess"]);
    assert!(wrong.contains("--password"), "{wrong}");

    // Another certificate with the same names is not trusted.
    let other = Certificate::make(dir.path(), "other", &hosts);
    let other = other.path.to_str().unwrap();
    let error = node.refused(1, &["status", "--ca", other, "--token", TOKEN]);
    assert!(error.contains("--ca"), "{error}");
    node.refused(1, &[&["scan", "a", "--ca", other][..], &login].concat());
}

#[test]
fn a_missing_handshake_delays_no_other_client() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = Certificate::make(dir.path(), "certificate", &["127.0.0.1"]);
    let node = Node::server(&configuration(dir.path(), &certificate.section()));
    let silent: Vec<_> = (0..50)
        .map(|at| {
            let address = if at % 2 == 0 { &node.resp } else { &node.http };
            let mut socket = std::net::TcpStream::connect(address).unwrap();
            socket.write_all(&[22, 3, 1]).unwrap();
            socket
        })
        .collect();
    node.done(&["status", "--ca", certificate.path.to_str().unwrap()]);
    drop(silent);
}

#[test]
fn unprotected_network_access_must_be_enabled_explicitly() {
    let dir = tempfile::tempdir().unwrap();
    let start = |more: &[&str]| {
        fondaco()
            .args(["dev", "--data", dir.path().to_str().unwrap()])
            .args(more)
            .output()
            .unwrap()
    };
    for open in [
        ["--resp", "0.0.0.0:0", "--http", "127.0.0.1:0"],
        ["--resp", "127.0.0.1:0", "--http", "0.0.0.0:0"],
    ] {
        let output = start(&open);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(error.contains("refusing") && error.contains("allow"), "{error}");
    }
}

#[test]
fn users_without_a_token_must_be_enabled_explicitly() {
    let dir = tempfile::tempdir().unwrap();
    let users = users().replace(&format!("token = \"{TOKEN}\"\n"), "");
    let path = configuration(dir.path(), &users);
    let output = fondaco().arg("server").arg("--config").arg(&path).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("--token") && error.contains("--allow-insecure"),
        "{error}"
    );

    let mut command = fondaco();
    command
        .args(["server", "--allow-insecure", "--log", "error", "--config"])
        .arg(&path);
    let node = Node::start(command);
    node.done(&["status"]);
}

#[test]
fn a_configuration_error_is_reported_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = configuration(dir.path(), "partitons = 8\n");
    let output = fondaco().arg("server").arg("--config").arg(&path).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("partitons") && error.contains("line 4"), "{error}");
}

#[test]
fn a_certificate_that_is_not_trusted_is_an_error_in_words_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str| Certificate::make_authority(dir.path(), name, &["127.0.0.1"]);
    let (own, other) = (make("own"), make("other"));
    let node = Node::server(&configuration(dir.path(), &own.section()));
    let other = other.path.to_str().unwrap();
    for trust in [&["--tls"][..], &["--ca", other]] {
        for command in [
            &["status", "--http", &node.http][..],
            &["scan", "s", "--resp", &node.resp],
        ] {
            let output = fondaco().args(command).args(trust).output().unwrap();
            let told = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success(), "{command:?}");
            assert!(told.contains("its certificate is self-signed"), "{told}");
            assert!(told.contains("--ca FILE") && !told.contains("Other("), "{told}");
        }
    }
    let ca = own.path.to_str().unwrap();
    node.done(&["status", "--ca", ca]);
    let port = node.http.rsplit_once(':').unwrap().1;
    let output = fondaco()
        .args(["status", "--ca", ca, "--http", &format!("localhost:{port}")])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("not valid for name \"localhost\""), "{told}");
}
