//! The resources of the HTTP port: the JSON objects of requests and answers, and their schemas.

mod access;
mod cluster;
mod graph;
mod load;
mod lookup;
mod loss;
mod node;
mod plan;
mod push;
mod store;
mod stream;
mod upload;
mod version;
mod versioned;

pub use access::{AuditEntry, AuditList, NewUser, SessionResource, UserList, UserResource};
pub use cluster::{
    Adoption, ClusterNode, ClusterResource, ClusterRouter, DevMember, DevMemberList, KeyOwner, KeyPlaceResource,
    NodeList, RoutingResource,
};
pub use graph::{GraphQuery, GraphRows};
pub use load::{
    AdviceResource, BalanceMoveResource, DecisionList, DecisionResource, HotKeyResource, LoadHistory, LoadResource,
    LoadSample, NodeHistory, NodeLoadResource, PartitionLoadResource, ResourceUseResource, StoreLoadResource,
    StoreSample,
};
pub use lookup::{LookupRequest, LookupResponse, LookupValue};
pub use loss::{LossList, LossResource};
pub use node::{Front, Health, KeyMemoryResource, NodeStatus, Readiness, SettingList, SettingResource};
pub use plan::{MoveResource, NewMark, NewMove, NewPlan, PlanList, PlanResource, StuckStoreResource};
pub use push::{AbsentNode, DryRunResource, NewPush, PushResource};
pub(crate) use store::members;
pub use store::{NewStore, StoreChange, StoreList, StoreResource, WithoutQuorum};
pub use stream::{
    EventsLogged, FailedStream, LostRange, NewEvent, NewEvents, PoisonList, PoisonRecord, StreamOptions,
    StreamResource, StreamStatus, TopicPartition, VersionStream,
};
pub use upload::{UploadFileResource, UploadResource};
pub use version::{ReplicaResource, RollbackRequest, SwapRequest, VersionList, VersionResource, VersionState};
pub use versioned::{VersionedOptions, VersionedResource};
