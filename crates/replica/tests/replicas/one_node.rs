//! One node on disk, as the process that is killed opens it, and then the test.

use std::path::Path;
use std::sync::Arc;

use fondaco_engine::{DiskEngine, DiskOptions, Engine, LogEngine, LogOptions};

use crate::cluster::{Cluster, fsync, quiet};

pub fn on_disk(dir: &Path) -> Arc<dyn Engine> {
    Arc::new(DiskEngine::open(&dir.join("engine"), DiskOptions::default()).unwrap())
}

fn in_a_log(dir: &Path) -> Arc<dyn Engine> {
    Arc::new(LogEngine::open(&dir.join("engine"), LogOptions::default()).unwrap())
}

/// Opens it with a durability, `log` or `fsync`, and an engine, `disk` or `log`.
pub fn open_on(dir: &Path, durability: &str, engine: &str) -> Cluster {
    let engine = if engine == "log" { in_a_log } else { on_disk };
    let mut cluster = Cluster::in_dir(dir, 1, 2, &quiet(), engine);
    if durability == "fsync" {
        cluster.settings = fsync(cluster.settings);
        cluster.tell();
    }
    cluster
}
