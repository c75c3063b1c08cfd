//! Coordination by a ZooKeeper that is reached by TLS.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use fondaco_coordination::{Coordination, CoordinationError, ZooKeeperCoordination, ZooKeeperTls};
use fondaco_testing::{ZooKeeper, eventually};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::clients::{own_root, path, settings};
use crate::conformance::conformance;

/// An authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A certificate names the authority that signed it; of two with one name, a client would try the wrong one's key.
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// A certificate for a name or an address, and its key.
    fn certify(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A ZooKeeper with a certificate for 127.0.0.1.
struct Secure {
    _server: ZooKeeper,
    _dir: TempDir,
    address: String,
}

impl Secure {
    fn start(authority: &Authority) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| -> PathBuf {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (certificate, key) = authority.certify("127.0.0.1");
        let keys = file("keys.pem", key + &certificate);
        let trusted = file("trusted.pem", authority.pem.clone());
        let (server, port) = ZooKeeper::start_secure(&keys, &trusted);
        Self {
            _server: server,
            _dir: dir,
            address: format!("127.0.0.1:{port}"),
        }
    }
}

fn session(server: &str, root: &str, tls: ZooKeeperTls) -> Result<ZooKeeperCoordination, CoordinationError> {
    let mut settings = settings(server, root);
    settings.tls = Some(tls);
    ZooKeeperCoordination::connect(settings)
}

/// The error of a session that cannot be made: it says this.
fn refusal(server: &str, tls: ZooKeeperTls, says: &str) -> String {
    let mut settings = settings(server, &own_root());
    settings.tls = Some(tls);
    settings.call_timeout_ms = Duration::from_secs(5).as_millis() as u64;
    let session = ZooKeeperCoordination::connect(settings).unwrap();
    // The end of a connection may come before its reason; then another attempt finds it.
    eventually(&format!("an error that says {says}"), || {
        let error = session.read(&path("a")).unwrap_err();
        let is_refused = matches!(error, CoordinationError::Untrusted { .. });
        println!("{error}");
        let error = error.to_string();
        (is_refused && error.contains(says)).then_some(error)
    })
}

#[test]
fn it_conforms_over_tls_and_refuses_strangers() {
    let (authority, stranger) = (Authority::new("trusted"), Authority::new("stranger"));
    let server = Secure::start(&authority);
    let good = || ZooKeeperTls {
        authorities: authority.pem.clone(),
        identity: Some(authority.certify("client")),
    };
    let root = own_root();
    conformance(|| std::sync::Arc::new(session(&server.address, &root, good()).unwrap()));

    // The server has a certificate of an authority that is not trusted.
    let error = refusal(
        &server.address,
        ZooKeeperTls {
            authorities: stranger.pem.clone(),
            ..good()
        },
        "UnknownIssuer",
    );
    assert!(
        error.contains(&server.address) && error.contains("[zookeeper]"),
        "{error}"
    );
    // Its certificate is for another name.
    let port = server.address.rsplit(':').next().unwrap();
    refusal(&format!("localhost:{port}"), good(), "not valid for name");
    // The server asks for a certificate, and trusts only its own authority.
    for identity in [None, Some(stranger.certify("client"))] {
        refusal(&server.address, ZooKeeperTls { identity, ..good() }, "alert");
    }
    // The port is not one for TLS.
    let plain = server._server.address();
    refusal(&plain, good(), &plain);
}

#[test]
fn certificates_that_cannot_be_used_are_refused_at_once() {
    let authority = Authority::new("trusted");
    let (certificate, key) = authority.certify("client");
    let (_, other) = authority.certify("other");
    let refused = |server: &str, authorities: &str, identity: Option<(String, String)>| {
        let tls = ZooKeeperTls {
            authorities: authorities.to_owned(),
            identity,
        };
        let error = session(server, &own_root(), tls).err().expect("it is refused");
        assert!(matches!(error, CoordinationError::InvalidTls { .. }), "{error}");
        error.to_string()
    };
    assert!(refused("a:1", "", None).contains("ca: it has no certificate"));
    let mixed = refused("a:1", &authority.pem, Some((certificate.clone(), other)));
    assert!(mixed.contains("certificate and key"), "{mixed}");
    assert!(refused("a:1", &authority.pem, Some((certificate, "x".to_owned()))).contains("key"));
    assert!(refused("[::1]:1", &authority.pem, None).contains("[::1]:1"));
    assert!(!format!("{key:?}").is_empty());
}
