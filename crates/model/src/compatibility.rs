//! The compatibility that a store demands of a new schema.

use crate::word::words;

words! {
    /// The schemas that must read values of one another when a schema is registered.
    Compatibility "compatibility":
    /// The new schema reads values of the former ones: readers are upgraded first.
    #[default]
    Backward = "backward",
    /// The former schemas read values of the new one: writers are upgraded first.
    Forward = "forward",
    /// Both.
    Full = "full",
    /// Neither.
    None = "none",
}

impl Compatibility {
    /// Whether it is the default: settings leave it out then.
    pub fn is_backward(&self) -> bool {
        *self == Self::Backward
    }
}
