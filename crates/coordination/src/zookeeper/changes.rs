//! Changes of entries as operations on nodes.
//!
//! ZooKeeper compares a node's version, which starts again when a node is deleted and created again; an entry's
//! revision does not. So the node is read first: if its revision is the expected one, the operation requires the
//! version that was just read. If the node changes in between, the operation fails, and the node is read again: so a
//! conflict is never guessed.
//!
//! An operation whose answer was lost may have been done. It was done if the nodes hold the data that it would have
//! written, at later revisions.

use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult, Stat};

use super::{node_of, revision_of};
use crate::entry::{Change, Revision};
use crate::error::CoordinationError;
use crate::path::EntryPath;

/// How often nodes may change between the read and the operation, until it counts as a conflict.
const ROUNDS_MAX: usize = 20;

/// Why an attempt failed.
pub(super) enum Failure {
    /// An error of ZooKeeper, or a missing answer.
    ZooKeeper(Error),
    /// A retry cannot succeed.
    Final(CoordinationError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::ZooKeeper(error)
    }
}

impl Failure {
    fn conflict(path: &EntryPath) -> Self {
        Self::Final(CoordinationError::Conflict { path: path.clone() })
    }

    /// The failure to create the parents of a node.
    fn making(path: &EntryPath) -> impl FnOnce(Error) -> Self {
        move |error| match error {
            Error::NoChildrenForEphemerals => Self::Final(CoordinationError::BelowEphemeral { path: path.clone() }),
            error => Self::ZooKeeper(error),
        }
    }
}

/// The operation on a node, at a version.
enum Step<'a> {
    Check(i32),
    Create(&'a [u8]),
    Set(&'a [u8], i32),
    Delete(i32),
}

/// The result of an attempt that ZooKeeper answered.
enum Outcome {
    Done(Option<Revision>),
    /// A node changed since it was read.
    Changed,
    /// The parents of this node are missing.
    Orphan(EntryPath),
}

/// Makes all changes or none. Returns the revision of the entries written.
pub(super) async fn commit(
    client: &Client,
    acls: Acls<'static>,
    changes: &[Change],
    again: bool,
) -> Result<Option<Revision>, Failure> {
    let mut synced = false;
    let mut conflict = &changes[0];
    for _ in 0..ROUNDS_MAX {
        let stats = read_stats(client, changes).await?;
        if again && let Some(revision) = done_before(client, changes, &stats).await? {
            return Ok(revision);
        }
        let mut steps = Vec::new();
        for (change, stat) in changes.iter().zip(&stats) {
            match step(change, stat.as_ref()) {
                Some(step) => steps.push((node_of(change.path()), step)),
                None => {
                    conflict = change;
                    break;
                }
            }
        }
        if steps.len() < changes.len() {
            // This server may be behind the server that the caller's revision comes from.
            if synced {
                break;
            }
            client.sync("/").await?;
            synced = true;
            continue;
        }
        let outcome = match &steps[..] {
            [(node, step)] => act(client, acls, node, step, changes[0].path()).await?,
            _ => act_at_once(client, acls, &steps, changes).await?,
        };
        match outcome {
            Outcome::Done(revision) => return Ok(revision),
            Outcome::Changed => {}
            Outcome::Orphan(path) => make_parents(client, acls, &path).await?,
        }
    }
    Err(Failure::conflict(conflict.path()))
}

/// Creates an ephemeral entry of this session.
pub(super) async fn create_ephemeral(
    client: &Client,
    acls: Acls<'static>,
    path: &EntryPath,
    bytes: &[u8],
    again: bool,
) -> Result<Revision, Failure> {
    let node = node_of(path);
    let options = CreateMode::Ephemeral.with_acls(acls);
    for _ in 0..ROUNDS_MAX {
        match client.create(&node, bytes, &options).await {
            Ok((stat, _)) => return Ok(revision_of(stat.mzxid)),
            Err(Error::NoNode) => make_parents(client, acls, path).await?,
            Err(Error::NodeExists) => match client.get_data(&node).await {
                Ok((found, stat)) if again && found == bytes && stat.ephemeral_owner == client.session_id().0 => {
                    return Ok(revision_of(stat.mzxid));
                }
                // A parent without children is not an entry.
                Ok((found, stat)) if found.is_empty() && stat.num_children == 0 => {
                    match client.delete(&node, Some(stat.version)).await {
                        Ok(()) | Err(Error::NoNode | Error::BadVersion | Error::NotEmpty) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(_) => break,
                Err(Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(Failure::making(path)(error)),
        }
    }
    Err(Failure::conflict(path))
}

/// Reads the current state of the nodes, with all requests sent at once.
async fn read_stats(client: &Client, changes: &[Change]) -> Result<Vec<Option<Stat>>, Error> {
    let asked: Vec<_> = changes
        .iter()
        .map(|change| client.check_stat(&node_of(change.path())))
        .collect();
    let mut stats = Vec::new();
    for stat in asked {
        stats.push(stat.await?);
    }
    Ok(stats)
}

/// The operation for a change; `None` if its entry is not at the expected revision.
fn step<'a>(change: &'a Change, stat: Option<&Stat>) -> Option<Step<'a>> {
    let entry = stat.filter(|stat| stat.data_length > 0);
    if entry.map(|stat| revision_of(stat.mzxid)) != change.expected() {
        return None;
    }
    match (change, stat) {
        (Change::Write { bytes, .. }, None) => Some(Step::Create(bytes)),
        (Change::Write { bytes, .. }, Some(stat)) => Some(Step::Set(bytes, stat.version)),
        (Change::Check { .. }, Some(stat)) => Some(Step::Check(stat.version)),
        (Change::Delete { .. }, Some(stat)) if stat.num_children > 0 => Some(Step::Set(&[], stat.version)),
        (Change::Delete { .. }, Some(stat)) => Some(Step::Delete(stat.version)),
        (Change::Check { .. } | Change::Delete { .. }, None) => None,
    }
}

async fn act(
    client: &Client,
    acls: Acls<'static>,
    node: &str,
    step: &Step<'_>,
    path: &EntryPath,
) -> Result<Outcome, Failure> {
    let result = match step {
        Step::Check(_) => return Ok(Outcome::Done(None)),
        Step::Create(bytes) => {
            let made = client
                .create(node, bytes, &CreateMode::Persistent.with_acls(acls))
                .await;
            made.map(|(stat, _)| Some(stat))
        }
        Step::Set(bytes, version) => client.set_data(node, bytes, Some(*version)).await.map(Some),
        Step::Delete(version) => client.delete(node, Some(*version)).await.map(|()| None),
    };
    match result {
        Ok(stat) => Ok(Outcome::Done(stat.map(|stat| revision_of(stat.mzxid)))),
        Err(error) => failed(error, step, path),
    }
}

async fn act_at_once(
    client: &Client,
    acls: Acls<'static>,
    steps: &[(String, Step<'_>)],
    changes: &[Change],
) -> Result<Outcome, Failure> {
    let mut writer = client.new_multi_writer();
    for (node, step) in steps {
        match step {
            Step::Check(version) => writer.add_check_version(node, *version)?,
            Step::Create(bytes) => writer.add_create(node, bytes, &CreateMode::Persistent.with_acls(acls))?,
            Step::Set(bytes, version) => writer.add_set_data(node, bytes, Some(*version))?,
            Step::Delete(version) => writer.add_delete(node, Some(*version))?,
        }
    }
    let results = match writer.commit().await {
        Ok(results) => results,
        Err(MultiWriteError::RequestFailed { source }) => return Err(source.into()),
        Err(MultiWriteError::OperationFailed { index, source }) => {
            return failed(source, &steps[index].1, changes[index].path());
        }
    };
    for (result, (node, _)) in results.iter().zip(steps) {
        let stat = match result {
            MultiWriteResult::SetData { stat } => *stat,
            MultiWriteResult::Create { stat, .. } if !stat.is_invalid() => *stat,
            // Some servers do not return it here. A node that was written in the meantime still has its first revision.
            MultiWriteResult::Create { .. } => match client.check_stat(node).await? {
                Some(stat) => return Ok(Outcome::Done(Some(revision_of(stat.czxid)))),
                None => continue,
            },
            _ => continue,
        };
        return Ok(Outcome::Done(Some(revision_of(stat.mzxid))));
    }
    Ok(Outcome::Done(None))
}

fn failed(error: Error, step: &Step<'_>, path: &EntryPath) -> Result<Outcome, Failure> {
    match (error, step) {
        (Error::NoNode, Step::Create(_)) => Ok(Outcome::Orphan(path.clone())),
        (Error::NoNode | Error::BadVersion | Error::NodeExists | Error::NotEmpty, _) => Ok(Outcome::Changed),
        (error, _) => Err(Failure::making(path)(error)),
    }
}

/// Whether the changes of an earlier attempt were made, and their revision.
async fn done_before(
    client: &Client,
    changes: &[Change],
    stats: &[Option<Stat>],
) -> Result<Option<Option<Revision>>, Error> {
    let mut revisions = Vec::new();
    let mut deleted = false;
    for (change, stat) in changes.iter().zip(stats) {
        match change {
            Change::Check { .. } => {}
            Change::Delete { .. } if stat.is_none_or(|stat| stat.data_length == 0) => deleted = true,
            Change::Delete { .. } => return Ok(None),
            Change::Write { path, bytes, expected } => match client.get_data(&node_of(path)).await {
                Ok((found, stat)) if found == *bytes && Some(revision_of(stat.mzxid)) > *expected => {
                    revisions.push(revision_of(stat.mzxid));
                }
                Ok(_) | Err(Error::NoNode) => return Ok(None),
                Err(error) => return Err(error),
            },
        }
    }
    // One transaction gives one revision.
    let are_one = revisions.windows(2).all(|pair| pair[0] == pair[1]);
    let any = deleted || !revisions.is_empty();
    Ok((any && are_one).then(|| revisions.first().copied()))
}

async fn make_parents(client: &Client, acls: Acls<'static>, path: &EntryPath) -> Result<(), Failure> {
    let Some(parent) = path.parent() else {
        // The root itself is missing: it was deleted. It is created again at the next connection.
        return Err(Failure::ZooKeeper(Error::NoNode));
    };
    let made = client
        .mkdir(&node_of(&parent), &CreateMode::Persistent.with_acls(acls))
        .await;
    made.map_err(Failure::making(path))
}
