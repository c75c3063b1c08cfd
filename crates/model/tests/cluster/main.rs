//! What a cluster decides, by the public functions: the leading controller, the nodes, the operators.

mod admission;
mod adoption;
mod agent;
mod fixture;
mod nodes;
mod operator;
mod plans;
mod pushes;
mod quorums;
mod versioned;
