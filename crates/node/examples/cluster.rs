//! Nodes and a router in one process, to try clients on and to measure: no control plane, so that nothing
//! ever changes.
//!
//! ```text
//! cargo run --release -p fondaco-node --example cluster -- NODES REPLICAS KEYS VALUE_BYTES
//! redis-benchmark -p PORT -n 1000000 -r KEYS -P 16 GET pymk:__rand_int__
//! ```
//!
//! Prints where each listens, and ends when its input does.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use fondaco_format::{Compression, MANIFEST_FILE, Manifest, Version};
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{Identity, NodeId, PartitionCount, StoreKind, VersionNumber};
use fondaco_node::{
    BufferBudget, Catalog, Member, Membership, NodeMetrics, PeerAccess, Server, ServerConfig, Serving, ServingStore,
    Settings, SharedCatalog, StoreId,
};

#[path = "../../format/tests/written/mod.rs"]
mod written;

const PARTITIONS: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|word| word.parse())
        .collect::<Result<_, _>>()?;
    let [nodes, replicas, keys, value_bytes] = numbers.try_into().unwrap_or([3, 2, 100_000, 100]);
    let dir = tempfile::tempdir()?;
    let whole = dir.path().join("whole");
    std::fs::create_dir(&whole)?;
    let records: BTreeMap<_, _> = (0..keys)
        .map(|n| (format!("{n:012}").into_bytes(), vec![b'v'; value_bytes]))
        .collect();
    let shape = written::Shape {
        partitions: PARTITIONS,
        chunks: 1,
        compression: Compression::None,
    };
    written::write(&whole, &records, &shape);
    drop(records);

    let ids: Vec<NodeId> = (1..).take(nodes).filter_map(NodeId::new).collect();
    let members = ids.iter().copied().map(Member::Node);
    let members = members.chain([Member::Router(Identity::of(1))]);
    let servers = members.map(|member| Ok((start()?, member)));
    let servers: Vec<_> = servers.collect::<Result<_, Box<dyn Error>>>()?;
    let topology = Arc::new(Topology {
        cluster: Identity::of(7),
        revision: 1,
        epoch: 1,
        partitions: PartitionCount::try_from(PARTITIONS)?,
        owners: (0..PARTITIONS as usize)
            .map(|partition| (0..replicas).map(|at| ids[(partition + at) % nodes]).collect())
            .collect(),
        joint: BTreeMap::new(),
        nodes: ids
            .iter()
            .zip(&servers)
            .map(|(&id, ((server, _), _))| {
                let node = TopologyNode {
                    revision: 1,
                    resp: server.address().to_string(),
                    http: server.address().to_string(),
                    zone: String::new(),
                    group: None,
                    live: true,
                    resting: false,
                };
                (id, node)
            })
            .collect(),
        routers: vec!["127.0.0.1:6400".into()],
        protocol: 1,
        stores: BTreeMap::from([(
            "pymk".parse()?,
            TopologyStore {
                revision: 1,
                id: 1,
                kind: StoreKind::Batch,
                current: Some(VersionNumber::FIRST),
                records: keys as u64,
                replicas: replicas as u32,
                late: BTreeSet::new(),
                read_keys_per_second: None,
                fan_out: None,
                value_type: Default::default(),
                versioned: None,
            },
        )]),
    });
    for ((server, catalog), member) in &servers {
        let stores = match member {
            Member::Node(id) => vec![store(&whole, &dir.path().join(id.to_string()), *id, &topology)?],
            Member::Router(_) => Vec::new(),
        };
        let membership = Membership::new(Arc::clone(&topology), member.clone());
        catalog.publish(Catalog::new(stores).in_cluster(Arc::new(membership)));
        println!("{member:?} at {}", server.address());
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn start() -> Result<(Server, Arc<SharedCatalog>), Box<dyn Error>> {
    let catalog = Arc::new(SharedCatalog::new());
    let config = ServerConfig {
        listen: "127.0.0.1:0".parse()?,
        advertised: None,
        loops: 1,
        tls: None,
        access: Arc::default(),
        replicas: None,
        peers: PeerAccess::default(),
        buffers: BufferBudget::new(1 << 30),
        http: None,
        default_store: None,
        program_version: env!("CARGO_PKG_VERSION"),
    };
    let metrics = Arc::new(NodeMetrics::new(config.loops));
    let server = Server::start(config, Arc::clone(&catalog), Arc::new(Settings::default()), metrics)?;
    Ok((server, catalog))
}

/// The partitions of a version that a node owns, opened.
fn store(whole: &Path, own: &Path, id: NodeId, topology: &Topology) -> Result<ServingStore, Box<dyn Error>> {
    std::fs::create_dir(own)?;
    let manifest = Manifest::read(whole)?;
    std::fs::copy(whole.join(MANIFEST_FILE), own.join(MANIFEST_FILE))?;
    for chunk in &manifest.chunks {
        if topology.owners[chunk.partition.get() as usize].contains(&id) {
            for file in chunk.files() {
                std::fs::hard_link(whole.join(&file.name), own.join(&file.name))?;
            }
        }
    }
    let version = Version::open(own)?;
    version.warm()?;
    Ok(ServingStore {
        name: manifest.store,
        id: StoreId::new(1).ok_or("numbers of stores begin at 1")?,
        kind: StoreKind::Batch,
        serving: Serving::Version(VersionNumber::FIRST, Arc::new(version)),
        others: Vec::new(),
        overlays: Default::default(),
    })
}
