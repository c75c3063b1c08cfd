//! The counters of a node, and the log of its slow requests.
//!
//! - [`NodeMetrics`], [`LoopMetrics`]: counters and histograms, by command and by store;
//! - [`Loads`]: the load of partitions and keys, from a sample of requests;
//! - [`GraphMetrics`]: the queries of graphs;
//! - [`SlowLog`]: the latest slow requests, for `SLOWLOG` and `LATENCY`.
//!
//! It serves no metrics: the control plane reads them, and renders them when they are scraped.

mod counters;
mod graphs;
mod loads;
mod rate;
mod slow_log;
mod stores;

pub use counters::{COUNTERS, CommandMetrics, Counter, LoopMetrics, NodeMetrics, add};
pub use graphs::GraphMetrics;
pub use loads::{Asked, Load, Loads};
pub use slow_log::{SlowLog, SlowRequest, Spike};
