//! Users are added, changed and deleted.

use fondaco_model::cluster::{ClusterView, UserName, UserRecord};

use super::OperatorError;
use crate::change::{Change, RecordPath, Write};

/// How many users a cluster may have: each process knows all of them.
const USERS_MAX: usize = 1000;

/// Adds a user, or changes one.
///
/// # Errors
/// There are too many.
pub fn put_user(view: &ClusterView, user: UserRecord) -> Result<Change, OperatorError> {
    let known = view.users.get(&user.name).map(|known| known.revision);
    if known.is_none() && view.users.len() >= USERS_MAX {
        return Err(OperatorError::TooManyUsers { max: USERS_MAX });
    }
    Ok(Change::of([Write::of(known, user)]))
}

/// Deletes a user.
///
/// # Errors
/// There is no such user.
pub fn delete_user(view: &ClusterView, name: &UserName) -> Result<Change, OperatorError> {
    let known = view.users.get(name);
    let known = known.ok_or_else(|| OperatorError::UserNotFound { user: name.clone() })?;
    let path = RecordPath::User(name.clone());
    Ok(Change::of([Write::delete(path, known.revision)]))
}
