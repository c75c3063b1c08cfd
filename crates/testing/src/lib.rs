//! Real servers for tests: fetched if missing, started on loopback, broken on purpose, and ended with the test, however
//! it ends.
//!
//! For tests only: if something is missing it panics, with a message that says what to install. Java programs come from
//! Maven Central once, into the target directory.

mod certificate;
mod clock;
mod copy;
mod cpu_group;
mod failing_read;
mod failing_sync;
mod hdfs;
mod jars;
mod java;
mod kafka;
mod lan;
mod mariadb;
mod mirror_maker;
mod neo4j;
mod opencypher;
mod port;
mod process;
mod proxy;
mod random;
mod relay;
mod s3;
mod schema_registry;
mod slow_disk;
mod small_disk;
mod wait;
mod web_server;
mod zookeeper;

pub use certificate::Certificate;
pub use clock::Clock;
pub use copy::{copy_dir, put_back_dir};
pub use cpu_group::CpuGroup;
pub use failing_read::{Unreadable, fail_reads};
pub use failing_sync::fail_syncs_of_this_thread;
pub use hdfs::Hdfs;
pub use kafka::{Kafka, KafkaWriter};
pub use lan::{Cut, End, Lan};
pub use mariadb::MariaDb;
pub use mirror_maker::MirrorMaker;
pub use neo4j::Neo4j;
pub use opencypher::opencypher_tck;
pub use port::free_port;
pub use process::ServerProcess;
pub use proxy::Proxy;
pub use random::{random, random_or};
pub use relay::{Answer, relay};
pub use s3::S3;
pub use schema_registry::SchemaRegistry;
pub use slow_disk::SlowDisk;
pub use small_disk::SmallDisk;
pub use wait::{eventually, until, wait_for, wait_until};
pub use web_server::{HttpAnswer, serve_http};
pub use zookeeper::{Ensemble, ZooKeeper};
