//! Access control.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fondaco_protocol::Signature;
use fondaco_protocol::{RequestKey, SignedRequest};
use fondaco_roles::{Fondaco, Running, TlsConfig};
use serde_json::{Value, json};

use crate::harness::{Client, TestNode, config};

const TOKEN: &str = "a token of some length";

fn stop(running: Running) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(running.shutdown());
}

#[test]
fn without_the_token_only_health_and_readiness_answer() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.token = Some(TOKEN.to_owned());
    let running = Fondaco::start(config).unwrap();
    let mut client = Client::new(running.http_addr());
    for token in [
        None,
        Some("another token, not ours"),
        Some(""),
        Some("a token of some lengt"),
    ] {
        client.token = token.map(str::to_owned);
        for path in [
            "/v1/stores",
            "/metrics",
            "/openapi.json",
            "/v1/settings",
            "/v1/lookup",
            "/nowhere",
        ] {
            client.refused("GET", path, Value::Null, 401, "unauthorized");
        }
        assert_eq!(client.call("GET", "/healthz", Value::Null).0, 200);
        assert_eq!(client.call("GET", "/readyz", Value::Null).0, 200);
    }
    client.token = Some(TOKEN.to_owned());
    client.get("/v1/stores");
    let answer = exchange(
        running.http_addr(),
        b"GET /v1/stores HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    );
    assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
    stop(running);
}

/// The answer of a server to some bytes, until it closes the connection.
pub fn exchange(addr: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn foreign_web_pages_cannot_use_a_port_without_token() {
    let node = TestNode::start();
    let port = node.client.addr.port();
    let post = |host: &str, origin: &str| {
        let head = format!("POST /v1/stores HTTP/1.1\r\nhost: {host}:{port}\r\norigin: {origin}\r\n");
        let body = format!("{{\"name\":\"s{}\"}}", origin.len());
        let rest = format!("connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        exchange(node.client.addr, format!("{head}{rest}").as_bytes())
    };
    for (host, origin) in [
        ("127.0.0.1", "https://example.org".to_owned()),
        ("127.0.0.1", format!("http://localhost:{port}")),
        ("127.0.0.1", "null".to_owned()),
    ] {
        let answer = post(host, &origin);
        assert!(
            answer.starts_with("HTTP/1.1 403") && answer.contains("foreign_origin"),
            "{answer}"
        );
    }
    let answer = post("127.0.0.1", &format!("http://127.0.0.1:{port}"));
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

/// A request with additional headers only.
fn get(addr: SocketAddr, path: &str, headers: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    exchange(addr, request.as_bytes())
}

#[test]
fn dns_rebinding_does_not_reach_a_port_without_a_token() {
    let node = TestNode::start();
    let addr = node.client.addr;
    let port = addr.port();
    for path in [
        "/v1/stores",
        "/v1/stores/pymk/keys/1",
        "/metrics",
        "/healthz",
        "/readyz",
        "/nowhere",
    ] {
        for headers in [
            format!("host: example.org:{port}\r\n"),
            "host: example.org\r\n".to_owned(),
            format!("host: localhost.example.org:{port}\r\n"),
            format!("host: 127.0.0.1.example.org:{port}\r\n"),
            format!("host: 127.0.0.1@example.org:{port}\r\n"),
            format!("host: 127.0.0.1:{port}\r\nhost: example.org\r\n"),
            format!("host: example.org\r\norigin: http://example.org:{port}\r\n"),
            "host: \r\n".to_owned(),
        ] {
            let answer = get(addr, path, &headers);
            assert!(
                answer.starts_with("HTTP/1.1 421") && answer.contains("foreign_host"),
                "{path} with {headers:?}: {answer}"
            );
            assert!(answer.contains("localhost") && answer.contains("token"), "{answer}");
        }
    }
    let answer = get(
        addr,
        "http://example.org/v1/stores",
        &format!("host: 127.0.0.1:{port}\r\n"),
    );
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
    for host in ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "10.1.2.3"] {
        let answer = get(addr, "/v1/stores", &format!("host: {host}:{port}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
    // Health checks of old load balancers send no host.
    let answer = exchange(addr, b"GET /healthz HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}

#[test]
fn a_port_answers_to_its_advertised_name_or_with_token() {
    let dir = tempfile::tempdir().unwrap();
    let mut advertised = config(dir.path());
    advertised.member.http_advertised = Some("node-7.example:6580".to_owned());
    let running = Fondaco::start(advertised).unwrap();
    let answer = |running: &Running, host: &str, more: &str| {
        get(running.http_addr(), "/v1/stores", &format!("host: {host}\r\n{more}"))
    };
    assert!(answer(&running, "node-7.example:1", "").starts_with("HTTP/1.1 200"));
    assert!(answer(&running, "node-8.example:1", "").starts_with("HTTP/1.1 421"));
    stop(running);

    let mut protected = config(dir.path());
    protected.token = Some(TOKEN.to_owned());
    let running = Fondaco::start(protected).unwrap();
    let more = format!("authorization: Bearer {TOKEN}\r\n");
    assert!(answer(&running, "example.org", &more).starts_with("HTTP/1.1 200"));
    assert!(answer(&running, "example.org", "").starts_with("HTTP/1.1 401"));
    stop(running);
}

#[test]
fn all_errors_have_the_same_shape() {
    let node = TestNode::start();
    let client = &node.client;
    client.refused("GET", "/v2", Value::Null, 404, "route_not_found");
    client.refused("PUT", "/v1/stores", json!({}), 405, "method_not_allowed");
    client.refused("GET", "/v1/stores/%ff", Value::Null, 400, "invalid_request");
    for (method, path) in [
        ("POST", "/v1/stores"),
        ("POST", "/v1/stores/pymk/swap?wait=perhaps"),
        ("GET", "/v1/stores/pymk/versions/one/files/manifest.json"),
        ("POST", "/v1/dev/members/%ff/stop"),
    ] {
        client.refused(method, path, json!([]), 400, "invalid_request");
    }
    let keys = vec!["pymk:x"; 1001];
    client.refused("POST", "/v1/lookup", json!({"keys": keys}), 400, "invalid_request");
    let (status, _, answer) = client.raw("POST", "/v1/lookup", &vec![b' '; (16 << 20) + 1]).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(status == 413 && answer.contains("body_too_large"), "{status} {answer}");
}

#[test]
fn tls_serves_both_ports_and_slow_handshakes_delay_no_client() {
    let dir = tempfile::tempdir().unwrap();
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/tls");
    let mut config = config(dir.path());
    config.tls = Some(TlsConfig {
        certificate: files.join("certificate.pem"),
        key: files.join("key.pem"),
    });
    let running = Fondaco::start(config).unwrap();
    // Some clients that connect and send nothing.
    let _silent: Vec<_> = (0..20)
        .map(|_| TcpStream::connect(running.http_addr()).unwrap())
        .collect();

    let pem = std::fs::read(files.join("certificate.pem")).unwrap();
    let root = ureq::tls::Certificate::from_pem(&pem).unwrap();
    let tls = ureq::tls::TlsConfig::builder()
        .root_certs(ureq::tls::RootCerts::new_with_certs(&[root]))
        .build();
    let agent: ureq::Agent = ureq::Agent::config_builder().tls_config(tls).build().into();
    let url = format!("https://localhost:{}/healthz", running.http_addr().port());
    let mut answer = agent.get(&url).call().unwrap();
    let answer: Value = serde_json::from_reader(answer.body_mut().as_reader()).unwrap();
    assert_eq!(answer, json!({"alive": true}));
    let answer = exchange(running.resp_addr().unwrap(), b"PING\r\n");
    assert!(!answer.contains("PONG"), "RESP without TLS is answered");
    stop(running);
}

/// The kind of a TLS handshake, after a `PING` was answered.
fn handshake(addr: SocketAddr, client: &std::sync::Arc<rustls::ClientConfig>) -> rustls::HandshakeKind {
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut connection = rustls::ClientConnection::new(std::sync::Arc::clone(client), name).unwrap();
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut tls = rustls::Stream::new(&mut connection, &mut stream);
    tls.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    tls.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    connection.handshake_kind().unwrap()
}

#[test]
fn a_returning_client_resumes_its_tls_session() {
    use rustls::pki_types::pem::PemObject;

    let dir = tempfile::tempdir().unwrap();
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/tls");
    let mut config = config(dir.path());
    config.tls = Some(TlsConfig {
        certificate: files.join("certificate.pem"),
        key: files.join("key.pem"),
    });
    let running = Fondaco::start(config).unwrap();
    let addr = running.resp_addr().unwrap();
    let client = || {
        let mut roots = rustls::RootCertStore::empty();
        let certificate = rustls::pki_types::CertificateDer::from_pem_file(files.join("certificate.pem"));
        roots.add(certificate.unwrap()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        std::sync::Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    };
    let one = client();
    assert_eq!(handshake(addr, &one), rustls::HandshakeKind::Full);
    assert_eq!(handshake(addr, &one), rustls::HandshakeKind::Resumed);
    let other = client();
    for _ in 0..300 {
        handshake(addr, &other);
    }
    assert_eq!(handshake(addr, &one), rustls::HandshakeKind::Resumed);
    stop(running);
}

/// Sends a signed request. Returns its answer.
fn send_signed(addr: SocketAddr, signature: &Signature, signed: &SignedRequest<'_>, body: &str) -> String {
    let SignedRequest {
        method, target, range, ..
    } = signed;
    let range = match *range {
        "" => String::new(),
        range => format!("range: {range}\r\n"),
    };
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: {addr}\r\nauthorization: {signature}\r\n{range}content-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    exchange(addr, request.as_bytes())
}

#[test]
fn a_signed_request_is_accepted_once_here_within_a_minute() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.token = Some(TOKEN.to_owned());
    let running = Fondaco::start(config).unwrap();
    let addr = running.http_addr();
    let own = addr.to_string();
    let key = RequestKey::new(TOKEN);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let get = SignedRequest {
        method: "GET",
        target: "/v1/stores?x=1",
        recipient: &own,
        range: "",
    };
    let is = |answer: &str, status: u16| {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    };

    let signature = key.sign(&get, b"", now);
    is(&send_signed(addr, &signature, &get, ""), 200);
    // It is not accepted twice.
    let again = send_signed(addr, &signature, &get, "");
    is(&again, 401);
    assert!(again.contains("received before"), "{again}");
    // Nor for any other request.
    for other in [
        SignedRequest {
            target: "/v1/stores?x=2",
            ..get
        },
        SignedRequest {
            target: "/v1/nodes",
            ..get
        },
        SignedRequest {
            method: "DELETE",
            ..get
        },
        SignedRequest {
            range: "bytes=0-",
            ..get
        },
    ] {
        is(&send_signed(addr, &key.sign(&get, b"", now), &other, ""), 401);
    }
    let elsewhere = SignedRequest {
        recipient: "10.0.0.1:6580",
        ..get
    };
    is(&send_signed(addr, &key.sign(&elsewhere, b"", now), &get, ""), 401);
    is(
        &send_signed(addr, &RequestKey::new("another token").sign(&get, b"", now), &get, ""),
        401,
    );
    for time in [now - 10 * 60_000, now + 10 * 60_000] {
        let answer = send_signed(addr, &key.sign(&get, b"", time), &get, "");
        is(&answer, 401);
        // The node answers with its own time, which the sender can use.
        assert!(answer.contains("fondaco-time: "), "{answer}");
    }

    let post = SignedRequest {
        method: "POST",
        target: "/v1/stores",
        ..get
    };
    let (body, other) = (r#"{"name": "signed"}"#, r#"{"name": "forged"}"#);
    is(
        &send_signed(addr, &key.sign(&post, body.as_bytes(), now), &post, other),
        401,
    );
    is(
        &send_signed(addr, &key.sign(&post, body.as_bytes(), now), &post, body),
        201,
    );
    stop(running);
}

#[test]
fn a_body_with_two_lengths_is_refused_and_disconnected() {
    let node = TestNode::start();
    let chunked = "f\r\n{\"name\":\"ab-c\"}\r\n0\r\n\r\n";
    let post = |framing: &str| {
        let head = format!("POST /v1/stores HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n");
        let behind = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        exchange(node.client.addr, format!("{head}{chunked}{behind}").as_bytes())
    };
    for framing in [
        "content-length: 3\r\ntransfer-encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
    ] {
        let answer = post(framing);
        assert!(
            answer.starts_with("HTTP/1.1 400") && answer.contains("Transfer-Encoding"),
            "{answer}"
        );
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    let answer = post("transfer-encoding: chunked\r\n");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}
