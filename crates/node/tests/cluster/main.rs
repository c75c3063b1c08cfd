//! Several servers on this machine that form one cluster, and a router in front of them, and their replies. Catalogs
//! and topologies are made by hand; everything else is real.

mod harness;

mod clients;
mod faults;
mod forwarding;
mod limits;
mod scans;
mod versions;
