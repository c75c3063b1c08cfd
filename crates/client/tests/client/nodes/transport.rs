//! The client's authentication and transport.

use std::sync::Arc;

use fondaco_client::{ClientError, Partial, ReadOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_rustls::TlsAcceptor;

use super::harness::{Cluster, keys, name, until, value_in, value_of, within};
use super::server::{Behaviour, Node};

#[tokio::test]
async fn every_connection_proves_the_password_without_sending_it() {
    let cluster = Cluster::start(2, 1).await;
    for node in &cluster.nodes {
        node.state(|state| state.password = Some("secret"));
    }
    let builder = cluster.builder().credentials(Some("reader".into()), "secret".into());
    let client = cluster.connected(builder.connections_per_node(3)).await;
    until("all connections are there", || {
        client.stats().nodes.iter().all(|node| node.connections == 3)
    })
    .await;
    let reply = client.get_many(&keys(20), &Default::default()).await.unwrap();
    assert!(reply.values.iter().all(Result::is_ok));
    for node in &cluster.nodes {
        let told = node.state(|state| state.introductions.concat());
        assert!(told.contains(&"FONDACO.PROVE".to_owned()), "{told:?}");
        assert!(told.iter().all(|word| !word.contains("secret")), "{told:?}");
    }
}

/// An attacker has written another address, or that of their own server, into the coordination service.
#[tokio::test]
async fn a_server_that_cannot_prove_its_identity_is_not_used() {
    let cluster = Cluster::start(3, 1).await;
    let [good, impostor, relay] = &cluster.nodes[..] else {
        unreachable!()
    };
    good.state(|state| state.password = Some("secret"));
    impostor.state(|state| (state.password, state.is_impostor) = (Some("guess"), true));
    // It would relay requests to the node whose name it claims.
    let name_of_good = good.address.to_string();
    relay.state(|state| (state.password, state.calls_itself) = (Some("secret"), name_of_good));
    let builder = cluster.builder().credentials(None, "secret".into());
    let client = builder.connect().await.unwrap();
    let suspended = || -> Vec<bool> { client.stats().nodes.iter().map(|node| node.suspended).collect() };
    until("all were tried", || suspended() == [false, true, true]).await;
    let told = relay.state(|state| state.introductions.concat());
    assert!(!told.contains(&"FONDACO.PROVE".to_owned()), "{told:?}");
    assert_eq!(impostor.reads() + relay.reads(), 0);
}

#[tokio::test]
async fn a_wrong_password_is_reported_and_never_sent() {
    let cluster = Cluster::start(1, 1).await;
    cluster.nodes[0].state(|state| state.password = Some("secret"));
    let builder = cluster.builder().credentials(None, "not the secret".into());
    assert!(!format!("{builder:?}").contains("not the secret"));
    let client = builder.connect().await.unwrap();
    until("it was tried", || client.stats().nodes[0].suspended).await;
    let error = client.get(&name("s"), b"k").await;
    assert!(matches!(error, Err(ClientError::Unavailable { .. })), "{error:?}");
}

#[tokio::test]
async fn the_client_uses_tls_if_configured() {
    // Like a certificate of `openssl req -x509`: it is its own authority.
    let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&signing_key).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(Node::start(Some(acceptor.clone())).await);
    }
    let cluster = Cluster::of(nodes, 2);
    let config = fondaco_client::trusting(cert.pem().as_bytes()).unwrap();
    let client = cluster.connected(cluster.builder().tls(config)).await;
    assert_eq!(client.get(&name("s"), b"k").await, Ok(Some(value_of(1, "k"))));
    let reply = client.get_many(&keys(500), &Default::default()).await.unwrap();
    assert!(reply.values.iter().all(Result::is_ok));
    // A client that does not trust the certificate is refused.
    let stranger = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let stranger = cluster.builder().tls(Arc::new(stranger)).connect().await.unwrap();
    until("it was tried", || {
        stranger.stats().nodes.iter().all(|node| node.suspended)
    })
    .await;
}

#[tokio::test]
async fn simultaneous_requests_are_combined() {
    let cluster = Cluster::start(1, 1).await;
    let client = cluster.client().await;
    let before = cluster.nodes[0].state(|state| state.receptions);
    let reads: Vec<_> = keys(100)
        .into_iter()
        .map(|(store, key)| {
            let client = client.clone();
            tokio::spawn(async move { client.get(&store, key.as_bytes()).await })
        })
        .collect();
    for read in reads {
        read.await.unwrap().unwrap();
    }
    let receptions = cluster.nodes[0].state(|state| state.receptions) - before;
    assert!(receptions <= 10, "{receptions} writes for 100 requests");
    let asked: Vec<usize> = cluster.nodes[0].state(|state| state.reads.iter().map(|read| read.keys.len()).collect());
    assert_eq!(asked.iter().sum::<usize>(), 100);
    assert!(asked.len() <= 20, "requests for the same store are combined: {asked:?}");
}

/// Another client becomes ready while the runtime is busy with the first two.
#[tokio::test]
async fn requests_are_combined_with_those_of_clients_that_are_ready_by_then() {
    let cluster = Cluster::start(1, 1).await;
    let client = cluster.client().await;
    let (all, options) = (keys(30), ReadOptions::default());
    for _ in 0..100 {
        let before = cluster.nodes[0].reads();
        let (mut signal, mut ready) = UnixStream::pair().unwrap();
        let (other, theirs) = (client.clone(), all[20..].to_vec());
        let later = tokio::spawn(async move {
            ready.read_u8().await.unwrap();
            other.get_many(&theirs, &ReadOptions::default()).await
        });
        // From now on it waits for its socket.
        tokio::task::yield_now().await;
        signal.write_u8(1).await.unwrap();
        let (one, two) = tokio::join!(
            client.get_many(&all[..10], &options),
            client.get_many(&all[10..20], &options)
        );
        for reply in [one, two, later.await.unwrap()] {
            assert!(reply.unwrap().values.iter().all(Result::is_ok));
        }
        if cluster.nodes[0].reads() == before + 1 {
            return;
        }
        // On a slow machine a millisecond may pass between them, and then the time that is left differs.
    }
    panic!("the node was asked several times in each round");
}

#[tokio::test]
async fn combined_requests_each_get_their_own_answer() {
    let cluster = Cluster::start(1, 1).await;
    cluster.open("other", 1);
    cluster.swap("other", 1);
    let client = cluster.client().await;
    // Of two stores, one key or several at a time, with errors among them.
    cluster.nodes[0].behave(Behaviour::ErrorFor(
        "key-13",
        "CORRUPT a record does not have its checksum",
    ));
    let reads: Vec<_> = (0..100)
        .map(|number| {
            let client = client.clone();
            let store = name(if number % 10 == 0 { "other" } else { "s" });
            let keys: Vec<_> = (0..=number % 3)
                .map(|more| (store.clone(), format!("key-{number}-{more}")))
                .collect();
            let per_key = ReadOptions {
                partial: Partial::PerKey,
                ..within(10_000)
            };
            tokio::spawn(async move { (client.get_many(&keys, &per_key).await, keys) })
        })
        .collect();
    for read in reads {
        let (reply, keys) = read.await.unwrap();
        for ((store, key), value) in keys.iter().zip(reply.unwrap().values) {
            match key.starts_with("key-13-") {
                true => assert!(matches!(value, Err(ClientError::Unavailable { .. })), "{value:?}"),
                false => assert_eq!(value, Ok(Some(value_in(store, 1, key)))),
            }
        }
    }
}

#[tokio::test]
async fn a_dropped_client_closes_its_connections() {
    let cluster = Cluster::start(1, 1).await;
    let client = cluster.client().await;
    client.get(&name("s"), b"k").await.unwrap();
    let watchers = cluster.topology.receiver_count();
    drop(client);
    until("it follows the topology no longer", || {
        cluster.topology.receiver_count() < watchers
    })
    .await;
}
