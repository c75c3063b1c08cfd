//! Requests of operators, as changes of entries: stores created, altered, dropped, restored, pushed to, swapped and
//! rolled back, and plans for the routing table.
//!
//! Any process may carry one out: it takes a recent view, computes the change here, and writes it. If another change
//! came first, it looks again, and computes the change again.

mod adoption;
mod canary;
mod confirmation;
mod count;
mod dropping;
mod error;
mod lists;
mod node;
mod plan;
mod schema;
mod set;
mod store;
mod user;
mod version;

pub use adoption::{Present, accept, adopt};
pub use canary::steer_canary;
pub use confirmation::confirm;
pub use dropping::{DROPPED_MAX, drop_store, restore_store};
pub use error::OperatorError;
pub use node::{forget_node, mark_node};
pub use plan::{
    AnalyzerPlan, MoveCosts, PLANS_KEPT, PlanRequest, analyzer_plan, cancel_plan, pause_plan, propose_plan, run_plan,
    split_partitions,
};
pub use schema::{Registered, SCHEMAS_BYTES_MAX, SCHEMAS_MAX, register_schema};
pub use set::{SetPush, cancel_set, push_set, roll_back_set, swap_set};
pub use store::{alter_store, create_store, versioned_settings};
pub use user::{delete_user, put_user};
pub use version::{
    PUSHES_MAX, PushTerms, Pushed, cancel_push, check_base, check_space_quota, push, push_once, put_comparison,
    roll_back, swap, swap_held,
};

use fondaco_model::StoreName;
use fondaco_model::cluster::{ClusterView, Revised, StoreRecord};

fn store<'a>(view: &'a ClusterView, name: &StoreName) -> Result<&'a Revised<StoreRecord>, OperatorError> {
    let store = view.stores.get(name);
    store.ok_or_else(|| OperatorError::StoreNotFound { store: name.clone() })
}
