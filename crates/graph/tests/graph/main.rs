//! Queries over graphs: plans, answers beside Neo4j, and the scenarios of openCypher.

mod memory;
mod neo4j;
mod queries;
mod tck;
