//! The bounds of an operation: the length of its result, and a check whether it may continue.

use std::fmt;

use crate::IdsError;

/// The number of ids after which the caller is asked again whether to continue: some 10 µs of work.
const IDS_BETWEEN_CHECKS: usize = 4096;

/// Bounds of one operation, or of several in a row that share the time.
pub struct Budget<'a> {
    ids_max: usize,
    may_go_on: Option<&'a mut dyn FnMut() -> bool>,
    unchecked: usize,
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("ids_max", &self.ids_max)
            .finish_non_exhaustive()
    }
}

impl Budget<'static> {
    /// A result of at most `ids_max` ids, however long it takes.
    pub fn of_ids(ids_max: usize) -> Self {
        Self {
            ids_max,
            may_go_on: None,
            unchecked: 0,
        }
    }
}

impl<'a> Budget<'a> {
    /// A result of at most `ids_max` ids. `may_go_on` is called after every few thousand ids that are read; the
    /// operation ends with [`IdsError::Stopped`] when it returns false.
    pub fn new(ids_max: usize, may_go_on: &'a mut dyn FnMut() -> bool) -> Self {
        Self {
            ids_max,
            may_go_on: Some(may_go_on),
            unchecked: 0,
        }
    }

    /// Counts ids that were read, and asks the caller if they are many.
    pub(crate) fn spend(&mut self, ids: usize) -> Result<(), IdsError> {
        self.unchecked += ids;
        if self.unchecked < IDS_BETWEEN_CHECKS {
            return Ok(());
        }
        self.unchecked = 0;
        match self.may_go_on.as_mut().is_none_or(|may_go_on| may_go_on()) {
            true => Ok(()),
            false => Err(IdsError::Stopped),
        }
    }

    /// Asks the caller at once: between two operations.
    ///
    /// # Errors
    /// [`IdsError::Stopped`].
    pub fn check(&mut self) -> Result<(), IdsError> {
        self.spend(IDS_BETWEEN_CHECKS)
    }

    /// Checks that a result may have this number of ids.
    pub(crate) fn check_length(&self, ids: usize) -> Result<(), IdsError> {
        match ids <= self.ids_max {
            true => Ok(()),
            false => Err(IdsError::TooMany { ids_max: self.ids_max }),
        }
    }
}
