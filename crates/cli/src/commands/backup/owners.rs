//! Which nodes hold which partitions, and how they are asked.
//!
//! It is looked up once. A backup that was made while partitions moved could lack what moved: so none is begun
//! then, and none is finished if the routing table is another one in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use fondaco_control::http::{NodeList, RoutingResource, VersionedResource};
use fondaco_model::{PartitionCount, StoreName};

use crate::arguments::ControlPort;
use crate::client::{Client, is_refused};
use crate::commands::build::partition_count;

/// How often a node that is busy, or does not know yet, is asked.
const ATTEMPTS_MAX: u32 = 40;

/// The time between these.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(250);

/// Who holds what of a store.
pub struct Owners {
    /// How many partitions there are.
    pub count: PartitionCount,
    /// The owners of each partition, in the order of preference.
    lists: Vec<Vec<u32>>,
    epoch: u64,
    /// The nodes that are there.
    live: BTreeMap<u32, Client>,
}

impl Owners {
    /// Looks them up, for a store with so many replicas.
    pub fn look_up(port: &ControlPort, client: &Client, replicas: u32) -> anyhow::Result<Self> {
        let routing: RoutingResource = client.get("/v1/routing")?;
        if routing.next.is_some() {
            bail!(
                "partitions are being moved: wait until fondaco rebalance status says that they are, and start again"
            );
        }
        let nodes: NodeList = client.get("/v1/nodes")?;
        let mut live = BTreeMap::new();
        for node in nodes.nodes.into_iter().filter(|node| node.live) {
            let http = match port.http.starts_with("https://") {
                true => format!("https://{}", node.http),
                false => node.http,
            };
            let theirs = ControlPort { http, ..port.clone() };
            live.insert(node.node, Client::new(&theirs)?);
        }
        let mut lists = routing.owners;
        lists.iter_mut().for_each(|list| list.truncate(replicas as usize));
        Ok(Self {
            count: partition_count(routing.partitions)?,
            lists,
            epoch: routing.epoch,
            live,
        })
    }

    /// Whether the routing table is still the same.
    pub fn check_unchanged(&self, client: &Client) -> anyhow::Result<()> {
        let routing: RoutingResource = client.get("/v1/routing")?;
        if routing.epoch != self.epoch || routing.next.is_some() {
            bail!("partitions were moved meanwhile, and some records may be missing: start again");
        }
        Ok(())
    }

    /// The owners of a partition that are there.
    pub fn live_of(&self, partition: usize) -> impl Iterator<Item = (u32, &Client)> {
        let list = self.lists.get(partition).into_iter().flatten();
        list.filter_map(|node| Some((*node, self.live.get(node)?)))
    }

    /// A node that is there.
    pub fn client_of(&self, node: u32) -> Option<&Client> {
        self.live.get(&node)
    }

    /// How many replicas have to be read so that one of them has any write that so many of them acknowledged.
    pub fn reads_for(&self, partition: usize, writes: u32) -> usize {
        let owners = self.lists.get(partition).map_or(0, Vec::len);
        (owners + 1).saturating_sub(writes as usize).max(1)
    }

    /// Whether of each partition as many owners are there as it takes.
    pub fn check_live(&self, needed: impl Fn(usize) -> usize) -> anyhow::Result<()> {
        for (partition, list) in self.lists.iter().enumerate() {
            let (live, needed) = (self.live_of(partition).count(), needed(partition));
            if live < needed {
                let absent = list.iter().filter(|node| !self.live.contains_key(node));
                let absent: Vec<String> = absent.map(u32::to_string).collect();
                bail!(
                    "partition {partition} needs {needed} of its owners and {live} are there: start node {}",
                    absent.join(", ")
                );
            }
        }
        Ok(())
    }
}

/// The replicas and the settings of a versioned store; `None` if there is no such store.
pub fn settings_of(client: &Client, name: &StoreName) -> anyhow::Result<Option<(u32, VersionedResource)>> {
    let Some(store) = client.store(name)? else {
        return Ok(None);
    };
    match store.versioned {
        Some(settings) => Ok(Some((store.replicas, settings))),
        None => bail!("store {name:?} is not versioned: keep what its versions were built from, and push that again"),
    }
}

/// Asks a node, again and again while it says that it is busy or does not know the store yet.
pub fn patiently<T>(ask: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut attempt = 1;
    loop {
        match ask() {
            Err(error) if attempt < ATTEMPTS_MAX && is_passing(&error) => {
                attempt += 1;
                std::thread::sleep(ATTEMPT_INTERVAL);
            }
            answer => return answer,
        }
    }
}

fn is_passing(error: &anyhow::Error) -> bool {
    ["overloaded", "unavailable", "store_not_found"]
        .iter()
        .any(|code| is_refused(error, code))
}
