//! The store that a version is pushed to, and all that would refuse it: checked before the build, which may take hours.

use fondaco_admin::{AdminError, Client};
use fondaco_api::{PushResource, StoreResource};
use fondaco_model::{PartitionCount, StoreName, ValueType};
use fondaco_storage::Location;

use crate::build::{Rows, partition_count};
use crate::cluster_deploy::{is_end, not_local};
use crate::error::PushError;
use crate::observer::Job;
use crate::push::Push;
use crate::rollout::{RUN_PREFIX, Rollout};
use crate::upload;

/// The store that a version is pushed to, and its cluster.
pub(crate) struct Target {
    pub(crate) partitions: PartitionCount,
    /// `None` if it is to be created.
    pub(crate) store: Option<StoreResource>,
    /// The free space of the node's disk, if it has one.
    pub(crate) disk_available_bytes: Option<u64>,
}

/// Checks all that would refuse the push after the build, in each cluster. The target is that of the first one.
pub(crate) fn check_all(rollout: &mut Rollout, options: &Push, job: Job<'_>) -> Result<Target, PushError> {
    let run = rollout.run().map(str::to_owned);
    let found = rollout.check(job, |cluster| {
        let target = check(&cluster.client, options, run.as_deref())?;
        Ok((cluster.client.address().to_owned(), target))
    })?;
    let disk_available_bytes = found.iter().filter_map(|(_, target)| target.disk_available_bytes).min();
    let mut all = found.into_iter();
    let Some((address, first)) = all.next() else {
        return Err(PushError::Unfit("no cluster can be reached".to_owned()));
    };
    for (other_address, other) in all {
        if other.partitions != first.partitions {
            return Err(PushError::Unfit(format!(
                "{address} has {} partitions and {other_address} has {}: one version cannot be brought to both; push to \
                 each by itself, or split the partitions of one: fondaco rebalance split",
                first.partitions, other.partitions
            )));
        }
        let kind = |target: &Target| {
            let store = target.store.as_ref();
            store.map(|store| (store.kind, store.value_type(), store.options.key_type.clone()))
        };
        if kind(&first)
            .zip(kind(&other))
            .is_some_and(|(first, other)| first != other)
        {
            return Err(PushError::Unfit(format!(
                "store {} is of another kind, or has keys or values of another type, at {address} than at {other_address}",
                options.build.store
            )));
        }
        let current = |target: &Target| {
            let versions = target.store.as_ref().map_or(&[][..], |store| &store.versions);
            let current = versions.iter().find(|version| version.current);
            current.and_then(|version| version.checksum.clone())
        };
        if options.incremental && current(&first) != current(&other) {
            return Err(PushError::Unfit(format!(
                "store {} has another version at {address} than at {other_address}: bring the same to both, or push to \
                 each by itself",
                options.build.store
            )));
        }
    }
    Ok(Target {
        disk_available_bytes,
        ..first
    })
}

/// Checks all that would refuse the push after the build.
fn check(client: &Client, options: &Push, run: Option<&str>) -> Result<Target, PushError> {
    let name = &options.build.store;
    let status = client.status()?;
    if status.partitions == 0 {
        let message = format!(
            "{} has not seen its cluster yet: wait until fondaco status says that it is ready",
            client.address()
        );
        let code = "unavailable".to_owned();
        return Err(AdminError::Refused { code, message }.into());
    }
    let is_remote = |output: &Location| output.local_path().is_none();
    if (options.upload || options.topic.is_some()) && options.keep_at.as_ref().is_some_and(is_remote) {
        return Err(not_local(if options.upload { "--upload" } else { "--through" }));
    }
    if options.upload {
        upload::check(client, &status)?;
    }
    options.topic.as_ref().map_or(Ok(()), |topic| topic.check(client))?;
    let store = client.store(name)?;
    match &store {
        Some(found) if found.versioned.is_some() => return Err(versioned(name)),
        Some(found) => {
            refuse_a_second_push(found.push.as_ref(), run, name)?;
            let is_graph = matches!(options.rows, Rows::Edges(_));
            // A compaction has records of any store.
            let is_compaction = options.events_on.is_some();
            if !is_compaction && is_graph != (found.value_type() == ValueType::Graph) {
                return Err(wrong_rows(name, found.value_type(), is_graph));
            }
            if let Some(asked) = options.value_type.filter(|asked| *asked != found.value_type()) {
                return Err(PushError::Unfit(format!(
                    "the values of store {name:?} are of type {}, not {asked}: leave out --value-type, or push to another \
                     store",
                    found.value_type()
                )));
            }
            let key_type = found.options.key_type.clone().unwrap_or_default();
            if let Some(asked) = options.key_type.as_ref().filter(|asked| **asked != key_type) {
                return Err(PushError::Unfit(format!(
                    "the keys of store {name:?} are of type {key_type}, not {asked}: leave out --key-type, or push to another store"
                )));
            }
        }
        None if options.create => {}
        None => {
            return Err(PushError::Unfit(format!(
                "no store {name:?} on {}: create it with fondaco store create {name}, or use --create",
                client.address()
            )));
        }
    }
    Ok(Target {
        partitions: partition_count(status.partitions)?,
        store,
        disk_available_bytes: status.disk_available_bytes,
    })
}

/// The error for edges pushed to a store that is no graph, or records to one that is.
fn wrong_rows(name: &StoreName, value_type: ValueType, has_edges: bool) -> PushError {
    PushError::Unfit(match has_edges {
        true => format!(
            "store {name:?} is no graph, its values are of type {value_type}: push the edges to another store, with --create"
        ),
        false => format!("store {name:?} is a graph: push its edges, with --edges FROM,TO in place of --key"),
    })
}

fn versioned(name: &StoreName) -> PushError {
    PushError::Admin(AdminError::Refused {
        code: "versioned_store".to_owned(),
        message: format!(
            "store {name} is versioned and accepts no pushes: write to it with a Redis client (SET {name}:KEY VALUE), \
             or push to a store of another name"
        ),
    })
}

/// A push of this run, or of an earlier try to push to several clusters, which this one may continue, does not count.
fn refuse_a_second_push(push: Option<&PushResource>, run: Option<&str>, name: &StoreName) -> Result<(), PushError> {
    let is_earlier_try = |push: &PushResource| {
        let of_push = push.run.as_deref();
        of_push.is_some_and(|of_push| run == Some(of_push) || of_push.starts_with(RUN_PREFIX))
    };
    match push {
        Some(push) if !is_end(push.state) && !is_earlier_try(push) => Err(PushError::Unfit(format!(
            "version {} is being pushed to store {name}: wait for it, or cancel it: fondaco cancel {name}",
            push.version
        ))),
        _ => Ok(()),
    }
}
