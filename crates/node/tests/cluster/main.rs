//! Several servers on this machine that are one cluster: what each of them, and a router in front of
//! them, answers. Catalogs and topologies are made by hand; everything else is real.

mod harness;

mod clients;
mod faults;
mod forwarding;
mod limits;
mod scans;
mod versions;
