//! Change capture: the changes of a partition in an order in which every replica can continue.
//!
//! While clients follow a partition, its [log](log) keeps the latest changes in memory, in the order in which they were
//! committed here. A [position](ChangePosition) names a place in one log, and the writes that all replicas are known to
//! have. A replica that does not know the log, or no longer keeps that place, scans its records instead, and returns
//! those with a write that the position does not cover. So a change may be returned twice after a change of the replica,
//! and none is left out: decision 39 has the reasons.
//!
//! A scan takes several calls. Between them, changes of records that the scan has passed come from the log; later ones
//! wait for the scan. So each call returns every change once.

mod followed;
mod log;
mod position;
mod reading;

pub(crate) use followed::Followed;
pub(crate) use log::LoggedChange;
pub use position::{ChangePosition, ChangePositions, ChangesFrom, put_number, take_number};
pub(crate) use reading::compare;
pub use reading::{Changes, ChangesError, RecordChange};
