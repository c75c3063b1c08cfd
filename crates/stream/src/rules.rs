//! The rules for the values of a hybrid store while events are read: schemas are registered meanwhile.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use fondaco_schema::ValueRules;

/// The present rules of one store. All its overlays share them.
#[derive(Debug, Default)]
pub struct LiveRules(ArcSwap<ValueRules>);

impl LiveRules {
    /// Begins with these rules.
    pub fn new(rules: ValueRules) -> Self {
        Self(ArcSwap::from_pointee(rules))
    }

    /// Replaces the rules: a schema was registered.
    pub fn set(&self, rules: ValueRules) {
        self.0.store(Arc::new(rules));
    }

    /// The present rules.
    pub fn load(&self) -> Guard<Arc<ValueRules>> {
        self.0.load()
    }
}
