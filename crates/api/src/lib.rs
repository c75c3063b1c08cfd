//! The language of the control port: what its clients and its server both know.
//!
//! - resources: the JSON objects of requests and answers, and their schemas;
//! - [`ERROR_CODES`]: the codes of errors, each with its status;
//! - [`Frame`]: records of versioned stores in pages, and in the files of backups.
//!
//! The server is the crate `http`. A client of the port links this crate alone.

mod access;
mod change;
mod cluster;
mod error;
mod frame;
mod graph;
mod load;
mod lookup;
mod loss;
mod node;
mod plan;
mod push;
mod role;
mod schema;
mod setting;
mod store;
mod stream;
mod upload;
mod version;

pub use access::{AuditEntry, AuditList, NewUser, SessionResource, UserList, UserResource};
pub use change::{ChangePage, ChangeResource, ChangesPart, OffsetsRead, PartChange, RecordsPart};
pub use cluster::{
    Adoption, ClusterNode, ClusterResource, ClusterRouter, DevMember, DevMemberList, KeyOwner, KeyPlaceResource,
    NodeList, RoutingResource,
};
pub use error::{ERROR_CODES, ErrorDetail, ErrorResource};
pub use frame::{CHANGED_TO_DATED, CHANGED_TO_VALUE, FRAME_BYTES_MAX, Frame, NEXT_HEADER, RECORD_BYTES_MAX};
pub use graph::{GraphQuery, GraphRows};
pub use load::{
    AdviceResource, BalanceMoveResource, DecisionList, DecisionResource, HotKeyResource, LoadHistory, LoadResource,
    LoadSample, NodeHistory, NodeLoadResource, PartitionLoadResource, ResourceUseResource, StoreLoadResource,
    StoreSample,
};
pub use lookup::{DecodedValue, LookupRequest, LookupResponse, LookupValue};
pub use loss::{LossList, LossResource};
pub use node::{Front, Health, KeyMemoryResource, NodeStatus, Readiness, SettingList, SettingResource};
pub use plan::{MoveResource, NewMark, NewMove, NewPlan, PlanList, PlanResource, StuckStoreResource};
pub use push::{
    AbsentNode, CanaryNode, CanaryRequest, CanaryResource, Confirmation, DryRunResource, NewPush, PushResource,
};
pub use role::Role;
pub use schema::{
    NewSchema, SchemaCount, SchemaDiff, SchemaField, SchemaList, SchemaRecords, SchemaResource, UncountedNode,
};
pub use setting::{SettingChanges, SettingText};
pub use store::{NewStore, StoreChange, StoreList, StoreResource, WithoutQuorum};
pub use stream::{
    EventsLogged, FailedStream, LostRange, NewEvent, NewEvents, PoisonList, PoisonRecord, StreamStatus, TopicPartition,
    VersionStream,
};
pub use upload::{UploadFileResource, UploadResource};
pub use version::{
    ReplicaResource, RollbackRequest, SwapRequest, VersionDiff, VersionList, VersionResource, VersionState,
};
