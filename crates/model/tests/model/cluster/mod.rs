//! The decisions of a cluster, through the public functions: the leading controller, the nodes, the operators.

mod admission;
mod adoption;
mod agent;
mod fixture;
mod nodes;
mod operator;
mod plans;
mod pushes;
mod quorums;
mod space;
mod versioned;
