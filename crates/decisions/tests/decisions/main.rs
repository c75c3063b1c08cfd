//! The decisions of a cluster, through the public functions: the leading controller, the nodes, the operators.

mod admission;
mod adoption;
mod agent_drops;
mod agent_fetches;
mod canaries;
mod data_node;
mod fixture;
mod gates;
mod hints;
mod left_behind;
mod nodes;
mod on_demand;
mod plan_requests;
mod plans;
mod pushes;
mod quorums;
mod schemas;
mod sets;
mod space;
mod stores;
mod versioned;
mod versions;
