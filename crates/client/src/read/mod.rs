//! The logic of look-ups: pure, without sockets, clock or runtime.
//!
//! A [`Read`] is one request, an [`Operation`](crate::operation::Operation). It tells what to send, receives the
//! outcomes, and finally yields a [`BatchReply`]. Its driver owns time and transport: tokio in the client, a seed in a
//! simulation. State shared by requests, [`Steering`] and the [`NodeHealth`] in a [`Directory`], uses neither directly.

mod answer;
mod assign;
mod budget;
mod controller;
mod directory;
mod effort;
mod events;
mod health;
mod machine;
mod plan;
mod planner;
mod reply;
mod state;
mod steering;
mod streamed;
mod threshold;
mod value_budget;

pub use answer::{Answer, Element, Failure};
pub use controller::{
    AsynchronousUnion, ClientRate, EarlyTerminable, FanOut, FanOutController, Fixed, GlobalRate, NonUnion, Pd, Penalty,
    Query, Rates, SynchronousUnion,
};
pub use directory::{Directory, Member};
pub use effort::Effort;
pub use health::{HealthPolicy, NodeHealth};
pub use machine::{
    BatchRequest, COMPUTATION_KEYS_MAX, KEYS_MAX, Read, SUB_REQUEST_KEYS_MAX, SUB_REQUESTS_UNDER_WAY_MAX,
};
pub use planner::{
    Candidate, ClusterAware, Context, Lot, ManyKeys, NearestFirst, PreferenceOrder, RoundRobin, SetCover, Sticky,
    Strategy, Turns, named,
};
pub use reply::{BatchReply, PinnedStore};
pub use state::KeyPlaces;
pub use steering::{ReadCounts, Steering, SteeringPolicy};
pub use streamed::Chunk;
pub use value_budget::{HeldBudget, ValueBudget};
