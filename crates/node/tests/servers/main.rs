//! Servers on this machine that form a cluster, routers in front of them, and what they answer to Redis clients. Catalogs and
//! topologies are made by hand; everything else is real.

mod harness;
#[path = "../../../format/tests/written/mod.rs"]
mod written;

mod batch;
mod versioned;
