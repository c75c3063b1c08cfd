//! The promises of coordination, tested against every implementation: in process, and on real ZooKeepers, alone and as
//! an ensemble, which these tests start, kill, pause and cut off.

mod answers;
mod clients;
mod conformance;
mod embedded;
mod ensemble;
mod faults;
mod tls;
mod zookeeper;
