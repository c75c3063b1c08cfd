//! Errors of the parts of a process, as the control port reports them.

use std::fmt::Display;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fondaco_agent::{AgentError, UploadError};
use fondaco_api::{ERROR_CODES, ErrorDetail, ErrorResource};
use fondaco_client::ClientError;
use fondaco_cluster::ClusterError;
use fondaco_coordination::CoordinationError;
use fondaco_decisions::operator::OperatorError;
use fondaco_fetch::FetchError;
use fondaco_format::FormatError;
use fondaco_model::StoreName;
use fondaco_replica::ReplicasError;
use fondaco_stream::StreamError;

use crate::dev_handle::MemberError;

/// An error on its way to a client.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    /// An error with one of the [`ERROR_CODES`].
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        let known = ERROR_CODES.iter().find(|(known, ..)| *known == code);
        debug_assert!(known.is_some(), "error code {code:?} is not documented");
        let status = known.and_then(|(_, status, _)| StatusCode::from_u16(*status).ok());
        Self {
            status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code,
            message: message.into(),
        }
    }

    /// Its code.
    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    /// The message for people.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new("invalid_request", message)
    }

    /// An error that is no fault of the caller.
    pub(super) fn internal(error: &impl Display) -> Self {
        Self::of("internal", error)
    }

    /// The process has no log of events that the request could be about.
    pub(super) fn no_event_log() -> Self {
        Self::new(
            "no_log",
            "events are logged only in a process that is a whole cluster (fondaco dev, or fondaco server without ZooKeeper), and only \
             for stores whose stream is log: send those of other stores to their topic",
        )
    }

    /// A hybrid store takes no more events for now.
    pub(super) fn over_write_quota(store: &StoreName, quota: u64) -> Self {
        Self::new(
            "quota",
            format!(
                "QUOTA store {store:?} may be sent {quota} events a second: send fewer, or raise the quota: fondaco store alter {store} \
                 --write-keys-per-second N; no event was logged"
            ),
        )
    }

    /// No controller leads that could answer.
    pub(super) fn not_leading() -> Self {
        Self::new(
            "not_leading",
            "no controller leads that could be asked: start one, or try again in a moment; fondaco status shows it",
        )
    }

    fn of(code: &'static str, error: &impl Display) -> Self {
        if code == "internal" {
            tracing::error!(%error, "request failed");
        }
        Self::new(code, error.to_string())
    }
}

/// Reports errors of these types under the code that a function finds for them.
macro_rules! reported {
    ($($error:ty => $code_of:expr),* $(,)?) => {
        $(impl From<$error> for ApiError {
            fn from(error: $error) -> Self {
                let code_of: fn(&$error) -> &'static str = $code_of;
                Self::of(code_of(&error), &error)
            }
        })*
    };
}

reported! {
    ClusterError => code_of_cluster,
    AgentError => code_of_agent,
    OperatorError => code_of_refusal,
    UploadError => code_of_upload,
    StreamError => code_of_stream,
    ClientError => code_of_look_up,
    MemberError => code_of_member,
    CoordinationError => code_of_coordination,
    FormatError => |_| "internal",
    ReplicasError => |_| "internal",
}

fn code_of_cluster(error: &ClusterError) -> &'static str {
    match error {
        ClusterError::Operator(error) => code_of_refusal(error),
        ClusterError::Setting(_) | ClusterError::InvalidTemplate { .. } => "invalid_request",
        ClusterError::TooManyConflicts => "conflict",
        ClusterError::Discontinuity(_) => "entries_lost",
        ClusterError::NothingSeen => "unavailable",
        ClusterError::Coordination(error) => code_of_coordination(error),
        ClusterError::Admission(_)
        | ClusterError::InvalidMetadata { .. }
        | ClusterError::PartitionsChanged { .. }
        | ClusterError::Client(_)
        | ClusterError::Io { .. } => "internal",
    }
}

fn code_of_agent(error: &AgentError) -> &'static str {
    match error {
        AgentError::Cluster(error) => code_of_cluster(error),
        AgentError::InvalidSource(_) | AgentError::VersionTopic(_) => "invalid_source",
        AgentError::Upload(error) => code_of_upload(error),
        AgentError::Fetch(error) => code_of_fetch(error),
        AgentError::NotAnnounced => "unavailable",
        AgentError::Stream(error) => code_of_stream(error),
        AgentError::Replicas(_)
        | AgentError::IdentityInUse { .. }
        | AgentError::ClusterMissing { .. }
        | AgentError::NodeFileMissing { .. }
        | AgentError::Format(_)
        | AgentError::FetchPanicked
        | AgentError::DataDirLocked { .. } => "internal",
    }
}

fn code_of_coordination(error: &CoordinationError) -> &'static str {
    match error {
        CoordinationError::Unavailable { .. }
        | CoordinationError::Untrusted { .. }
        | CoordinationError::NoRoot { .. }
        | CoordinationError::Closed => "unavailable",
        _ => "internal",
    }
}

fn code_of_stream(error: &StreamError) -> &'static str {
    match error {
        StreamError::NotSettled { .. } | StreamError::Folded { .. } => "not_settled",
        _ => "internal",
    }
}

fn code_of_fetch(error: &FetchError) -> &'static str {
    match error {
        FetchError::NoSource
        | FetchError::Source { .. }
        | FetchError::SourceChanged { .. }
        | FetchError::Manifest { .. }
        | FetchError::WrongStore { .. }
        | FetchError::WrongPartitions { .. }
        | FetchError::WrongValueType { .. }
        | FetchError::WrongKeyType { .. }
        | FetchError::WrongSchema { .. }
        | FetchError::LaterFormat { .. }
        | FetchError::Mismatch { .. } => "invalid_source",
        FetchError::NoSpace { .. } | FetchError::DiskFull { .. } => "not_enough_space",
        FetchError::Cancelled | FetchError::Interrupted => "unavailable",
        FetchError::Io { .. } | FetchError::OtherVersion { .. } | FetchError::PeerCertificates { .. } => "internal",
    }
}

fn code_of_look_up(error: &ClientError) -> &'static str {
    match error {
        ClientError::UnknownStore { .. } => "store_not_found",
        ClientError::NoVersion { .. } => "nothing_served",
        ClientError::InvalidKey(_) | ClientError::TooManyKeys { .. } => "invalid_request",
        ClientError::Overloaded { .. } => "overloaded",
        _ => "unavailable",
    }
}

fn code_of_member(error: &MemberError) -> &'static str {
    match error {
        MemberError::NotFound { .. } => "member_not_found",
        MemberError::Busy { .. } => "member_busy",
        MemberError::Stopping => "unavailable",
        MemberError::NotStarted(_) => "internal",
    }
}

fn code_of_upload(error: &UploadError) -> &'static str {
    match error {
        UploadError::NotFound { .. } => "upload_not_found",
        UploadError::NoSuchFile { .. } => "file_not_found",
        UploadError::WrongOffset { .. } => "wrong_offset",
        UploadError::Busy { .. } => "upload_busy",
        UploadError::TooLong { .. } => "body_too_large",
        UploadError::CutShort { .. } => "invalid_request",
        UploadError::Corrupt { .. } => "upload_corrupt",
        UploadError::Incomplete { .. } => "upload_incomplete",
        UploadError::TooMany { .. } => "too_many_uploads",
        UploadError::Elsewhere { .. } => "upload_elsewhere",
        UploadError::NoStorage { .. } => "no_storage",
        UploadError::Pushing { .. } => "push_in_progress",
        UploadError::Unreadable(_) => "invalid_source",
    }
}

fn code_of_refusal(error: &OperatorError) -> &'static str {
    match error {
        OperatorError::NoCluster => "no_cluster",
        OperatorError::StoreNotFound { .. } => "store_not_found",
        OperatorError::StoreExists { .. } => "store_exists",
        OperatorError::NotDropped { .. } | OperatorError::NotKept { .. } => "not_restorable",
        OperatorError::OtherCluster => "entries_lost",
        OperatorError::TooManyStores { .. } => "too_many_stores",
        OperatorError::InvalidDefinition { .. } | OperatorError::InvalidSettings { .. } => "invalid_request",
        OperatorError::Versioned { .. } => "versioned_store",
        OperatorError::NotVersioned { .. } => "not_versioned",
        OperatorError::NotHybrid { .. } => "not_hybrid",
        OperatorError::AsOfLater { .. } => "invalid_request",
        OperatorError::NoMysql { .. } => "no_engine",
        OperatorError::OtherKind { .. } => "other_kind",
        OperatorError::WrongSchemaType { .. } => "invalid_request",
        OperatorError::SchemaClash { .. } => "schema_clash",
        OperatorError::TooManySchemas { .. } => "too_many_schemas",
        OperatorError::DamagedSchema { .. } => "entries_lost",
        OperatorError::NotYetSpoken { .. } => "old_members",
        OperatorError::Unchangeable { .. } => "unchangeable",
        OperatorError::VersionNotFound { .. } => "version_not_found",
        OperatorError::VersionNotReady { .. } => "version_failed",
        OperatorError::NoRollback { .. } => "no_rollback",
        OperatorError::SwappedTogether { .. } => "swapped_together",
        OperatorError::NoCanary { .. } => "no_canary",
        OperatorError::CanaryNotBegun { .. } => "canary_not_begun",
        OperatorError::CanaryNowhere { .. } => "invalid_request",
        OperatorError::PushInProgress { .. } => "push_in_progress",
        OperatorError::BaseChanged { .. } | OperatorError::CurrentChanged { .. } => "base_changed",
        OperatorError::PushNotFound { .. } => "push_not_found",
        OperatorError::PushEnded { .. } => "push_ended",
        OperatorError::TooManyPushes { .. } => "too_many_pushes",
        OperatorError::OverSpaceQuota { .. } => "space_quota",
        OperatorError::NoRoutingTable { .. } => "no_routing",
        OperatorError::PlanInProgress { .. } => "plan_in_progress",
        OperatorError::NoPlan | OperatorError::PlanNotFound { .. } => "plan_not_found",
        OperatorError::PlanState { .. } => "plan_state",
        OperatorError::OutdatedPlan { .. } => "plan_outdated",
        OperatorError::NoPartition { .. } | OperatorError::ImpossibleMove { .. } => "impossible_move",
        OperatorError::NothingToMove => "nothing_to_move",
        OperatorError::TooManyPartitions { .. } => "too_many_partitions",
        OperatorError::NodeNotFound { .. } => "node_not_found",
        OperatorError::NodeAbsent { .. } => "node_absent",
        OperatorError::NodeInUse { .. } => "node_in_use",
        OperatorError::ShortLists { .. } => "short_lists",
        OperatorError::Placement(_) => "placement",
        OperatorError::TooManyUsers { .. } => "too_many_users",
        OperatorError::UserNotFound { .. } => "user_not_found",
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let body = Json(ErrorResource {
            error: ErrorDetail {
                code: self.code.to_owned(),
                message: self.message,
            },
        });
        let mut response = (self.status, body).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"fondaco\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
