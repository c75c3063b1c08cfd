//! A secured cluster: users, a token and TLS, also between its processes.

use std::fs;
use std::path::PathBuf;

use fondaco_testing::Certificate;
use redis::{Client, TlsCertificates};

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::values::read_all;

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// The SHA-256 of `secret`.
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
/// The SHA-256 of `operator-password`.
const OPERATOR: &str = "59d504b980f96034e3d89ad0ad13906be95eca50df5f72697dc371b5d400574b";

/// A cluster with users, a token and TLS, which does not run yet, and the certificate of all its processes.
pub fn secured() -> (Cluster, PathBuf) {
    let mut cluster = Cluster::prepare_shared(Shape::default());
    let certificate = Certificate::make(cluster.dir.path(), "certificate", &["127.0.0.1"]);
    cluster.protect(
        &format!("token = {TOKEN:?}\n"),
        &format!(
            "{}\
             [peers]\nuser = \"node\"\npassword = \"operator-password\"\n\
             [[users]]\nname = \"node\"\npassword-sha256 = \"{OPERATOR}\"\nstores = [\"*\"]\n\
             [[users]]\nname = \"reader\"\npassword-sha256 = \"{SECRET}\"\nstores = [\"s\"]\n\
             [[users]]\nname = \"stranger\"\npassword-sha256 = \"{SECRET}\"\nstores = [\"other\"]\n",
            certificate.section()
        ),
    );
    (cluster, certificate.path)
}

/// Waits until the nodes of a secured cluster are live and have partitions.
pub fn until_whole(cluster: &Cluster, access: &[&str]) {
    until("the cluster is whole", || {
        let status = cluster.any().json(&[&["status"][..], access].concat());
        let nodes = status["cluster"]["nodes"].as_array().map_or(0, Vec::len);
        nodes == 3 && status["cluster"]["routing_epoch"].is_u64()
    });
}

#[test]
fn users_token_and_tls_also_protect_traffic_between_processes() {
    let (mut cluster, certificate) = secured();
    cluster.launch_all();
    let ca = certificate.to_str().unwrap();
    let access = ["--ca", ca, "--token", TOKEN];
    until_whole(&cluster, &access);
    let error = cluster.any().refused(1, &["status", "--ca", ca]);
    assert!(error.contains("--token"), "{error}");
    cluster.any().done(&[&["store", "create", "s"][..], &access].concat());
    let source = cluster.build(1);
    let deploy = ["deploy", "s", source.to_str().unwrap(), "--quiet"];
    cluster.any().done(&[&deploy[..], &access].concat());

    // A node that lost its data fetches it from its peers, with token and TLS.
    fs::remove_dir_all(&source).unwrap();
    cluster.kill("node-2");
    fs::remove_dir_all(cluster.data("node-2").join("stores")).unwrap();
    cluster.launch("node-2");
    until("it has it again", || {
        cluster.versions_on_disk("node-2") == ["version-1"]
    });

    let connection = |name: &str, user: &str, password: &str| {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: Some(fs::read(&certificate).unwrap()),
        };
        let address = &cluster.get(name).resp;
        let url = format!("rediss://{user}:{password}@{address}");
        Client::build_with_tls(url, certificates).unwrap().get_connection()
    };
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        until("it answers", || {
            read_all(&mut connection(name, "reader", "secret").unwrap()) == Ok(1)
        });
        let refused = read_all(&mut connection(name, "stranger", "secret").unwrap()).unwrap_err();
        assert!(refused.contains("may not read store"), "{name}: {refused}");
        assert!(connection(name, "reader", "guess").is_err());
    }
}
