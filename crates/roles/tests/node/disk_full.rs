//! A disk that is too small, or becomes full during a push.

use fondaco_testing::SmallDisk;
use serde_json::json;

use crate::harness::{Builds, Client, config, until, wait_for_dirs};

#[test]
fn a_disk_too_small_refuses_a_push_and_one_that_fills_fails_it_without_a_trace() {
    let Some(disk) = SmallDisk::temporary(4 << 20) else {
        return;
    };
    let node = fondaco_roles::Fondaco::start(config(disk.path())).unwrap();
    let client = Client::new(node.http_addr());
    client.create(1);

    let large = Builds::elsewhere(20_000);
    let request = json!({"source": large.build(1)});
    client.refused("POST", "/v1/stores/pymk/pushes", request, 507, "not_enough_space");

    // It fits when it begins; then the test fills the disk.
    let fits = Builds::elsewhere(3000);
    client.set_rate(40 << 10);
    client.begin_push(&fits.build(2));
    until("bytes to arrive", || {
        let push = client.get("/v1/stores/pymk/push");
        push["bytes_done"].as_u64() > Some(0)
    });
    let filler = disk.path().join("filler");
    std::fs::write(&filler, vec![0; 4 << 20]).unwrap_err();
    let push = client.ended_push();
    assert_eq!(push["state"], "failed", "{push}");
    let error = push["error"].as_str().unwrap();
    assert!(error.contains("full") || error.contains("not enough space"), "{push}");
    wait_for_dirs(disk.path(), &[]);

    std::fs::remove_file(&filler).unwrap();
    client.set_rate(0);
    client.push(&fits.build(3));
    assert_eq!(client.served_build(3000), 3);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(node.shutdown());
}
