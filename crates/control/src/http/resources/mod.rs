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

pub use access::{AuditEntry, AuditList, ControlRoleName, NewUser, SessionResource, UserList, UserResource};
pub use cluster::{
    Adoption, ClusterNode, ClusterResource, ClusterRouter, DevMember, DevMemberList, KeyOwner, KeyPlaceResource,
    NodeList, PlacementName, RoutingResource,
};
pub use graph::{GraphQuery, GraphRows};
pub use load::{
    AdviceResource, BalanceModeName, BalanceMoveResource, DecisionList, DecisionResource, HotKeyResource, LoadHistory,
    LoadResource, LoadSample, NodeHistory, NodeLoadResource, PartitionLoadResource, ResourceUseResource,
    StoreLoadResource, StoreSample,
};
pub use lookup::{LookupRequest, LookupResponse, LookupValue};
pub use loss::{LossList, LossResource};
pub use node::{Front, Health, KeyMemoryResource, NodeStatus, Readiness, RoleName, SettingList, SettingResource};
pub use plan::{
    MoveResource, MoveStateName, NewMark, NewMove, NewPlan, NodeMarkName, PlanList, PlanMakerName, PlanResource,
    PlanStateName,
};
pub use push::{AbsentNode, DryRunResource, NewPush, PushResource, PushStateName};
pub use store::{NewStore, StoreChange, StoreKindName, StoreList, StoreResource, ValueTypeName, WithoutQuorum};
pub use stream::{
    EventsLogged, LostRange, NewEvent, NewEvents, PoisonList, PoisonRecord, StreamOptions, StreamResource,
    StreamStatus, TopicPartition, VersionStream,
};
pub use upload::{UploadFileResource, UploadResource};
pub use version::{
    ReplicaResource, ReplicaStateName, RollbackRequest, SwapRequest, VersionList, VersionResource, VersionState,
};
pub use versioned::{DurabilityName, EngineName, HandoffName, ResolutionName, VersionedOptions, VersionedResource};
