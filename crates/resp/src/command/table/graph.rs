//! Commands that ask graphs: those of FalkorDB, and our own.

use super::*;
use crate::command::ArgumentKind::String;

const READ: KeyAccess = KeyAccess::RO.and(KeyAccess::ACCESS);
const O_QUERY: &str = "depends on the query";
const O_CHANGE: &str = "O(N) with N edges, and those of the vertices removed";
/// Where a client of a cluster sends it depends on the name; every node answers.
const GRAPH: Argument = Argument::key("graph", 0);
const QUERY: Argument = Argument::new("query", String);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::GraphQuery, "graph.query", -3, Group::Own)
        .doc(SINCE, O_QUERY, "Answers an openCypher query of a graph, as FalkorDB does")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::one(1, READ)])
        .arguments(&[GRAPH, QUERY]),
    CommandSpec::new(Id::GraphRoQuery, "graph.ro_query", -3, Group::Own)
        .doc(SINCE, O_QUERY, "Answers an openCypher query of a graph, as FalkorDB does")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::one(1, READ)])
        .arguments(&[GRAPH, QUERY]),
    CommandSpec::new(Id::GraphExplain, "graph.explain", -3, Group::Own)
        .doc(SINCE, O_QUERY, "Returns the steps of an openCypher query without carrying them out")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::one(1, READ)])
        .arguments(&[GRAPH, QUERY]),
    CommandSpec::new(Id::GraphProfile, "graph.profile", -3, Group::Own)
        .doc(SINCE, O_QUERY, "Carries an openCypher query out, and returns its steps with what each took")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::one(1, READ)])
        .arguments(&[GRAPH, QUERY]),
    CommandSpec::new(Id::GraphList, "graph.list", 1, Group::Own)
        .doc(SINCE, O_NAMES, "Returns the names of all graphs")
        .flags(Flags::READONLY),
    CommandSpec::new(Id::FondacoGraph, "fondaco.graph", -5, Group::Own)
        .doc(
            SINCE,
            O_QUERY,
            "Asks about vertices: NEIGHBOURS, NETWORK, SIZE, DISTANCES, PATH, COMMON or HASCOMMON, then IN, IDS, LIMIT n or \
             EXPLAIN, then graph, type of edges, and vertices",
        )
        .flags(Flags::READONLY)
        .arguments(&[
            Argument::new("operation", String),
            Argument::new("graph", String),
            Argument::new("type", String),
            Argument::new("vertex", String).multiple(),
        ]),
    CommandSpec::new(Id::FondacoEdge, "fondaco.edge", -4, Group::Own)
        .doc(
            SINCE,
            O_CHANGE,
            "Changes edges of a versioned graph: DECLARE graph type [SYMMETRIC], ADD [PROPERTIES json] graph type from to …, REMOVE \
             graph type from to …, or REPAIR graph cursor",
        )
        .flags(Flags::WRITE.and(Flags::DENY_OOM))
        .arguments(&[
            Argument::new("operation", String),
            Argument::new("graph", String),
            Argument::new("argument", String).multiple(),
        ]),
    CommandSpec::new(Id::FondacoVertex, "fondaco.vertex", -4, Group::Own)
        .doc(
            SINCE,
            O_CHANGE,
            "Changes vertices of a versioned graph: PUT [LABEL label …] [PROPERTIES json] graph name …, or REMOVE graph name …",
        )
        .flags(Flags::WRITE.and(Flags::DENY_OOM))
        .arguments(&[
            Argument::new("operation", String),
            Argument::new("graph", String),
            Argument::new("name", String).multiple(),
        ]),
];
