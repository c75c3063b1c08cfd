//! Errors as the control port reports them: one JSON shape, a status, and a code that scripts can test.
//!
//! `{"error": {"code": "push_in_progress", "message": "…what to do…"}}`

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error response.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorResource {
    /// The error.
    pub error: ErrorDetail,
}

/// The code and message of an error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs; one of the documented codes.
    #[schema(example = "push_in_progress")]
    pub code: String,
    /// For people: what failed, on what, and what to do.
    pub message: String,
}

/// All codes, with the status that each comes with and its meaning.
pub const ERROR_CODES: &[(&str, u16, &str)] = &[
    (
        "invalid_request",
        400,
        "the request's path, query or body does not match the OpenAPI document",
    ),
    (
        "unauthorized",
        401,
        "the control port requires a token, and the request has none or a wrong one",
    ),
    (
        "foreign_origin",
        403,
        "a browser sent it for a web page of another origin, and the control port has no token",
    ),
    (
        "forbidden",
        403,
        "the caller's role, or right to read the store, does not allow this",
    ),
    ("route_not_found", 404, "there is no such path"),
    ("store_not_found", 404, "no store has this name"),
    (
        "not_decodable",
        422,
        "a value, or a key, does not fit the type that the store declares",
    ),
    ("schema_not_found", 404, "the store has no schema with this number"),
    (
        "schema_clash",
        409,
        "the schema is not compatible with those that the store has: the message names fields and rules",
    ),
    (
        "too_many_schemas",
        409,
        "the store has the maximum number of schemas, or bytes of them",
    ),
    (
        "old_members",
        409,
        "some nodes or routers are of a release that does not know this yet",
    ),
    ("version_not_found", 404, "the store does not keep this version"),
    ("push_not_found", 404, "the store was never pushed to"),
    ("file_not_found", 404, "the node has no such file of this version"),
    (
        "upload_not_found",
        404,
        "the node has no such upload, or it is deleted already",
    ),
    ("node_not_found", 404, "no node has this number"),
    (
        "decision_not_found",
        404,
        "the leading controller has made no decision with this number, or has forgotten it",
    ),
    ("user_not_found", 404, "no user of the cluster has this name"),
    ("plan_not_found", 404, "no plan has this number, or it ended long ago"),
    (
        "loss_not_found",
        404,
        "the node has no such loss, or it is accepted already",
    ),
    (
        "member_not_found",
        404,
        "there is no development cluster, or it has no such member",
    ),
    (
        "key_not_found",
        404,
        "the store's current version does not have this key",
    ),
    ("method_not_allowed", 405, "the path does not support this method"),
    ("store_exists", 409, "a store has this name already"),
    (
        "versioned_store",
        409,
        "the store is versioned: it has no versions to push, swap or roll back",
    ),
    (
        "not_versioned",
        409,
        "the store is not versioned: it has no quorum settings",
    ),
    ("unchangeable", 409, "this setting of a store cannot be changed"),
    (
        "other_kind",
        409,
        "stores of this kind do not have one of the given options",
    ),
    ("not_hybrid", 409, "the store has no stream"),
    (
        "no_log",
        409,
        "only a process that is a whole cluster has a log of events",
    ),
    ("no_engine", 409, "a node lacks the engine of the new store"),
    ("too_many_stores", 409, "the cluster has the maximum number of stores"),
    ("push_in_progress", 409, "the store is being pushed to"),
    (
        "base_changed",
        409,
        "the version was built from a difference to another version than the current one",
    ),
    (
        "wrong_offset",
        409,
        "more or less of the uploaded file has arrived: ask how much, and send it from there",
    ),
    ("upload_busy", 409, "another request is sending the same file"),
    (
        "upload_incomplete",
        409,
        "not all files of the upload have arrived completely",
    ),
    (
        "upload_elsewhere",
        409,
        "the version was uploaded to another node: ask that node",
    ),
    (
        "no_storage",
        409,
        "the process is a router or a controller, and keeps no files: ask a node",
    ),
    ("no_canary", 409, "no canary of the store is under way"),
    ("canary_not_begun", 409, "nodes still fetch the version of the canary"),
    ("push_ended", 409, "there is no push to cancel or to confirm"),
    (
        "version_failed",
        409,
        "the version is kept, but a part of it cannot be served by any node",
    ),
    ("nothing_served", 409, "the store serves no version yet"),
    ("no_rollback", 409, "the store keeps no version before the current one"),
    (
        "swapped_together",
        409,
        "the version was swapped in together with those of other stores: say whether those go back, too",
    ),
    ("no_cluster", 409, "the cluster has not been made yet"),
    (
        "no_routing",
        409,
        "there is no routing table yet: too few nodes are live",
    ),
    ("plan_in_progress", 409, "another plan is under way"),
    (
        "not_leading",
        409,
        "no controller leads that could be asked: try again in a moment",
    ),
    ("too_many_users", 409, "the cluster has the maximum number of users"),
    ("plan_state", 409, "the state of the plan does not allow this"),
    (
        "plan_outdated",
        409,
        "partitions of the plan have moved since it was made",
    ),
    (
        "impossible_move",
        409,
        "there is no such partition, the first node does not have it, or the second does",
    ),
    ("nothing_to_move", 409, "the plan would change nothing"),
    (
        "too_many_partitions",
        409,
        "there are as many partitions as slots: they cannot be split",
    ),
    ("node_absent", 409, "the node is absent"),
    (
        "node_in_use",
        409,
        "a node that is live or has partitions cannot be forgotten",
    ),
    (
        "short_lists",
        409,
        "nodes lack their share of the partitions: fondaco rebalance run --even",
    ),
    (
        "member_busy",
        409,
        "the member of the development cluster is the one that answers, or is already running or stopped",
    ),
    (
        "too_far_behind",
        410,
        "what a follower needs to continue is not kept any more: the message says from where it can begin",
    ),
    (
        "not_followable",
        409,
        "the store evicts records, or has too many partitions: its changes cannot be followed",
    ),
    (
        "old_routing",
        409,
        "the request's routing table is too old: read the routing table again",
    ),
    (
        "not_restorable",
        409,
        "the store was not dropped, or its data is not kept any more",
    ),
    (
        "not_settled",
        409,
        "what the events up to this time make is not known yet, or not any more: ask for another time",
    ),
    (
        "conflict",
        409,
        "other processes changed the same entries again and again",
    ),
    (
        "body_too_large",
        413,
        "the request's body is longer than the limit, or than the uploaded file",
    ),
    ("range_not_satisfiable", 416, "the range does not lie within the file"),
    ("invalid_source", 422, "the source has no version that fits this store"),
    (
        "upload_corrupt",
        422,
        "the uploaded file does not match its manifest: the received bytes are deleted",
    ),
    (
        "placement",
        422,
        "the cluster's placement cannot be satisfied by these nodes",
    ),
    ("answer_too_large", 422, "the values are too long for one answer"),
    (
        "foreign_host",
        421,
        "the request's host is a name, and the control port has no token: use an IP address or localhost",
    ),
    (
        "entries_lost",
        503,
        "the coordination service lost entries or went back to older ones: an operator has to decide which are true",
    ),
    (
        "internal",
        500,
        "the request failed; the log of the process has details",
    ),
    ("not_a_graph", 409, "the store is not a graph"),
    (
        "query_limit",
        422,
        "the query reached a limit: of rows, of edges that it follows, or of what nodes read for it",
    ),
    (
        "quota",
        429,
        "the store's quota of events per second is used up: try again in a moment",
    ),
    ("query_timeout", 504, "the query was not answered in time"),
    ("overloaded", 503, "too many requests are being answered"),
    ("too_many_pushes", 503, "too many stores are being pushed to"),
    ("too_many_uploads", 503, "the node has the maximum number of uploads"),
    ("busy", 503, "too many files are being sent to peers"),
    (
        "unavailable",
        503,
        "the coordination service or a node does not answer, or the process is stopping",
    ),
    ("request_timeout", 503, "the request took too long; its work continues"),
    ("not_enough_space", 507, "the version does not fit on the disk"),
    (
        "space_quota",
        507,
        "the version would make the store larger than its space quota",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_unique() {
        let codes: BTreeSet<_> = ERROR_CODES.iter().map(|(code, ..)| code).collect();
        assert_eq!(codes.len(), ERROR_CODES.len());
    }
}
