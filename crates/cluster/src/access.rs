//! The users of the cluster, as this process lets them in.

use fondaco_catalog::{Password, SharedAccess, User};
use fondaco_model::cluster::{ClusterView, UserRecord};

/// Lets the users of a view in, and no others of the cluster.
pub(crate) fn take_up(view: &ClusterView, access: &SharedAccess) {
    access.set_users_of_cluster(view.users.values().map(|user| as_user(&user.record)));
}

/// A user of the cluster.
pub fn as_user(record: &UserRecord) -> User {
    User {
        name: record.name.to_string(),
        password: Password::Hash(record.password.as_str().into()),
        stores: record.stores.clone(),
        writes: record.writes.clone(),
        admin: record.admin,
    }
}
