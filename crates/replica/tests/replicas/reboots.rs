//! Machines that lose power: writes that were acknowledged before they were on the disk may be lost then, and nothing
//! else.

use std::path::Path;
use std::sync::Arc;

use fondaco_engine::{DiskEngine, DiskOptions, Engine};
use fondaco_model::versioned::EngineKind;
use fondaco_protocol::replica::{Held, ReplicaErrorCode};
use fondaco_replica::{ReplicaOptions, note_losses_of};
use fondaco_testing::{copy_dir, put_back_dir, until};
use tempfile::TempDir;

use crate::cluster::{Cluster, fsync, node, put, quiet, value};
use crate::losses::{counted, in_a_log, written_by};

fn in_trees(dir: &Path) -> Arc<dyn Engine> {
    let options = DiskOptions {
        disk_reserve_bytes: 0,
        on_loss: note_losses_of(EngineKind::Disk, dir),
        ..DiskOptions::default()
    };
    Arc::new(DiskEngine::open(&dir.join("engine"), options).unwrap())
}

fn boot(id: &str) -> ReplicaOptions {
    ReplicaOptions {
        boot_id: Some(id.to_owned()),
        ..quiet()
    }
}

/// Some nodes, the first of which is killed and restarted.
struct Killed {
    cluster: Cluster,
    engine: fn(&Path) -> Arc<dyn Engine>,
}

impl Killed {
    /// All nodes have an acknowledged record.
    fn of(nodes: u32, engine: fn(&Path) -> Arc<dyn Engine>, is_synced: bool) -> Self {
        let mut cluster = Cluster::of(nodes, 1, &boot("a"), engine);
        if is_synced {
            cluster.settings = fsync(cluster.settings);
            cluster.tell();
        }
        let others: Vec<u32> = (2..=nodes).collect();
        written_by(&cluster, &others);
        let killed = Self { cluster, engine };
        killed.wait_whole();
        killed
    }

    /// Waits until no loss is recorded.
    fn wait_whole(&self) {
        let path = self.cluster.home.join("1/incarnation.json");
        until("a file that says that nothing is lost", || {
            let text = std::fs::read_to_string(&path).unwrap();
            text.contains(r#""behind":false"#) && !text.contains("lost_writes")
        });
    }

    /// Kills the first node, and starts it in a boot of the machine.
    fn start_in(&mut self, boot_id: &str) {
        let own = self.cluster.home.join("1");
        let copy = TempDir::new().unwrap();
        // A killed process leaves all its writes, and no mark of a clean shutdown.
        copy_dir(&own, copy.path());
        self.cluster.stop(node(1));
        put_back_dir(copy.path(), &own);
        self.start_again(boot_id);
    }

    /// Stops the first node, and starts it in a boot of the machine.
    fn restart_in(&mut self, boot_id: &str) {
        self.cluster.stop(node(1));
        self.start_again(boot_id);
    }

    fn start_again(&mut self, boot_id: &str) {
        self.cluster.start(node(1), &boot(boot_id), self.engine);
        self.cluster.tell();
    }

    fn has_it(&self) -> bool {
        matches!(counted(&self.cluster, 1), Ok(Held::Record(_)))
    }

    fn incarnation(&self) -> u32 {
        let record = put(self.cluster.node(1), "other", value("x"));
        let record = fondaco_model::versioned::Record::decode(record).unwrap();
        record.siblings()[0].dot.replica.incarnation
    }
}

#[test]
fn only_a_reboot_loses_unsynced_writes_until_compared() {
    for engine in [in_a_log, in_trees] {
        let mut killed = Killed::of(2, engine, false);
        killed.start_in("a");
        assert!(killed.has_it(), "the machine did not reboot");
        killed.restart_in("b");
        assert!(killed.has_it(), "it had shut down cleanly");
        let incarnation = killed.incarnation();
        killed.cluster.network.cut(node(2));
        killed.start_in("c");
        // However it is shut down meanwhile.
        for _ in 0..2 {
            assert_eq!(counted(&killed.cluster, 1), Err(ReplicaErrorCode::Behind));
            assert_ne!(killed.incarnation(), incarnation);
            killed.restart_in("c");
        }
        killed.cluster.network.mend(node(2));
        until("the record of node 2", || killed.has_it());
        killed.wait_whole();
        killed.start_in("c");
        assert!(killed.has_it());
    }
}

#[test]
fn a_store_with_fsync_loses_nothing_with_the_power() {
    for engine in [in_a_log, in_trees] {
        let mut killed = Killed::of(2, engine, true);
        killed.cluster.network.cut(node(2));
        killed.start_in("b");
        assert!(killed.has_it());
        killed.restart_in("b");
        assert!(killed.has_it(), "no loss is recorded either");
    }
}

#[test]
fn a_single_node_refuses_reads_until_the_loss_is_accepted() {
    let mut killed = Killed::of(1, in_a_log, false);
    killed.start_in("b");
    for _ in 0..2 {
        assert_eq!(counted(&killed.cluster, 1), Err(ReplicaErrorCode::Behind));
        killed.restart_in("b");
    }
    let losses = killed.cluster.node(1).losses();
    let [loss] = &losses[..] else { panic!("{losses:?}") };
    assert_eq!((loss.engine, loss.partitions_alone), (EngineKind::Disk, 1));
    assert!(loss.lost.contains("its boot was a and is b"), "{loss:?}");
    killed.cluster.node(1).accept_loss(&loss.id).unwrap().unwrap();
    assert!(killed.has_it());
    killed.wait_whole();
    killed.start_in("b");
    assert!(killed.has_it() && killed.cluster.node(1).losses().is_empty());
}
