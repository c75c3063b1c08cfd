//! Runs an action when a value is dropped: a watch leaves, a candidate resigns.

/// Runs the action once, when it is dropped.
pub(crate) struct OnDrop(Option<Box<dyn FnOnce() + Send + Sync>>);

impl OnDrop {
    pub(crate) fn new(action: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(action)))
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(action) = self.0.take() {
            action();
        }
    }
}
