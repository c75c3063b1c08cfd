//! Strategies by their names in settings and protocols.

use std::sync::Arc;

use fondaco_model::StrategyName;

use super::{ClusterAware, NearestFirst, PreferenceOrder, RoundRobin, SetCover, Sticky, Strategy};

/// The strategy of this name; [`ClusterAware`] with borrowing.
pub fn named(name: StrategyName) -> Arc<dyn Strategy> {
    match name {
        StrategyName::Sticky => Arc::new(Sticky),
        StrategyName::Nearest => Arc::new(NearestFirst),
        StrategyName::Preferred => Arc::new(PreferenceOrder),
        StrategyName::RoundRobin => Arc::new(RoundRobin),
        StrategyName::SetCover => Arc::new(SetCover),
        StrategyName::Cluster => Arc::new(ClusterAware::default()),
    }
}
