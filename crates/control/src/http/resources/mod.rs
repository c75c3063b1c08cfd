//! The resources of the HTTP port: the JSON objects of requests and answers, and their schemas.

mod cluster;
mod graph;
mod lookup;
mod loss;
mod node;
mod push;
mod store;
mod upload;
mod version;
mod versioned;

pub use cluster::{
    Adoption, ClusterNode, ClusterResource, ClusterRouter, DevMember, DevMemberList, MoveResource, NewPlan, NodeList,
    PlacementName, PlanResource, RoutingResource,
};
pub use graph::{GraphQuery, GraphRows};
pub use lookup::{LookupRequest, LookupResponse, LookupValue};
pub use loss::{LossList, LossResource};
pub use node::{Front, Health, KeyMemoryResource, NodeStatus, Readiness, RoleName, SettingList, SettingResource};
pub use push::{AbsentNode, DryRunResource, NewPush, PushResource, PushStateName};
pub use store::{NewStore, StoreChange, StoreKindName, StoreList, StoreResource, ValueTypeName, WithoutQuorum};
pub use upload::{UploadFileResource, UploadResource};
pub use version::{
    ReplicaResource, ReplicaStateName, RollbackRequest, SwapRequest, VersionList, VersionResource, VersionState,
};
pub use versioned::{DurabilityName, EngineName, HandoffName, ResolutionName, VersionedOptions, VersionedResource};
