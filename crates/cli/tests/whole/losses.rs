//! A single node that has lost acknowledged writes: it reports the loss, and refuses reads that may return stale values
//! until an operator decides.

use std::fs;
use std::path::PathBuf;

use redis::Commands;

use super::node::{Node, until};

#[test]
fn a_node_refuses_stale_reads_until_its_loss_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = Node::dev(&data);
    node.done(&["store", "create", "carts", "--kind", "versioned", "--engine", "log"]);
    let mut redis = node.redis();
    for key in 0..500 {
        redis.set::<_, _, ()>(format!("carts:{key}"), "x".repeat(100)).unwrap();
    }
    assert!(node.done(&["repair", "losses"]).contains("nothing is lost"));
    node.kill();
    let log: PathBuf = fs::read_dir(data.join("versioned/log"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "segment"))
        .min()
        .unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[written / 2] ^= 1;
    fs::write(&log, bytes).unwrap();

    let node = Node::dev(&data);
    let mut redis = node.redis();
    let mut refused = String::new();
    until("reads are refused", || {
        match redis.get::<_, Option<String>>("carts:1") {
            Ok(_) => false,
            Err(error) => {
                refused = error.to_string();
                true
            }
        }
    });
    assert!(refused.contains("fondaco repair losses"), "{refused}");
    let readiness = |node: &Node| {
        let request = ureq::get(format!("http://{}/readyz", node.http));
        let answer = request.config().http_status_as_error(false).build().call();
        answer.unwrap().status().as_u16()
    };
    assert_eq!(readiness(&node), 503, "a rolling restart must wait");
    let status = node.json(&["status"])["process"]["not_ready"].to_string();
    let losses = node.json(&["repair", "losses"]);
    let id = losses["losses"][0]["id"].as_str().unwrap();
    assert!(status.contains(&format!("fondaco repair accept-loss {id}")), "{status}");
    assert!(
        node.refused(1, &["repair", "accept-loss", "log-00000000"])
            .contains("repair losses")
    );
    node.done(&["repair", "accept-loss", id]);
    // One batch of writes is lost, and no other.
    let mut read = |key: u32| redis.get::<_, Option<String>>(format!("carts:{key}")).unwrap();
    let found = (0..500).map(&mut read).filter(Option::is_some).count();
    assert!((400..500).contains(&found), "{found}");
    assert_eq!(node.json(&["status"])["process"]["not_ready"].to_string(), "[]");
    assert_eq!(readiness(&node), 200);
    assert!(node.done(&["repair", "losses"]).contains("nothing is lost"));
}
