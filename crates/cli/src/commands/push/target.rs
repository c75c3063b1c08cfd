//! What a version is pushed to, and all that would refuse it: checked before the build, which may take hours.

use anyhow::bail;
use fondaco_admin::{AdminError, Client};
use fondaco_api::{PushResource, StoreResource};
use fondaco_model::{PartitionCount, StoreName, ValueType};
use fondaco_storage::Location;

use super::PushOptions;
use crate::commands::bring::{is_end, not_local};
use crate::commands::rollout::Rollout;
use crate::commands::through::Through;
use crate::commands::{build, upload};
use crate::output::Output;

/// What a version is pushed to.
pub(super) struct Target {
    pub(super) partitions: PartitionCount,
    /// `None` if it is to be created.
    pub(super) store: Option<StoreResource>,
    /// The free space of the node's disk, if it has one.
    pub(super) disk_available_bytes: Option<u64>,
}

/// Checks all that would refuse the push after the build, in each cluster. The target is that of the first one.
pub(super) fn check_all(
    rollout: &mut Rollout,
    options: &PushOptions,
    through: Option<&Through>,
    output: &Output,
) -> anyhow::Result<Target> {
    let found = rollout.check(output, |cluster| {
        Ok((
            cluster.client.address().to_owned(),
            check(&cluster.client, options, through)?,
        ))
    })?;
    let disk_available_bytes = found.iter().filter_map(|(_, target)| target.disk_available_bytes).min();
    let mut all = found.into_iter();
    let Some((address, first)) = all.next() else {
        bail!("no cluster can be reached");
    };
    for (other_address, other) in all {
        if other.partitions != first.partitions {
            bail!(
                "{address} has {} partitions and {other_address} has {}: one version cannot be brought to both; push to \
                 each by itself, or split the partitions of one: fondaco rebalance split",
                first.partitions,
                other.partitions
            );
        }
        let kind = |target: &Target| target.store.as_ref().map(|store| (store.kind, store.value_type));
        if kind(&first)
            .zip(kind(&other))
            .is_some_and(|(first, other)| first != other)
        {
            bail!(
                "store {} is of another kind or has values of another type at {address} than at {other_address}",
                options.input.store
            );
        }
        let current = |target: &Target| {
            let versions = target.store.as_ref().map_or(&[][..], |store| &store.versions);
            let current = versions.iter().find(|version| version.current);
            current.and_then(|version| version.checksum.clone())
        };
        if options.incremental && current(&first) != current(&other) {
            bail!(
                "store {} has another version at {address} than at {other_address}: bring the same to both, or push to \
                 each by itself",
                options.input.store
            );
        }
    }
    Ok(Target {
        disk_available_bytes,
        ..first
    })
}

/// Checks all that would refuse the push after the build.
fn check(client: &Client, options: &PushOptions, through: Option<&Through>) -> anyhow::Result<Target> {
    let name = &options.input.store;
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
    if (options.upload || through.is_some()) && options.output.as_ref().is_some_and(is_remote) {
        return Err(not_local(if options.upload { "--upload" } else { "--through" }));
    }
    if options.upload {
        upload::check(client, &status)?;
    }
    through.map_or(Ok(()), |through| through.check(client))?;
    let store = client.store(name)?;
    match &store {
        Some(found) if found.versioned.is_some() => return Err(versioned(name)),
        Some(found) => {
            refuse_a_second_push(found.push.as_ref(), name)?;
            let is_graph = options.input.graph.edges.is_some();
            if is_graph != (found.value_type == ValueType::Graph) {
                return Err(wrong_rows(name, found.value_type, is_graph));
            }
            if let Some(asked) = options.input.value_type.filter(|asked| *asked != found.value_type) {
                bail!(
                    "the values of store {name:?} are of type {}, not {asked}: leave out --value-type, or push to another \
                     store",
                    found.value_type
                );
            }
        }
        None if options.create => {}
        None => bail!(
            "no store {name:?} on {}: create it with fondaco store create {name}, or use --create",
            client.address()
        ),
    }
    Ok(Target {
        partitions: build::partition_count(status.partitions)?,
        store,
        disk_available_bytes: status.disk_available_bytes,
    })
}

/// The error for edges pushed to a store that is no graph, or records to one that is.
fn wrong_rows(name: &StoreName, value_type: ValueType, has_edges: bool) -> anyhow::Error {
    anyhow::anyhow!(match has_edges {
        true => format!(
            "store {name:?} is no graph, its values are of type {value_type}: push the edges to another store, with --create"
        ),
        false => format!("store {name:?} is a graph: push its edges, with --edges FROM,TO in place of --key"),
    })
}

fn versioned(name: &StoreName) -> anyhow::Error {
    anyhow::Error::new(AdminError::Refused {
        code: "versioned_store".to_owned(),
        message: format!(
            "store {name} is versioned and accepts no pushes: write to it with a Redis client (SET {name}:KEY VALUE), \
             or push to a store of another name"
        ),
    })
}

fn refuse_a_second_push(push: Option<&PushResource>, name: &StoreName) -> anyhow::Result<()> {
    match push {
        Some(push) if !is_end(push.state) => bail!(
            "version {} is being pushed to store {name}: wait for it, or cancel it: fondaco cancel {name}",
            push.version
        ),
        _ => Ok(()),
    }
}
