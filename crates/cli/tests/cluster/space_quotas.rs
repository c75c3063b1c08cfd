//! Stores that reach their space quotas.

use redis::Commands;
use serde_json::Value;

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::store::READ_ONE;
use super::values::read_all;

fn store(cluster: &Cluster) -> Value {
    cluster.any().http_get("/v1/stores/s")
}

#[test]
fn a_push_beyond_the_quota_fetches_nothing() {
    let cluster = Cluster::start(Shape::steady());
    cluster.create(&["--space-quota", "1GB"]);
    cluster.deploy(&cluster.build(1));
    let bytes = store(&cluster)["space_used_bytes"].as_u64().unwrap();
    // There is room for one version, and not for two.
    let quota = (bytes * 3 / 2).to_string();
    cluster.any().done(&["store", "alter", "s", "--space-quota", &quota]);
    let second = cluster.build(2);
    let deploy = ["deploy", "s", second.to_str().unwrap(), "--quiet"];
    let refused = cluster.any().refused(1, &deploy);
    assert!(
        refused.contains(&quota) && refused.contains("--space-quota"),
        "{refused}"
    );
    for name in cluster.nodes() {
        assert_eq!(cluster.versions_on_disk(&name), ["version-1"], "{name}");
    }
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));

    // Versions that are kept for rollback count.
    cluster.any().done(&["store", "alter", "s", "--backups", "0"]);
    cluster.any().done(&deploy);
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(2));
    let third = cluster.build(3);
    cluster
        .any()
        .done(&["store", "alter", "s", "--backups", "1", "--space-quota", "0"]);
    cluster.deploy(&third);
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(3));
}

#[test]
fn a_versioned_store_over_its_quota_takes_only_deletions() {
    const KEYS: u64 = 300;
    let cluster = Cluster::start(Shape::steady());
    cluster.create(&READ_ONE);
    let mut redis = cluster.get("router-1").redis();
    let long = "x".repeat(2_000);
    until("the store takes writes", || redis.set::<_, _, ()>("s:0", &long).is_ok());
    for key in 0..KEYS {
        let () = redis.set(format!("s:{key}"), &long).unwrap();
    }
    cluster.any().done(&["store", "alter", "s", "--space-quota", "400KB"]);
    until("the store is over its quota", || {
        store(&cluster)["over_space_quota"] == true
    });
    until("300 records of some 2000 bytes are estimated", || {
        let used = store(&cluster)["space_used_bytes"].as_u64();
        used.is_some_and(|used| (600_000..700_000).contains(&used))
    });
    let set = |redis: &mut redis::Connection, key: u64| redis.set::<_, _, ()>(format!("s:{key}"), &long);
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        let mut redis = cluster.get(name).redis();
        until("writes are refused", || set(&mut redis, KEYS).is_err());
        let refused = set(&mut redis, KEYS).unwrap_err().to_string();
        assert!(
            refused.contains("QUOTA") && refused.contains("--space-quota"),
            "{refused}"
        );
        assert_eq!(redis.get::<_, String>("s:1"), Ok(long.clone()));
    }

    // Deletions make room.
    for key in KEYS / 2..KEYS {
        let () = redis.del(format!("s:{key}")).unwrap();
    }
    until("the store takes writes again", || set(&mut redis, KEYS).is_ok());
    until("all know", || store(&cluster)["over_space_quota"] == false);

    cluster.any().done(&["store", "alter", "s", "--space-quota", "100KB"]);
    until("it is over the new quota", || set(&mut redis, KEYS).is_err());
    let listed = cluster.any().done(&["store", "show", "s"]);
    assert!(listed.contains("takes only deletions"), "{listed}");
    cluster.any().done(&["store", "alter", "s", "--space-quota", "1GB"]);
    until("writes continue", || set(&mut redis, KEYS).is_ok());
}
