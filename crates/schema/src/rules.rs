//! The type of a store's values with its schemas: all that is needed to check, show and change a value.

use std::sync::Arc;

use fondaco_model::ValueType;

use crate::{Schemas, ValueError, check_value};

/// The rules for the values of one store. The default is that of values without a declared type.
#[derive(Debug, Clone, Default)]
pub struct ValueRules {
    value_type: ValueType,
    schemas: Arc<Schemas>,
}

impl ValueRules {
    /// Values of this type, with these schemas.
    pub fn new(value_type: ValueType, schemas: Arc<Schemas>) -> Self {
        Self { value_type, schemas }
    }

    /// The type.
    pub fn value_type(&self) -> ValueType {
        self.value_type
    }

    /// The schemas: none for types that need none.
    pub fn schemas(&self) -> &Arc<Schemas> {
        &self.schemas
    }

    /// Checks a stored value: with its id, if the type has schemas.
    pub fn check(&self, value: &[u8]) -> Result<(), ValueError> {
        match self.value_type.has_schemas() {
            true => self.schemas.validate(value).map(drop),
            false => check_value(self.value_type, value),
        }
    }
}
