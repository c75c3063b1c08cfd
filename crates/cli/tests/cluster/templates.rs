//! Settings of the cluster, and of the processes of a template.

use super::cluster::{Cluster, Shape};
use super::node::until;

/// The value of a setting in a process.
fn setting(cluster: &Cluster, process: &str, name: &str) -> serde_json::Value {
    let listed = cluster.try_get(cluster.get(process), "/v1/settings").unwrap();
    let settings = listed["settings"].as_array().unwrap();
    let found = settings.iter().find(|setting| setting["name"] == name).unwrap();
    found["value"].clone()
}

#[test]
fn new_nodes_take_the_settings_of_their_template() {
    let mut cluster = Cluster::prepare_shared(Shape::steady());
    cluster.add("node-4", "template = \"large\"");
    cluster.launch_until_ready();
    let set = |change: &str| cluster.any().done(&["config", "set", change]);
    let both = |[node, large]: [u64; 2]| {
        until("all processes have the settings", || {
            setting(&cluster, "node-1", "clients-max") == node && setting(&cluster, "node-4", "clients-max") == large
        });
    };
    set("clients-max=2000");
    both([2000, 2000]);
    assert!(set("large/maxclients=9000").contains("large/maxclients"));
    both([2000, 9000]);
    set("clients-max=3000");
    both([3000, 9000]);
    let shown = cluster.any().done(&["config", "show"]);
    assert!(shown.contains("large/clients-max"), "{shown}");
    for (change, text) in [
        ("large/clients-max=0", "clients-max"),
        ("/clients-max=5", "template"),
        ("large/nothing=5", "nothing"),
        ("large/large/clients-max=5", "large/clients-max"),
    ] {
        let error = cluster.any().refused(1, &["config", "set", change]);
        assert!(error.contains(text), "{error}");
    }
    let default = setting(&cluster, "node-1", "clients-max");
    assert_eq!(default, 3000);

    // A new process of the template has them from the beginning.
    let mut cluster = cluster;
    cluster.add("node-5", "template = \"large\"");
    cluster.launch("node-5");
    assert_eq!(setting(&cluster, "node-5", "clients-max"), 9000);
    cluster.any().done(&["config", "set", "large/clients-max=default"]);
    until("the cluster's setting counts again", || {
        setting(&cluster, "node-5", "clients-max") == 3000
    });
    cluster.any().done(&["config", "set", "clients-max=default"]);
    until("the default counts again", || {
        ["node-1", "node-4", "node-5"].map(|name| setting(&cluster, name, "clients-max")) == [10_000; 3]
    });
}
