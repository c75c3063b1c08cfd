//! A cluster that evens out its load by itself.
//!
//! Nodes [report](LoadReport) what they do. The leading controller keeps the reports of a [window](LoadWindow), and from time
//! to time [decides](decide), given their means and the settings, whether partitions should move. A decision is a function
//! of its [input](BalanceInput): kept with it, it can be made again later and explained.
//!
//! Its goals, in this order: nodes that leave give up their partitions, nodes that died are replaced, each partition has as
//! many replicas as it should; no node is overloaded; new nodes get their share. Where moving
//! cannot help, and a [hook](MachineState) is configured, machines are requested, enlarged and returned. No goal breaks the rules of placement, or
//! fills a disk.

mod advice;
mod decide;
mod decision;
mod input;
mod machines;
mod relief;
mod report;
mod rules;
mod window;

pub use advice::advise;
pub use decide::decide;
pub use decision::{Advice, BalanceMove, Decision, Outcome};
pub use input::{
    BalanceInput, BalanceMode, BalancePolicy, BalanceSettings, Departure, NodeLoad, PartitionState, Resource,
};
pub use machines::{
    HookAnswer, MachineAction, MachineDecision, MachineInput, MachineRequest, MachineSettings, MachineState,
};
pub use report::{HotKey, LoadReport, PartitionLoad, ResourceUse, StoreLoad};
pub use window::{LoadWindow, MeanLoad};
